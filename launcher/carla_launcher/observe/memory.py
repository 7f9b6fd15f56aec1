"""Reads all memory that a run uses: GPUs, RAM and disk, each with the processes that hold it. Decides nothing."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Mapping
from pathlib import Path

from carla_launcher.observe.gpu_lock import SHARED, lock_gpu
from carla_launcher.observe.pools import Cards, Gpu, Owner, OwnerKind, Pool, PoolKind, Reading, measured, vram_pool
from carla_launcher.observe.ram import ContainerName, OwnerNames, Ram, RunProcesses, grouped
from carla_run.locks import Lock
from carla_run.memory.nvml import Card, Nvml
from carla_run.memory.processes import MIB
from carla_run.memory.room import disk_room

_GROWING = ("replay", "checkpoints")
_BLOCK = 512
"""Bytes in a unit of st_blocks, on every file system (stat(2))."""
WORST_FIRST = (Gpu.LOST, Gpu.UNREADABLE, Gpu.NONE, Gpu.OK)


class MemoryReader:
    """Reads all pools, fast enough for once a second."""

    def __init__(
        self,
        run: Path,
        cards: Cards,
        allotted_mib: float | None = None,
        in_job: Callable[[int], bool] | None = None,
    ) -> None:
        """Connect to the GPUs.

        Args:
            run: the run's directory; it needn't exist yet.
            cards: the GPUs that the run uses; each is a pool.
            allotted_mib: RAM that a batch system allots to the run without a control group; None for all.
            in_job: says whether a process belongs to the same batch job; None without a job.
        """
        self._run = run
        self._nvml = {index: Nvml(index) for index in cards.indices}
        self._uuids: dict[int, str] = {}
        self._names = OwnerNames()
        self._ram = Ram(self._names, allotted_mib=allotted_mib)
        self._in_job = in_job
        self._launcher: tuple[int, ...] = (os.getpid(),)

    def count_as_launcher(self, pid: int) -> None:
        """Count another process's memory as the launcher's."""
        self._launcher = (*self._launcher, pid)

    def name_containers(self, container_name: ContainerName) -> None:
        """Use this function from now on to name the containers of foreign processes, once per container."""
        self._names.ask_engine(container_name)

    def expect_containers(self, limits_mib: Mapping[OwnerKind, float]) -> None:
        """Include pools for containers that don't exist yet: empty ones, with these limits in MiB."""
        self._ram.expect_containers(limits_mib)

    def read(self, simulator_pids: Collection[int] = (), agent_pids: Collection[int] = ()) -> Reading:
        """Return all pools now. Raises nothing: a pool that can't be read is left out, and ``problem`` says why."""
        run = RunProcesses(simulator_pids, agent_pids, self._launcher, self._in_job)
        looks = {index: nvml.read() for index, nvml in self._nvml.items()}
        self._uuids |= {index: look.card.uuid for index, look in looks.items() if look.card is not None}
        vram = (self._vram(index, look.card, run) for index, look in looks.items() if look.card is not None)
        ram = self._ram.pools(run)
        disk = _disk(self._run)
        problems = (
            *dict.fromkeys(look.problem for look in looks.values()),
            "" if ram else "This machine's memory can't be read: /proc/meminfo is missing or incomplete.",
            "" if disk else f"The free space for {self._run} can't be read: its file system doesn't report it.",
        )
        pools = (*vram, *ram, *((disk,) if disk else ()))
        worst = min((look.gpu for look in looks.values()), key=WORST_FIRST.index)
        return Reading(pools, worst, " ".join(filter(None, problems)))

    def card_uuid(self, index: int) -> str:
        """Return the UUID of one of the GPUs, the last one while the driver fails; empty if it was never read."""
        card = self._nvml[index].read().card
        return self._uuids.get(index, "") if card is None else card.uuid

    def hold(self, index: int, directory: Path = SHARED) -> Lock | None:
        """Lock one of the GPUs for this launcher and return the lock; None if the GPU was never read.

        Raises:
            GpuInUseError: another launcher has it.
        """
        uuid = self.card_uuid(index)
        return lock_gpu(uuid, self._run.name, directory) if uuid else None

    def _vram(self, index: int, card: Card, run: RunProcesses) -> Pool:
        name_of = self._nvml[index].process_name
        owners = grouped(card.held, lambda pid: self._names.of(pid, run, name_of), used_mib=card.used_mib)
        return Pool(vram_pool(index), PoolKind.VRAM, measured(card.total_mib), measured(card.free_mib), owners)


def _disk(run: Path) -> Pool | None:
    """Return the pool of the file system that a run's directory is, or would be, on; None if it can't be read."""
    if (room := disk_room(run)) is None:
        return None
    held = {part: measured(size_mib(run / part)) for part in _GROWING}
    owners = [Owner(part, OwnerKind.AGENT, (), figure) for part, figure in held.items() if figure.mib]
    owners.sort(key=lambda owner: -(owner.held.mib or 0.0))
    return Pool("disk", PoolKind.DISK, measured(room.total_mib), measured(room.free_mib), tuple(owners))


def size_mib(folder: Path) -> float:
    """Return the disk space of a folder's files, without holes; files that vanish meanwhile count nothing."""
    taken = 0
    for parent, _, names in os.walk(folder):
        for name in names:
            try:
                taken += os.lstat(os.path.join(parent, name)).st_blocks  # noqa: PTH118  once a second: half the time
            except OSError:
                continue
    return taken * _BLOCK / MIB
