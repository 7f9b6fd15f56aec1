"""Costs and savings of each way to need less memory: peak bytes and milliseconds per update, side by side.

The ways: a smaller batch, bfloat16 or float16 in the encoder, micro-batches, Adam's state and the targets on the host,
the CPU instead of the GPU. Each row is measured in a separate process, on pictures that vary, without sampling.

On the CPU the peak is the kernel's high-water mark of resident memory during the timed updates (VmHWM, reset before
them by /proc/self/clear_refs), without pages of files. Subtracted is the memory with the batch and after one update of
the smallest networks, so that libraries are loaded. What remains is networks, Adam, gradients, activations, oneDNN's
code and scratch, and freed memory that the heap keeps, as in the learner. On a GPU the peaks are those of PyTorch's
allocator, allocated and reserved, from before the networks are created. Beside them is the estimate of
``carla_td3.memory.estimate`` for the same items. Run: ``python benchmarks/ways.py --json``.
"""

from __future__ import annotations

import gc
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Any, Literal, get_args

import numpy as np
import torch
import typer
from measuring import counted, machine
from rich.console import Console
from rich.table import Table

from carla_run.memory.processes import held_mib
from carla_td3 import config
from carla_td3.config import AgentConfig, NetworkConfig, Offload
from carla_td3.memory import heap
from carla_td3.memory.estimate import estimate
from carla_td3.memory.recovery import Recovery
from carla_td3.td3.replay.frames import ACTION, SIDE, STACK, VECTOR, space_to_depth
from carla_td3.td3.replay.replay import Batch
from carla_td3.td3.td3 import TD3

MIB = 2**20
CORES = os.cpu_count() or 1
BATCHES = (256, 64, 32)
PRECISIONS = ("float32", "bfloat16", "float16")
SMALLEST_PART = 8
OFFLOADS: tuple[tuple[Offload, ...], ...] = ((), ("optimizer",), get_args(Offload))
_KEPT = ("parameters", "gradients", "Adam's moments", "targets")
_COUNTED = (*_KEPT, "activations", "workspace and heap gaps", "kernels")


@dataclass(frozen=True)
class Way:
    """One row."""

    device: Literal["cpu", "cuda"]
    batch: int
    micro_batch: int
    precision: str
    offload: tuple[Offload, ...] = ()

    def config(self) -> AgentConfig:
        """Return it as a configuration of the full-size agent."""
        td3 = {"batch_size": self.batch, "micro_batch": self.micro_batch, "precision": self.precision}
        return config.validate({"td3": td3, "memory": {"offload": self.offload}}, "ways")


def main(
    batch: Annotated[
        list[int] | None, typer.Option(help="Batch size; can be repeated. Default: 256, 64 and 32.")
    ] = None,
    precision: Annotated[list[str] | None, typer.Option(help="Precision; can be repeated. Default: all three.")] = None,
    seconds: Annotated[
        float, typer.Option(help="Duration of each row's measurement, in seconds; two updates at least.")
    ] = 1.5,
    threads: Annotated[int, typer.Option(min=1, help="Threads of PyTorch. Default: the learner's.")] = max(
        1, CORES - 1
    ),
    device: Annotated[Literal["cpu", "cuda"] | None, typer.Option(help="Measure only the rows of this device.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the result as JSON.")] = False,
    row: Annotated[str | None, typer.Option(hidden=True)] = None,
) -> None:
    """Measure every way in turn."""
    if row is not None:
        print(json.dumps(_measure(Way(**json.loads(row)), seconds, threads)))
        return
    ways = [way for way in _ways(batch or BATCHES, precision or PRECISIONS) if device in (None, way.device)]
    rows = [{**asdict(way), **estimated(way), **measured(way, seconds, threads)} for way in counted(ways, "way")]
    report = {
        "what": "peak MiB beyond an idle process and median ms of an update, by way of giving way; sampling left out",
        "threads": threads,
        "card": torch.cuda.get_device_name() if torch.cuda.is_available() else None,
        "rows": rows,
        "machine": machine("torch", "numpy"),
    }
    if as_json:
        print(json.dumps(report, indent=1))
    else:
        Console(width=120).print(_table(rows))


def _ways(batches: list[int] | tuple[int, ...], precisions: list[str] | tuple[str, ...]) -> Iterator[Way]:
    for batch in batches:
        for precision in precisions:
            for part in sorted({batch, batch // 2, batch // 4, 16} - set(range(SMALLEST_PART)), reverse=True):
                yield Way("cpu", batch, part, precision)
                for offload in OFFLOADS:
                    yield Way("cuda", batch, part, precision, offload)


def measured(way: Way, seconds: float, threads: int = 1) -> dict[str, Any]:
    """Return a row's figures from a new process, or why there are none."""
    if way.device == "cuda" and not torch.cuda.is_available():
        return {"not_measured": "torch sees no CUDA device here"}
    command = [sys.executable, __file__, "--row", json.dumps(asdict(way))]
    options = ["--seconds", str(seconds), "--threads", str(threads)]
    ended = subprocess.run([*command, *options], check=False, capture_output=True, text=True)
    if ended.returncode != 0:  # a GPU may lack a precision, or memory for a batch
        said = [line.strip() for line in ended.stderr.splitlines() if line.strip()]
        return {"not_measured": said[-1] if said else f"exit code {ended.returncode}"}
    figures: dict[str, Any] = json.loads(ended.stdout)
    return figures


def estimated(way: Way) -> dict[str, float]:
    """Return the footprint's figures for the measured items, MiB."""
    found = estimate(way.config(), way.device == "cuda")
    counted = [item for item in found.items if item.name in _COUNTED or "page-locked" in item.name]
    device, host = sum(item.device for item in counted), sum(item.host for item in counted)
    return {"estimated_device_mib": round(device / MIB, 1), "estimated_host_mib": round(host / MIB, 1)}


def _measure(way: Way, seconds: float, threads: int) -> dict[str, Any]:
    torch.set_num_threads(threads)
    settings, device = way.config(), torch.device(way.device)
    batch = _batch(way.batch)
    _load_libraries(way, device, batch)
    heap.keep()  # as the learner does
    heap.give_back()  # memory from making the batch
    base_mib = held_mib(os.getpid()) or 0.0
    td3 = TD3(settings.td3, device, seed=0, offload=way.offload if way.device == "cuda" else ())
    recovery = Recovery(way.batch, way.micro_batch, td3.executor.release, _refuse)
    _two_updates(td3, batch, recovery)  # kernels and allocators warm up
    Path("/proc/self/clear_refs").write_text("5", encoding="ascii")  # resets VmHWM to the present value
    spent_ms: list[float] = []
    while sum(spent_ms) < 1000 * seconds / 2 or not spent_ms:
        spent_ms.append(_two_updates(td3, batch, recovery))
    figures = {"ms": round(statistics.median(spent_ms), 2), "updates": 2 * len(spent_ms)}
    figures["peak_host_mib"] = round(_high_water_mib() - base_mib, 1)
    if way.device == "cuda":
        figures["peak_device_allocated_mib"] = round(torch.cuda.max_memory_allocated() / MIB, 1)
        figures["peak_device_reserved_mib"] = round(torch.cuda.max_memory_reserved() / MIB, 1)
    return figures


def _load_libraries(way: Way, device: torch.device, batch: Batch) -> None:
    smallest = NetworkConfig(channels=(1, 1, 1), features=1, hidden=(1,))
    tiny = TD3(way.config().td3.model_copy(update={"network": smallest}), device, seed=0)
    _two_updates(tiny, batch[:1], Recovery(1, None, tiny.executor.release, _refuse))
    del tiny
    gc.collect()
    if device.type == "cuda":
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()


def _two_updates(td3: TD3, batch: Batch, recovery: Recovery) -> float:
    """Return the milliseconds per update, with the actor's share in every second one."""
    begun_s = time.perf_counter()
    for _ in range(2):
        td3.update(batch, recovery.attempt)
    if td3.executor.device.type == "cuda":
        torch.cuda.synchronize()
    return 1000 * (time.perf_counter() - begun_s) / 2


def _refuse(shortage: object) -> None:
    raise AssertionError(f"memory ran out, so this row would show another way: {shortage}")


def _high_water_mib() -> float:
    """Return the process's highest resident memory since the reset, without pages of files."""
    lines = Path("/proc/self/status").read_text(encoding="ascii").splitlines()
    kib = {name: int(rest.split()[0]) for name, _, rest in (line.partition(":") for line in lines) if "kB" in rest}
    return (kib["VmHWM"] - kib["RssFile"]) / 1024


def _batch(size: int) -> Batch:
    rng = np.random.default_rng(0)
    edge = SIDE / 2 + SIDE / 3 * np.sin(np.arange(size * (STACK + 1)) / 20)
    road = np.where(np.arange(SIDE) < edge[:, None], 60, 180)[:, None, :]  # an edge that wanders over noise
    pictures = (road + rng.integers(0, 60, (len(edge), SIDE, SIDE))).astype(np.uint8)
    assert pictures.reshape(len(edge), -1).std(axis=1).min() > 0, "a picture is blank"
    assert len(np.unique(pictures.reshape(len(edge), -1), axis=0)) == len(edge), "pictures are alike"
    frames = torch.from_numpy(space_to_depth(pictures.reshape(size, STACK + 1, SIDE, SIDE)))
    generator = torch.Generator().manual_seed(0)
    vectors = torch.randn(2, size, VECTOR, generator=generator)
    action = torch.rand(size, ACTION, generator=generator) * 2 - 1
    reward, terminated = torch.randn(size, generator=generator), torch.zeros(size)
    none, once = torch.empty(size, 0), torch.ones(size)
    return Batch(frames, vectors[0], vectors[1], action, reward, terminated, none, none, once)


def _table(rows: list[dict[str, Any]]) -> Table:
    columns = ("device", "batch", "micro_batch", "precision", "offload", "ms")
    peaks = ("peak_host_mib", "estimated_host_mib", "peak_device_allocated_mib", "estimated_device_mib")
    table = Table(title="Ways of giving way; – is not measured", title_justify="left")
    for column in (*columns, *peaks):
        table.add_column(column.replace("_", " "), justify="right")
    for row in rows:
        shown = {**row, "offload": " ".join(row["offload"]) or "none"}
        table.add_row(*(str(shown.get(column, "–")) for column in (*columns, *peaks)))
    return table


if __name__ == "__main__":
    typer.run(main)
