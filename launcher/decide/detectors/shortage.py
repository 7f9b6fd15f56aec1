"""Pressure: a pool that has been below its reserve for a while, how much is missing, and who grew. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from launcher.config import LauncherConfig, MemoryLimits
from launcher.decide.detectors.causes import Cause, Finding
from launcher.decide.detectors.series import Window
from launcher.decide.holders import Holders, Holdings, Who
from launcher.observe.observation import Observation
from launcher.observe.pools import OwnerKind, Pool

BEGINNING = 0.1
"""Of its growth: an owner that had grown by no more hadn't begun."""


@dataclass(frozen=True)
class _Grown:
    """The owner that grew most."""

    who: Who
    mib: float
    held_mib: float
    for_s: float


class Shortages:
    """Watches every pool."""

    def __init__(self, config: LauncherConfig, holders: Holders) -> None:
        self._limits, self._holders = config.memory, holders
        self._pools: dict[str, _Watched] = {}

    def forget(self) -> None:
        """Start over: time has passed without a look."""
        self._pools.clear()

    def look(self, seen: Observation) -> tuple[Finding, ...]:
        """Return one finding for each pool that is short; it stays until clearly more than the reserve is free."""
        for pool in seen.memory.pools:
            self._pools.setdefault(pool.name, _Watched(self._limits, self._holders))
        found = (self._pools[pool.name].look(seen.time_s, pool) for pool in seen.memory.pools)
        return tuple(finding for finding in found if finding is not None)


class _Watched:
    """One pool.

    A median over twice ``pressure_s`` crosses the reserve when the reading has been beyond it for ``pressure_s``; it
    has to come back by ``relief_mib`` more, so readings that swing about the reserve are one shortage.
    """

    def __init__(self, limits: MemoryLimits, holders: Holders) -> None:
        self._limits, self._holders = limits, holders
        self._free = Window(2 * limits.pressure_s)
        self._before: Holdings = {}
        self._short = False
        self._grown: _Grown | None = None

    def look(self, now_s: float, pool: Pool) -> Finding | None:
        if pool.free.mib is None:
            return None
        self._free.add(now_s, pool.free.mib)
        reserve_mib, free_mib = self._limits.reserve_mib[pool.kind], self._free.middle
        if self._short:
            self._short = free_mib <= reserve_mib + self._limits.relief_mib
        elif self._free.covered_s >= self._limits.pressure_s:
            self._short = free_mib < reserve_mib
        if not self._short:  # what was held before a shortage stays the measure for as long as it lasts
            self._before, self._grown = self._holders.before(pool.name), None
            return None
        self._grown = self._most_grown(pool.name) or self._grown  # who has just let go was it nevertheless
        # The middle lags behind: what is there again by now needn't be freed, and nothing is degraded for it.
        deficit_mib = reserve_mib - free_mib if pool.free.mib < reserve_mib else 0.0
        return _finding(pool, free_mib, reserve_mib, deficit_mib, self._grown)

    def _most_grown(self, pool: str) -> _Grown | None:
        """Return whose growth made the pool short; None if no owner's did: it was so at the first look."""
        now = self._holders.now(pool)
        growth = {who: held - self._before.get(who, 0.0) for who, held in now.items()}
        who = max(growth, key=lambda each: growth[each], default=None)
        if who is None or growth[who] < self._limits.growth_mib:
            return None
        began_mib = self._before.get(who, 0.0) + BEGINNING * growth[who]
        return _Grown(who, growth[who], now[who], self._holders.since_s(pool, who, began_mib))


def _finding(pool: Pool, free_mib: float, reserve_mib: float, deficit_mib: float, grown: _Grown | None) -> Finding:
    numbers: dict[str, float | int | str | None] = {"free_mib": round(free_mib, 1), "reserve_mib": reserve_mib}
    sentence = f"{pool.name} has {free_mib:.0f} MiB free, {reserve_mib:.0f} should be"
    foreign = grown is not None and grown.who[1] is OwnerKind.FOREIGN
    if grown is not None:
        numbers |= {"grown_mib": round(grown.mib, 1), "held_mib": round(grown.held_mib, 1), "for_s": round(grown.for_s)}
        not_ours = ", which isn't this run's," if foreign else ""
        sentence += f"; {grown.who[0]}{not_ours} took {grown.mib:.0f} MiB in the last {grown.for_s:.0f} s"
    return Finding(
        Cause.FOREIGN_PROCESS if foreign else Cause.PRESSURE,
        sentence,
        pool=pool.name,
        owner="" if grown is None else grown.who[0],
        deficit_mib=round(max(0.0, deficit_mib), 1),
        numbers=numbers,
    )
