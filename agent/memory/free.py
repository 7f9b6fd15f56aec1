"""What is free: device, host and disk, each read where the kernel or the driver says so.

Owns the readers. What this run holds already counts as free, for the estimate counts it again: compare the two, not
one of them with another program's figure. So does what ``scripts/wait_and_run.sh`` still holds for this run, and gives
back as it grows: the file that MEMORY_HELD_FILE names says how much. Judges nothing.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from agent.layered_yaml import ConfigError
from agent.memory import estimate
from agent.memory.estimate import MIB, Free
from agent.memory.resident import memory_mib

_ASK_ROOM = "import torch; print(*torch.cuda.mem_get_info())"
_ASK_BFLOAT16 = "import torch; print(torch.cuda.is_bf16_supported(including_emulation=False))"
_UNLIMITED = 2**60  # cgroup v1 writes the largest multiple of a page for "no limit"


@dataclass(frozen=True)
class _Controller:
    """Names in one version of control groups. Pages of files are left out of the use: the kernel drops them."""

    limit: str
    counted: tuple[str, ...]


_V1 = _Controller("memory.limit_in_bytes", ("total_rss", "total_shmem"))
_V2 = _Controller("memory.max", ("anon", "shmem", "slab_unreclaimable"))


def read(run: Path, cuda: bool, fraction: float | None) -> Free:
    """Return what a run in this directory could have.

    Args:
        run: the run's directory; its own replay and checkpoints count as free.
        cuda: whether the learner is on a GPU.
        fraction: ``memory.per_process_memory_fraction``.
    """
    return Free(device_bytes(fraction) if cuda else None, host_bytes(), disk_bytes(run), str(run))


def device_bytes(fraction: float | None) -> int:
    """Return the GPU's free bytes, under the cap if there is one.

    Raises:
        ConfigError: CUDA doesn't work, in its own words.
    """
    told = _told_by_gpu(_ASK_ROOM)
    if told is None:
        return 0  # not even for a context
    free, total = map(int, told.split())
    return device_room(free + held_for_us_bytes(cuda=True), total, fraction)


def device_room(free: int, total: int, fraction: float | None) -> int:
    """Return what a run could have of a device, its context included.

    The context counts here by the same figure as in the estimate. So whether a run fits doesn't depend on that figure:
    what is compared is what comes beside a context with what is free beside one.

    Args:
        free, total: bytes, read while a context was there, which its process has given back.
        fraction: of the device, the most that PyTorch's allocator takes; None for all of it.
    """
    beside = free if fraction is None else min(free, int(fraction * total))
    return beside + estimate.CUDA_CONTEXT


def device_has_bfloat16() -> bool:
    """Return whether the GPU computes in bfloat16 itself; false where it hasn't even room for a context.

    Raises:
        ConfigError: CUDA doesn't work, in its own words.
    """
    return _told_by_gpu(_ASK_BFLOAT16) == "True"


def _told_by_gpu(program: str) -> str | None:
    """Return what a program of its own prints about the GPU; None where that is too full for the program's context.

    A context keeps its 300 to 600 MiB until its process ends, and this one may yet decide for the CPU, for the very
    reason that they aren't there.
    """
    asked = subprocess.run([sys.executable, "-c", program], check=False, capture_output=True, text=True)
    if asked.returncode == 0:
        return asked.stdout.strip()
    said = (asked.stderr.strip().splitlines() or [f"exit {asked.returncode}"])[-1]
    if "out of memory" in said:
        return None
    raise ConfigError(f"The GPU can't be read ({said}): mend CUDA, or use --device cpu.")


def device_is_full(reserve_mib: float) -> bool:
    """Return whether the device that this process computes on has less free than the reserve, now; False without one.

    A device that can't be asked any more is broken, not full.
    """
    torch = sys.modules.get("torch")  # who hasn't imported it computes on no device
    if torch is None or not torch.cuda.is_initialized():
        return False
    try:
        free, _ = torch.cuda.mem_get_info()
    except RuntimeError:
        return False
    return bool(free < reserve_mib * MIB)


def host_bytes(proc: Path = Path("/proc")) -> int | None:
    """Return the free bytes of RAM: the least of the machine's and of each control group's above this process."""
    own = int((memory_mib(os.getpid()) or 0) * MIB)
    rooms = [*_machine_room(proc), *_cgroup_rooms(proc)]
    return max(0, min(rooms)) + own + held_for_us_bytes(cuda=False) if rooms else None


def held_for_us_bytes(cuda: bool) -> int:
    """Return what is held for this run of a GPU or of RAM by whoever started it; 0 where nobody says."""
    try:
        told = json.loads(Path(os.environ.get("MEMORY_HELD_FILE", "")).read_text(encoding="ascii"))
        return int(told["held_mib"]) * MIB if (told["gpu"] is not None) == cuda else 0
    except (OSError, ValueError, KeyError, TypeError):
        return 0


def disk_bytes(run: Path) -> int | None:
    """Return the free bytes of the disk that the run is, or would be, on."""
    folder = run.resolve()
    while not folder.exists() and folder != folder.parent:
        folder = folder.parent
    try:
        disk = os.statvfs(folder)
        held = sum(file.stat().st_size for part in ("replay", "checkpoints") for file in (run / part).rglob("*"))
    except OSError:
        return None
    return disk.f_bavail * disk.f_frsize + held


def _machine_room(proc: Path) -> Iterator[int]:
    for line in _lines(proc / "meminfo"):
        name, _, rest = line.partition(":")
        if name == "MemAvailable":
            yield int(rest.split()[0]) * 1024


def _cgroup_rooms(proc: Path) -> Iterator[int]:
    """Yield limit less use of each control group from this process's own up to the mount's root."""
    groups = {}
    for line in _lines(proc / "self" / "cgroup"):
        _, controllers, path = line.split(":", 2)
        if controllers == "":
            groups["cgroup2"] = path
        elif "memory" in controllers.split(","):
            groups["cgroup"] = path
    for line in _lines(proc / "self" / "mountinfo"):
        before, _, after = line.partition(" - ")
        kind, _, options = after.split(" ", 2)
        wanted = kind == "cgroup2" or (kind == "cgroup" and "memory" in options.split(","))
        if wanted and kind in groups:
            root, mount = before.split(" ")[3:5]
            yield from _rooms_up(Path(mount), _below(groups[kind], root), _V2 if kind == "cgroup2" else _V1)


def _below(group: str, root: str) -> Path:
    """Return the group's path under its mount; in a container the mount may begin further down, or elsewhere."""
    relative = os.path.relpath(group, root)
    return Path() if relative.startswith("..") else Path(relative)


def _rooms_up(mount: Path, relative: Path, controller: _Controller) -> Iterator[int]:
    for folder in (mount / relative, *(mount / parent for parent in relative.parents)):
        limit = next(iter(_lines(folder / controller.limit)), "max")
        if limit != "max" and int(limit) < _UNLIMITED:
            stat = dict(line.split(" ", 1) for line in _lines(folder / "memory.stat"))
            yield int(limit) - sum(int(stat.get(name, 0)) for name in controller.counted)


def _lines(path: Path) -> list[str]:
    try:
        return path.read_text(encoding="utf-8").splitlines()
    except OSError:
        return []
