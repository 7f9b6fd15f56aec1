"""Takes memory from a learner's updates, for verifications and tests only; it must be on Python's module path.

With this folder in PYTHONPATH each Python process imports this file at its start. It acts only in a process that
imports ``carla_td3.td3.td3``; the rehearsal's update there is number 1. One of two variables sets the shortage:

SHORTAGE_AT_UPDATE: from the update of this number on, the GPU's allocator may take only room for a quarter of the
batch. The CPU's allocator has no such limit; there, larger batches raise its error.

SHORTAGE_ROOM_MIB: the first SHORTAGE_UPDATES updates get a limit of addresses (RLIMIT_AS), this much beyond what the
learner keeps. What runs out is real memory in the real allocators; between updates there is no limit.
"""

from __future__ import annotations

import importlib.util
import os
import resource
import sys
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType
from typing import Any

AT_UPDATE, ROOM_MIB, UPDATES = "SHORTAGE_AT_UPDATE", "SHORTAGE_ROOM_MIB", "SHORTAGE_UPDATES"
PATCHED = "carla_td3.td3.td3"
LIBRARIES_MIB = 96
"""For cuBLAS and cuDNN, which allocate at the first update."""
CPU_FORM = "DefaultCPUAllocator: can't allocate memory: you tried to allocate 4194304 bytes. Error code 12"


class Watch(MetaPathFinder):
    """Watches for the import of one module."""

    def find_spec(self, name: str, *_: Any) -> ModuleSpec | None:
        """Return the module's own spec, with a step after its execution; None for any other module."""
        if name != PATCHED:
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(name)
        assert spec is not None
        assert spec.loader is not None
        execute = spec.loader.exec_module

        def execute_and_patch(module: ModuleType) -> None:
            execute(module)
            (take_at_once if AT_UPDATE in os.environ else take_by_update)(module.TD3)

        spec.loader.exec_module = execute_and_patch  # type: ignore[method-assign]
        return spec


def take_at_once(td3: Any) -> None:
    """Make a class ``TD3`` run out of memory for good before an update with a given number."""
    update, number = td3.update, 0

    def update_or_run_short(self: Any, *arguments: Any) -> Any:
        nonlocal number
        number += 1
        if number == int(os.environ[AT_UPDATE]):
            (limit_card if self.executor.device.type == "cuda" else limit_rows)(self, len(arguments[0].reward) // 4)
        return update(self, *arguments)

    td3.update = update_or_run_short


def take_by_update(td3: Any) -> None:
    """Make a class ``TD3``'s first updates fail if they need more than a given amount."""
    from carla_td3.memory import heap

    whole, done = td3.update, 0
    room_mib, updates = float(os.environ[ROOM_MIB]), int(os.environ[UPDATES])

    def update(*arguments: Any) -> Any:
        nonlocal done
        mapped = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[0]) * os.sysconf("SC_PAGE_SIZE")
        aside = sum(map(len, heap._reserved))  # freed at the first shortage, so that the retry fits
        if done < updates:
            limit_addresses(round(mapped - aside + room_mib * 2**20))
        try:
            return whole(*arguments)
        finally:
            limit_addresses(resource.RLIM_INFINITY)
            done += 1

    td3.update = update


def limit_addresses(count: int) -> None:
    """Refuse further addresses to this process beyond ``count``."""
    resource.setrlimit(resource.RLIMIT_AS, (count, resource.RLIM_INFINITY))


def limit_card(td3: Any, rows: int) -> None:
    """Leave the allocator room for ``rows`` rows of an update, with gradients, beyond what it holds."""
    import torch

    from carla_td3.memory.sizes import Networks

    td3.executor.release()
    torch.cuda.empty_cache()
    kept = sum(parameter.numel() * 4 for parameter in td3.online.parameters())
    networks = Networks(td3.config.network, td3.stack)
    room = networks.update_bytes(4 * rows, rows, td3.config.precision, cached_rows=None) + kept
    total = torch.cuda.get_device_properties(0).total_memory
    limit = torch.cuda.memory_reserved() + room + LIBRARIES_MIB * 2**20
    torch.cuda.set_per_process_memory_fraction(min(1.0, limit / total))


def limit_rows(td3: Any, rows: int) -> None:
    """Refuse gradients of more than ``rows`` rows."""
    gradient = td3.executor._gradient

    def gradient_or_refusal(loss: Any, part: Any, *arguments: Any) -> Any:
        if len(part[0]) > rows:
            raise RuntimeError(CPU_FORM)
        return gradient(loss, part, *arguments)

    td3.executor._gradient = gradient_or_refusal


if AT_UPDATE in os.environ or ROOM_MIB in os.environ:
    sys.meta_path.insert(0, Watch())
