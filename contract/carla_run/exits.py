"""Exit codes of agent and launcher, and the base class of errors that end a program with a sentence and a code."""

from __future__ import annotations

import signal
from enum import IntEnum

KILLED, TERMINATED = 128 + signal.SIGKILL, 128 + signal.SIGTERM
"""Exit codes of a program that one of these signals ended."""


class Exit(IntEnum):
    """Exit codes of agent and launcher. The launcher passes the agent's on."""

    FINISHED = 0
    """The run, or the command, is complete."""
    CRASH = 1
    """The program has an error. Every code that isn't listed here means the same."""
    USAGE = 2
    """An option or argument is wrong."""
    BAD_CONFIG = 65
    """The configuration is wrong, a later version wrote the run, or a disk or folder refused a file."""
    NO_SIMULATOR = 69
    """No simulator answered in time, or no drive could start in any simulator."""
    BUDGET_SPENT = 70
    """The launcher's restarts are used up. The agent never returns this code."""
    OUT_OF_MEMORY = 71
    """The run doesn't fit, and nothing was allocated (event ``cannot_fit``); or memory ran out (``out_of_memory``)."""
    STOPPED = 75
    """The program stopped on request, and the run can be resumed."""
    INTERRUPTED = 130
    """Ctrl-C before there was anything to save, or a second Ctrl-C: no checkpoint was written (128 + SIGINT)."""


class ExitError(Exception):
    """An error for the user: one sentence and an exit code, set by class or instance."""

    code: Exit = Exit.CRASH

    def __init__(self, sentence: str, code: Exit | None = None) -> None:
        super().__init__(sentence)
        if code is not None:
            self.code = code


def exit_in_words(code: int) -> str:
    """Return ``exit code 3`` or ``signal 9``."""
    return f"signal {code - 128}" if 128 < code < 193 else f"exit code {code}"
