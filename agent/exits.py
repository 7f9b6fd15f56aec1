"""Which exit code an error of the agent ends it with, and which errors are memory that ran out."""

from __future__ import annotations

import errno
import re
from collections.abc import Callable

from agent import places
from contract.exits import Exit, ExitError


class AgentError(ExitError):
    """What ends the agent with a sentence; the code is said where it is raised."""

    def __init__(self, sentence: str, code: Exit) -> None:
        super().__init__(sentence, code)


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
    if (
        any(each.__name__ == "OutOfMemoryError" for each in type(error).__mro__)
        or _OUT_OF_MEMORY.search(str(error)) is not None
    ):
        return True
    return _PERHAPS_OUT_OF_MEMORY.search(str(error)) is not None and device_is_full()


def exit_code(error: BaseException, device_is_full: DeviceIsFull = never_full) -> Exit | None:
    """Return the exit code of an error whose message is for a person; None for a mistake of ours."""
    if isinstance(error, ExitError):
        return error.code
    if is_out_of_memory(error, device_is_full):
        return Exit.OUT_OF_MEMORY
    return Exit.BAD_CONFIG if isinstance(error, OSError) and _is_of_a_place(error) else None


def sentence(error: BaseException) -> str:
    """Return what a person reads of an error that :func:`exit_code` knows."""
    return places.refusal(error) if isinstance(error, OSError) else str(error)


def _is_of_a_place(error: OSError) -> bool:
    """Return whether a place refuses what must be written; a process or a device refuses without a file's name."""
    return error.errno in places.FULL | {errno.EROFS} or (
        error.errno in places.FORBIDDEN and error.filename is not None
    )
