"""One launcher a GPU: the lock by which launchers of all users leave a card to the one that plans with its memory."""

from __future__ import annotations

import os
import time
from pathlib import Path

import psutil

from carla_run.exits import Exit, ExitError
from carla_run.locks import HeldError, Lock

SHARED = Path("/tmp")  # not TMPDIR or XDG_RUNTIME_DIR: each user has their own

WAY_ON = "wait for its end, go on beside it with --share-gpu, or use --device cpu with a simulator that needs no GPU"


class GpuInUseError(ExitError):
    """Another launcher holds this GPU; the message is one sentence for a person."""

    code = Exit.BAD_CONFIG


def lock_gpu(uuid: str, run: str, directory: Path = SHARED) -> Lock:
    """Take the right to plan with a GPU's memory, which every user's launcher respects; return it.

    Process shims of the run's programs inherit its descriptor: the GPU of a launcher that was killed stays taken until
    they have gone, too. Cleaners of temporary files leave a locked file alone (tmpfiles.d(5), "Age").

    Args:
        uuid: the GPU's; its index may differ between programs.
        run: named to the launcher that finds it taken.

    Raises:
        GpuInUseError: another launcher has it, or the file in the shared directory can't be opened.
    """
    path = directory / f"carla-td3-{uuid}.lock"
    try:
        return Lock(path, f"process {os.getpid()} of {psutil.Process().username()}, run {run}", of_all_users=True)
    except HeldError as error:
        raise GpuInUseError(f"GPU {uuid} is held by {_holder(error)}: {WAY_ON}.") from None
    except OSError as error:
        raise GpuInUseError(
            f"{path}, the lock of GPU {uuid}, can't be opened ({error.strerror}): remove it if no launcher runs, "
            "or have its owner do so; or go on without it with --share-gpu."
        ) from None


def _holder(held: HeldError) -> str:
    """Return who holds a lock by the kernel's word; what the file says counts only if it is that process's own.

    Any user can hold the lock, and write into its file.
    """
    try:
        process = psutil.Process(held.pid or 0)
        age_min, user, program = (time.time() - process.create_time()) / 60, process.username(), process.name()
    except psutil.Error:  # it is in another container, or has ended and left the lock to its shims
        return f"another launcher ({held.holder})"
    _, _, run = held.holder.partition(", run ")
    whose = f"process {held.pid} of {user}, {''.join(filter(str.isprintable, program))}, {age_min:.0f} min old"
    if run and held.holder.startswith(f"process {held.pid} of "):
        return f"another launcher ({whose}, run {run})"
    return f"a process that doesn't call itself a launcher ({whose})"
