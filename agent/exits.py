"""Which exit code an error of the agent ends it with, and which errors are memory that ran out."""

from __future__ import annotations

import errno
import re
from collections.abc import Callable

from agent import places
from contract.events import MemoryPool
from contract.exits import Exit, ExitError


class AgentError(ExitError):
    """What ends the agent with a sentence; the code, and which pool ran out, are said where it is raised."""

    def __init__(self, sentence: str, code: Exit, pool: MemoryPool | None = None) -> None:
        super().__init__(sentence, code)
        self.pool = pool


# PyTorch's words, read nowhere else: it has one class for most of its errors.
_HOST = re.compile(
    r"DefaultCPUAllocator: (can't allocate|not enough) memory|std::bad_alloc|_HOST_ALLOCATION_FAILED"
    r"|could not (create|execute) a primitive$"  # oneDNN: no room for its code or scratch (seen under RLIMIT_AS)
)
_DEVICE = re.compile(
    r"CUDA (driver )?(error: )?out of memory|Error 2: out of memory"  # the second: cudaGetDeviceCount's
    r"|CU(BLAS|DNN)_STATUS_ALLOC_FAILED|CUDNN_STATUS_INTERNAL_ERROR_DEVICE_ALLOCATION_FAILED"
)
# What a nearly full card says, and a broken one: a library's handle or workspace can't be had (facts.md section 3).
_PERHAPS_DEVICE = re.compile(
    r"CU(BLAS|DNN)_STATUS_NOT_INITIALIZED|CUDNN_STATUS_INTERNAL_ERROR\b|unable to find an engine"
)

DeviceIsFull = Callable[[], bool]
"""Says, now, whether a device has less free than is kept in reserve."""


def never_full() -> bool:
    """Say no: for where nobody computes on a device."""
    return False


def exhausted_pool(error: BaseException, device_is_full: DeviceIsFull = never_full) -> MemoryPool | None:
    """Return which memory ran out, of the forms that this takes (facts.md section 3); None if none did.

    Args:
        error: as it was caught.
        device_is_full: asked only about the forms that a broken card has in common with a full one.
    """
    if isinstance(error, AgentError):
        return error.pool
    if isinstance(error, OSError):
        return MemoryPool.DISK if error.errno in places.FULL else None
    if isinstance(error, MemoryError):
        return MemoryPool.HOST
    return _torchs_pool(error, device_is_full) if isinstance(error, RuntimeError) else None


def _torchs_pool(error: RuntimeError, device_is_full: DeviceIsFull) -> MemoryPool | None:
    if _HOST.search(str(error)):
        return MemoryPool.HOST
    # torch's own class by its name, whatever it says: cudaMallocAsync words it differently.
    if "OutOfMemoryError" in {each.__name__ for each in type(error).__mro__} or _DEVICE.search(str(error)):
        return MemoryPool.DEVICE
    return MemoryPool.DEVICE if _PERHAPS_DEVICE.search(str(error)) and device_is_full() else None


def is_out_of_memory(error: BaseException, device_is_full: DeviceIsFull = never_full) -> bool:
    """Return whether an error that is no sentence yet means that memory of device or host ran out."""
    return not isinstance(error, AgentError | OSError) and exhausted_pool(error, device_is_full) is not None


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
