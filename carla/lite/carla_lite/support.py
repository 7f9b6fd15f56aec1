"""Support of CARLA's API: declared at each call, blueprint or attribute, and collected by ``coverage``."""

from __future__ import annotations

from enum import Enum
from typing import NamedTuple


class Status(str, Enum):
    """How far a call, a blueprint or an attribute behaves as in CARLA."""

    WORKS = "works"
    APPROXIMATED = "approximated"
    WITHOUT_EFFECT = "without effect"
    """Accepted, so that programs continue, but nothing changes."""
    REFUSED = "refused"
    """Answered by an error whose sentence is the reason."""
    ABSENT = "absent"


class Support(NamedTuple):
    """A status, and for all but ``WORKS`` a clause on how it is approximated or why it isn't supported."""

    status: Status
    how: str = ""


WORKS = Support(Status.WORKS)


def approximated(how: str) -> Support:
    """Return the support of something that differs from CARLA."""
    return Support(Status.APPROXIMATED, how)


def without_effect(why: str) -> Support:
    """Return the support of something that is accepted and changes nothing."""
    return Support(Status.WITHOUT_EFFECT, why)


def refused(why: str) -> Support:
    """Return the support of something that is answered by an error."""
    return Support(Status.REFUSED, why)
