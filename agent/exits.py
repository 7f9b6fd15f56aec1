"""The agent's exit codes, and the errors that end it with a sentence instead of a traceback.

Owns the numbers that the launcher and Compose read (DESIGN.md, "What passes between the rooms"). Decides
nothing: whoever meets the problem raises the error, whoever owns the process turns it into the code.
"""

from __future__ import annotations

import errno
import re
from collections.abc import Callable
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
# What a nearly full card says, and a broken one: a library's handle or workspace can't be had (facts.md section 3).
_PERHAPS_OUT_OF_MEMORY = re.compile(
    r"CU(BLAS|DNN)_STATUS_NOT_INITIALIZED|CUDNN_STATUS_INTERNAL_ERROR\b|unable to find an engine"
)

DeviceIsFull = Callable[[], bool]
"""Says, now, whether a device has less free than is kept in reserve."""


def never_full() -> bool:
    """Say no: for where nobody computes on a device."""
    return False


def is_out_of_memory(error: BaseException, device_is_full: DeviceIsFull = never_full) -> bool:
    """Return whether the error is one of the forms that exhausted memory takes (facts.md section 3).

    Args:
        error: as it was caught.
        device_is_full: asked only about the forms that a broken card has in common with a full one.
    """
    if isinstance(error, MemoryError):
        return True
    if not isinstance(error, RuntimeError):
        return False
    # torch's own class by its name, whatever it says: cudaMallocAsync words it differently.
    if "OutOfMemoryError" in _names(error) or _OUT_OF_MEMORY.search(str(error)) is not None:
        return True
    return _PERHAPS_OUT_OF_MEMORY.search(str(error)) is not None and device_is_full()


def exit_code(error: BaseException, device_is_full: DeviceIsFull = never_full) -> Exit | None:
    """Return the exit code of an error whose message is for a person; None for a mistake of ours.

    The rooms' own errors are known by name: importing them would bring torch, or the client, into every process.
    """
    if isinstance(error, AgentError):
        return error.code
    if is_out_of_memory(error, device_is_full):
        return Exit.OUT_OF_MEMORY
    names = _names(error)
    if names & _BAD_CONFIG or (isinstance(error, OSError) and _is_of_a_place(error)):
        return Exit.BAD_CONFIG
    return Exit.NO_SIMULATOR if names & _NO_SIMULATOR else None


def _names(error: BaseException) -> set[str]:
    """Return the names of an error's class and of all that it is made from."""
    return {each.__name__ for each in type(error).__mro__}


def sentence(error: BaseException) -> str:
    """Return what a person reads of an error that :func:`exit_code` knows."""
    return places.refusal(error) if isinstance(error, OSError) else str(error)


def _is_of_a_place(error: OSError) -> bool:
    """Return whether a place refuses what must be written; a process or a device refuses without a file's name."""
    return error.errno in places.FULL | {errno.EROFS} or (
        error.errno in places.FORBIDDEN and error.filename is not None
    )
