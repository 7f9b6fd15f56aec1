"""Is there room for what is to start, and which foreign process has what is missing.

Who took memory is kept once, from the run's first look to its last, for the program that lacks it: the agent before its
start, a simulator before its restart. What is noticed look by look, as growth, is the detectors'.
"""

from __future__ import annotations

from collections.abc import Mapping

from launcher.decide.detectors.causes import Cause, Finding
from launcher.decide.fit import lives_in
from launcher.observe.pools import Cards, Owner, OwnerKind, Pool, PoolKind, Reading


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


def taken_from_simulator(
    needs_mib: Mapping[PoolKind, float], reading: Reading, foreign: ForeignMemory, cards: Cards
) -> Finding | None:
    """Return who took the memory that a new simulator needs; None if it is there, or no foreign process has it."""
    for kind, needed in needs_mib.items():
        for pool in reading.of(kind):
            if not lives_in(OwnerKind.SIMULATOR, pool.name, kind, cards):
                continue
            missing = 0.0 if pool.free.mib is None else needed - pool.free.mib
            owner = foreign.taker(pool)
            if missing <= 0 or foreign.taken_mib(pool) < missing or owner is None:
                continue
            free = f"{pool.name} has {pool.free} free, the simulator needs {needed:.0f} MiB"
            sentence = f"{free}; {owner.name} holds {owner.held}"
            return Finding(Cause.FOREIGN_PROCESS, sentence, pool.name, owner.name, deficit_mib=missing)
    return None


def missing_for_agent(
    needs_mib: Mapping[PoolKind, float],
    reserve_mib: Mapping[PoolKind, float],
    reading: Reading,
    foreign: ForeignMemory,
    cards: Cards,
) -> tuple[PoolKind, Finding] | None:
    """Return which pool can't take the agent, and who holds what is missing; None if all can."""
    for kind, peak in needs_mib.items():
        reserve = reserve_mib.get(kind, 0.0)
        for pool in reading.of(kind):
            needed = peak - pool.held_by(OwnerKind.AGENT)  # of a disk, what an earlier start laid out already
            if needed <= 0 or pool.free.mib is None or not lives_in(OwnerKind.AGENT, pool.name, kind, cards):
                continue
            deficit = needed + reserve - pool.free.mib
            if deficit > 0:
                return kind, _short_for_agent(pool, needed, reserve, deficit, foreign.taker(pool))
    return None


def _short_for_agent(pool: Pool, needed: float, reserve: float, deficit: float, taker: Owner | None) -> Finding:
    held = "" if taker is None else f"; {taker.name} holds {taker.held}"
    sentence = (
        f"{pool.name} has {pool.free} free, the agent needs {needed:.0f} MiB beside a reserve of {reserve:.0f}{held}"
    )
    cause = Cause.PRESSURE if taker is None else Cause.FOREIGN_PROCESS
    return Finding(cause, sentence, pool=pool.name, owner="" if taker is None else taker.name, deficit_mib=deficit)
