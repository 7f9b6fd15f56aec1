"""Snapshot of the memory when it ran out: a JSON object on every device, on CUDA also the pickle for PyTorch's viewer.

Owns the folder ``memory/`` of a run. Only the first few shortages of a run are kept. The snapshot is taken when only
the failed try has been freed, and never ends the run: parts that fail are left out. Nothing here is ever loaded again;
the viewer is https://pytorch.org/memory_viz.
"""

from __future__ import annotations

import gc
import heapq
import json
import time
from collections import Counter
from collections.abc import Callable
from itertools import islice
from pathlib import Path
from typing import Any

import torch

from carla_run.files import write_whole
from carla_run.memory.processes import MIB, status_mib

KEPT = 5
"""Shortages of a run that leave a file."""

_SHOWN = 30
_OBJECTS = 2_000_000  # objects searched for tensors; a learner has about 200 000


def write(folder: Path, device: torch.device, shortage: dict[str, Any]) -> str | None:
    """Write the next snapshot into a folder and return its name; None if there are enough, or it failed.

    Args:
        folder: created if missing.
        device: of the learner.
        shortage: written to the file unchanged.
    """
    try:
        number = 1 + len(list(folder.glob("out-of-memory-*.json")))
        if number > KEPT:
            return None
        folder.mkdir(parents=True, exist_ok=True)
        path = folder / f"out-of-memory-{number}.json"
        parts: dict[str, Callable[[], Any]] = {"process_mib": status_mib, "tensors": _tensors}
        if device.type == "cuda":
            parts |= {"allocator": lambda: _allocator(device), "for_the_viewer": lambda: _dump(path)}
        found = {name: _tried(part) for name, part in parts.items()}
        account = {"time": round(time.time(), 3), "device": str(device), "shortage": shortage, **found}
        write_whole(path, json.dumps(account, indent=1) + "\n", durable=False)
    except Exception:  # a report of a shortage, made during a shortage: whatever fails, the run matters more
        return None
    return path.name


def _tried(part: Callable[[], Any]) -> Any:
    try:
        return part()
    except Exception as error:  # as above
        return f"{type(error).__name__}: {error}"


def _tensors() -> dict[str, Any]:
    """Return the storages of Python's tensors, summed by shape, dtype and device; the most bytes first.

    Storages that only PyTorch holds, such as a graph's saved activations, aren't included.
    """
    counts: Counter[tuple[str, str, str]] = Counter()
    sizes: Counter[tuple[str, str, str]] = Counter()
    seen: set[int] = set()
    for found in islice(gc.get_objects(), _OBJECTS):
        # By type: asking an object for its class can run its code.
        if not issubclass(type(found), torch.Tensor) or found.layout is not torch.strided:
            continue
        storage = found.untyped_storage()
        if storage.data_ptr() in seen:
            continue
        seen.add(storage.data_ptr())
        kind = (str(tuple(found.shape)), str(found.dtype).removeprefix("torch."), str(found.device))
        counts[kind] += 1
        sizes[kind] += storage.nbytes()
    biggest = heapq.nlargest(_SHOWN, sizes.items(), key=lambda entry: entry[1])
    return {
        "count": sum(counts.values()),
        "mib": _mib(sum(sizes.values())),
        "biggest": [
            {"shape": shape, "dtype": dtype, "device": device, "count": counts[shape, dtype, device], "mib": _mib(size)}
            for (shape, dtype, device), size in biggest
        ],
    }


def _allocator(device: torch.device) -> dict[str, Any]:
    free, total = torch.cuda.mem_get_info(device)
    stats = {name: value for name, value in torch.cuda.memory_stats(device).items() if value}
    return {"free_mib": _mib(free), "total_mib": _mib(total), **stats}


def _dump(path: Path) -> str:
    pickle = path.with_suffix(".pickle")
    torch.cuda.memory._dump_snapshot(str(pickle))  # type: ignore[no-untyped-call]
    return pickle.name


def _mib(size: int) -> float:
    return round(size / MIB, 3)
