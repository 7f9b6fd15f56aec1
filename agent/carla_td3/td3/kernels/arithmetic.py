"""The encoder's precision: what ``td3.precision`` means on this processor.

Owns the CPU's abilities, as the computing library reports them, not cpuid: oneDNN may be limited
(``ONEDNN_MAX_CPU_ISA``). Imports torch only where the answer depends on it; without torch it gives the answer that
takes more memory.
"""

from __future__ import annotations

from functools import cache

CACHED_ROWS = 64
"""On the CPU, this many observations go through all convolutions before the next ones, so that they stay in cache."""


def computed(precision: str, cuda: bool) -> str:
    """Return float32, bfloat16 or float16: the precision that a learner with this ``td3.precision`` computes in.

    A CPU that only emulates bfloat16 convolves in float32, which is faster there. ``auto`` on a GPU that hasn't been
    asked counts as float32, the upper limit.
    """
    if precision == "float16" or cuda:
        return "float32" if precision == "auto" else precision
    if precision == "auto":
        return "bfloat16" if cpu_gains_by_bfloat16() else "float32"
    return "bfloat16" if precision == "bfloat16" and cpu_has_bfloat16() else "float32"


def only_emulated(asked: str, computed_in: str) -> str:
    """Return a sentence, without its full stop, if the precision isn't computed in as asked; else empty."""
    if asked == computed_in:
        return ""
    return f"td3.precision is {asked}, which this processor only emulates: the encoder computes in {computed_in}"


@cache
def cpu_has_bfloat16() -> bool:
    """Return whether oneDNN multiplies bfloat16 in hardware (AVX512_BF16, AMX).

    oneDNN also accepts bfloat16 on plain AVX-512, where it uses float32. The hardware's instructions are recognised by
    numbers below 2⁻¹²⁶, which they take as 0 in every mode of the processor (Intel's manual on VDPBF16PS).
    """
    if not _onednn_takes("bf16"):
        return False
    import torch

    with torch.inference_mode():
        tiny = torch.full((1, 16, 4, 4), 2.0**-130, dtype=torch.bfloat16)
        large = torch.full((16, 16, 2, 2), 2.0**100, dtype=torch.bfloat16)
        products = torch.nn.functional.conv2d(tiny.to(memory_format=torch.channels_last), large)
    return not bool(products.any())


@cache
def cpu_gains_by_bfloat16() -> bool:
    """Return whether updates are faster in bfloat16 than in float32: with AMX, or with AVX512_BF16 not by Intel.

    Intel's AVX512_BF16 without AMX, as in a virtual machine that hides it, makes three quarters as many updates as
    float32; AMX and AMD's make 1.4 times as many (docs/benchmarks.md).
    """
    if not cpu_has_bfloat16():
        return False
    import torch

    found = torch.cpu.get_capabilities()
    return bool(found.get("amx_bf16")) or not str(found.get("cpu_name", "")).startswith("Intel")


@cache
def cpu_unfolds_float16() -> bool:
    """Return whether PyTorch's own kernels convolve float16 (no AVX512_FP16): they copy inputs into columns."""
    return not _onednn_takes("fp16")


def _onednn_takes(element: str) -> bool:
    try:
        import torch
    except ImportError:
        return False
    asked = getattr(torch.ops.mkldnn, f"_is_mkldnn_{element}_supported", None)
    return asked is not None and bool(asked())
