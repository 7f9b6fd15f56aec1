"""Reads a GPU's memory and its processes from the NVIDIA driver, through NVML.

A reading raises nothing: a failure is a sentence in the result. Needs ``nvidia-ml-py``.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import PurePath

import pynvml

from carla_run.exits import Exit, ExitError
from carla_run.memory.processes import MIB
from carla_run.memory.room import Gpu

Held = dict[int, float | None]
"""MiB by process id; None if the driver doesn't report it (WSL, WDDM, MIG, vGPU)."""

_LOST = {pynvml.NVML_ERROR_GPU_IS_LOST, pynvml.NVML_ERROR_RESET_REQUIRED}
_ABSENT = {
    pynvml.NVML_ERROR_LIBRARY_NOT_FOUND,
    pynvml.NVML_ERROR_DRIVER_NOT_LOADED,
    pynvml.NVML_ERROR_NOT_FOUND,
    pynvml.NVML_ERROR_INVALID_ARGUMENT,  # no GPU of this index
}
"""Errors that mean that there is no driver or no such GPU. All others mean that the driver fails."""

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
        uuid: independent of index and user.
        total_mib: total memory without the part that the driver reserves.
        used_mib: memory used by all processes, including those that the driver doesn't list.
        held: memory by process, for graphics and computing.
    """

    uuid: str
    total_mib: float
    free_mib: float
    used_mib: float
    held: Held


@dataclass(frozen=True)
class NvmlReading:
    """Result of reading a GPU.

    Attributes:
        card: None if its memory couldn't be read.
        problem: a sentence; empty if everything could be read, or if there is no NVIDIA driver.
    """

    gpu: Gpu
    card: Card | None = None
    problem: str = ""


class DriverError(ExitError):
    """The driver fails. The message is one sentence for the user."""

    code = Exit.BAD_CONFIG


class Nvml:
    """The GPU of an index in NVML's order (that of the PCI bus; CUDA's differs unless CUDA_DEVICE_ORDER=PCI_BUS_ID)."""

    def __init__(self, index: int = 0) -> None:
        self.index = index
        self._open = False
        self._seen = False

    def read(self) -> NvmlReading:
        """Return the GPU's present state.

        After an error the next call connects again, to find a GPU that comes back. A GPU that could be read once and no
        longer exists is lost, whatever the driver's error is.
        """
        try:
            if not self._open:
                pynvml.nvmlInit()
                self._open = True
            look = self._read_card()
        except pynvml.NVMLError as error:
            self.close()
            return self._failed(error)
        self._seen = True
        return look

    @staticmethod
    def index_of(name: str) -> int | None:
        """Return the index of a GPU that is named by index or UUID, as in Compose's variables; None if it isn't here.

        Raises:
            DriverError: the driver fails, so no GPU is known by its UUID.
        """
        if name.isdecimal():
            return int(name)
        try:
            with _connected():
                return int(pynvml.nvmlDeviceGetIndex(pynvml.nvmlDeviceGetHandleByUUID(name)))
        except pynvml.NVMLError as error:
            if error.value in _ABSENT:
                return None
            raise DriverError(f"GPU {name} can't be found ({_said(error)}.") from None

    @staticmethod
    def count() -> int | None:
        """Return the number of GPUs; 0 if there is no driver, None if it fails and the number is unknown."""
        try:
            with _connected():
                return int(pynvml.nvmlDeviceGetCount())
        except pynvml.NVMLError as error:
            return 0 if error.value in _ABSENT else None

    @classmethod
    def read_once(cls, index: int) -> NvmlReading:
        """Read a GPU once, and close the connection to the driver."""
        nvml = cls(index)
        try:
            return nvml.read()
        finally:
            nvml.close()

    def process_name(self, pid: int) -> str:
        """Return the driver's name of a process's program, without its folder; empty if unknown."""
        try:
            name = PurePath(str(pynvml.nvmlSystemGetProcessName(pid)).strip()).name
        except (pynvml.NVMLError, UnicodeDecodeError):
            return ""
        return "" if name.startswith("[") else name  # "[Not Found]"

    def close(self) -> None:
        """Close the connection to the driver."""
        if self._open:
            self._open = False
            with contextlib.suppress(pynvml.NVMLError):
                pynvml.nvmlShutdown()

    def _read_card(self) -> NvmlReading:
        handle = pynvml.nvmlDeviceGetHandleByIndex(self.index)
        total, free, used = _memory(handle)
        held, problem = _processes(handle)
        uuid = str(pynvml.nvmlDeviceGetUUID(handle))
        sentence = f"The driver doesn't report which processes hold GPU {self.index}'s memory ({problem})."
        return NvmlReading(Gpu.OK, Card(uuid, total, free, used, held), sentence if problem else "")

    def _failed(self, error: pynvml.NVMLError) -> NvmlReading:
        gpu = _verdict(error.value, self.index, self._seen)
        if gpu is Gpu.NONE and error.value == pynvml.NVML_ERROR_LIBRARY_NOT_FOUND:
            return NvmlReading(gpu)
        return NvmlReading(gpu, None, f"GPU {self.index} can't be read ({_said(error)}.")


def _said(error: pynvml.NVMLError) -> str:
    advice = _WHAT_TO_DO.get(error.value, "nvidia-smi may show more")
    return f"NVML: {str(error).rstrip('.')}); {advice}"


@contextlib.contextmanager
def _connected() -> Iterator[None]:
    pynvml.nvmlInit()
    try:
        yield
    finally:
        with contextlib.suppress(pynvml.NVMLError):
            pynvml.nvmlShutdown()


def merged(*lists: Iterable[tuple[int, float | None]]) -> Held:
    """Return one figure per process from lists of (process id, MiB or None): the largest in any list.

    CARLA, a Vulkan program, is only in the graphics list. A program that renders and computes is in both, each time
    with all its memory.
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
    # A missing GPU with another index than 0 doesn't mean that there is no GPU.
    if code in _ABSENT and (index == 0 or code != pynvml.NVML_ERROR_INVALID_ARGUMENT):
        return Gpu.NONE
    # Time-outs, or a driver that was upgraded while programs run: the GPU is there, but its figures are unknown.
    return Gpu.OK if seen else Gpu.UNREADABLE


def _memory(handle: object) -> tuple[float, float, float]:
    """Return total, free and used MiB; before driver 510 the driver's reserved memory counts as used."""
    reserved = 0
    try:
        memory = pynvml.nvmlDeviceGetMemoryInfo(handle, pynvml.nvmlMemory_v2)
        reserved = memory.reserved
    except pynvml.NVMLError_FunctionNotFound:
        memory = pynvml.nvmlDeviceGetMemoryInfo(handle)
    return (memory.total - reserved) / MIB, memory.free / MIB, memory.used / MIB


def _processes(handle: object) -> tuple[Held, str]:
    """Return the memory of each process, and why a list is missing."""
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
