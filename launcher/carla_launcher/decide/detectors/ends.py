"""Explains a program's end by memory: the kernel killed it, or less than the reserve was free. Pure.

A program that crashed while less than the reserve was free ran out of memory, whatever its error says: drivers,
libraries and Unreal change their messages with every version.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Mapping
from dataclasses import replace

from carla_launcher.config import MemoryLimits
from carla_launcher.decide.detectors.causes import Cause, Finding
from carla_launcher.decide.detectors.kills import RecentOomKills
from carla_launcher.observe.observation import AgentSeen, SimulatorSeen
from carla_launcher.observe.pools import PROCESS_POOLS, OwnerKind, Pool, PoolKind, Reading


class EndDetector:
    """Follows simulators or agents, one after the other, and the free memory, look by look.

    Args:
        limits: reserves; looks within ``pressure_s`` of the end count.
        kills: the kernel's OOM kills.
        owner: simulator or agent.
        causes: cause of an end for lack of memory, by kind.
    """

    def __init__(
        self, limits: MemoryLimits, kills: RecentOomKills, owner: OwnerKind, causes: Mapping[PoolKind, Cause]
    ) -> None:
        self._limits, self._kills, self._owner, self._causes = limits, kills, owner, causes
        self._looks: deque[tuple[float, Mapping[str, Pool]]] = deque()
        self._running = self._ended = False
        self._pid = 0
        self._killed_in = ""

    def forget(self) -> None:
        """Forget the free memory after a gap between looks."""
        self._looks.clear()
        self._ended = False

    def look(self, time_s: float, reading: Reading, program: AgentSeen | SimulatorSeen) -> bool:
        """Record a look; return whether the program is another one than at the look before.

        Looks after the one that sees the end don't count.
        """
        another = program.pid not in (0, self._pid) or (program.running and not self._running)
        self._running, self._pid = program.running, program.pid
        if another:
            self._killed_in = ""
            self.forget()
        if not self._ended:
            self._ended = program.ended is not None
            self._looks.append((time_s, {pool.name: pool for pool in reading.pools}))
            while len(self._looks) > 2 and time_s - self._looks[0][0] > self._limits.pressure_s:
                self._looks.popleft()
        return another

    def killed_in(self) -> str:
        """Return the pool in which the kernel recently killed it or a child of it; empty if none."""
        self._killed_in = self._killed_in or self._kills.recent(self._owner.value)
        return self._killed_in

    def explained(
        self, crash: Finding, kinds: Collection[PoolKind] = PROCESS_POOLS, owned: bool = True
    ) -> Finding | None:
        """Return the crash as one for lack of memory; None if all pools had enough. See ``short_of`` for ``kinds``."""
        found = self.short_of(kinds, owned)
        if found is None:
            return None
        pool, free_mib = found
        reserve_mib = self._limits.reserve_mib[pool.kind]
        room = f"{pool.name} had {free_mib:.0f} MiB free, expected {reserve_mib:.0f} MiB"
        return replace(
            crash,
            cause=self._causes[pool.kind],
            sentence=f"{crash.sentence} while {room}: its memory ran out",
            pool=pool.name,
            deficit_mib=reserve_mib - free_mib,
            numbers={**crash.numbers, "free_mib": free_mib, "reserve_mib": reserve_mib},
        )

    def short_of(self, kinds: Collection[PoolKind] = PROCESS_POOLS, owned: bool = True) -> tuple[Pool, float] | None:
        """Return the pool that was furthest below its reserve, and its least free memory; None if all had enough.

        Args:
            kinds: kinds of memory that count.
            owned: count only pools in which the program held memory.
        """
        pools = {name: pool for _, seen in self._looks for name, pool in seen.items() if pool.kind in kinds}
        rooms = {name: self._room_mib(name, owned) for name in pools}
        short = [
            (pools[name], round(room, 1))
            for name, room in rooms.items()
            if room is not None and room < self._limits.reserve_mib[pools[name].kind]
        ]
        return min(short, key=lambda each: each[1] / self._limits.reserve_mib[each[0].kind], default=None)

    def _room_mib(self, name: str, owned: bool) -> float | None:
        """Return the least free memory of a pool while the program held memory in it; None if unknown."""
        looks = [pools.get(name) for _, pools in self._looks]
        lived, after = (looks[:-1], looks[-1]) if self._ended else (looks, None)
        held = [pool for pool in lived if pool is not None and (not owned or _holds(pool, self._owner))]
        rooms = [pool.free.mib for pool in held if pool.free.mib is not None]
        if rooms and after is not None and after.free.mib is not None:
            # Another process may have taken all since the last look; what the program freed at its end doesn't count.
            rooms.append(after.free.mib - max(0.0, held[-1].held_by(self._owner) - after.held_by(self._owner)))
        return max(0.0, min(rooms)) if rooms else None


def _holds(pool: Pool, owner: OwnerKind) -> bool:
    return any(each.kind is owner for each in pool.owners)
