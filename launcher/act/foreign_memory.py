"""Who took the memory: what foreign processes hold of each pool beside the least that they held before. Pure.

Kept once, from the run's first look to its last, for the program that lacks memory: the agent before its start, a
simulator before its restart. What is noticed look by look, as growth, is the detectors'.
"""

from __future__ import annotations

from launcher.observe.pools import Owner, OwnerKind, Pool, Reading


class ForeignMemory:
    """The least that was held: by each process since the first look, and by all together while the run drove."""

    def __init__(self) -> None:
        self._least_mib: dict[tuple[str, str], float] | None = None
        self._usual_mib: dict[str, float] = {}

    def look(self, reading: Reading) -> None:
        """Keep the least that each foreign process was seen to hold; one that came later held nothing."""
        held = {(pool.name, owner.name): owner.held.mib or 0.0 for pool in reading.pools for owner in _foreign(pool)}
        least = held if self._least_mib is None else self._least_mib
        self._least_mib = {who: min(mib, held.get(who, 0.0)) for who, mib in least.items()}

    def drives(self, reading: Reading) -> None:
        """Keep the least that all together were seen to hold while simulator and agent had what they need."""
        for pool in reading.pools:
            held = pool.held_by(OwnerKind.FOREIGN)
            self._usual_mib[pool.name] = min(held, self._usual_mib.get(pool.name, held))

    def taker(self, pool: Pool) -> Owner | None:
        """Return the owner who took most of a pool since the first look; if none took any, the one who holds most."""
        least = self._least_mib or {}

        def grown(owner: Owner) -> tuple[float, float]:
            held = owner.held.mib or 0.0
            return held - least.get((pool.name, owner.name), 0.0), held

        return max((owner for owner in _foreign(pool) if owner.held.mib), key=grown, default=None)

    def taken_mib(self, pool: Pool) -> float:
        """Return how much more all together hold than they did while the run drove."""
        return pool.held_by(OwnerKind.FOREIGN) - self._usual_mib.get(pool.name, 0.0)


def _foreign(pool: Pool) -> list[Owner]:
    return [owner for owner in pool.owners if owner.kind is OwnerKind.FOREIGN]
