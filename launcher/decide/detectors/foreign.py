"""Foreign processes that take a good part of what was free, named once, before anything is short. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from launcher.config import LauncherConfig
from launcher.decide.detectors.causes import Cause, Finding
from launcher.observe.observation import Observation
from launcher.observe.pools import OwnerKind, Pool


@dataclass
class _Low:
    """The least that an owner has held since it was named last, and when it held that last."""

    mib: float
    last_s: float


class ForeignProcesses:
    """Watches every foreign owner of every pool, from before the agent runs."""

    def __init__(self, config: LauncherConfig) -> None:
        self._limits = config.memory
        self._lows: dict[str, dict[str, _Low]] = {}
        self._looked_s = 0.0

    def look(self, seen: Observation) -> tuple[Finding, ...]:
        """Return who has grown enough to be named since the last time that he was."""
        found = [finding for pool in seen.memory.pools for finding in self._named(seen.time_s, pool)]
        self._looked_s = seen.time_s
        return tuple(found)

    def _named(self, now_s: float, pool: Pool) -> list[Finding]:
        held = _foreign(pool)
        lows = self._lows.get(pool.name)
        if lows is None:
            self._lows[pool.name] = {name: _Low(mib, now_s) for name, mib in held.items()}
            return []
        for name in held.keys() | lows.keys():  # who wasn't there, or is gone, holds nothing
            low = lows.setdefault(name, _Low(0.0, self._looked_s))
            if held.get(name, 0.0) <= low.mib:
                lows[name] = _Low(held.get(name, 0.0), now_s)
        found = [(name, held[name], lows[name]) for name in sorted(held) if self._counts(held[name], lows[name], pool)]
        for name, mib, _ in found:
            lows[name] = _Low(mib, now_s)
        for name in [name for name, low in lows.items() if name not in held and low.mib <= 0]:
            del lows[name]
        return [_finding(now_s, pool, name, mib, low) for name, mib, low in found]

    def _counts(self, held_mib: float, low: _Low, pool: Pool) -> bool:
        grown_mib = held_mib - low.mib
        was_free_mib = (pool.free.mib or 0.0) + grown_mib
        return grown_mib >= max(self._limits.foreign_mib, self._limits.foreign_share * was_free_mib)


def _foreign(pool: Pool) -> dict[str, float]:
    held: dict[str, float] = {}
    for owner in pool.owners:
        if owner.kind is OwnerKind.FOREIGN and owner.held.mib is not None:
            held[owner.name] = held.get(owner.name, 0.0) + owner.held.mib
    return held


def _finding(now_s: float, pool: Pool, name: str, held_mib: float, low: _Low) -> Finding:
    grown_mib, for_s = held_mib - low.mib, now_s - low.last_s
    return Finding(
        Cause.FOREIGN_PROCESS,
        f"{name}, which isn't this run's, took {grown_mib:.0f} MiB of {pool.name} in the last {for_s:.0f} s "
        f"and holds {held_mib:.0f}; {pool.free} are free",
        pool=pool.name,
        owner=name,
        numbers={
            "grown_mib": round(grown_mib, 1),
            "held_mib": round(held_mib, 1),
            "for_s": round(for_s),
            "free_mib": pool.free.mib,
        },
    )
