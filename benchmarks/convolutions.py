"""Speed of the encoder's three convolutions, in billions of operations per second, compared with a matrix product.

It measures the forward pass, and the backward pass for the weights of all three layers and the inputs of the last two.
Both are in float32, and include ReLU, the conversion of frames and the splitting of the batch. If the speed is near the
matrix product's, an update can only get faster with fewer operations. Run:
``python benchmarks/convolutions.py --isa AVX2 --json``.
"""

from __future__ import annotations

import json
import os
import statistics
import time
from collections.abc import Callable
from itertools import pairwise
from typing import Annotated, Any

import typer
from measuring import Cap, counted, hold_to, machine, spread
from rich.console import Console
from rich.table import Table

SIZE = 1024
"""Size of the matrices."""
FRAMES = (4, 21, 21, 16)
KERNELS, CHANNELS, CELLS = (8 * 8, 4 * 4, 3 * 3), (4, 32, 64, 64), (20 * 20, 9 * 9, 7 * 7)
"""NatureCNN at 84×84, by layer: pixels of a kernel, channels of input and outputs, pixels of the output."""


def main(
    batch: Annotated[int, typer.Option(min=1, help="Frames per batch.")] = 256,
    repeats: Annotated[int, typer.Option(min=1, help="Measurements of each function.")] = 15,
    threads: Annotated[int, typer.Option(min=1, help="Threads of PyTorch.")] = os.cpu_count() or 1,
    isa: Annotated[Cap | None, typer.Option(help="Largest instruction set that oneDNN, ATen and MKL may use.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the result as JSON.")] = False,
) -> None:
    """Measure the encoder's convolutions and a matrix product alternately."""
    hold_to(isa)
    ways = _ways(batch, threads)
    rates: dict[str, list[float]] = {name: [] for name in ways}
    for turn in counted(range(repeats + 1), "turn"):
        for name, (run, operations) in ways.items():
            rate = operations / _seconds(run) / 1e9
            if turn:  # the first turn also generates code and allocates memory
                rates[name].append(rate)
    share = {name: statistics.median(rate) / statistics.median(rates["product"]) for name, rate in rates.items()}
    report = {
        "what": "GFLOP/s of the encoder's convolutions and of a matrix product, float32",
        "batch": batch,
        "threads": threads,
        "isa": isa,
        "gflops": {name: spread(rate) for name, rate in rates.items()},
        "of_the_product": {name: round(value, 2) for name, value in share.items()},
        "machine": machine("torch"),
    }
    print(json.dumps(report, indent=1)) if as_json else _show(report)


def _ways(batch: int, threads: int) -> dict[str, tuple[Callable[[], object], float]]:
    """Return the timed functions with their numbers of operations. A multiplication and an addition are two."""
    import torch

    from carla_td3.config import NetworkConfig
    from carla_td3.memory import heap
    from carla_td3.td3.kernels.convolutions import convolved
    from carla_td3.td3.networks import Encoder

    torch.set_num_threads(threads)
    heap.keep()  # as the learner does
    encoder = Encoder(NetworkConfig(channels=CHANNELS[1:]))
    layers = (encoder.conv1, encoder.conv2, encoder.conv3)
    frames = torch.randint(0, 256, (batch, *FRAMES), dtype=torch.uint8)
    weights, biases = [layer.weight for layer in layers], [layer.bias for layer in layers if layer.bias is not None]
    left, right = torch.randn(SIZE, SIZE), torch.randn(SIZE, SIZE)

    def forwards() -> torch.Tensor:
        return convolved(frames, weights, biases, torch.float32)

    kept = forwards()
    gradient = torch.randn_like(kept)

    def back() -> Any:
        return torch.autograd.grad(kept, [*weights, *biases], gradient, retain_graph=True)

    each = [2 * batch * a * b * k * c for (a, b), k, c in zip(pairwise(CHANNELS), KERNELS, CELLS, strict=True)]
    return {
        "product": (lambda: left @ right, 2 * SIZE**3),
        "forwards": (forwards, sum(each)),
        "back": (back, sum(each) + sum(each[1:])),
    }


def _seconds(run: Callable[[], object]) -> float:
    begun = time.perf_counter()
    run()
    return time.perf_counter() - begun


def _show(report: dict[str, Any]) -> None:
    view = Table(title=f"{report['machine']['processor']}, held to {report['isa'] or 'nothing'}, float32")
    for column in ("what", "GFLOP/s", "least", "most", "of the product"):
        view.add_column(column, justify="left" if column == "what" else "right")
    for name, rate in report["gflops"].items():
        figures = (f"{rate[which]:.0f}" for which in ("median", "min", "max"))
        view.add_row(name, *figures, f"{report['of_the_product'][name]:.2f}")
    Console().print(view)


if __name__ == "__main__":
    typer.run(main)
