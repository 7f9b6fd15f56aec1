"""A dry run: allocates what a run will need by doing it once on throw-away data.

Owns the throw-away batch, the order and the peak. Changes no state of learning (a test compares bit for bit), and frees
nothing, so that the allocator's cache is filled. Adam's state exists since the algorithm was created.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import torch

from carla_td3.td3.algorithm import Algorithm
from carla_td3.td3.executor import Attempt
from carla_td3.td3.replay.replay import Batch

T = TypeVar("T")


@dataclass(frozen=True)
class Peaks:
    """Highest memory until the end of the dry run, in MiB."""

    host_peak_mib: float | None
    """The process's resident peak, pages of mapped files included; None if Linux doesn't say."""
    device_allocated_peak_mib: float | None
    """Peak of tensors on a CUDA device; None on the CPU."""
    device_reserved_peak_mib: float | None
    """Peak of the allocator's cache there, which the process keeps; None on the CPU."""


def dry_run(algorithm: Algorithm, batch_size: int, attempt: Attempt) -> Peaks:
    """Make one full-size update of all phases, an acting step and a checkpoint's copy, without effect.

    Args:
        algorithm: its weights, targets, Adam state, counters and noise are the same afterwards, bit for bit.
        batch_size: rows of the throw-away batch.
        attempt: as in ``Algorithm.update``: the necessary micro-batch is found here, before learning begins.

    Raises:
        AgentError: it does not fit (exit 71).
    """
    batch = zero_batch(algorithm, batch_size)

    def named(phase: str, run: Callable[[int], T], rows: int) -> T:
        return attempt(f"rehearsed {phase}", run, rows)

    with algorithm.dry_run():
        algorithm.update(batch, named)
    named("acting", lambda _: _act(algorithm, batch[:1]), 1)
    algorithm.state(copies=False)
    return _peaks(algorithm.executor.device)


def zero_batch(algorithm: Algorithm, rows: int) -> Batch:
    """Return a batch of zeros."""
    batch = Batch.empty(rows, algorithm.stack, algorithm.config.n_step, algorithm.privileged)
    for name in batch.__dataclass_fields__:
        getattr(batch, name).zero_()
    batch.discount.fill_(1)  # without a target, the gradients would be zeros too
    return batch


@torch.inference_mode()
def _act(algorithm: Algorithm, part: Batch) -> None:
    seen, policy = part.to(algorithm.executor.device), algorithm.online
    policy.actor(policy.features(seen.frames[:, : policy.stack.frames], seen.vector, seen.privileged), seen.vector)


def _peaks(device: torch.device) -> Peaks:
    cuda = device.type == "cuda"
    return Peaks(
        host_peak_mib=_high_water_mib(),
        device_allocated_peak_mib=torch.cuda.max_memory_allocated(device) / 2**20 if cuda else None,
        device_reserved_peak_mib=torch.cuda.max_memory_reserved(device) / 2**20 if cuda else None,
    )


def _high_water_mib() -> float | None:
    try:
        lines = Path("/proc/self/status").read_text(encoding="ascii", errors="replace").splitlines()
    except OSError:
        return None
    return next((round(int(line.split()[1]) / 1024, 1) for line in lines if line.startswith("VmHWM:")), None)
