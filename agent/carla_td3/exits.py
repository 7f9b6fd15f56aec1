"""The agent's exit code for each error, and which errors mean that memory ran out."""

from __future__ import annotations

import errno

from carla_run.events import MemoryPool
from carla_run.exits import Exit, ExitError
from carla_run.memory import errors
from carla_run.memory.errors import FULL, DeviceIsFull, never_full
from carla_td3 import output_folders


class AgentError(ExitError):
    """An error that ends the agent with a sentence. It carries the exit code, and the memory that ran out if any."""

    def __init__(self, sentence: str, code: Exit, pool: MemoryPool | None = None) -> None:
        super().__init__(sentence, code)
        self.pool = pool


MEMORY = (MemoryPool.DEVICE, MemoryPool.HOST)
"""Pools of which less can be asked for; of a disk it can't."""


def exhausted_pool(error: BaseException, device_is_full: DeviceIsFull = never_full) -> MemoryPool | None:
    """Return which memory ran out, of the forms that this takes (facts.md section 3); None if none did."""
    return error.pool if isinstance(error, AgentError) else errors.exhausted_pool(error, device_is_full)


def is_out_of_memory(error: BaseException, device_is_full: DeviceIsFull = never_full) -> bool:
    """Return whether an error without a sentence for people means that memory of device or host ran out."""
    pool = None if isinstance(error, AgentError) else exhausted_pool(error, device_is_full)
    return pool in MEMORY


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
        return output_folders.refusal(error)
    return str(error)


def _is_of_a_place(error: OSError) -> bool:
    """Return whether a place refuses what must be written, or fails; a process or a device refuses without a name."""
    return error.errno in FULL | output_folders.FAILING | {errno.EROFS, errno.ENAMETOOLONG} or (
        error.errno in output_folders.FORBIDDEN and error.filename is not None
    )
