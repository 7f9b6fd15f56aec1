"""Estimate of the memory that an agent will need, item by item, before anything is allocated; also for variants.

Owns the items, the allowances for what can only be measured, and the answer to ``--variants``, from which the launcher
builds its ladder. Reads nothing and asks no GPU; only the precision depends on this CPU.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, get_args

from carla_run.memory.processes import MIB as MIB
from carla_td3 import config as configuration
from carla_td3 import layered_yaml
from carla_td3.config import AgentConfig, ConfigError
from carla_td3.memory.sizes import FLOAT, Networks, batch_bytes
from carla_td3.pins import Pin, pinned
from carla_td3.td3.kernels.arithmetic import CACHED_ROWS, computed, cpu_unfolds_float16
from carla_td3.td3.replay.frames import FrameStack, told
from carla_td3.td3.replay.layout import bytes_for, privileged_numbers

Pool = Literal["device", "host", "disk"]
POOLS: tuple[Pool, ...] = ("device", "host", "disk")
Phase = Literal["always", "updating", "saving", "filming"]
PHASES: dict[str, tuple[Phase, ...]] = {
    "warming": ("always", "updating"),
    "collecting": ("always", "updating"),
    "updating": ("always", "updating"),
    "evaluating": ("always", "updating"),
    "saving": ("always", "updating", "saving"),
}
"""Phases of agent.json that have an estimate. The dry run makes a whole update, whose memory stays allocated."""

# Measured: RssAnon of processes on Linux with torch 2.13 without CUDA, at 3 widths, 2 precisions and batches from 64 to
# 512. The workspace is what oneDNN needs beyond PyTorch's own allocations, plus the heap's losses between blocks. The
# total is between 17 MiB too high and 13 MiB too low.
_LEARNER_BASE = 168 * MIB
_COLLECTOR_BASE = 180 * MIB
_DRIVER_BASE = 180 * MIB  # measured with Ray 2.60; its machine's raylet comes on top
_VIDEO_ENCODER = 45 * MIB  # a child of the collector (`evaluation.video` says how it stays this small)
_ONEDNN_KERNELS = 12 * MIB
_ONEDNN_WORKSPACE = 0.55  # share of the activations
_FLOAT16_WORKSPACE = 1.5  # the same share for float16 on the CPU, with PyTorch's own kernels: seen from 0.5 to 2
# Not measured here: the typical context (facts.md section 1), the needs of cuBLAS (8 MiB per stream, 32 on Hopper) and
# cuDNN, the allocator's rounding to 2 and 20 MiB, and the driver's share on the host.
CUDA_CONTEXT = 400 * MIB
_CUDA_WORKSPACE = 64 * MIB
_CUDA_HOST = 365 * MIB
# Nor are these: cuBLAS's workspaces for the streams of warm-up and recording, the arguments of some 400 recorded
# kernels, and the rounding of a pool that shares no block with others.
_CUDA_GRAPHS = 96 * MIB
_CHECKPOINT_BESIDE_TENSORS = MIB // 16  # names, generator, counters, manifest


@dataclass(frozen=True)
class Item:
    """One item of memory: bytes by pool, and the phases in which it is taken."""

    name: str
    phase: Phase
    device: int = 0
    host: int = 0
    disk: int = 0


@dataclass(frozen=True)
class Free:
    """Free bytes by pool, counting what this run holds as free; None if there is no such pool, or it is unknown."""

    device: int | None
    host: int | None
    disk: int | None
    folder: str = "the run's directory"
    """Folder whose disk is meant."""


@dataclass(frozen=True)
class Estimate:
    """All items of a configuration."""

    batch: int
    items: tuple[Item, ...]

    def total(self, pool: Pool, phases: tuple[Phase, ...] = get_args(Phase)) -> int:
        """Return the bytes, summed over phases, since the C library keeps what an earlier phase freed."""
        return sum(getattr(item, pool) for item in self.items if item.phase in phases)


def estimate(config: AgentConfig, cuda: bool, batch: int | None = None, micro_batch: int | None = None) -> Estimate:
    """Return the estimate for a configuration.

    Args:
        config: widths, batch, micro-batch, precision, offload, replay and checkpoints are read.
        cuda: whether the learner is on a GPU.
        batch: instead of ``td3.batch_size``.
        micro_batch: instead of ``td3.micro_batch``.
    """
    size = config.td3.batch_size if batch is None else batch
    rows = min(size, micro_batch or config.td3.micro_batch or size)
    privileged = privileged_numbers(config.environment)
    seen, predicted = config.td3.seen(told(privileged)), config.td3.predicted(told(privileged))
    networks = Networks(config.td3.network, FrameStack.of(config.environment.camera), seen, predicted)
    followed = replace(networks, predicted=0)  # only the auxiliary head has no target
    items = (
        *_processes(config, cuda, networks),
        *_learned(config.memory.offload if cuda else (), cuda, networks, followed),
        *_update(config, cuda, size, rows, networks),
        *_files(config, cuda, networks, followed),
    )
    return Estimate(size, items)


def _processes(config: AgentConfig, cuda: bool, networks: Networks) -> tuple[Item, ...]:
    policy = networks.parameter_bytes("encoder.") + networks.parameter_bytes("actor.")
    on_cluster = config.cluster.address is not None
    collectors = 0 if on_cluster else config.collectors_at_work
    films = config.evaluation.video and config.evaluation.final_episodes > 0
    return (
        Item("learner: Python, torch", "always", host=_LEARNER_BASE + cuda * _CUDA_HOST),
        Item("learner: CUDA context", "always", device=cuda * CUDA_CONTEXT),
        Item("collector: Python, torch, client", "always", host=collectors * _COLLECTOR_BASE),
        *((Item("cluster's driver: Python, torch, Ray", "always", host=_DRIVER_BASE),) if on_cluster else ()),
        Item("video's encoder", "filming", host=films * _VIDEO_ENCODER),
        Item("collector: policy, and the weights just read", "always", host=collectors * 2 * policy),
    )


def _learned(offload: Sequence[str], cuda: bool, networks: Networks, followed: Networks) -> tuple[Item, ...]:
    whole = networks.parameter_bytes()
    moments = 2 * whole + FLOAT * len(networks.shapes)  # and a step counter each
    # Targets on the device take the place of gradients, which don't exist then.
    targets = followed.page_locked if "targets" in offload else followed.parameter_bytes()
    items = (
        _placed("parameters", "always", whole, cuda),
        _placed("gradients", "always", whole, cuda),
        _placed("Adam's moments", "always", moments, cuda and "optimizer" not in offload),
        _placed("targets", "always", targets, cuda and "targets" not in offload),
    )
    if "optimizer" in offload:
        return (*items, Item("masters and their gradients, page-locked", "always", host=2 * networks.page_locked))
    if "targets" in offload:
        return (*items, Item("parameters for the targets, page-locked", "always", host=followed.page_locked))
    return items


def _update(config: AgentConfig, cuda: bool, batch: int, rows: int, networks: Networks) -> tuple[Item, ...]:
    stack, privileged = networks.stack.seen_by(config.td3.network), privileged_numbers(config.environment)
    precision = computed(config.td3.precision, cuda)
    unfolds = precision == "float16" and not cuda and cpu_unfolds_float16()
    # Only the frames that the network sees are convolved.
    convolved = replace(networks, stack=stack)
    peak = convolved.update_bytes(batch, rows, precision, None if cuda else CACHED_ROWS, unfolds)
    # Only what exceeds the gradients, which are already counted for all phases.
    activations = max(0, peak - networks.parameter_bytes())
    share = _FLOAT16_WORKSPACE if unfolds else _ONEDNN_WORKSPACE
    workspace = 0 if cuda else int(share * activations)
    graphs = config.td3.cuda_graph and cuda and not config.memory.offload
    sampled, on_device = (batch_bytes(count, stack, privileged, config.td3.n_step) for count in (batch, rows))
    return (
        Item("sampled batch", "always", host=sampled, device=cuda * on_device),
        _placed("kernels", "always", _CUDA_WORKSPACE if cuda else _ONEDNN_KERNELS, cuda),
        *((Item("CUDA graphs and their inputs", "always", device=_CUDA_GRAPHS + sampled),) if graphs else ()),
        _placed("activations", "updating", activations, cuda),
        _placed("workspace and heap gaps", "updating", workspace, cuda),
    )


def _files(config: AgentConfig, cuda: bool, networks: Networks, followed: Networks) -> tuple[Item, ...]:
    state = 3 * networks.parameter_bytes() + followed.parameter_bytes()  # online, two moments, targets
    checkpoint = state + _CHECKPOINT_BESIDE_TENSORS
    kept = min(config.training.keep_checkpoints + 1, _checkpoints_written(config))  # and the best
    # Written from where the tensors are. Only a GPU's are copied, and convolutions, whose layout files can't express.
    copied = state if cuda else 4 * networks.convolution_bytes
    return (
        Item("replay (page cache isn't counted)", "always", disk=replay_bytes(config, config.replay.capacity)),
        Item(f"checkpoints: {kept} kept", "always", disk=kept * checkpoint),
        Item("checkpoint being written", "saving", host=copied, disk=checkpoint),
    )


def _checkpoints_written(config: AgentConfig) -> int:
    """Return how many checkpoints a run writes at most by itself: at intervals, around evaluations, and at its end."""
    steps, evaluated_every = config.training.total_steps, config.evaluation.every_steps
    evaluated = 2 * (steps // evaluated_every) if evaluated_every else 0
    return steps // config.training.checkpoint_every_steps + evaluated + 1


def replay_bytes(config: AgentConfig, capacity: int) -> int:
    """Return the bytes of a replay of this many rows of the configuration's frames."""
    camera = config.environment.camera
    return bytes_for(capacity, camera.width, privileged_numbers(config.environment), camera.planes)


def _placed(name: str, phase: Phase, size: int, cuda: bool) -> Item:
    return Item(name, phase, device=size) if cuda else Item(name, phase, host=size)


Values = Mapping[str, Any]
"""Dotted keys of the configuration to values."""


def parse_variants(text: str) -> list[dict[str, Any]]:
    """Return the sets of values of ``--variants``.

    Raises:
        ConfigError: it isn't a JSON list of objects.
    """
    try:
        found = json.loads(text)
    except ValueError as error:
        raise ConfigError(f'--variants: isn\'t JSON ({error}); give a list as [{{"td3.batch_size": 64}}].') from None
    if not isinstance(found, list) or not all(isinstance(each, dict) for each in found):
        raise ConfigError('--variants: expected a JSON list of objects, as [{"td3.batch_size": 64}].')
    return found


def variants(config: AgentConfig, variants: Sequence[Values]) -> dict[str, Any]:
    """Return the values that the launcher needs, by dotted key, and ``variants``: the MiB that each variant needs.

    ``config`` has the keys that a ladder may change and a monitor must know; ``pinned`` those that an earlier run must
    share, or its watermarks don't apply here. ``device: auto`` counts as cuda.
    """
    return {
        "config": pinned(config, Pin.SIZE | Pin.MEMORY),
        "pinned": list(pinned(config, Pin.MEMORY)),
        "variants": [_size(config, each) for each in variants],
    }


def _size(config: AgentConfig, values: Values) -> dict[str, Any]:
    """Return one answer: figures, or for an impossible configuration ``refusal``, a sentence, and its key."""
    try:
        varied = _varied(config, values)
    except ConfigError as error:
        return {"values": dict(values), "refusal": str(error), "refused_key": error.key}
    cuda = varied.device != "cpu"
    found = estimate(varied, cuda)
    by_phase = {
        f"{pool}_by_phase_mib": {phase: _mib(found.total(pool, parts)) for phase, parts in PHASES.items()}
        for pool in ("device", "host")
    }
    totals = {f"{pool}_mib": _mib(found.total(pool)) for pool in POOLS}
    context = {"context_mib": _mib(CUDA_CONTEXT) if cuda else 0.0}
    return {"values": dict(values), "refusal": None, **totals, **context, **by_phase}


def _varied(config: AgentConfig, values: Values) -> AgentConfig:
    plain = configuration.dump(config)
    for dotted, value in values.items():
        layered_yaml.assign(plain, dotted, value)
    return configuration.validate(plain, source=", ".join(f"{key} = {value}" for key, value in values.items()))


def _mib(size: int) -> float:
    return round(size / MIB, 1)
