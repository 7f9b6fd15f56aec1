"""Pressure: a pool that has been below its reserve for a while, how much is missing, and who grew. Pure."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from carla_launcher.config import LauncherConfig, MemoryLimits
from carla_launcher.decide.detectors.causes import Cause, Finding
from carla_launcher.decide.detectors.series import Window
from carla_launcher.decide.holders import OURS, REST, Holders, Holdings, Who
from carla_launcher.observe.observation import Observation
from carla_launcher.observe.pools import OwnerKind, Pool

BEGINNING = 0.1
"""Of its growth: an owner that had grown by no more hadn't begun."""


Expected = Callable[[str, OwnerKind], float]
"""What simulator or agent should take of a pool, by the pool's name, MiB; 0 where that is unknown."""


@dataclass(frozen=True)
class _Grown:
    """An owner that grew: beyond what it held before, and beyond what was expected of it.

    Attributes:
        expected_mib: that it was to take; 0 where it is measured by what it held before.
    """

    who: Who
    mib: float
    held_mib: float
    for_s: float
    expected_mib: float = 0.0

    @property
    def foreign(self) -> bool:
        """Whether it isn't this run's."""
        return self.who[1] is OwnerKind.FOREIGN

    def __str__(self) -> str:
        name = self.who[0]
        not_ours = ", which isn't this run's," if self.foreign and name not in REST.values() else ""
        beyond = f" beyond the {self.expected_mib:.0f} that it was to take" if self.expected_mib else ""
        return f"{name}{not_ours} took {self.mib:.0f} MiB{beyond} in the last {self.for_s:.0f} s"


class Shortages:
    """Watches every pool."""

    def __init__(self, config: LauncherConfig, holders: Holders, expected: Expected) -> None:
        self._limits, self._holders, self._expected = config.memory, holders, expected
        self._pools: dict[str, _Watched] = {}

    def forget(self) -> None:
        """Start over: time has passed without a look."""
        self._pools.clear()

    def look(self, seen: Observation) -> tuple[Finding, ...]:
        """Return one finding for each pool that is short; it stays until clearly more than the reserve is free."""
        for pool in seen.memory.pools:
            self._pools.setdefault(pool.name, _Watched(self._limits, self._holders, self._expected))
        found = (self._pools[pool.name].look(seen.time_s, pool) for pool in seen.memory.pools)
        return tuple(finding for finding in found if finding is not None)


class _Watched:
    """One pool.

    A median over twice ``pressure_s`` crosses the reserve when the reading has been beyond it for ``pressure_s``; it
    has to come back by ``relief_mib`` more, so readings that swing about the reserve are one shortage.
    """

    def __init__(self, limits: MemoryLimits, holders: Holders, expected: Expected) -> None:
        self._limits, self._holders, self._expected = limits, holders, expected
        self._free = Window(2 * limits.pressure_s)
        self._before: Holdings = {}
        self._short = False
        self._grown: list[_Grown] = []

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
            self._before, self._grown = self._holders.before(pool.name), []
            return None
        self._grown = self._have_grown(pool.name) or self._grown  # who has just let go was it nevertheless
        # The middle lags behind: what is there again by now needn't be freed, and nothing is degraded for it.
        deficit_mib = reserve_mib - free_mib if pool.free.mib < reserve_mib else 0.0
        return _finding(pool, free_mib, reserve_mib, deficit_mib, self._grown)

    def _have_grown(self, pool: str) -> list[_Grown]:
        """Return whose growth made the pool short, most first; empty if no owner's did: it was so at the first look."""
        now = self._holders.now(pool)
        foreign = [self._growth(pool, who, held_mib) for who, held_mib in now.items() if who[1] not in OURS]
        ours = [self._growth_of_ours(pool, kind) for kind in OURS if any(who[1] is kind for who in now)]
        grown = (each for each in (*foreign, *ours) if each.mib >= self._limits.growth_mib)
        return sorted(grown, key=lambda each: -each.mib)

    def _growth(self, pool: str, who: Who, held_mib: float, most_mib: float = float("inf")) -> _Grown:
        """Return by how much an owner has grown, ``most_mib`` at most."""
        grown_mib = min(most_mib, held_mib - self._before.get(who, 0.0))
        began_mib = held_mib - (1 - BEGINNING) * grown_mib
        return _Grown(who, grown_mib, held_mib, self._holders.since_s(pool, who, began_mib))

    def _growth_of_ours(self, pool: str, kind: OwnerKind) -> _Grown:
        """Return what a program of this run took that nobody planned: it starts from nothing, and that is no growth."""
        now = {who: mib for who, mib in self._holders.now(pool).items() if who[1] is kind}
        held_mib, before_mib = sum(now.values()), sum(self._before.get(who, 0.0) for who in now)
        expected_mib = self._expected(pool, kind)
        beyond_mib = held_mib - max(before_mib, expected_mib)
        most = max(now, key=lambda who: now[who] - self._before.get(who, 0.0))
        grown = self._growth(pool, most, now[most], beyond_mib)
        return grown if before_mib >= expected_mib else replace(grown, expected_mib=expected_mib)


def _finding(pool: Pool, free_mib: float, reserve_mib: float, deficit_mib: float, grown: Sequence[_Grown]) -> Finding:
    numbers: dict[str, float | int | str | None] = {"free_mib": round(free_mib, 1), "reserve_mib": reserve_mib}
    sentence = f"{pool.name} has {free_mib:.0f} MiB free, {reserve_mib:.0f} should be"
    most = grown[0] if grown else None
    if most is not None:
        numbers |= {"grown_mib": round(most.mib, 1), "held_mib": round(most.held_mib, 1), "for_s": round(most.for_s)}
        sentence += f"; {' and '.join(map(str, grown))}"
    return Finding(
        Cause.FOREIGN_PROCESS if most is not None and most.foreign else Cause.PRESSURE,
        sentence,
        pool=pool.name,
        owner="" if most is None else most.who[0],
        deficit_mib=round(max(0.0, deficit_mib), 1),
        numbers=numbers,
    )
