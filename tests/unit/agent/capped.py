"""A pytest plugin: before anything is collected, oneDNN and ATen say what they compute with, and it is what was asked.

Loaded by ``test_instruction_sets`` into processes of their own, for both libraries read their variables once.
"""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Callable

import pytest
import torch
from torch.nn import functional

CAPPED_TO = "CAPPED_TO"
"""Variable: oneDNN's name for the instruction set."""


def pytest_sessionstart() -> None:
    cap = os.environ[CAPPED_TO]
    float32, bfloat16 = implementation(torch.float32), implementation(torch.bfloat16)
    capability = torch.backends.cpu.get_cpu_capability()
    said = f"float32 by {float32}, bfloat16 by {bfloat16}, ATen with {capability}"
    held = float32 == cap.lower() and bfloat16 in (cap.lower(), None) and cap.startswith(capability)
    if not held:
        pytest.exit(f"The cap {cap} didn't take hold: {said}", returncode=3)
    print(f"Capped to {cap}: {said}")


def implementation(dtype: torch.dtype) -> str | None:
    """Return the instruction set of oneDNN's kernel for a convolution; None where ATen convolves itself.

    oneDNN's verbose lines name it in the field ``implementation``, as ``brg_conv_fwd:avx2``.
    """
    x = torch.zeros(8, 32, 20, 20, dtype=dtype).contiguous(memory_format=torch.channels_last)
    weight = torch.zeros(64, 32, 4, 4, dtype=dtype)
    fields = [line.split(",") for line in _printed(lambda: functional.conv2d(x, weight, stride=2)) if ",exec," in line]
    return next((each[6].split(":")[-1] for each in fields if each[5] == "convolution"), None)


def _printed(compute: Callable[[], object]) -> list[str]:
    """Return the lines that oneDNN prints meanwhile, past Python, on the process's own standard output."""
    sys.stdout.flush()
    kept = os.dup(1)
    with tempfile.TemporaryFile("w+") as seen:
        os.dup2(seen.fileno(), 1)
        try:
            with torch.backends.mkldnn.verbose(torch.backends.mkldnn.VERBOSE_ON):
                compute()
        finally:
            os.dup2(kept, 1)
            os.close(kept)
        seen.seek(0)
        return seen.read().splitlines()
