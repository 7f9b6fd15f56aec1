"""How far something of CARLA's is supported: said where it is declared, and collected by ``coverage``."""

from __future__ import annotations

from enum import Enum
from typing import NamedTuple


class Status(str, Enum):
    """How far a call, a blueprint or an attribute does what it does in CARLA."""

    WORKS = "works"
    APPROXIMATED = "approximated"
    WITHOUT_EFFECT = "without effect"
    """Accepted, so that programs run on, and then nothing changes."""
    REFUSED = "refused"
    """Answered by an error whose sentence is the reason."""
    ABSENT = "absent"


class Support(NamedTuple):
    """A status, and for all but ``WORKS`` how it is approximated or why it isn't supported: a plain clause."""

    status: Status
    how: str = ""


WORKS = Support(Status.WORKS)


def approximated(how: str) -> Support:
    """Return the support of what differs from CARLA's."""
    return Support(Status.APPROXIMATED, how)


def without_effect(why: str) -> Support:
    """Return the support of what is accepted and changes nothing."""
    return Support(Status.WITHOUT_EFFECT, why)


def refused(why: str) -> Support:
    """Return the support of what is answered by an error."""
    return Support(Status.REFUSED, why)
