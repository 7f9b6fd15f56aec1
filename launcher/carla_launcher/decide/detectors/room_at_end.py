"""How much memory was left when a program ended: one that crashed below the reserve ran out, whatever it said. Pure.

Drivers, libraries and Unreal have new words for it with every version; the figures stay.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace

from carla_launcher.config import MemoryLimits
from carla_launcher.decide.detectors.causes import Cause, Finding
from carla_launcher.observe.pools import OwnerKind, Pool, PoolKind, Reading

ANY = frozenset({PoolKind.VRAM, PoolKind.RAM})


@dataclass(frozen=True)
class Short:
    """A pool that was below its reserve when a program in it ended."""

    pool: str
    kind: PoolKind
    free_mib: float
    reserve_mib: float

    def explain(self, crash: Finding, causes: Mapping[PoolKind, Cause]) -> Finding:
        """Return the crash as what it was: memory that ran out, of the cause for this kind of memory."""
        room = f"{self.pool} had {self.free_mib:.0f} MiB free, {self.reserve_mib:.0f} should be"
        return replace(
            crash,
            cause=causes[self.kind],
            sentence=f"{crash.sentence} while {room}: its memory ran out",
            pool=self.pool,
            deficit_mib=self.reserve_mib - self.free_mib,
            numbers={**crash.numbers, "free_mib": self.free_mib, "reserve_mib": self.reserve_mib},
        )


class RoomAtEnd:
    """Follows the room beside one kind of program, look by look.

    Args:
        limits: reserves; looks within ``pressure_s`` of the end count.
        owner: the program.
    """

    def __init__(self, limits: MemoryLimits, owner: OwnerKind) -> None:
        self._limits, self._owner = limits, owner
        self._looks: deque[tuple[float, Mapping[str, Pool]]] = deque()
        self._ended = False

    def forget(self) -> None:
        """Start over: with another program, or after a time without a look."""
        self._looks.clear()
        self._ended = False

    def look(self, time_s: float, reading: Reading, ended: bool) -> None:
        """Take note of a moment; after the look that sees the end nothing counts any more."""
        if self._ended:
            return
        self._ended = ended
        self._looks.append((time_s, {pool.name: pool for pool in reading.pools}))
        while len(self._looks) > 2 and time_s - self._looks[0][0] > self._limits.pressure_s:
            self._looks.popleft()

    def short(self, kinds: Collection[PoolKind] = ANY, owned: bool = True) -> Short | None:
        """Return the pool that was furthest below its reserve; None if all had enough.

        Args:
            kinds: of memory that count.
            owned: only pools in which the program held something.
        """
        names = {name: pool.kind for _, pools in self._looks for name, pool in pools.items() if pool.kind in kinds}
        rooms = {name: self._room_mib(name, owned) for name in names}
        found = [
            Short(name, names[name], round(room, 1), self._limits.reserve_mib[names[name]])
            for name, room in rooms.items()
            if room is not None and room < self._limits.reserve_mib[names[name]]
        ]
        return min(found, key=lambda each: each.free_mib / each.reserve_mib, default=None)

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
