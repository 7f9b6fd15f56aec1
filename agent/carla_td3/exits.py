"""The agent's exit code for each error, and which errors mean that memory ran out."""

from __future__ import annotations

import errno
from collections.abc import Callable

from carla_run.events import MemoryPool
from carla_run.exits import Exit, ExitError
from carla_run.memory.errors import Meaning, meaning_of
from carla_td3 import places


class AgentError(ExitError):
    """An error that ends the agent with a sentence. It carries the exit code, and the memory that ran out if any."""

    def __init__(self, sentence: str, code: Exit, pool: MemoryPool | None = None) -> None:
        super().__init__(sentence, code)
        self.pool = pool


MEMORY = (MemoryPool.DEVICE, MemoryPool.HOST)
"""Memory that a smaller configuration can relieve; the disk is no such case."""
DeviceIsFull = Callable[[], bool]
"""Returns whether a device now has less free than the reserve."""


def never_full() -> bool:
    """Return False: for code that computes on no device."""
    return False


def exhausted_pool(error: BaseException, device_is_full: DeviceIsFull = never_full) -> MemoryPool | None:
    """Return which memory ran out, in any of its forms (facts.md section 3); None if none did.

    Args:
        error: the caught error.
        device_is_full: called only for errors that a broken GPU and a full one have in common.
    """
    if isinstance(error, AgentError):
        return error.pool
    if isinstance(error, OSError):
        full = MemoryPool.DISK if error.errno in places.FULL else None
        return MemoryPool.HOST if error.errno == errno.ENOMEM else full
    if isinstance(error, MemoryError):
        return MemoryPool.HOST
    return _torchs_pool(error, device_is_full) if isinstance(error, RuntimeError) else None


def _torchs_pool(error: RuntimeError, device_is_full: DeviceIsFull) -> MemoryPool | None:
    # torch's own class by its name: each allocator words its message differently.
    if "OutOfMemoryError" in {each.__name__ for each in type(error).__mro__}:
        return MemoryPool.DEVICE
    meaning = meaning_of(str(error))
    if meaning is Meaning.HOST:
        return MemoryPool.HOST
    is_device = meaning is Meaning.DEVICE or (meaning is Meaning.DEVICE_IF_FULL and device_is_full())
    return MemoryPool.DEVICE if is_device else None


def is_out_of_memory(error: BaseException, device_is_full: DeviceIsFull = never_full) -> bool:
    """Return whether an error without a sentence for people means that memory of device or host ran out."""
    pool = None if isinstance(error, AgentError) else exhausted_pool(error, device_is_full)
    return pool in MEMORY


def gpu_is_lost(error: BaseException) -> bool:
    """Return whether an error says that the driver can't use the GPU any more."""
    return isinstance(error, RuntimeError) and meaning_of(str(error)) is Meaning.GPU_LOST


def exit_code(error: BaseException, device_is_full: DeviceIsFull = never_full) -> Exit | None:
    """Return the exit code of an error whose message is for people; None for a bug."""
    if isinstance(error, ExitError):
        return error.code
    if is_out_of_memory(error, device_is_full):
        return Exit.OUT_OF_MEMORY
    return Exit.BAD_CONFIG if isinstance(error, OSError) and _is_of_a_place(error) else None


def sentence(error: BaseException) -> str:
    """Return the sentence for people of an error that :func:`exit_code` knows."""
    if isinstance(error, OSError) and error.errno != errno.ENOMEM:
        return places.refusal(error)
    return str(error)


def _is_of_a_place(error: OSError) -> bool:
    """Return whether a file can't be written at its place; errors of a process or device have no file name."""
    return error.errno in places.FULL | {errno.EROFS, errno.ENAMETOOLONG} or (
        error.errno in places.FORBIDDEN and error.filename is not None
    )
