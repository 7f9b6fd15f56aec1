"""All of a run's memory at one moment: GPU, RAM and disk in one reading. Puts readers together and judges nothing."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from pathlib import Path

from contract.locks import Lock
from contract.processes import PROC
from launcher.observe.disk import disk_pool
from launcher.observe.nvml import SHARED, Card, Nvml, lock_gpu
from launcher.observe.pools import OwnerKind, Pool, PoolKind, Reading, measured
from launcher.observe.ram import ContainerName, OwnerNames, Ram, RunProcesses, grouped


class MemoryReader:
    """Reads everything, cheaply enough for once a second."""

    def __init__(
        self, run: Path, nvml: Nvml, container_name: ContainerName = lambda _id: None, proc: Path = PROC
    ) -> None:
        """Start to look.

        Args:
            run: the run's directory; it needn't exist yet.
            nvml: the reader of the GPU that the run uses.
            container_name: names foreign processes' containers; each is asked for once.
        """
        self._run = run
        self._nvml = nvml
        self._names = OwnerNames(container_name, proc)
        self._ram = Ram(self._names, proc)

    def name_containers(self, container_name: ContainerName) -> None:
        """Have foreign processes' containers named by this from now on."""
        self._names.ask_engine(container_name)

    def expect_containers(self, limits_mib: Mapping[OwnerKind, float]) -> None:
        """Have pools of the containers that this run will have, as long as they aren't there: empty, MiB each."""
        self._ram.expect_containers(limits_mib)

    def read(self, simulator_pids: Collection[int] = (), agent_pids: Collection[int] = ()) -> Reading:
        """Return all pools now. Raises nothing; what couldn't be read is missing, and ``problem`` says why."""
        run = RunProcesses(simulator_pids, agent_pids)
        look = self._nvml.read()
        vram = () if look.card is None else (self._vram(look.card, run),)
        ram = self._ram.pools(run)
        disk = disk_pool(self._run)
        problems = (
            look.problem,
            "" if ram else "This machine's memory can't be read: /proc/meminfo doesn't tell it.",
            "" if disk else f"The free space for {self._run} can't be read: its file system doesn't tell it.",
        )
        pools = (*vram, *ram, *((disk,) if disk else ()))
        return Reading(pools, look.gpu, " ".join(filter(None, problems)))

    def card_uuid(self) -> str:
        """Return the name by which every program knows the GPU; empty where there is none to be read."""
        card = self._nvml.read().card
        return "" if card is None else card.uuid

    def hold(self, directory: Path = SHARED) -> Lock | None:
        """Take the GPU for this launcher only, until the lock is released; None where there is no GPU to hold.

        Raises:
            GpuInUseError: another launcher has it.
        """
        card = self._nvml.read().card
        return None if card is None else lock_gpu(card.uuid, self._run.name, directory)

    def _vram(self, card: Card, run: RunProcesses) -> Pool:
        owners = grouped(
            card.held, lambda pid: self._names.of(pid, run, self._nvml.process_name), used_mib=card.used_mib
        )
        name = f"vram:{self._nvml.index}"
        return Pool(name, PoolKind.VRAM, measured(card.total_mib), measured(card.free_mib), owners)
