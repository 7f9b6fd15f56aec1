"""What a configuration needs, item by item, before anything is allocated; and whether that fits what is free.

Owns the items, the allowances for what only a measurement knows, and the sentence of a refusal: pure functions over
plain data. Reads nothing (``free`` does) and allocates nothing.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from agent.config import AgentConfig
from agent.memory import layers
from agent.td3.frames import CACHED_ROWS
from agent.td3.ring import bytes_for

MIB = 2**20
Pool = Literal["device", "host", "disk"]
POOLS: tuple[Pool, ...] = ("device", "host", "disk")
Phase = Literal["always", "updating", "saving"]

# Measured: RssAnon of processes on Linux with torch 2.13 without CUDA, at 3 widths, 2 precisions and batches from 64 to
# 512. The workspace is what oneDNN takes beyond PyTorch's own allocations, and what the heap loses between blocks; the
# whole is from 17 MiB high to 13 MiB low.
_LEARNER_BASE = 235 * MIB
_COLLECTOR_BASE = 180 * MIB
_ONEDNN_KERNELS = 12 * MIB
_ONEDNN_WORKSPACE = 0.55  # of the activations
# Not measured here: the typical context (facts.md section 1), what cuBLAS (8 MiB a stream, 32 on Hopper), cuDNN and the
# allocator's rounding to 2 and 20 MiB may take, and the host's side of the driver.
CUDA_CONTEXT = 400 * MIB
_CUDA_WORKSPACE = 64 * MIB
_CUDA_HOST = 365 * MIB
_CHECKPOINT_BESIDE_TENSORS = MIB // 16  # names, generator, counters, manifest


@dataclass(frozen=True)
class Item:
    """One thing that takes memory: bytes by pool, and when it takes them."""

    name: str
    phase: Phase
    device: int = 0
    host: int = 0
    disk: int = 0


@dataclass(frozen=True)
class Free:
    """Bytes free were this run not there, by pool; None where there is no such pool, or nobody says."""

    device: int | None
    host: int | None
    disk: int | None


@dataclass(frozen=True)
class Estimate:
    """All items of a configuration."""

    batch: int
    items: tuple[Item, ...]

    def total(self, pool: Pool, phases: tuple[Phase, ...] = ("always", "updating", "saving")) -> int:
        """Return bytes; the sum over phases, for the C library keeps what an earlier one freed."""
        return sum(getattr(item, pool) for item in self.items if item.phase in phases)


def estimate(config: AgentConfig, cuda: bool, batch: int | None = None) -> Estimate:
    """Return what a configuration needs.

    Args:
        config: widths, batch, precision, replay and checkpoints are read.
        cuda: whether the learner is on a GPU.
        batch: instead of ``td3.batch_size``.
    """
    size = config.td3.batch_size if batch is None else batch
    return Estimate(
        size, (*_processes(config, cuda), *_networks(config, cuda), *_update(config, cuda, size), *_files(config, cuda))
    )


def _processes(config: AgentConfig, cuda: bool) -> tuple[Item, ...]:
    shapes = layers.parameter_shapes(config.td3.network)
    policy = layers.size(shapes, "encoder.") + layers.size(shapes, "actor.")
    return (
        Item("learner: Python, torch", "always", host=_LEARNER_BASE + cuda * _CUDA_HOST),
        Item("learner: CUDA context", "always", device=cuda * CUDA_CONTEXT),
        Item("collector: Python, torch, client", "always", host=_COLLECTOR_BASE),
        Item("collector: policy, and the weights just read", "always", host=2 * policy),
    )


def _networks(config: AgentConfig, cuda: bool) -> tuple[Item, ...]:
    shapes = layers.parameter_shapes(config.td3.network)
    whole = layers.size(shapes)
    moments = 2 * whole + layers.FLOAT * len(shapes)  # and a step counter each
    named = {"parameters": whole, "gradients": whole, "Adam's moments": moments, "targets": whole}
    return tuple(_placed(name, "always", size, cuda) for name, size in named.items())


def _update(config: AgentConfig, cuda: bool, batch: int) -> tuple[Item, ...]:
    sampled = layers.batch_bytes(batch)
    rows = None if cuda else CACHED_ROWS
    activations = layers.activation_bytes(config.td3.network, batch, config.td3.precision, rows)
    workspace = 0 if cuda else int(_ONEDNN_WORKSPACE * activations)
    return (
        Item("sampled batch", "always", host=sampled, device=cuda * sampled),
        _placed("kernels", "always", _CUDA_WORKSPACE if cuda else _ONEDNN_KERNELS, cuda),
        _placed("activations", "updating", activations, cuda),
        _placed("workspace and heap's holes", "updating", workspace, cuda),
    )


def _files(config: AgentConfig, cuda: bool) -> tuple[Item, ...]:
    shapes = layers.parameter_shapes(config.td3.network)
    whole = layers.size(shapes)
    checkpoint = 4 * whole + _CHECKPOINT_BESIDE_TENSORS  # online, targets, two moments
    kept = config.training.keep_checkpoints + 1  # and the best
    # Written from where the tensors are; copied are those of a GPU, and convolutions, whose layout no file knows.
    copied = 4 * (whole if cuda else layers.size(shapes, "encoder.conv"))
    return (
        Item("replay (page cache isn't counted)", "always", disk=bytes_for(config.replay.capacity)),
        Item(f"checkpoints: {kept} kept", "always", disk=kept * checkpoint),
        Item("checkpoint in the making", "saving", host=copied, disk=checkpoint),
    )


def _placed(name: str, phase: Phase, size: int, cuda: bool) -> Item:
    return Item(name, phase, device=size) if cuda else Item(name, phase, host=size)


def refusal(config: AgentConfig, cuda: bool, free: Free) -> str | None:
    """Return why the configuration can't fit, in one sentence with what would; None where it fits."""
    found = estimate(config, cuda)
    for pool in POOLS:
        if not _fits(found, free, pool, config):
            return _sentence(config, cuda, free, pool, found.total(pool))
    return None


def largest_batch(config: AgentConfig, cuda: bool, free: Free) -> int:
    """Return the largest batch, up to the configured one, that device and host can hold; 0 if none."""
    low, high = 0, config.td3.batch_size
    while low < high:
        middle = (low + high + 1) // 2
        tried = estimate(config, cuda, middle)
        holds = _fits(tried, free, "device", config) and _fits(tried, free, "host", config)
        low, high = (middle, high) if holds else (low, middle - 1)
    return low


def largest_replay(config: AgentConfig, cuda: bool, free: Free) -> int:
    """Return the largest replay, in rows, that the disk can hold beside the checkpoints.

    The configured one where nobody says what the disk has.
    """
    if free.disk is None:
        return config.replay.capacity
    others = estimate(config, cuda).total("disk") - bytes_for(config.replay.capacity) + bytes_for(0)
    return max(0, free.disk - others - _reserve(config)) // (bytes_for(1) - bytes_for(0))


def _fits(found: Estimate, free: Free, pool: Pool, config: AgentConfig) -> bool:
    room: int | None = getattr(free, pool)
    needed = found.total(pool)
    return room is None or needed == 0 or needed + _reserve(config) <= room


def _reserve(config: AgentConfig) -> int:
    return int(config.memory.reserve_mib * MIB)


def _sentence(config: AgentConfig, cuda: bool, free: Free, pool: Pool, needed: int) -> str:
    room = getattr(free, pool) / MIB
    where = {"device": "device memory", "host": "host memory", "disk": "disk"}[pool]
    short = (
        f"This configuration needs {needed / MIB:.0f} MiB of {where} beside memory.reserve_mib "
        f"{config.memory.reserve_mib:g}, and {room:.0f} MiB are free"
    )
    if pool == "disk":
        rows = largest_replay(config, cuda, free)
        return f"{short}: free some, or set replay.capacity to at most {rows}."
    batch = largest_batch(config, cuda, free)
    if batch == 0:
        way = ", or use --device cpu" if pool == "device" else ""
        return f"{short}; not even a batch of 1 fits: free some, choose a narrower td3.network{way}."
    return f"{short}: the largest td3.batch_size that fits is {batch}, not {config.td3.batch_size}."
