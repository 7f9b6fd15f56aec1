"""A record of each owner's memory in every pool, over the whole run: shows which owner took memory. Pure.

The detectors use it (which owner grew before a shortage, which foreign process to report), and so does ``room`` (which
owner holds the memory that a program needs at its start).
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Mapping
from dataclasses import dataclass, field

from carla_launcher.observe.pools import Owner, OwnerKind, Pool, PoolKind, Reading

SNAPSHOTS = 60
"""Snapshots that are kept of each pool, over the window."""

OwnerKey = tuple[str, OwnerKind]
Holdings = Mapping[OwnerKey, float]
"""MiB by owner; owners with the same name and kind are one."""
OURS = (OwnerKind.SIMULATOR, OwnerKind.AGENT)
REST = {PoolKind.DISK: "other files", PoolKind.RAM: "others, unnamed", PoolKind.VRAM: "others, unnamed"}
"""Name of the memory without a known process; it can be the cause of a shortage, but isn't a process."""


@dataclass
class _Record:
    now_s: float = 0.0
    now: Holdings = field(default_factory=dict)
    last: tuple[float, Holdings] = (0.0, {})
    least: Holdings | None = None
    usual_mib: float | None = None
    pids: dict[OwnerKey, frozenset[int]] = field(default_factory=dict)
    snapshots: deque[tuple[float, dict[OwnerKey, float]]] = field(default_factory=lambda: deque(maxlen=SNAPSHOTS))


class Holders:
    """The record.

    Args:
        window_s: time that ``before`` and ``since_s`` look back.
    """

    def __init__(self, window_s: float) -> None:
        self._every_s = window_s / SNAPSHOTS
        self._pools: defaultdict[str, _Record] = defaultdict(_Record)

    def look(self, now_s: float, reading: Reading) -> None:
        """Record each owner's memory."""
        for pool in reading.pools:
            record, now = self._pools[pool.name], _holdings(pool)
            least = now if record.least is None else record.least
            record.least = {owner_key: min(mib, now.get(owner_key, 0.0)) for owner_key, mib in least.items()}
            self._forget_ended(record, pool)
            record.last = (record.now_s, record.now) if record.snapshots else (now_s, now)
            record.now_s, record.now = now_s, now
            if not record.snapshots or now_s - record.snapshots[-1][0] >= self._every_s:
                record.snapshots.append((now_s, now))

    @staticmethod
    def _forget_ended(record: _Record, pool: Pool) -> None:
        """Forget the memory of a program of this run that another process has replaced."""
        for owner in (each for each in pool.owners if each.kind in OURS and each.pids):
            owner_key, pids = (owner.name, owner.kind), frozenset(owner.pids)
            if not pids & record.pids.get(owner_key, pids):
                for _, held in record.snapshots:
                    held.pop(owner_key, None)
            record.pids[owner_key] = pids

    def note_driving(self) -> None:
        """Note that simulator and agent had the memory that they need at the last look."""
        for record in self._pools.values():
            held = sum(_foreign(record.now).values())
            record.usual_mib = held if record.usual_mib is None else min(held, record.usual_mib)

    def now(self, pool: str) -> Holdings:
        """Return each owner's memory at the last look."""
        return self._pools[pool].now

    def before(self, pool: str) -> Holdings:
        """Return each owner's memory at the beginning of the window."""
        return self._pools[pool].snapshots[0][1]

    def since_s(self, pool: str, owner_key: OwnerKey, mib: float) -> float:
        """Return for how long an owner has held more than this, in s; at most the window."""
        record = self._pools[pool]
        looks = (*record.snapshots, record.last)
        no_more = [time_s for time_s, held in looks if held.get(owner_key, 0.0) <= mib]
        return record.now_s - (no_more[-1] if no_more else looks[0][0])

    def foreign(self, pool: str) -> Mapping[str, tuple[float, float]]:
        """Return each foreign owner's memory, and its growth above its least since the first look."""
        record = self._pools[pool]
        least = record.least or {}
        return {owner_key[0]: (mib, mib - least.get(owner_key, 0.0)) for owner_key, mib in _foreign(record.now).items()}

    def largest_taker(self, pool: Pool) -> Owner | None:
        """Return the foreign owner that took most since the first look; if none took any, the one that holds most."""
        known = self.foreign(pool.name)
        owners = [each for each in pool.owners if each.kind is OwnerKind.FOREIGN and each.held.mib]
        return max(owners, key=lambda owner: known.get(owner.name, (0.0, 0.0))[::-1], default=None)

    def taken_mib(self, pool: Pool) -> float:
        """Return how much more all foreign owners hold than while the run was driving."""
        return pool.held_by(OwnerKind.FOREIGN) - (self._pools[pool.name].usual_mib or 0.0)


def _foreign(held: Holdings) -> Holdings:
    return {
        owner_key: mib
        for owner_key, mib in held.items()
        if owner_key[1] is OwnerKind.FOREIGN and owner_key[0] not in REST.values()
    }


def _holdings(pool: Pool) -> dict[OwnerKey, float]:
    held: dict[OwnerKey, float] = {}
    for owner in pool.owners:
        owner_key = (owner.name, owner.kind)
        held[owner_key] = held.get(owner_key, 0.0) + (owner.held.mib or 0.0)
    unknown = any(owner.held.mib is None for owner in pool.owners)
    if not unknown and pool.total.mib is not None and pool.free.mib is not None:
        rest_mib = pool.total.mib - pool.free.mib - sum(held.values())
        held[REST[pool.kind], OwnerKind.FOREIGN] = max(0.0, rest_mib)
    return held
