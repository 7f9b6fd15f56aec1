"""Whether an estimate fits what is free, in which pool it doesn't, and what would: pure functions, and one sentence."""

from __future__ import annotations

from collections.abc import Callable
from typing import get_args

from carla_run.memory.room import missing
from carla_td3.config import AgentConfig, Offload
from carla_td3.memory.estimate import MIB, POOLS, Estimate, Free, Pool, estimate, replay_bytes


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

    The configured one where what the disk has is unknown.
    """
    if free.disk is None:
        return config.replay.capacity
    others = estimate(config, cuda).total("disk") - replay_bytes(config, config.replay.capacity)
    others += replay_bytes(config, 0)
    row = replay_bytes(config, 1) - replay_bytes(config, 0)
    return max(0, free.disk - others - _reserve(config)) // row


def _holds(found: Estimate, free: Free, config: AgentConfig) -> bool:
    return _fits(found, free, "device", config) and _fits(found, free, "host", config)


def _fits(found: Estimate, free: Free, pool: Pool, config: AgentConfig) -> bool:
    return missing(found.total(pool), getattr(free, pool), _reserve(config)) == 0


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
    cut = f"td3.micro_batch {part} would do, and costs only time; else " if part else ""
    return f"{short}: {cut}the largest td3.batch_size that fits is {batch}, not {config.td3.batch_size}."


def _ways_out(config: AgentConfig, pool: Pool) -> str:
    if pool == "host":
        return "free some, or choose a narrower td3.network"
    offload = "" if len(config.memory.offload) == len(get_args(Offload)) else "set memory.offload, "
    return f"free some, {offload}choose a narrower td3.network, or use --device cpu"
