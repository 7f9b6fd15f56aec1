"""Calls that find no memory, with the words that PyTorch has for it on the CPU and on a GPU."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

import torch

CPU_FORM = (
    "[enforce fail at alloc_cpu.cpp:128] err == 0. DefaultCPUAllocator: can't allocate memory: you tried to allocate "
    "4194304 bytes. Error code 12 (Cannot allocate memory)"
)
CUDA_FORM = (
    "CUDA out of memory. Tried to allocate 20.00 MiB. GPU 0 has a total capacity of 5.61 GiB of which 6.94 MiB is "
    "free. Process 4711 has 5.20 GiB memory in use."
)


class Failing:
    """Calls through, except for the n-th to m-th calls, which find no memory: before or after they did their work."""

    def __init__(
        self,
        function: Callable[..., Any],
        calls: range,
        when: Literal["before", "after"],
        error: Exception | None = None,
    ) -> None:
        self._function, self._calls, self._when, self._error = function, calls, when, error
        self._count = -1

    def __call__(self, *arguments: Any, **named: Any) -> Any:
        self._count += 1
        fails = self._count in self._calls
        if fails and self._when == "before":
            raise self._error or RuntimeError(CPU_FORM)
        result = self._function(*arguments, **named)
        if fails:
            raise torch.OutOfMemoryError(CUDA_FORM)
        return result
