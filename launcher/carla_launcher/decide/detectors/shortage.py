"""Detects pressure: a pool below its reserve, how much is missing, and which owners grew. Pure."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from carla_launcher.config import LauncherConfig, MemoryLimits
from carla_launcher.decide.detectors.causes import Cause, Finding
from carla_launcher.decide.detectors.series import Window
from carla_launcher.decide.holders import OURS, REST, Holders, Holdings, OwnerKey
from carla_launcher.observe.observation import Observation
from carla_launcher.observe.pools import OwnerKind, Pool

BEGINNING = 0.1
"""Share of an owner's growth at which the growth counts as begun."""


Expected = Callable[[str, OwnerKind], float]
"""Takes a pool's name and simulator or agent, returns the MiB that it should hold there; 0 if unknown."""


@dataclass(frozen=True)
class _Grown:
    """An owner that grew: beyond what it held before, or beyond what it was expected to hold.

    Attributes:
        expected_mib: memory that it was expected to hold; 0 if its growth is relative to what it held before.
    """

    owner_key: OwnerKey
    mib: float
    held_mib: float
    for_s: float
    expected_mib: float = 0.0

    @property
    def foreign(self) -> bool:
        """Whether it isn't a program of this run."""
        return self.owner_key[1] is OwnerKind.FOREIGN

    def __str__(self) -> str:
        name = self.owner_key[0]
        not_ours = ", which isn't this run's," if self.foreign and name not in REST.values() else ""
        beyond = f" beyond the expected {self.expected_mib:.0f} MiB" if self.expected_mib else ""
        return f"{name}{not_ours} took {self.mib:.0f} MiB{beyond} in the last {self.for_s:.0f} s"


class ShortageDetector:
    """Detects shortages of every pool."""

    def __init__(self, config: LauncherConfig, holders: Holders, expected: Expected) -> None:
        self._limits, self._holders, self._expected = config.memory, holders, expected
        self._pools: dict[str, _Watched] = {}

    def forget(self) -> None:
        """Restart after a gap between looks."""
        self._pools.clear()

    def look(self, seen: Observation) -> tuple[Finding, ...]:
        """Return one finding for each pool that is short, until clearly more than the reserve is free."""
        for pool in seen.memory.pools:
            self._pools.setdefault(pool.name, _Watched(self._limits, self._holders, self._expected))
        found = (self._pools[pool.name].look(seen.time_s, pool) for pool in seen.memory.pools)
        return tuple(finding for finding in found if finding is not None)


class _Watched:
    """One pool.

    A median over twice ``pressure_s`` crosses the reserve when the reading has been below it for ``pressure_s``. The
    shortage ends ``relief_mib`` above the reserve, so that a reading that swings about the reserve is one shortage.
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
        if not self._short:  # during a shortage, growth stays relative to the memory before it
            self._before, self._grown = self._holders.before(pool.name), []
            return None
        self._grown = self._have_grown(pool.name) or self._grown  # keep the owner even if it has just freed its memory
        # The median lags behind: memory that is free again now needn't be freed by a step down.
        deficit_mib = reserve_mib - free_mib if pool.free.mib < reserve_mib else 0.0
        return _finding(pool, free_mib, reserve_mib, deficit_mib, self._grown)

    def _have_grown(self, pool: str) -> list[_Grown]:
        """Return the owners whose growth made the pool short, largest first; empty if it was short from the start."""
        now = self._holders.now(pool)
        foreign = [
            self._growth(pool, owner_key, held_mib) for owner_key, held_mib in now.items() if owner_key[1] not in OURS
        ]
        ours = [self._growth_of_ours(pool, kind) for kind in OURS if any(owner_key[1] is kind for owner_key in now)]
        grown = (each for each in (*foreign, *ours) if each.mib >= self._limits.growth_mib)
        return sorted(grown, key=lambda each: -each.mib)

    def _growth(self, pool: str, owner_key: OwnerKey, held_mib: float, most_mib: float = float("inf")) -> _Grown:
        """Return an owner's growth, at most ``most_mib``."""
        grown_mib = min(most_mib, held_mib - self._before.get(owner_key, 0.0))
        began_mib = held_mib - (1 - BEGINNING) * grown_mib
        return _Grown(owner_key, grown_mib, held_mib, self._holders.since_s(pool, owner_key, began_mib))

    def _growth_of_ours(self, pool: str, kind: OwnerKind) -> _Grown:
        """Return what a program of this run holds beyond its plan: reaching the planned memory is no growth."""
        now = {owner_key: mib for owner_key, mib in self._holders.now(pool).items() if owner_key[1] is kind}
        held_mib, before_mib = sum(now.values()), sum(self._before.get(owner_key, 0.0) for owner_key in now)
        expected_mib = self._expected(pool, kind)
        beyond_mib = held_mib - max(before_mib, expected_mib)
        most = max(now, key=lambda owner_key: now[owner_key] - self._before.get(owner_key, 0.0))
        grown = self._growth(pool, most, now[most], beyond_mib)
        return grown if before_mib >= expected_mib else replace(grown, expected_mib=expected_mib)


def _finding(pool: Pool, free_mib: float, reserve_mib: float, deficit_mib: float, grown: Sequence[_Grown]) -> Finding:
    numbers: dict[str, float | int | str | None] = {"free_mib": round(free_mib, 1), "reserve_mib": reserve_mib}
    sentence = f"{pool.name} has {free_mib:.0f} MiB free, expected {reserve_mib:.0f} MiB"
    most = grown[0] if grown else None
    if most is not None:
        numbers |= {"grown_mib": round(most.mib, 1), "held_mib": round(most.held_mib, 1), "for_s": round(most.for_s)}
        sentence += f"; {' and '.join(map(str, grown))}"
    return Finding(
        Cause.FOREIGN_PROCESS if most is not None and most.foreign else Cause.PRESSURE,
        sentence,
        pool=pool.name,
        owner="" if most is None else most.owner_key[0],
        deficit_mib=round(max(0.0, deficit_mib), 1),
        numbers=numbers,
    )
