"""Exit codes of agent and launcher, and the base of the errors that end a program with a sentence and a code."""

from __future__ import annotations

from enum import IntEnum


class Exit(IntEnum):
    """What an exit code says. The launcher passes the agent's on."""

    FINISHED = 0
    CRASH = 1
    USAGE = 2
    BAD_CONFIG = 65
    NO_SIMULATOR = 69
    BUDGET_SPENT = 70
    """The launcher's restarts are used up."""
    OUT_OF_MEMORY = 71
    """It can't fit, and nothing was allocated; or it ran out."""
    STOPPED = 75
    INTERRUPTED = 130
    """Ctrl-C where nothing is to be kept, or a second one: no checkpoint of the last minutes (128 + SIGINT)."""


class ExitError(Exception):
    """Something a person must know: one sentence, and the exit code that goes with it, by class or by instance."""

    code: Exit = Exit.CRASH

    def __init__(self, sentence: str, code: Exit | None = None) -> None:
        super().__init__(sentence)
        if code is not None:
            self.code = code


def exit_in_words(code: int) -> str:
    """Return ``exit code 3`` or ``signal 9``."""
    return f"signal {code - 128}" if 128 < code < 193 else f"exit code {code}"
