"""What a configuration needs, item by item, before anything is allocated; and whether that fits what is free.

Owns the items, the allowances for what only a measurement knows, and the sentence of a refusal: pure functions over
plain data, and what a precision comes to on this CPU (``td3.arithmetic``). Reads nothing (``free`` does).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, get_args

from agent.config import AgentConfig
from agent.memory import layers
from agent.memory.peak import update_bytes
from agent.memory.settings import Offload
from agent.td3.arithmetic import computed, cpu_unfolds_float16
from agent.td3.frames import CACHED_ROWS
from agent.td3.layout import bytes_for

MIB = 2**20
Pool = Literal["device", "host", "disk"]
POOLS: tuple[Pool, ...] = ("device", "host", "disk")
Phase = Literal["always", "updating", "saving", "filming"]

# Measured: RssAnon of processes on Linux with torch 2.13 without CUDA, at 3 widths, 2 precisions and batches from 64 to
# 512. The workspace is what oneDNN takes beyond PyTorch's own allocations, and what the heap loses between blocks; the
# whole is from 17 MiB high to 13 MiB low.
_LEARNER_BASE = 235 * MIB
_COLLECTOR_BASE = 180 * MIB
_VIDEO_ENCODER = 45 * MIB  # a child of the collector (`judging.visual` says why it is so little)
_ONEDNN_KERNELS = 12 * MIB
_ONEDNN_WORKSPACE = 0.55  # of the activations
_FLOAT16_WORKSPACE = 1.5  # of the same on the CPU, where PyTorch's own kernels compute it: seen from 0.5 to 2
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
    folder: str = "the run's directory"
    """Whose disk it is."""


@dataclass(frozen=True)
class Estimate:
    """All items of a configuration."""

    batch: int
    items: tuple[Item, ...]

    def total(self, pool: Pool, phases: tuple[Phase, ...] = get_args(Phase)) -> int:
        """Return bytes; the sum over phases, for the C library keeps what an earlier one freed."""
        return sum(getattr(item, pool) for item in self.items if item.phase in phases)


def estimate(config: AgentConfig, cuda: bool, batch: int | None = None, micro_batch: int | None = None) -> Estimate:
    """Return what a configuration needs.

    Args:
        config: widths, batch, micro-batch, precision, offload, replay and checkpoints are read.
        cuda: whether the learner is on a GPU.
        batch: instead of ``td3.batch_size``.
        micro_batch: instead of ``td3.micro_batch``.
    """
    size = config.td3.batch_size if batch is None else batch
    rows = min(size, micro_batch or config.td3.micro_batch or size)
    update = _update(config, cuda, size, rows)
    return Estimate(size, (*_processes(config, cuda), *_networks(config, cuda), *update, *_files(config, cuda)))


def _processes(config: AgentConfig, cuda: bool) -> tuple[Item, ...]:
    shapes = _shapes(config)
    policy = layers.size(shapes, "encoder.") + layers.size(shapes, "actor.")
    return (
        Item("learner: Python, torch", "always", host=_LEARNER_BASE + cuda * _CUDA_HOST),
        Item("learner: CUDA context", "always", device=cuda * CUDA_CONTEXT),
        Item("collector: Python, torch, client", "always", host=_COLLECTOR_BASE),
        Item("video's encoder", "filming", host=_films(config) * _VIDEO_ENCODER),
        Item("collector: policy, and the weights just read", "always", host=2 * policy),
    )


def _films(config: AgentConfig) -> bool:
    return config.evaluation.video and config.evaluation.final_episodes > 0


def _networks(config: AgentConfig, cuda: bool) -> tuple[Item, ...]:
    shapes = _shapes(config)
    whole, locked = layers.size(shapes), layers.page_locked(shapes)
    offload = config.memory.offload if cuda else ()
    moments = 2 * whole + layers.FLOAT * len(shapes)  # and a step counter each
    items = [
        _placed("parameters", "always", whole, cuda),
        _placed("gradients", "always", whole, cuda),
        _placed("Adam's moments", "always", moments, cuda and "optimizer" not in offload),
        # Targets that visit the device take the room of gradients, which aren't there then.
        _placed("targets", "always", locked if "targets" in offload else whole, cuda and "targets" not in offload),
    ]
    if "optimizer" in offload:
        items.append(Item("masters and their gradients, page-locked", "always", host=2 * locked))
    elif "targets" in offload:
        items.append(Item("parameters for the targets, page-locked", "always", host=locked))
    return tuple(items)


def _update(config: AgentConfig, cuda: bool, batch: int, rows: int) -> tuple[Item, ...]:
    network, side = config.td3.network, config.environment.camera.width
    precision = computed(config.td3.precision, cuda)
    unfolds = precision == "float16" and not cuda and cpu_unfolds_float16()
    whole = layers.size(_shapes(config))
    cached_rows = None if cuda else CACHED_ROWS
    peak = update_bytes(network, batch, rows, precision, cached_rows, side, unfolds)
    activations = max(0, peak - whole)  # what goes beyond the gradients, which are counted whole for all the time
    share = _FLOAT16_WORKSPACE if unfolds else _ONEDNN_WORKSPACE
    workspace = 0 if cuda else int(share * activations)
    return (
        Item(
            "sampled batch",
            "always",
            host=layers.batch_bytes(batch, side),
            device=cuda * layers.batch_bytes(rows, side),
        ),
        _placed("kernels", "always", _CUDA_WORKSPACE if cuda else _ONEDNN_KERNELS, cuda),
        _placed("activations", "updating", activations, cuda),
        _placed("workspace and heap's holes", "updating", workspace, cuda),
    )


def _files(config: AgentConfig, cuda: bool) -> tuple[Item, ...]:
    shapes = _shapes(config)
    whole = layers.size(shapes)
    checkpoint = 4 * whole + _CHECKPOINT_BESIDE_TENSORS  # online, targets, two moments
    kept = config.training.keep_checkpoints + 1  # and the best
    # Written from where the tensors are; copied are those of a GPU, and convolutions, whose layout no file knows.
    copied = 4 * (whole if cuda else layers.size(shapes, "encoder.conv"))
    return (
        Item("replay (page cache isn't counted)", "always", disk=_replay_bytes(config, config.replay.capacity)),
        Item(f"checkpoints: {kept} kept", "always", disk=kept * checkpoint),
        Item("checkpoint in the making", "saving", host=copied, disk=checkpoint),
    )


def _shapes(config: AgentConfig) -> layers.Shapes:
    return layers.parameter_shapes(config.td3.network, config.environment.camera.width)


def _replay_bytes(config: AgentConfig, capacity: int) -> int:
    return bytes_for(capacity, config.environment.camera.width)


def _placed(name: str, phase: Phase, size: int, cuda: bool) -> Item:
    return Item(name, phase, device=size) if cuda else Item(name, phase, host=size)


def refusal(config: AgentConfig, cuda: bool, free: Free) -> str | None:
    """Return why the configuration can't fit, in one sentence with what would; None where it fits."""
    pool = short_pool(config, cuda, free)
    return None if pool is None else _sentence(config, cuda, free, pool, estimate(config, cuda).total(pool))


def short_pool(config: AgentConfig, cuda: bool, free: Free) -> Pool | None:
    """Return the first pool that the configuration doesn't fit into; None where it fits."""
    found = estimate(config, cuda)
    return next((pool for pool in POOLS if not _fits(found, free, pool, config)), None)


def largest_batch(config: AgentConfig, cuda: bool, free: Free) -> int:
    """Return the largest batch, up to the configured one, that device and host can hold; 0 if none."""
    return _largest(config.td3.batch_size, lambda size: _holds(estimate(config, cuda, size), free, config))


def largest_micro_batch(config: AgentConfig, cuda: bool, free: Free) -> int:
    """Return the largest part of the configured batch that device and host can hold; 0 if none, or nothing to cut."""
    rows = min(config.td3.micro_batch or config.td3.batch_size, config.td3.batch_size)
    return _largest(rows - 1, lambda part: _holds(estimate(config, cuda, micro_batch=part), free, config))


def _largest(high: int, fits: Callable[[int], bool]) -> int:
    """Return the largest number up to ``high`` that fits, 0 if none; what is below one that fits does, too."""
    low = 0
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if fits(middle) else (low, middle - 1)
    return low


def largest_replay(config: AgentConfig, cuda: bool, free: Free) -> int:
    """Return the largest replay, in rows, that the disk can hold beside the checkpoints.

    The configured one where nobody says what the disk has.
    """
    if free.disk is None:
        return config.replay.capacity
    others = estimate(config, cuda).total("disk") - _replay_bytes(config, config.replay.capacity)
    others += _replay_bytes(config, 0)
    row = _replay_bytes(config, 1) - _replay_bytes(config, 0)
    return max(0, free.disk - others - _reserve(config)) // row


def _holds(found: Estimate, free: Free, config: AgentConfig) -> bool:
    return _fits(found, free, "device", config) and _fits(found, free, "host", config)


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
        return f"{short} in {free.folder}: free some disk there, or set replay.capacity to at most {rows}."
    batch, part = largest_batch(config, cuda, free), largest_micro_batch(config, cuda, free)
    if batch == 0:
        return f"{short}; not even a batch of 1 fits: {_ways_out(config, pool)}."
    cut = f"td3.micro_batch {part} would do, and costs time alone; else " if part else ""
    return f"{short}: {cut}the largest td3.batch_size that fits is {batch}, not {config.td3.batch_size}."


def _ways_out(config: AgentConfig, pool: Pool) -> str:
    if pool == "host":
        return "free some, or choose a narrower td3.network"
    offload = "" if len(config.memory.offload) == len(get_args(Offload)) else "set memory.offload, "
    return f"free some, {offload}choose a narrower td3.network, or use --device cpu"
