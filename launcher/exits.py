"""How a run ends: the launcher's exit codes (DESIGN.md), and the sentence that goes with one."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum


class Exit(IntEnum):
    """The launcher's own exit codes; the agent's pass through."""

    FINISHED = 0
    USAGE = 2
    CONFIGURATION = 65
    NO_SIMULATOR = 69
    BUDGET_SPENT = 70
    CANNOT_FIT = 71
    STOPPED = 75


@dataclass(frozen=True)
class Ending:
    """The run ends: the launcher's exit code, and why, as a sentence without its full stop."""

    code: int
    reason: str


def exit_in_words(code: int) -> str:
    """Return ``exit code 3`` or ``signal 9``."""
    return f"signal {code - 128}" if 128 < code < 193 else f"exit code {code}"
