"""The agent's exit codes, and the errors that end it with a sentence instead of a traceback.

Owns the numbers that the launcher and Compose read (DESIGN.md, "What passes between the rooms"). Decides
nothing: whoever meets the problem raises the error, whoever owns the process turns it into the code.
"""

from __future__ import annotations

import errno
import re
from enum import IntEnum

from agent import places


class Exit(IntEnum):
    """What the agent's exit code says."""

    FINISHED = 0
    CRASH = 1
    USAGE = 2
    BAD_CONFIG = 65
    NO_SIMULATOR = 69
    OUT_OF_MEMORY = 71
    """It can't fit, and nothing was allocated (event ``cannot_fit``); or it ran out (event ``out_of_memory``)."""
    STOPPED = 75
    INTERRUPTED = 130
    """A second Ctrl-C: ended at once, no checkpoint of the last minutes (128 + SIGINT)."""


class AgentError(Exception):
    """Something a person must know: one sentence, and the exit code that goes with it."""

    def __init__(self, sentence: str, code: Exit) -> None:
        super().__init__(sentence)
        self.code = code


_BAD_CONFIG = frozenset({"ConfigError", "CheckpointError", "ReplayError", "RouteError", "WeightsError"})
_NO_SIMULATOR = frozenset({"NoSimulator", "BlockedStart"})
_OUT_OF_MEMORY = re.compile(
    r"CUDA (driver )?(error: )?out of memory"
    r"|CU(BLAS|DNN)_STATUS_ALLOC_FAILED|CUDNN_STATUS_INTERNAL_ERROR_(HOST|DEVICE)_ALLOCATION_FAILED"
    r"|DefaultCPUAllocator: (can't allocate|not enough) memory|std::bad_alloc"
    r"|could not (create|execute) a primitive$"  # oneDNN: no room for its code or scratch (seen under RLIMIT_AS)
)


def is_out_of_memory(error: BaseException) -> bool:
    """Return whether the error is one of the forms that exhausted memory takes (facts.md section 3)."""
    if isinstance(error, MemoryError):
        return True
    # torch's own class by its name, whatever it says: cudaMallocAsync words it differently.
    named = type(error).__name__ == "OutOfMemoryError"
    return isinstance(error, RuntimeError) and (named or _OUT_OF_MEMORY.search(str(error)) is not None)


def exit_code(error: BaseException) -> Exit | None:
    """Return the exit code of an error whose message is for a person; None for a mistake of ours.

    The rooms' own errors are known by name: importing them would bring torch, or the client, into every process.
    """
    if isinstance(error, AgentError):
        return error.code
    if is_out_of_memory(error):
        return Exit.OUT_OF_MEMORY
    name = type(error).__name__
    if name in _BAD_CONFIG or (isinstance(error, OSError) and _is_of_a_place(error)):
        return Exit.BAD_CONFIG
    return Exit.NO_SIMULATOR if name in _NO_SIMULATOR else None


def sentence(error: BaseException) -> str:
    """Return what a person reads of an error that :func:`exit_code` knows."""
    return places.refusal(error) if isinstance(error, OSError) else str(error)


def _is_of_a_place(error: OSError) -> bool:
    """Return whether a place refuses what must be written; a process or a device refuses without a file's name."""
    return error.errno in places.FULL | {errno.EROFS} or (
        error.errno in places.FORBIDDEN and error.filename is not None
    )
