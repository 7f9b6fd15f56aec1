"""Compares the estimate of GPU memory with the memory really taken, which must not be more.

A row is an update of the full-size agent at one batch and precision, in a separate process (``ways``). On a GPU the
estimate is compared with the peak of PyTorch's allocator, on the CPU with the process's high-water mark. The context is
the device memory that a second process without a tensor adds. Run: ``python benchmarks/card_footprint.py --json``. Exit
code 1: an estimate is too low, or a row couldn't be measured.
"""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import asdict
from typing import Annotated, Any, Literal

import torch
import typer
from measuring import machine
from ways import MIB, PRECISIONS, Way, estimated, measured

from carla_td3.memory.estimate import CUDA_CONTEXT

BATCHES = (32, 64, 256)
_HOLD = "import torch; print(*torch.cuda.mem_get_info(), flush=True); input()"
_COLUMNS = {
    "cuda": ("peak_device_reserved_mib", "estimated_device_mib"),
    "cpu": ("peak_host_mib", "estimated_host_mib"),
}


def main(
    device: Annotated[Literal["cpu", "cuda"], typer.Option(help="Device that computes the updates.")] = "cuda",
    batch: Annotated[
        list[int] | None, typer.Option(help="Batch size; can be repeated. Default: 32, 64 and 256.")
    ] = None,
    precision: Annotated[list[str] | None, typer.Option(help="Precision; can be repeated. Default: all three.")] = None,
    seconds: Annotated[float, typer.Option(help="Seconds of updates per row.")] = 0.5,
    as_json: Annotated[bool, typer.Option("--json", help="Print the result as JSON.")] = False,
) -> None:
    """Measure each batch in each precision, and hold the estimate against it."""
    ways = [Way(device, size, size, each) for size in batch or BATCHES for each in precision or PRECISIONS]
    rows = [_row(way, seconds) for way in ways]
    report = {
        "what": "MiB that an update takes at most, beside the estimate of the same items",
        "device": torch.cuda.get_device_name() if device == "cuda" else device,
        "context_mib": context_mib() if device == "cuda" else None,
        "estimated_context_mib": CUDA_CONTEXT / MIB,
        "rows": rows,
        "machine": machine("torch", "numpy"),
    }
    print(json.dumps(report, indent=1) if as_json else "\n".join(map(_line, rows)))
    raise typer.Exit(int(not all(row["enough"] for row in rows)))


def context_mib() -> float:
    """Return the memory that one more process takes on the device without computing; others must be idle meanwhile."""
    with _holding() as first:
        before = _used(first)
        with _holding() as second:
            return round((_used(second) - before) / MIB, 1)


def _holding() -> subprocess.Popen[str]:
    return subprocess.Popen([sys.executable, "-c", _HOLD], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


def _used(process: subprocess.Popen[str]) -> int:
    assert process.stdout is not None
    free, total = map(int, process.stdout.readline().split())
    return total - free


def _row(way: Way, seconds: float) -> dict[str, Any]:
    found = {**asdict(way), **estimated(way), **measured(way, seconds)}
    taken, expected = (found.get(column) for column in _COLUMNS[way.device])
    return {**found, "enough": taken is not None and taken <= expected}


def _line(row: dict[str, Any]) -> str:
    taken, expected = (row.get(column, "–") for column in _COLUMNS[row["device"]])
    verdict = "enough" if row["enough"] else row.get("not_measured", "TOO LOW")
    return f"batch {row['batch']} {row['precision']}: {taken} MiB taken, {expected} estimated: {verdict}"


if __name__ == "__main__":
    typer.run(main)
