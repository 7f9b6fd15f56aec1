"""Who holds what in every pool, look by look: the one record by which it is said who took memory. Pure.

Read by the detectors (who grew before a shortage, which foreign process is to be named) and by ``room`` (who has what a
program lacks before its start). One record, from the run's first look to its last.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Mapping
from dataclasses import dataclass, field

from carla_launcher.observe.pools import Owner, OwnerKind, Pool, PoolKind, Reading

SNAPSHOTS = 60
"""Kept of each pool, over the window of slopes."""

Who = tuple[str, OwnerKind]
Holdings = Mapping[Who, float]
"""MiB by owner; those of one name are one."""
OURS = (OwnerKind.SIMULATOR, OwnerKind.AGENT)
REST = {PoolKind.DISK: "other files", PoolKind.RAM: "others, unnamed", PoolKind.VRAM: "others, unnamed"}
"""What is taken and has no owner, by name: it counts when a pool is short, and as no process."""


@dataclass
class _Record:
    now_s: float = 0.0
    now: Holdings = field(default_factory=dict)
    last: tuple[float, Holdings] = (0.0, {})
    least: Holdings | None = None
    usual_mib: float | None = None
    pids: dict[Who, frozenset[int]] = field(default_factory=dict)
    snapshots: deque[tuple[float, dict[Who, float]]] = field(default_factory=lambda: deque(maxlen=SNAPSHOTS))


class Holders:
    """Looks at every pool.

    Args:
        window_s: how far back ``before`` and ``since_s`` look.
    """

    def __init__(self, window_s: float) -> None:
        self._every_s = window_s / SNAPSHOTS
        self._pools: defaultdict[str, _Record] = defaultdict(_Record)

    def look(self, now_s: float, reading: Reading) -> None:
        """Take note of who holds what now."""
        for pool in reading.pools:
            record, now = self._pools[pool.name], _holdings(pool)
            least = now if record.least is None else record.least
            record.least = {who: min(mib, now.get(who, 0.0)) for who, mib in least.items()}
            self._forget_ended(record, pool)
            record.last = (record.now_s, record.now) if record.snapshots else (now_s, now)
            record.now_s, record.now = now_s, now
            if not record.snapshots or now_s - record.snapshots[-1][0] >= self._every_s:
                record.snapshots.append((now_s, now))

    @staticmethod
    def _forget_ended(record: _Record, pool: Pool) -> None:
        """Forget what a program of this run held that another process has followed."""
        for owner in (each for each in pool.owners if each.kind in OURS and each.pids):
            who, pids = (owner.name, owner.kind), frozenset(owner.pids)
            if not pids & record.pids.get(who, pids):
                for _, held in record.snapshots:
                    held.pop(who, None)
            record.pids[who] = pids

    def drives(self) -> None:
        """Take note that simulator and agent had what they need at the last look."""
        for record in self._pools.values():
            held = sum(_foreign(record.now).values())
            record.usual_mib = held if record.usual_mib is None else min(held, record.usual_mib)

    def now(self, pool: str) -> Holdings:
        """Return who holds what at the last look."""
        return self._pools[pool].now

    def before(self, pool: str) -> Holdings:
        """Return who held what at the beginning of the window."""
        return self._pools[pool].snapshots[0][1]

    def since_s(self, pool: str, who: Who, mib: float) -> float:
        """Return for how long an owner has held more than this, s; at most the window."""
        record = self._pools[pool]
        looks = (*record.snapshots, record.last)
        no_more = [time_s for time_s, held in looks if held.get(who, 0.0) <= mib]
        return record.now_s - (no_more[-1] if no_more else looks[0][0])

    def foreign(self, pool: str) -> Mapping[str, tuple[float, float]]:
        """Return what each foreign owner holds, and by how much that is more than the least since the first look."""
        record = self._pools[pool]
        least = record.least or {}
        return {who[0]: (mib, mib - least.get(who, 0.0)) for who, mib in _foreign(record.now).items()}

    def taker(self, pool: Pool) -> Owner | None:
        """Return the foreign owner who took most since the first look; if none took any, the one who holds most."""
        known = self.foreign(pool.name)
        owners = [each for each in pool.owners if each.kind is OwnerKind.FOREIGN and each.held.mib]
        return max(owners, key=lambda owner: known.get(owner.name, (0.0, 0.0))[::-1], default=None)

    def taken_mib(self, pool: Pool) -> float:
        """Return how much more all foreign owners hold than they did while the run drove."""
        return pool.held_by(OwnerKind.FOREIGN) - (self._pools[pool.name].usual_mib or 0.0)


def _foreign(held: Holdings) -> Holdings:
    return {who: mib for who, mib in held.items() if who[1] is OwnerKind.FOREIGN and who[0] not in REST.values()}


def _holdings(pool: Pool) -> dict[Who, float]:
    held: dict[Who, float] = {}
    for owner in pool.owners:
        who = (owner.name, owner.kind)
        held[who] = held.get(who, 0.0) + (owner.held.mib or 0.0)
    unknown = any(owner.held.mib is None for owner in pool.owners)
    if not unknown and pool.total.mib is not None and pool.free.mib is not None:
        rest_mib = pool.total.mib - pool.free.mib - sum(held.values())
        held[REST[pool.kind], OwnerKind.FOREIGN] = max(0.0, rest_mib)
    return held
