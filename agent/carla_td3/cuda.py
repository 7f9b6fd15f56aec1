"""Whether PyTorch can compute on a GPU here, and if not, why: an enum for programs, a sentence for people.

Owns the facts that tell the cases apart; ``memory`` owns how full a GPU is. Judging is pure; looking imports torch and
creates no CUDA context.
"""

from __future__ import annotations

import os
import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from carla_run.events import MemoryPool
from carla_run.heartbeat import Cuda
from carla_td3.exits import exhausted_pool
from carla_td3.layered_yaml import ConfigError

if TYPE_CHECKING:
    import torch


@dataclass(frozen=True)
class CudaStatus:
    """The facts.

    Attributes:
        available: result of ``torch.cuda.is_available``.
        torch: PyTorch's version.
        build: CUDA (or ROCm) version that PyTorch was built for; None for a build without.
        visible: CUDA_VISIBLE_DEVICES; None if it isn't set.
        device_files: whether the kernel shows a card to this process.
        container: whether this process runs in a container.
        error: first line of the error when CUDA was initialised.
        pool: memory that ran out then; None if none did.
    """

    available: bool
    torch: str
    build: str | None
    visible: str | None = None
    device_files: bool = False
    container: bool = False
    error: str = ""
    pool: MemoryPool | None = None

    @property
    def cuda(self) -> Cuda:
        """Return which case this is."""
        if self.available:
            return Cuda.USABLE
        if self.build is None:
            return Cuda.CPU_BUILD
        if self.visible is not None and self.visible.strip() in ("", "-1"):
            return Cuda.HIDDEN
        return Cuda.REFUSED if self.device_files else Cuda.NO_DEVICE

    def __str__(self) -> str:
        no_device = "there is no /dev/nvidia* here: this machine has no card, or its driver isn't loaded"
        if self.container:
            no_device = "there is no /dev/nvidia* in this container: start it with the NVIDIA Container Toolkit"
        reason = self.error or "no reason given"
        return {
            Cuda.USABLE: f"torch {self.torch} computes on CUDA {self.build}",
            Cuda.CPU_BUILD: f"torch {self.torch} is a build without CUDA: install one for this driver's CUDA",
            Cuda.HIDDEN: f"CUDA_VISIBLE_DEVICES is {self.visible!r}, which hides every card: unset it",
            Cuda.NO_DEVICE: no_device,
            Cuda.REFUSED: f"torch {self.torch} for CUDA {self.build} can't use the card ({reason})",
        }[self.cuda]


def cuda_status(root: Path = Path("/")) -> CudaStatus:
    """Return the facts of this process; ``root`` holds ``dev``."""
    import torch

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the sentence says what torch warns of
        available = torch.cuda.is_available()
    build = torch.version.cuda or torch.version.hip
    devices = root / "dev"
    return CudaStatus(
        available,
        torch.__version__,
        build,
        os.environ.get("CUDA_VISIBLE_DEVICES"),
        any(devices.glob("nvidia[0-9]*")) or (devices / "dxg").exists(),  # WSL's card
        any((root / mark).exists() for mark in (".dockerenv", "run/.containerenv")),
        *(("", None) if available or build is None else _refusal()),
    )


def _refusal() -> tuple[str, MemoryPool | None]:
    import torch

    try:
        torch.cuda.init()  # type: ignore[no-untyped-call]
    except (RuntimeError, AssertionError) as error:
        return str(error).partition("\n")[0].rstrip("."), exhausted_pool(error)
    return "", None


def cuda_status_for(wanted: str) -> CudaStatus | None:
    """Return the facts, or None for ``cpu``, which needs no look and no import of torch."""
    return None if wanted == "cpu" else cuda_status()


def on_cuda(wanted: str, seen: CudaStatus | None) -> bool:
    """Return whether the device ``auto``, ``cpu`` or ``cuda`` means a GPU here, from the facts of ``cuda_status_for``.

    Raises:
        ConfigError: CUDA is asked for and isn't there.
    """
    if wanted == "cuda" and seen is not None and not seen.available:
        raise ConfigError(
            f"device is cuda, but torch sees no CUDA device: {seen}; or use --device auto or --device cpu."
        )
    return seen is not None and seen.available


def torch_device(cuda: bool) -> torch.device:
    """Return the CPU, or the first GPU that CUDA_VISIBLE_DEVICES shows, without a context.

    The device has an index, because some functions of ``torch.cuda`` need one. Asking torch for the current device
    would create a context, and this process may still choose the CPU.
    """
    import torch

    return torch.device("cuda", 0) if cuda else torch.device("cpu")


def choose_device(wanted: str) -> torch.device:
    """Look, and return the device that ``auto``, ``cpu`` or ``cuda`` means here.

    Raises:
        ConfigError: CUDA is asked for and isn't there.
    """
    return torch_device(on_cuda(wanted, cuda_status_for(wanted)))


def limit_memory(device: torch.device, fraction: float) -> None:
    """Limit this process's allocator to a fraction of the device. The CPU has no such limit."""
    import torch

    if device.type == "cuda":
        torch.cuda.set_per_process_memory_fraction(fraction, device)
