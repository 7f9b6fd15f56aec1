"""One GPU: its memory and which processes hold how much of it, by the NVIDIA driver.

Owns the one connection to NVML, which raises nothing: what can't be read is a sentence. Says nothing of whose a process
is. Needs ``nvidia-ml-py``.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import PurePath

import pynvml

from carla_run.memory.processes import MIB
from carla_run.memory.room import Gpu

Held = dict[int, float | None]
"""MiB by process id; None where the driver doesn't tell (WSL, WDDM, MIG, vGPU)."""

_LOST = {pynvml.NVML_ERROR_GPU_IS_LOST, pynvml.NVML_ERROR_RESET_REQUIRED}
_ABSENT = {
    pynvml.NVML_ERROR_LIBRARY_NOT_FOUND,
    pynvml.NVML_ERROR_DRIVER_NOT_LOADED,
    pynvml.NVML_ERROR_NOT_FOUND,
    pynvml.NVML_ERROR_INVALID_ARGUMENT,  # no GPU of this index
}
"""Errors that say: no driver, or no such GPU. Any other is of a driver that is there and fails."""

_WHAT_TO_DO = {
    pynvml.NVML_ERROR_GPU_IS_LOST: "it fell off the bus: restart the machine",
    pynvml.NVML_ERROR_RESET_REQUIRED: "restart the machine",
    pynvml.NVML_ERROR_DRIVER_NOT_LOADED: "load the NVIDIA driver, or restart the machine",
    pynvml.NVML_ERROR_INVALID_ARGUMENT: "there is no GPU of this index",
    pynvml.NVML_ERROR_LIB_RM_VERSION_MISMATCH: "the driver was upgraded: restart the machine",
    pynvml.NVML_ERROR_NO_PERMISSION: "give yourself access to /dev/nvidia*",
}


@dataclass(frozen=True)
class Card:
    """A GPU at one moment.

    Attributes:
        uuid: the same whatever the index, and for every user.
        total_mib: without what the driver keeps for itself.
        used_mib: by all processes together, those included of which the driver says nothing.
        held: by process, whether it draws or computes.
    """

    uuid: str
    total_mib: float
    free_mib: float
    used_mib: float
    held: Held


@dataclass(frozen=True)
class Look:
    """One look at a GPU.

    Attributes:
        card: None where its memory couldn't be read.
        problem: a sentence; empty if all could be read, and where there is no NVIDIA driver to ask.
    """

    gpu: Gpu
    card: Card | None = None
    problem: str = ""


class Nvml:
    """The GPU of an index in NVML's order (that of the PCI bus; CUDA's differs unless CUDA_DEVICE_ORDER=PCI_BUS_ID)."""

    def __init__(self, index: int = 0) -> None:
        self.index = index
        self._open = False
        self._seen = False

    def read(self) -> Look:
        """Return what the driver says now.

        After an error the next look connects again, so a GPU that comes back is seen. A GPU that was there
        and isn't any more is lost, whichever way the driver puts it.
        """
        try:
            if not self._open:
                pynvml.nvmlInit()
                self._open = True
            look = self._look()
        except pynvml.NVMLError as error:
            self.close()
            return self._failed(error)
        self._seen = True
        return look

    @staticmethod
    def index_of(name: str) -> int | None:
        """Return the index of a GPU that is named as Compose's variables do, by index or UUID; None if it isn't here.

        Where the driver fails it is 0: what is wrong with the driver, a look at any GPU tells.
        """
        if name.isdecimal():
            return int(name)
        try:
            with _connected():
                return int(pynvml.nvmlDeviceGetIndex(pynvml.nvmlDeviceGetHandleByUUID(name)))
        except pynvml.NVMLError as error:
            return None if error.value in _ABSENT else 0

    @staticmethod
    def count() -> int:
        """Return how many GPUs the driver has; 0 where there is none, or it doesn't tell."""
        try:
            with _connected():
                return int(pynvml.nvmlDeviceGetCount())
        except pynvml.NVMLError:
            return 0

    @classmethod
    def once(cls, index: int) -> Look:
        """Return one look at a GPU; the driver is let go of."""
        nvml = cls(index)
        try:
            return nvml.read()
        finally:
            nvml.close()

    def process_name(self, pid: int) -> str:
        """Return a process's program as the driver names it, without its folder; empty where it doesn't."""
        try:
            name = PurePath(str(pynvml.nvmlSystemGetProcessName(pid)).strip()).name
        except (pynvml.NVMLError, UnicodeDecodeError):
            return ""
        return "" if name.startswith("[") else name  # "[Not Found]"

    def close(self) -> None:
        """Let go of the driver."""
        if self._open:
            self._open = False
            with contextlib.suppress(pynvml.NVMLError):
                pynvml.nvmlShutdown()

    def _look(self) -> Look:
        handle = pynvml.nvmlDeviceGetHandleByIndex(self.index)
        total, free, used = _memory(handle)
        held, problem = _processes(handle)
        uuid = str(pynvml.nvmlDeviceGetUUID(handle))
        sentence = f"The driver doesn't say which processes hold GPU {self.index}'s memory ({problem})."
        return Look(Gpu.OK, Card(uuid, total, free, used, held), sentence if problem else "")

    def _failed(self, error: pynvml.NVMLError) -> Look:
        gpu = _verdict(error.value, self.index, self._seen)
        if gpu is Gpu.NONE and error.value == pynvml.NVML_ERROR_LIBRARY_NOT_FOUND:
            return Look(gpu)
        advice = _WHAT_TO_DO.get(error.value, "nvidia-smi may tell more")
        return Look(gpu, None, f"GPU {self.index} can't be read (NVML: {str(error).rstrip('.')}); {advice}.")


@contextlib.contextmanager
def _connected() -> Iterator[None]:
    pynvml.nvmlInit()
    try:
        yield
    finally:
        with contextlib.suppress(pynvml.NVMLError):
            pynvml.nvmlShutdown()


def merged(*lists: Iterable[tuple[int, float | None]]) -> Held:
    """Return one figure a process, of lists of (process id, MiB or None): the largest that any list gives.

    CARLA, a Vulkan program, is in the graphics list only; what draws and computes is in both with all that it holds.
    """
    held: Held = {}
    for pid, mib in (row for each in lists for row in each):
        known = held.get(pid)
        held[pid] = known if mib is None or (known is not None and known > mib) else mib
    return held


def _verdict(code: int, index: int, seen: bool) -> Gpu:
    if code in _LOST:
        return Gpu.LOST
    if code in _ABSENT and seen:
        return Gpu.LOST
    # Any but the first was asked for: that the machine hasn't that one doesn't say that it has none.
    if code in _ABSENT and (index == 0 or code != pynvml.NVML_ERROR_INVALID_ARGUMENT):
        return Gpu.NONE
    # Time-outs, and a driver upgraded under running programs, which go on: the GPU is there, its figures aren't.
    return Gpu.OK if seen else Gpu.UNREADABLE


def _memory(handle: object) -> tuple[float, float, float]:
    """Return total, free and used MiB; before driver 510 what the driver keeps for itself counts as used."""
    reserved = 0
    try:
        memory = pynvml.nvmlDeviceGetMemoryInfo(handle, pynvml.nvmlMemory_v2)
        reserved = memory.reserved
    except pynvml.NVMLError_FunctionNotFound:
        memory = pynvml.nvmlDeviceGetMemoryInfo(handle)
    return (memory.total - reserved) / MIB, memory.free / MIB, memory.used / MIB


def _processes(handle: object) -> tuple[Held, str]:
    """Return who holds how much, and why a list is missing."""
    problems: list[str] = []

    def rows(ask: Callable[[object], list[pynvml.c_nvmlProcessInfo_t]]) -> list[tuple[int, float | None]]:
        try:
            return [(row.pid, None if row.usedGpuMemory is None else row.usedGpuMemory / MIB) for row in ask(handle)]
        except (
            pynvml.NVMLError_NotSupported,
            pynvml.NVMLError_NoPermission,
            pynvml.NVMLError_FunctionNotFound,
        ) as error:
            problems.append(str(error))
            return []

    held = merged(rows(pynvml.nvmlDeviceGetGraphicsRunningProcesses), rows(pynvml.nvmlDeviceGetComputeRunningProcesses))
    return held, next(iter(problems), "")
