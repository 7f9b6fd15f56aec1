"""A GPU's memory as one to wait for, through NVML: a look makes no CUDA context, so it costs no memory.

Owns nothing but the choice of the GPU; what NVML says is ``launcher.observe.nvml``'s.
"""

from __future__ import annotations

import ctypes
from collections.abc import Collection
from typing import TYPE_CHECKING

from launcher.observe.ram import OwnerNames, RunProcesses, grouped
from launcher.reserve.memory import Seen, UnreadableError

if TYPE_CHECKING:
    from launcher.observe.nvml import Card

INSTALL = "python3 -m pip install nvidia-ml-py"


def driver_is_there() -> bool:
    """Return whether this machine has NVIDIA's driver library."""
    try:
        ctypes.CDLL("libnvidia-ml.so.1")
    except OSError:
        return False
    return True


class Gpu:
    """One GPU, counted as ``nvidia-smi`` counts; a ``Memory``."""

    def __init__(self, index: int) -> None:
        """Look once.

        Raises:
            UnreadableError: nvidia-ml-py, the driver or the GPU is missing.
        """
        try:
            from launcher.observe.nvml import Nvml
        except ImportError:
            raise UnreadableError(
                f"A GPU's memory is read through nvidia-ml-py, which this Python lacks: `{INSTALL}`, or --pool ram."
            ) from None
        self.name = f"GPU {index}"
        self.what = str(index)
        self._nvml = Nvml(index)
        self._names = OwnerNames(lambda _id: None)
        self.total = self._card().total_mib

    def look(self, holder: int, command: Collection[int] = ()) -> Seen:
        """Return what is free and who holds what.

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
        owners = grouped(held, lambda pid: self._names.of(pid, RunProcesses(), self._nvml.process_name))
        return ", ".join(f"{owner.name} {owner.held}" for owner in owners[:3])

    def _card(self) -> Card:
        look = self._nvml.read()
        if look.card is None:
            said = look.problem or f"{self.name} can't be read: there is no NVIDIA driver."
            raise UnreadableError(f"{said} See what `nvidia-smi` says, or use --pool ram.")
        return look.card
