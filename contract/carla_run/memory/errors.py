"""Finds the meaning of error messages of PyTorch, CUDA, C++, Python and CARLA's client: what ran out, or is lost.

See docs/facts.md, section 3. Messages must be read, since PyTorch has one class for most of its errors, and the output
of other programs has none. Only this module reads them.
"""

from __future__ import annotations

import errno
import os
import re
from typing import Callable, Optional

from carla_run.enums import StrEnum
from carla_run.events import Failed, MemoryPool

FULL = frozenset({errno.ENOSPC, errno.EDQUOT})
"""Error numbers of a disk, or a user's share of it, that is full."""
DeviceIsFull = Callable[[], bool]
"""Says, now, whether a device has less free than is kept in reserve."""


class Meaning(StrEnum):
    """Meaning of an error message."""

    HOST = "host"
    """Host memory ran out."""
    DEVICE = "device"
    """GPU memory ran out."""
    GPU_LOST = "gpu_lost"
    """The driver lost the GPU. Neither less memory nor a new process helps."""
    NO_GPU = "no_gpu"
    """The process sees no GPU: there is none, or its container has lost it since it started."""
    DEVICE_IF_FULL = "device_if_full"
    """GPU memory ran out if the GPU is nearly full; a broken GPU or library has the same message."""


_NO_SIMULATOR = re.compile(
    r"time-?out of \d+ms while (?:waiting for the simulator|calling RPC)|Connection (?:refused|reset by peer)",
    re.IGNORECASE,
)
_BROKEN = r"handles_\.at\(i\)"
"""Message after memory ran out with expandable segments (pytorch issue 188008)."""
_LIBRARY = r"\bCU(?:BLAS|DNN|SOLVER|SPARSE|FFT|RAND)(?:_STATUS)?_"
_PATTERNS = tuple(
    (meaning, re.compile(pattern))
    for meaning, pattern in (
        (
            Meaning.HOST,
            r"DefaultCPUAllocator: (?:can't allocate|not enough) memory|std::bad_alloc|_HOST_ALLOCATION_FAILED"
            r"|\bMemoryError\b|_ArrayMemoryError|Cannot allocate memory|unable to mmap memory|can't start new thread"
            r"|could not (?:create|execute) a primitive$",  # oneDNN: no room for its code or scratch
        ),
        (
            Meaning.DEVICE,
            r"(?:CUDA|HIP) (?:driver )?(?:error: )?out of memory|CUDA_ERROR_OUT_OF_MEMORY"
            r"|Error 2: out of memory"  # cudaGetDeviceCount's
            r"|would exceed allowed memory"  # cudaMallocAsync's
            r"|RESOURCE_EXHAUSTED: Out of memory|OOM when allocating tensor"  # JAX's, TensorFlow's
            rf"|{_BROKEN}|{_LIBRARY}ALLOC(?:ATION)?_FAILED|_DEVICE_ALLOCATION_FAILED",
        ),
        (
            Meaning.GPU_LOST,
            r"(?:CUDA|HIP) error: (?:unknown error|no (?:CUDA|ROCm)-capable device is detected|hardware stack error"
            r"|uncorrectable (?:ECC|NVLink) error|[Ii]nvalid access of peer GPU memory over nvlink)",
        ),
        (
            Meaning.NO_GPU,  # PyTorch's, c10/cuda/CUDAFunctions.cpp; the last is nvidia-smi's
            r"No (?:CUDA|HIP) GPUs are available|CUDA unknown error - this may be due to|Found no NVIDIA driver"
            r"|CUDA driver initialization failed, you might not have a CUDA gpu"
            r"|Error 304: OS call failed or operation not supported"
            r"|Failed to initialize NVML: Unknown Error",
        ),
        (
            Meaning.DEVICE_IF_FULL,
            rf"{_LIBRARY}(?:NOT_INITIALIZED|INITIALIZATION_FAILED|INTERNAL_ERROR|EXECUTION_FAILED|EXEC_FAILED"
            r"|MAPPING_ERROR|LAUNCH_FAILURE|SETUP_FAILED|SUBLIBRARY_LOADING_FAILED)"
            r"|unable to find an engine|valid cuDNN algorithm|NVML_SUCCESS == r|(?:CUDA|HIP) driver error"
            r"|(?:CUDA|HIP) error: (?:initialization error|mapping of buffer object failed"
            r"|CUDA-capable device\(s\) is/are busy or unavailable)",
        ),
    )
)


def meaning_of(words: str) -> Meaning | None:
    """Return the meaning of an error message; None if it has none. Of two meanings, the surer one."""
    return next((meaning for meaning, pattern in _PATTERNS if pattern.search(words)), None)


def disk_is_full(words: str) -> bool:
    """Return whether an error message means that a disk, or a user's share of it, is full."""
    return any(os.strerror(number) in words for number in FULL)


def no_simulator(words: str) -> bool:
    """Return whether a program's last words are that no simulator answers: those of CARLA's client, or of a socket."""
    return _NO_SIMULATOR.search(words) is not None


def surely_out_of_memory(words: str) -> str:
    """Return the part of a program's output that surely means that memory ran out; empty if there is none."""
    found = (pattern.search(words) for meaning, pattern in _PATTERNS if meaning in (Meaning.HOST, Meaning.DEVICE))
    return next((match[0] for match in found if match is not None), "")


def allocator_is_broken(words: str) -> bool:
    """Return whether this process can't allocate any more GPU memory."""
    return re.search(_BROKEN, words) is not None


def never_full() -> bool:
    """Return False, for programs that compute on no device."""
    return False


def exhausted_pool(error: BaseException, device_is_full: DeviceIsFull = never_full) -> Optional[MemoryPool]:
    """Return which memory ran out, of the forms that this takes (facts.md section 3); None if none did.

    Args:
        error: as it was caught.
        device_is_full: asked only about the forms that a broken card has in common with a full one.
    """
    if isinstance(error, OSError):
        full = MemoryPool.DISK if error.errno in FULL else None
        return MemoryPool.HOST if error.errno == errno.ENOMEM else full
    if isinstance(error, MemoryError):
        return MemoryPool.HOST
    return _torchs_pool(error, device_is_full) if isinstance(error, RuntimeError) else None


def _torchs_pool(error: RuntimeError, device_is_full: DeviceIsFull) -> Optional[MemoryPool]:
    # torch's own class by its name, whatever it says: each allocator words it differently.
    if "OutOfMemoryError" in {each.__name__ for each in type(error).__mro__}:
        return MemoryPool.DEVICE
    meaning = meaning_of(str(error))
    if meaning is Meaning.HOST:
        return MemoryPool.HOST
    is_device = meaning is Meaning.DEVICE or (meaning is Meaning.DEVICE_IF_FULL and device_is_full())
    return MemoryPool.DEVICE if is_device else None


def failure(error: BaseException, code: int, pool: Optional[MemoryPool], steps: int) -> Failed:
    """Return the event of a program that an error ends; ``pool`` is the memory that ran out, None if none did."""
    meaning = meaning_of(str(error)) if isinstance(error, RuntimeError) else None
    lost, gone = pool is None and meaning is Meaning.GPU_LOST, meaning is Meaning.NO_GPU
    return Failed(code, type(error).__name__, pool, lost, steps, str(error), gone)
