"""The meaning for memory of messages by PyTorch, CUDA's libraries, C++ and Python."""

from __future__ import annotations

import pytest

from carla_run.memory.errors import Meaning, allocator_is_broken, meaning_of

ASSERTED = 'INTERNAL ASSERT FAILED at "/src/c10/cuda/CUDACachingAllocator.cpp":1, please report a bug to PyTorch.'

DEVICE = (
    f"!handles_.at(i) {ASSERTED}",
    f"handles_.at(i) {ASSERTED}",
    "Allocation on device 1 would exceed allowed memory. (out of memory)\nCurrently allocated     : 5.20 GiB",
    "Allocation on device 1 would exceed allowed memory.",
    "CUDA out of memory. Tried to allocate 2.00 GiB.",
    "HIP out of memory. Tried to allocate 2.00 GiB.",
    "CUDA error: out of memory\nCUDA kernel errors might be asynchronously reported at some other API call",
    "HIP error: out of memory",
    "CUDA driver error: out of memory",
    "cuMemCreate failed with CUDA_ERROR_OUT_OF_MEMORY",
    "Unexpected error from cudaGetDeviceCount(). Error 2: out of memory",
    "CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`",
    "cuDNN error: CUDNN_STATUS_ALLOC_FAILED",
    "cuDNN error: CUDNN_STATUS_INTERNAL_ERROR_DEVICE_ALLOCATION_FAILED",
    "cusolver error: CUSOLVER_STATUS_ALLOC_FAILED, when calling `cusolverDnCreate(handle)`",
    "CUDA error: CUSPARSE_STATUS_ALLOC_FAILED when calling `cusparseCreate(handle)`",
    "cuFFT error: CUFFT_ALLOC_FAILED",
    "CURAND_STATUS_ALLOCATION_FAILED",
)
DEVICE_IF_FULL = (
    "CUDA error: CUBLAS_STATUS_INTERNAL_ERROR when calling `cublasGemmEx( handle, opa, opb, m, n, k)`",
    "CUDA error: CUBLAS_STATUS_EXECUTION_FAILED when calling `cublasLtMatmul`",
    "CUDA error: CUBLAS_STATUS_NOT_INITIALIZED when calling `cublasCreate(handle)`",
    "CUDA error: CUBLAS_STATUS_MAPPING_ERROR when calling `cublasSgemv`",
    "cuDNN error: CUDNN_STATUS_EXECUTION_FAILED\nYou can try to repro this exception using the following code",
    "cuDNN error: CUDNN_STATUS_EXECUTION_FAILED_CUDART",
    "cuDNN error: CUDNN_STATUS_MAPPING_ERROR",
    "cuDNN error: CUDNN_STATUS_NOT_INITIALIZED",
    "cuDNN error: CUDNN_STATUS_INTERNAL_ERROR",
    "cuDNN error: CUDNN_STATUS_SUBLIBRARY_LOADING_FAILED",
    "Unable to find a valid cuDNN algorithm to run convolution",
    "GET was unable to find an engine to execute this computation",
    f"NVML_SUCCESS == r {ASSERTED}",
    f"NVML_SUCCESS == r_1 {ASSERTED}",
    "CUDA driver error: unknown error",
    "CUDA driver error: invalid argument",
    "HIP driver error: invalid argument",
    "CUDA error: initialization error",
    "CUDA error: mapping of buffer object failed",
    "CUDA error: CUDA-capable device(s) is/are busy or unavailable",
    "cusolver error: CUSOLVER_STATUS_INTERNAL_ERROR, when calling `cusolverDnCreate(handle)`",
    "CUDA error: CUSPARSE_STATUS_NOT_INITIALIZED when calling `cusparseCreate(handle)`",
    "cuFFT error: CUFFT_INTERNAL_ERROR",
    "CURAND_STATUS_LAUNCH_FAILURE",
)
HOST = (
    "[enforce fail at alloc_cpu.cpp:99] err == 0. DefaultCPUAllocator: can't allocate memory: you tried to allocate 8 "
    "bytes. Error code 12 (Cannot allocate memory)",
    "[enforce fail at alloc_cpu.cpp:72] data. DefaultCPUAllocator: not enough memory: you tried to allocate 8 bytes.",
    "unable to mmap 512 bytes from file </tmp/ring.bin>: Cannot allocate memory (12)",
    "unable to open shared memory object </torch_7> in read-write mode: Cannot allocate memory (12)",
    "$ Torch: unable to mmap memory: you tried to mmap 9GB.",
    "can't start new thread",
    "std::bad_alloc",
    "cuDNN error: CUDNN_STATUS_INTERNAL_ERROR_HOST_ALLOCATION_FAILED",
    "could not create a primitive",
)
GPU_LOST = (
    "CUDA error: unknown error",
    "CUDA error: unknown error\nCUDA kernel errors might be asynchronously reported at some other API call",
    "HIP error: unknown error",
    "CUDA error: no CUDA-capable device is detected",
    "CUDA error: uncorrectable ECC error encountered",
    "CUDA error: uncorrectable NVLink error detected during the execution",
    "CUDA error: hardware stack error",
    "CUDA error: Invalid access of peer GPU memory over nvlink or a hardware error",
)
NO_GPU = (
    "No CUDA GPUs are available",
    "CUDA unknown error - this may be due to an incorrectly set up environment, e.g. changing env variable "
    "CUDA_VISIBLE_DEVICES after program start. Setting the available devices to be zero.",
    "CUDA driver initialization failed, you might not have a CUDA gpu.",
    "Found no NVIDIA driver on your system. Please check that you have an NVIDIA GPU and installed a driver",
    "Unexpected error from cudaGetDeviceCount(). Did you run some cuda functions before calling NumCudaDevices() that "
    "might have already set an error? Error 304: OS call failed or operation not supported on this OS",
    "Failed to initialize NVML: Unknown Error",
)
NOTHING = (
    "Failed to initialize NVML: Driver/library version mismatch",
    "CUDA error: an illegal memory access was encountered",
    "CUDA error: device-side assert triggered",
    "CUDA error: unspecified launch failure",
    "CUDA error: invalid device ordinal",
    "CUDA error: CUBLAS_STATUS_INVALID_VALUE when calling `cublasSgemm`",
    "CUDA error: CUBLAS_STATUS_NOT_SUPPORTED when calling `cublasGemmEx`",
    "cuDNN error: CUDNN_STATUS_BAD_PARAM",
    "cuDNN error: CUDNN_STATUS_NOT_SUPPORTED",
    "unable to mmap 512 bytes from file </tmp/ring.bin>: No such device (19)",
    "notes on running out of memory.txt has no header",
    "unknown error",
    "",
)


@pytest.mark.parametrize(
    ("words", "meaning"),
    [
        *((words, Meaning.DEVICE) for words in DEVICE),
        *((words, Meaning.DEVICE_IF_FULL) for words in DEVICE_IF_FULL),
        *((words, Meaning.HOST) for words in HOST),
        *((words, Meaning.GPU_LOST) for words in GPU_LOST),
        *((words, Meaning.NO_GPU) for words in NO_GPU),
        *((words, None) for words in NOTHING),
    ],
)
def test_an_errors_words_have_one_meaning(words: str, meaning: Meaning | None) -> None:
    assert meaning_of(words) is meaning


def test_only_expandable_segments_leave_an_allocator_that_serves_nothing_more() -> None:
    assert [words for words in DEVICE if allocator_is_broken(words)] == list(DEVICE[:2])
    assert not any(map(allocator_is_broken, (*DEVICE_IF_FULL, *HOST, *GPU_LOST, *NOTHING)))
