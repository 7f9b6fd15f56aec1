"""A lock per GPU, shared by the launchers of all users: only one launcher plans with a GPU's memory."""

from __future__ import annotations

import os
import time
from pathlib import Path

import psutil

from carla_run.exits import Exit, ExitError
from carla_run.locks import HeldError, Lock

SHARED = Path("/tmp")  # not TMPDIR or XDG_RUNTIME_DIR: each user has their own

ADVICE = "wait until it ends, share the GPU with --share-gpu, or use a simulator without a GPU (agent: --device cpu)"


class GpuInUseError(ExitError):
    """Another launcher holds this GPU. The message is one sentence for the user."""

    code = Exit.BAD_CONFIG


def lock_gpu(uuid: str, run: str, directory: Path = SHARED) -> Lock:
    """Lock a GPU for this launcher and return the lock.

    The process shims of the run's programs inherit the descriptor, so the GPU of a killed launcher stays locked until
    they have ended. Programs that clean up temporary files skip a locked file (tmpfiles.d(5), "Age").

    Args:
        uuid: of the GPU; an index may differ between programs.
        run: name of the run, shown to other launchers.

    Raises:
        GpuInUseError: another launcher holds the lock, or the lock's file can't be opened.
    """
    path = directory / f"carla-td3-{uuid}.lock"
    try:
        return Lock(path, f"process {os.getpid()} of {psutil.Process().username()}, run {run}", of_all_users=True)
    except HeldError as error:
        raise GpuInUseError(f"GPU {uuid} is held by {_holder(error)}: {ADVICE}.") from None
    except OSError as error:
        raise GpuInUseError(
            f"{path}, the lock of GPU {uuid}, can't be opened ({error.strerror}): remove it if no launcher runs, "
            "or ask its owner to; or do without it with --share-gpu."
        ) from None


def _holder(held: HeldError) -> str:
    """Return which process holds a lock, according to the kernel, as text.

    Any user can take the lock and write into its file, so the file counts only if the same process wrote it.
    """
    try:
        process = psutil.Process(held.pid or 0)
        age_min, user, program = (time.time() - process.create_time()) / 60, process.username(), process.name()
    except psutil.Error:  # it is in another container, or has ended while its shims hold the lock
        return f"another launcher ({held.holder})"
    _, _, run = held.holder.partition(", run ")
    whose = f"process {held.pid} of {user}, {''.join(filter(str.isprintable, program))}, {age_min:.0f} min old"
    if run and held.holder.startswith(f"process {held.pid} of "):
        return f"another launcher ({whose}, run {run})"
    return f"a process that doesn't call itself a launcher ({whose})"
