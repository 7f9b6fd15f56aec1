"""Whether an estimate fits into free memory, in which pool it doesn't, and what would fit. Pure."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import get_args

from carla_run.memory.room import missing
from carla_td3.config import AgentConfig, Offload
from carla_td3.memory.estimate import MIB, POOLS, Estimate, Free, Pool, estimate, replay_bytes


@dataclass(frozen=True)
class Fit:
    """A configuration and the memory that is free for it."""

    config: AgentConfig
    cuda: bool
    free: Free

    @cached_property
    def estimate(self) -> Estimate:
        """The estimate of the configuration."""
        return estimate(self.config, self.cuda)

    @cached_property
    def short(self) -> Pool | None:
        """The first pool that is too small; None if everything fits."""
        return next((pool for pool in POOLS if not self._fits(self.estimate, pool)), None)

    @property
    def refusal(self) -> str | None:
        """One sentence that says why it can't fit and what would; None if it fits."""
        return None if self.short is None else self._sentence(self.short)

    @cached_property
    def largest_batch(self) -> int:
        """The largest batch, up to the configured one, that device and host can hold; 0 if none."""
        return _largest(self.config.td3.batch_size, lambda size: self._holds(batch=size))

    @cached_property
    def largest_micro_batch(self) -> int:
        """The largest part of the configured batch that device and host can hold; 0 if none, or nothing to cut."""
        td3 = self.config.td3
        rows = min(td3.micro_batch or td3.batch_size, td3.batch_size)
        return _largest(rows - 1, lambda part: self._holds(micro_batch=part))

    @property
    def largest_replay(self) -> int:
        """The largest replay, in rows, that the disk can hold beside the checkpoints.

        The configured one if the free disk space is unknown.
        """
        config, capacity = self.config, self.config.replay.capacity
        if self.free.disk is None:
            return capacity
        empty = replay_bytes(config, 0)
        others = self.estimate.total("disk") - replay_bytes(config, capacity) + empty
        return max(0, self.free.disk - others - self._reserve) // (replay_bytes(config, 1) - empty)

    @property
    def _reserve(self) -> int:
        return int(self.config.memory.reserve_mib * MIB)

    def _holds(self, batch: int | None = None, micro_batch: int | None = None) -> bool:
        found = estimate(self.config, self.cuda, batch, micro_batch)
        return self._fits(found, "device") and self._fits(found, "host")

    def _fits(self, found: Estimate, pool: Pool) -> bool:
        return missing(found.total(pool), getattr(self.free, pool), self._reserve) == 0

    def _sentence(self, pool: Pool) -> str:
        needed, room = self.estimate.total(pool) / MIB, getattr(self.free, pool) / MIB
        where = {"device": "device memory", "host": "host memory", "disk": "disk"}[pool]
        short = (
            f"This configuration needs {needed:.0f} MiB of {where} beside memory.reserve_mib "
            f"{self.config.memory.reserve_mib:g}, and {room:.0f} MiB are free"
        )
        if pool == "disk":
            rows = self.largest_replay
            return f"{short} in {self.free.folder}: free some disk there, or set replay.capacity to at most {rows}."
        if self.largest_batch == 0:
            return f"{short}; not even a batch of 1 fits: {self._ways_out(pool)}."
        part = self.largest_micro_batch
        cut = f"td3.micro_batch {part} would do, and costs only time; else " if part else ""
        fitting = f"the largest td3.batch_size that fits is {self.largest_batch}, not {self.config.td3.batch_size}."
        return f"{short}: {cut}{fitting}"

    def _ways_out(self, pool: Pool) -> str:
        if pool == "host":
            return "free some, or choose a narrower td3.network"
        offload = "" if len(self.config.memory.offload) == len(get_args(Offload)) else "set memory.offload, "
        return f"free some, {offload}choose a narrower td3.network, or use --device cpu"


def _largest(high: int, fits: Callable[[int], bool]) -> int:
    """Return the largest number up to ``high`` that fits, 0 if none; if a number fits, so do all below it."""
    low = 0
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if fits(middle) else (low, middle - 1)
    return low
