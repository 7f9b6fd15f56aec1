"""What memory says of a program's end: the kernel killed it, or less than the reserve was left. Pure.

A program that crashed below the reserve ran out of memory, whatever it said: drivers, libraries and Unreal have new
words for it with every version; the figures stay.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Mapping
from dataclasses import replace

from carla_launcher.config import MemoryLimits
from carla_launcher.decide.detectors.causes import Cause, Finding
from carla_launcher.decide.detectors.kills import OomKills
from carla_launcher.observe.observation import AgentSeen, SimulatorSeen
from carla_launcher.observe.pools import OwnerKind, Pool, PoolKind, Reading

ANY = frozenset({PoolKind.VRAM, PoolKind.RAM})


class Ends:
    """Follows one kind of program, one after another, and the room beside it, look by look.

    Args:
        limits: reserves; looks within ``pressure_s`` of the end count.
        kills: of the kernel.
        owner: the program.
        causes: what a shortage at its end is called, by kind of memory.
    """

    def __init__(
        self, limits: MemoryLimits, kills: OomKills, owner: OwnerKind, causes: Mapping[PoolKind, Cause]
    ) -> None:
        self._limits, self._kills, self._owner, self._causes = limits, kills, owner, causes
        self._looks: deque[tuple[float, Mapping[str, Pool]]] = deque()
        self._running = self._ended = False
        self._pid = 0
        self._killed_in = ""

    def forget(self) -> None:
        """Start the room over: time has passed without a look."""
        self._looks.clear()
        self._ended = False

    def look(self, time_s: float, reading: Reading, program: AgentSeen | SimulatorSeen) -> bool:
        """Take note of a moment; return whether another program than at the look before is there.

        After the look that sees the end nothing counts any more.
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
        """Return the pool for which the kernel killed it, or a child of it; empty if it killed nothing lately."""
        self._killed_in = self._killed_in or self._kills.lately(self._owner.value)
        return self._killed_in

    def explained(self, crash: Finding, kinds: Collection[PoolKind] = ANY, owned: bool = True) -> Finding | None:
        """Return the crash as memory that ran out; None if all pools had enough. See ``short_of`` for ``kinds``."""
        found = self.short_of(kinds, owned)
        if found is None:
            return None
        pool, free_mib = found
        reserve_mib = self._limits.reserve_mib[pool.kind]
        room = f"{pool.name} had {free_mib:.0f} MiB free, {reserve_mib:.0f} should be"
        return replace(
            crash,
            cause=self._causes[pool.kind],
            sentence=f"{crash.sentence} while {room}: its memory ran out",
            pool=pool.name,
            deficit_mib=reserve_mib - free_mib,
            numbers={**crash.numbers, "free_mib": free_mib, "reserve_mib": reserve_mib},
        )

    def short_of(self, kinds: Collection[PoolKind] = ANY, owned: bool = True) -> tuple[Pool, float] | None:
        """Return the pool that was furthest below its reserve, and the least that it had free; None if all had enough.

        Args:
            kinds: of memory that count.
            owned: only pools in which the program held something.
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
        """Return the least that was free in a pool while the program was in it; None where that is unknown."""
        looks = [pools.get(name) for _, pools in self._looks]
        lived, after = (looks[:-1], looks[-1]) if self._ended else (looks, None)
        held = [pool for pool in lived if pool is not None and (not owned or _holds(pool, self._owner))]
        rooms = [pool.free.mib for pool in held if pool.free.mib is not None]
        if rooms and after is not None and after.free.mib is not None:
            # Another process may have taken all since the last look: what the end gave back wasn't free before it.
            rooms.append(after.free.mib - max(0.0, held[-1].held_by(self._owner) - after.held_by(self._owner)))
        return max(0.0, min(rooms)) if rooms else None


def _holds(pool: Pool, owner: OwnerKind) -> bool:
    return any(each.kind is owner for each in pool.owners)
