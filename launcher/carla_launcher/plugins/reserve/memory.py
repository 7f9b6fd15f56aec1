"""The memory to wait for: one GPU's, or RAM.

A GPU is read through NVML. That creates no CUDA context, so it takes no memory.
"""

from __future__ import annotations

import contextlib
import ctypes

from carla_launcher import hooks
from carla_launcher.observe import ram
from carla_launcher.observe.pools import Gpu, Pool, PoolKind, measured, vram_pool
from carla_launcher.observe.ram import OwnerNames, RunProcesses, grouped
from carla_run.exits import Exit, ExitError

INSTALL = "python3 -m pip install nvidia-ml-py"
NAMED = 3


class UnreadableError(ExitError):
    """The memory can't be read. The message is one sentence for the user."""

    code = Exit.BAD_CONFIG

    def __init__(self, sentence: str, passes: bool = False) -> None:
        """Keep whether it may pass: the driver reported the memory before."""
        super().__init__(sentence)
        self.passes = passes


class Memory:
    """One GPU's memory, or RAM.

    Attributes:
        name: for messages: ``GPU 0``, ``RAM``.
    """

    def __init__(self, gpu: int | None) -> None:
        """Read nothing yet. ``gpu`` is its index in ``nvidia-smi``, None for RAM.

        Raises:
            UnreadableError: nvidia-ml-py is missing.
        """
        self.name = "RAM" if gpu is None else f"GPU {gpu}"
        self._gpu, self._names = gpu, OwnerNames()
        self._ram = ram.Ram(self._names, allotted_mib=hooks.memory_limit_mib())
        if gpu is None:
            return
        try:
            from carla_run.memory.nvml import Nvml
        except ImportError:
            raise UnreadableError(
                f"A GPU's memory is read through nvidia-ml-py, which this Python lacks: `{INSTALL}`, or --pool ram."
            ) from None
        self._nvml = Nvml(gpu)

    def look(self) -> Pool:
        """Return the pool now, with known total and free.

        Raises:
            UnreadableError: the driver or the kernel doesn't report them.
        """
        if self._gpu is not None:
            return self._card(self._gpu)
        pools = self._ram.pools(RunProcesses())
        if not pools:
            raise UnreadableError("RAM can't be read: /proc/meminfo doesn't tell what is available; this needs Linux.")
        return pools[0]

    def biggest(self) -> str:
        """Return the three programs that hold most, as text; empty if unknown."""
        with contextlib.suppress(UnreadableError):
            return ", ".join(f"{owner.name} {owner.held}" for owner in self.look().owners[:NAMED])
        return ""

    def _card(self, gpu: int) -> Pool:
        look = self._nvml.read()
        if (card := look.card) is None:
            said = look.problem or f"{self.name} can't be read: there is no NVIDIA driver."
            passes = look.gpu is Gpu.OK
            raise UnreadableError(f"{said} See what `nvidia-smi` says, or use --pool ram.", passes)
        owners = grouped(card.held, lambda pid: self._names.of(pid, RunProcesses(), self._nvml.process_name))
        return Pool(vram_pool(gpu), PoolKind.VRAM, measured(card.total_mib), measured(card.free_mib), owners)


def driver_is_there() -> bool:
    """Return whether this machine has NVIDIA's driver library."""
    try:
        ctypes.CDLL("libnvidia-ml.so.1")
    except OSError:
        return False
    return True
