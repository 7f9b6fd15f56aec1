"""A memory that can be waited for and held, a GPU's or RAM: one shape for both.

A look at a GPU goes through NVML and makes no CUDA context, so it costs no memory.
"""

from __future__ import annotations

import ctypes
from collections.abc import Collection
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from carla_launcher.observe import ram
from carla_launcher.observe.pools import Owner, Pool
from carla_launcher.observe.ram import OwnerNames, RunProcesses, grouped
from carla_run.cgroups import Cgroups
from carla_run.processes import available_mib, held_mib

if TYPE_CHECKING:
    from carla_launcher.observe.nvml import Card

INSTALL = "python3 -m pip install nvidia-ml-py"
NAMED = 3


class UnreadableError(Exception):
    """The memory can't be read; the message is one sentence for a person."""


@dataclass(frozen=True)
class Seen:
    """One look, in MiB.

    Attributes:
        free: what could be had now.
        used: by all processes; free and used needn't add up to a total.
        by_holder: by the holder process, context included; None where the driver doesn't say.
        by_command: by the command's processes; None where the driver doesn't say.
    """

    free: float
    used: float
    by_holder: float | None
    by_command: float | None


class Memory(Protocol):
    """A memory that can be looked at and held.

    Attributes:
        name: for people: ``GPU 0``, ``RAM``.
        gpu: the GPU's index as ``nvidia-smi`` counts; None for RAM.
        total: MiB.
    """

    name: str
    gpu: int | None
    total: float

    def look(self, holder: int, command: Collection[int] = ()) -> Seen:
        """Return what is free and what holds it; ``holder`` and ``command`` are process ids.

        Raises:
            UnreadableError: the driver or the kernel doesn't say any more.
        """

    def biggest(self) -> str:
        """Return the three biggest holders by name for a person; empty where the driver doesn't say."""


class Ram:
    """RAM: this machine's, or what the control groups above this process leave of it."""

    name = "RAM"
    gpu: int | None = None

    def __init__(self) -> None:
        """Look once.

        Raises:
            UnreadableError: this isn't Linux.
        """
        self._cgroups = Cgroups()
        self._reader = ram.Ram(OwnerNames())
        self.total = self._pool().total.mib or 0.0

    def look(self, holder: int, command: Collection[int] = ()) -> Seen:
        """Return what is free and what holds it; a hundred times a second if need be."""
        group = self._cgroups.of()
        available = available_mib() or 0.0
        free = available if group is None or group.room_mib is None else min(available, group.room_mib)
        held = {pid: held_mib(pid) or 0.0 for pid in (holder, *command)}
        return Seen(free, self.total - free, held[holder], sum(held[pid] for pid in command))

    def biggest(self) -> str:
        """Return the three biggest holders, all processes of a program together."""
        return _in_words(self._pool().owners)

    def _pool(self) -> Pool:
        pools = self._reader.pools(RunProcesses())
        if not pools:
            raise UnreadableError("RAM can't be read: /proc/meminfo doesn't tell what is available; this needs Linux.")
        return pools[0]


class Gpu:
    """One GPU."""

    def __init__(self, index: int) -> None:
        """Look once.

        Raises:
            UnreadableError: nvidia-ml-py, the driver or the GPU is missing.
        """
        try:
            from carla_launcher.observe.nvml import Nvml
        except ImportError:
            raise UnreadableError(
                f"A GPU's memory is read through nvidia-ml-py, which this Python lacks: `{INSTALL}`, or --pool ram."
            ) from None
        self.name = f"GPU {index}"
        self.gpu: int | None = index
        self._nvml = Nvml(index)
        self._names = OwnerNames()
        self.total = self._card().total_mib

    def look(self, holder: int, command: Collection[int] = ()) -> Seen:
        """Return what is free and what holds it.

        NVML names processes by their ids on the host, and on some platforms (WSL, MIG) without their memory. Where it
        doesn't tell the holder's, it wouldn't tell the command's either: both are None.
        """
        card = self._card()
        by_holder = card.held.get(holder)
        by_command = None if by_holder is None else sum(card.held.get(pid) or 0.0 for pid in command)
        return Seen(card.free_mib, card.used_mib, by_holder, by_command)

    def biggest(self) -> str:
        """Return the three biggest holders, all processes of a program together."""
        held = self._card().held
        return _in_words(grouped(held, lambda pid: self._names.of(pid, RunProcesses(), self._nvml.process_name)))

    def _card(self) -> Card:
        look = self._nvml.read()
        if look.card is None:
            said = look.problem or f"{self.name} can't be read: there is no NVIDIA driver."
            raise UnreadableError(f"{said} See what `nvidia-smi` says, or use --pool ram.")
        return look.card


def driver_is_there() -> bool:
    """Return whether this machine has NVIDIA's driver library."""
    try:
        ctypes.CDLL("libnvidia-ml.so.1")
    except OSError:
        return False
    return True


def _in_words(owners: tuple[Owner, ...]) -> str:
    return ", ".join(f"{owner.name} {owner.held}" for owner in owners[:NAMED])
