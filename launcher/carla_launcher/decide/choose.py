"""The search for steps down the ladder, both at a run's start and when a run is short of memory.

The first step that alone makes the short pool fit, and makes no other pool shorter, is taken. If there is none, the
rungs that help are taken one after the other, each as far as it goes; then the steps that turn out not to be needed
are dropped. Another pool may be filled only if its own ladder can free it again.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby

from carla_launcher.decide.fit import pools_of, uses_pool
from carla_launcher.decide.ladder import Ladder, LadderPosition, RungStep
from carla_launcher.observe.pools import Cards, OwnerKind, PoolKind, Reading
from carla_launcher.rungs.rung import Freed, summed
from carla_launcher.sizes import CPU, DEVICE
from carla_run.memory.room import missing

Steps = tuple[RungStep, ...]
"""Steps to be taken together, at most one per rung."""
Shortage = Mapping[str, float]
"""MiB missing, by name of pool; 0 if it fits."""
ShortagesOf = Callable[[Sequence[Steps]], Sequence[Shortage | None]]
"""Returns what is missing after each tuple of steps; None for an impossible configuration."""


def choose(ladder: Ladder, kinds: Mapping[str, PoolKind], shortages: ShortagesOf) -> Steps | None:
    """Return the steps after which no pool is short; empty if none is short, None if no steps are enough.

    Args:
        ladder: the steps that may be taken, by kind of pool, without ``stop``.
        kinds: kind of each pool, in the order in which pools are served.
        shortages: a pure function.
    """
    search = _Search(ladder, kinds, shortages)
    for overfilling in (False, True):
        steps = search.search(overfilling)
        if steps is not None:
            return search.minimal(steps)
    return None


def lasting_steps(ladder: Ladder) -> Ladder:
    """Return the steps that last until they are restored."""
    return {kind: tuple(step for step in steps if step.lasting) for kind, steps in ladder.items()}


@dataclass(frozen=True)
class _Search:
    ladder: Ladder
    kinds: Mapping[str, PoolKind]
    shortages: ShortagesOf

    def search(self, overfilling: bool) -> Steps | None:
        """Return steps after which no pool is short; None if none are. ``overfilling``: they may fill other pools."""
        steps: Steps = ()
        for _ in range(1 + sum(map(len, self.ladder.values()))):
            (short,) = self.shortages([steps])
            if short is not None and not any(short.values()):
                return steps
            longer = None if short is None else self._one_more(steps, short, overfilling)
            if longer is None:
                return None
            steps = longer
        return None

    def _one_more(self, steps: Steps, short: Shortage, overfilling: bool) -> Steps | None:
        """Return the steps and one more: the first that is enough for the first short pool, else the last step of the
        first rung that helps."""
        pool = next(name for name in self.kinds if short.get(name))
        choices = [_with(steps, step) for step in self.ladder.get(self.kinds[pool], ())]
        helpful = [
            (longer, after)
            for longer, after in zip(choices, self.shortages(choices), strict=True)
            if after is not None
            and after.get(pool, 0.0) < short[pool]
            and (overfilling or all(mib <= short.get(name, 0.0) for name, mib in after.items()))
        ]
        for longer, after in helpful:
            if not after.get(pool):
                return longer
        rungs = [list(rung) for _, rung in groupby(helpful, key=lambda pair: pair[0][-1].rung)]
        return rungs[0][-1][0] if rungs else None

    def minimal(self, steps: Steps) -> Steps:
        """Return the steps that are needed: later ones are dropped, or replaced by smaller ones, if the rest fits."""
        for step in reversed(steps if len(steps) > 1 else ()):
            others = tuple(each for each in steps if each is not step)
            ladder = next(every for every in self.ladder.values() if any(each is step for each in every))
            rung = [each for each in ladder if each.rung == step.rung]
            less = (tuple(part if each is step else each for each in steps) for part in rung[: rung.index(step)])
            lighter = [others, *less]
            fitting = zip(lighter, self.shortages(lighter), strict=True)
            steps = next((each for each, short in fitting if short is not None and not any(short.values())), steps)
        return steps


def _with(steps: Steps, step: RungStep) -> Steps:
    return (*(each for each in steps if each.rung != step.rung), step)


@dataclass(frozen=True)
class Deficit:
    """Memory that a run is short of.

    Attributes:
        mib: amount that must be freed.
        pool: name of the pool; empty for any pool of the kind.
    """

    kind: PoolKind
    mib: float
    pool: str = ""


@dataclass(frozen=True)
class Context(LadderPosition):
    """The state of a run that a choice of steps depends on.

    Attributes:
        reading: all pools now.
        reserve_mib: memory that is kept free in each pool.
        fresh_mib: memory of the simulators just after their start, by kind; a restart frees what they hold beyond that.
        simulator_ours: the launcher can restart the simulator.
        cards: GPUs of simulator and agent; a program frees VRAM on its own GPU only.
    """

    reading: Reading
    reserve_mib: Mapping[PoolKind, float]
    fresh_mib: Mapping[PoolKind, float]
    simulator_ours: bool = True
    cards: Cards = field(default_factory=Cards)

    def deficit(self, owner: OwnerKind, kind: PoolKind, mib: float, pool: str = "") -> Deficit:
        """Return what simulator or agent is short of; VRAM without a pool's name is that of its GPU."""
        return Deficit(kind, mib, pool or (self.cards.pool_of(owner) if kind is PoolKind.VRAM else ""))

    def choose(self, deficit: Deficit, lasting: bool = False) -> Steps:
        """Return the steps to take together; empty if no steps free enough.

        Args:
            deficit: what they must free.
            lasting: only lasting steps, for the start of a program.
        """
        target = deficit.pool or deficit.kind.value
        kinds = {target: deficit.kind, **{pool.name: pool.kind for pool in self.reading.pools if pool.name != target}}
        ladder = lasting_steps(self.open_steps()) if lasting else self.open_steps()
        found = choose(ladder, kinds, lambda choices: [self._short_after(each, target, deficit) for each in choices])
        return found or ()

    def open_steps(self) -> Ladder:
        """Return the steps that can be taken from here, without ``stop``."""
        return {
            kind: tuple(step for step in steps if not step.does.ends_run and not self.is_taken(step))
            for kind, steps in self.ladder.items()
        }

    def frees(self, steps: Steps) -> dict[PoolKind, float]:
        """Return what steps free together in each kind of pool; negative if they cost."""
        return summed(*self._frees(steps).values())

    def held(self, kind: PoolKind, owner: OwnerKind) -> float:
        """Return what simulator or agent holds in the pool of this kind in which it holds most."""
        return max((pool.held_by(owner) for pool in pools_of(owner, kind, self.reading, self.cards)), default=0.0)

    def _short_after(self, steps: Steps, target: str, deficit: Deficit) -> dict[str, float]:
        by_owner = self._frees(steps)

        def freed(name: str, kind: PoolKind) -> float:
            lives = (mib for owner, mib in by_owner.items() if uses_pool(owner, name, kind, self.cards))
            return sum(mib.get(kind, 0.0) for mib in lives)

        # A pool that is below its reserve already has its own finding.
        others = {
            pool.name: missing(
                -freed(pool.name, pool.kind), max(0.0, pool.free.mib - self.reserve_mib.get(pool.kind, 0.0))
            )
            for pool in self.reading.pools
            if pool.name != target and pool.free.mib is not None
        }
        return {target: missing(deficit.mib, freed(target, deficit.kind)), **others}

    def _frees(self, steps: Steps) -> Freed:
        by_kind = [step.does.frees(step, self) for step in steps]
        agents, simulators = OwnerKind.AGENT, OwnerKind.SIMULATOR
        agent = summed(self.relief(steps), *(each.get(agents, {}) for each in by_kind))
        if any(step.values.get(DEVICE) == CPU for step in steps):
            agent[PoolKind.VRAM] = self.held(PoolKind.VRAM, agents) or agent.get(PoolKind.VRAM, 0.0)
        simulator = summed(self.freed_by_simulators(steps), *(each.get(simulators, {}) for each in by_kind))
        return {agents: agent, simulators: simulator}
