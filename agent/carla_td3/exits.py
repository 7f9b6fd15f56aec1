"""Which exit code an error of the agent ends it with, and which errors are memory that ran out."""

from __future__ import annotations

import errno
from collections.abc import Callable

from carla_run.events import MemoryPool
from carla_run.exits import Exit, ExitError
from carla_run.memory.errors import Meaning, meaning_of
from carla_td3 import places


class AgentError(ExitError):
    """What ends the agent with a sentence; the code, and which pool ran out, are said where it is raised."""

    def __init__(self, sentence: str, code: Exit, pool: MemoryPool | None = None) -> None:
        super().__init__(sentence, code)
        self.pool = pool


MEMORY = (MemoryPool.DEVICE, MemoryPool.HOST)
"""Pools of which less can be asked for; of a disk it can't."""
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
        full = MemoryPool.DISK if error.errno in places.FULL else None
        return MemoryPool.HOST if error.errno == errno.ENOMEM else full
    if isinstance(error, MemoryError):
        return MemoryPool.HOST
    return _torchs_pool(error, device_is_full) if isinstance(error, RuntimeError) else None


def _torchs_pool(error: RuntimeError, device_is_full: DeviceIsFull) -> MemoryPool | None:
    # torch's own class by its name, whatever it says: each allocator words it differently.
    if "OutOfMemoryError" in {each.__name__ for each in type(error).__mro__}:
        return MemoryPool.DEVICE
    meaning = meaning_of(str(error))
    if meaning is Meaning.HOST:
        return MemoryPool.HOST
    is_device = meaning is Meaning.DEVICE or (meaning is Meaning.DEVICE_IF_FULL and device_is_full())
    return MemoryPool.DEVICE if is_device else None


def is_out_of_memory(error: BaseException, device_is_full: DeviceIsFull = never_full) -> bool:
    """Return whether an error that is no sentence yet means that memory of device or host ran out."""
    pool = None if isinstance(error, AgentError) else exhausted_pool(error, device_is_full)
    return pool in MEMORY


def gpu_is_lost(error: BaseException) -> bool:
    """Return whether an error says that the driver can't use the GPU any more."""
    return isinstance(error, RuntimeError) and meaning_of(str(error)) is Meaning.GPU_LOST


def exit_code(error: BaseException, device_is_full: DeviceIsFull = never_full) -> Exit | None:
    """Return the exit code of an error whose message is for a person; None for a mistake of ours."""
    if isinstance(error, ExitError):
        return error.code
    if is_out_of_memory(error, device_is_full):
        return Exit.OUT_OF_MEMORY
    return Exit.BAD_CONFIG if isinstance(error, OSError) and _is_of_a_place(error) else None


def sentence(error: BaseException) -> str:
    """Return what a person reads of an error that :func:`exit_code` knows."""
    if isinstance(error, OSError) and error.errno != errno.ENOMEM:
        return places.refusal(error)
    return str(error)


def _is_of_a_place(error: OSError) -> bool:
    """Return whether a place refuses what must be written; a process or a device refuses without a file's name."""
    return error.errno in places.FULL | {errno.EROFS, errno.ENAMETOOLONG} or (
        error.errno in places.FORBIDDEN and error.filename is not None
    )
