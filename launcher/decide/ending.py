"""How a run ends."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Ending:
    """The run ends: the launcher's exit code, and why, as a sentence without its full stop."""

    code: int
    reason: str
