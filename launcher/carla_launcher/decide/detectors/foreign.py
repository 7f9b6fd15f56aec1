"""Detects foreign processes that take much of the free memory, before a pool is short. Reported once. Pure."""

from __future__ import annotations

from carla_launcher.config import LauncherConfig
from carla_launcher.decide.detectors.causes import Cause, Finding
from carla_launcher.decide.holders import Holders
from carla_launcher.observe.observation import Observation
from carla_launcher.observe.pools import OwnerKind, Pool


class ForeignProcessDetector:
    """Watches all foreign owners of all pools, also before the agent runs."""

    def __init__(self, config: LauncherConfig, holders: Holders) -> None:
        self._limits, self._holders = config.memory, holders
        self._named_mib: dict[tuple[str, str], float] = {}

    def look(self, seen: Observation) -> tuple[Finding, ...]:
        """Return the foreign processes whose memory grew enough to be reported again."""
        return tuple(finding for pool in seen.memory.pools for finding in self._look(pool))

    def _look(self, pool: Pool) -> list[Finding]:
        known, found = self._holders.foreign(pool.name), []
        # A process that frees memory and takes it again is reported again.
        self._named_mib = {
            (of, name): min(mib, known.get(name, (0.0, 0.0))[0]) if of == pool.name else mib
            for (of, name), mib in self._named_mib.items()
        }
        for name, (held_mib, grown_mib) in sorted(known.items()):
            before_mib = self._named_mib.get((pool.name, name), held_mib - grown_mib)
            if self._counts(held_mib - before_mib, pool):
                self._named_mib[pool.name, name] = held_mib
                since_s = self._holders.since_s(pool.name, (name, OwnerKind.FOREIGN), before_mib)
                found.append(_finding(pool, name, held_mib, held_mib - before_mib, since_s))
        return found

    def _counts(self, grown_mib: float, pool: Pool) -> bool:
        was_free_mib = (pool.free.mib or 0.0) + grown_mib
        return grown_mib >= max(self._limits.foreign_mib, self._limits.foreign_share * was_free_mib)


def _finding(pool: Pool, name: str, held_mib: float, grown_mib: float, for_s: float) -> Finding:
    return Finding(
        Cause.FOREIGN_PROCESS,
        f"{name}, which isn't this run's, took {grown_mib:.0f} MiB of {pool.name} in the last {for_s:.0f} s "
        f"and holds {held_mib:.0f} MiB; {pool.free} are free",
        pool=pool.name,
        owner=name,
        numbers={
            "grown_mib": round(grown_mib, 1),
            "held_mib": round(held_mib, 1),
            "for_s": round(for_s),
            "free_mib": pool.free.mib,
        },
    )
