"""The one search for steps down: where a run starts and what a run that is short gives up are both chosen here.

The first step that by itself makes the short pool fit, and makes no other pool shorter, is taken. Where none does,
the rungs are taken that help, one after the other, each as far as it goes, less what then turns out not to be needed.
Another pool is filled only if its own ladder can then empty it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby

from carla_launcher.decide.fit import homes_of, lives_in
from carla_launcher.decide.ladder import Ladder, Standing, Step
from carla_launcher.observe.pools import Cards, OwnerKind, PoolKind, Reading
from carla_launcher.rungs.rung import Freed, summed
from carla_launcher.sizes import CPU, DEVICE
from carla_run.memory.room import missing

Way = tuple[Step, ...]
"""Steps to be taken together, of each rung one at most."""
Short = Mapping[str, float]
"""MiB missing, by name of pool; 0 where it fits."""
Shortages = Callable[[Sequence[Way]], Sequence[Short | None]]
"""What is missing after each way; None where there is no such configuration."""


def choose(ladder: Ladder, kinds: Mapping[str, PoolKind], shortages: Shortages) -> Way | None:
    """Return the steps after which no pool is short: none where none is, and None where no steps are enough.

    Args:
        ladder: the steps that may be taken, by kind of pool; ``stop`` is none of them.
        kinds: of the pools, those that are served first in front.
        shortages: a pure function of its argument.
    """
    search = _Search(ladder, kinds, shortages)
    for overfilling in (False, True):
        way = search.descend(overfilling)
        if way is not None:
            return search.lightened(way)
    return None


def lasting_steps(ladder: Ladder) -> Ladder:
    """Return the steps that stay taken."""
    return {kind: tuple(step for step in steps if step.stays) for kind, steps in ladder.items()}


@dataclass(frozen=True)
class _Search:
    ladder: Ladder
    kinds: Mapping[str, PoolKind]
    shortages: Shortages

    def descend(self, overfilling: bool) -> Way | None:
        """Return a way after which nothing is short; ``overfilling`` lets it fill one pool for another."""
        way: Way = ()
        for _ in range(1 + sum(map(len, self.ladder.values()))):
            (short,) = self.shortages([way])
            if short is not None and not any(short.values()):
                return way
            longer = None if short is None else self._one_more(way, short, overfilling)
            if longer is None:
                return None
            way = longer
        return None

    def _one_more(self, way: Way, short: Short, overfilling: bool) -> Way | None:
        """Return the way with the first step that is enough for the first short pool, else with the first rung that
        helps at all, as far as it goes."""
        pool = next(name for name in self.kinds if short.get(name))
        ways = [_with(way, step) for step in self.ladder.get(self.kinds[pool], ())]
        helpful = [
            (longer, after)
            for longer, after in zip(ways, self.shortages(ways), strict=True)
            if after is not None
            and after.get(pool, 0.0) < short[pool]
            and (overfilling or all(mib <= short.get(name, 0.0) for name, mib in after.items()))
        ]
        for longer, after in helpful:
            if not after.get(pool):
                return longer
        rungs = [list(rung) for _, rung in groupby(helpful, key=lambda pair: pair[0][-1].rung)]
        return rungs[0][-1][0] if rungs else None

    def lightened(self, way: Way) -> Way:
        """Return it without what turned out not to be needed, the dearest first: whole steps, or a part of the way."""
        for step in reversed(way if len(way) > 1 else ()):
            others = tuple(each for each in way if each is not step)
            ladder = next(steps for steps in self.ladder.values() if any(each is step for each in steps))
            rung = [each for each in ladder if each.rung == step.rung]
            less = (tuple(part if each is step else each for each in way) for part in rung[: rung.index(step)])
            lighter = [others, *less]
            fitting = zip(lighter, self.shortages(lighter), strict=True)
            way = next((each for each, short in fitting if short is not None and not any(short.values())), way)
        return way


def _with(way: Way, step: Step) -> Way:
    return (*(each for each in way if each.rung != step.rung), step)


@dataclass(frozen=True)
class Lack:
    """What a run is short of.

    Attributes:
        kind: of memory.
        mib: that must become free.
        pool: in which pool; empty where it isn't said.
    """

    kind: PoolKind
    mib: float
    pool: str = ""


@dataclass(frozen=True)
class Ground(Standing):
    """What a choice in a run stands on.

    Attributes:
        reading: all pools now.
        reserve_mib: kept free in each pool.
        fresh_mib: what the simulator takes just after its start, by kind; what it holds beyond that, a restart frees.
        simulator_ours: it can be restarted.
        cards: of simulator and agent: what either frees of VRAM, it frees on its own.
    """

    reading: Reading
    reserve_mib: Mapping[PoolKind, float]
    fresh_mib: Mapping[PoolKind, float]
    simulator_ours: bool = True
    cards: Cards = field(default_factory=Cards)

    def lack(self, owner: OwnerKind, kind: PoolKind, mib: float, pool: str = "") -> Lack:
        """Return what simulator or agent is short of; where the pool isn't said, of VRAM it is its own card's."""
        return Lack(kind, mib, pool or (self.cards.pool_of(owner) if kind is PoolKind.VRAM else ""))

    def choose(self, lack: Lack, lasting: bool = False) -> Way:
        """Return the steps to take together; empty where none help enough.

        Args:
            lack: what they must free.
            lasting: only steps that stay, as before a program starts that hasn't its memory yet.
        """
        target = lack.pool or lack.kind.value
        kinds = {target: lack.kind, **{pool.name: pool.kind for pool in self.reading.pools if pool.name != target}}
        ladder = lasting_steps(self.open_steps()) if lasting else self.open_steps()
        return choose(ladder, kinds, lambda ways: [self._short_after(way, target, lack) for way in ways]) or ()

    def open_steps(self) -> Ladder:
        """Return the steps that can be taken from here, ``stop`` not among them."""
        return {
            kind: tuple(step for step in steps if not step.does.ends_run and not self.is_taken(step))
            for kind, steps in self.ladder.items()
        }

    def frees(self, way: Way) -> dict[PoolKind, float]:
        """Return what steps free together in each kind of pool, negative where they cost."""
        return summed(*self._frees(way).values())

    def held(self, kind: PoolKind, owner: OwnerKind) -> float:
        """Return what simulator or agent holds; of several pools of a kind, in the fullest."""
        return max((pool.held_by(owner) for pool in homes_of(owner, kind, self.reading, self.cards)), default=0.0)

    def _short_after(self, way: Way, target: str, lack: Lack) -> dict[str, float]:
        by_owner = self._frees(way)

        def freed(name: str, kind: PoolKind) -> float:
            lives = (mib for owner, mib in by_owner.items() if lives_in(owner, name, kind, self.cards))
            return sum(mib.get(kind, 0.0) for mib in lives)

        # Where a pool has less than its reserve already, it is another finding's to mend that.
        others = {
            pool.name: missing(
                -freed(pool.name, pool.kind), max(0.0, pool.free.mib - self.reserve_mib.get(pool.kind, 0.0))
            )
            for pool in self.reading.pools
            if pool.name != target and pool.free.mib is not None
        }
        return {target: missing(lack.mib, freed(target, lack.kind)), **others}

    def _frees(self, way: Way) -> Freed:
        by_kind = [step.does.frees(step, self) for step in way]
        agents, simulators = OwnerKind.AGENT, OwnerKind.SIMULATOR
        agent = summed(self.relief(way), *(each.get(agents, {}) for each in by_kind))
        if any(step.values.get(DEVICE) == CPU for step in way):
            agent[PoolKind.VRAM] = self.held(PoolKind.VRAM, agents) or agent.get(PoolKind.VRAM, 0.0)
        simulator = summed(self.of_simulators(way), *(each.get(simulators, {}) for each in by_kind))
        return {agents: agent, simulators: simulator}
