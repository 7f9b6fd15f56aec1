"""The fit rule: for every pool, the sum of simulator, other processes, agent and reserve, compared with the total.

Pure: takes a reading, the simulator's peaks and a function that returns the agent's sizes. ``choose`` finds the
configuration that a run starts with.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from carla_launcher.decide.detectors.expectations import PHASES, BandKey
from carla_launcher.decide.holders import OURS
from carla_launcher.decide.ladder import Ladder, RungStep, merged_values
from carla_launcher.observe.pools import (
    UNKNOWN,
    Cards,
    Figure,
    OwnerKind,
    Pool,
    PoolKind,
    Provenance,
    Reading,
    estimated,
)
from carla_launcher.sizes import DEVICE, Simulator, Sizes, SizesOf, Values
from carla_run.memory.room import missing

_OWNERS = {"ram:agent": (OwnerKind.AGENT,), "ram:simulator": (OwnerKind.SIMULATOR,)}
"""Pools that hold only one program of the run. The disk holds only the agent's files; all other RAM holds both."""


@dataclass(frozen=True)
class Situation:
    """The input of a plan.

    Attributes:
        reading: all pools; memory of this run itself doesn't count.
        simulator: None if the launcher doesn't start it; its memory is then foreign.
        base: the agent's configuration by dotted key; ``device`` is cuda or cpu.
        ladder: the steps of each pool, from ``ladder.build_ladder``.
        reserve_mib: memory that is kept free in each pool.
        cards: GPUs of simulator and agent.
        folder: folder on the disk of the disk's pool.
        smaller: by kind of memory, the key of the configuration that a user should lower first.
        elsewhere: what people call the simulator where the launcher doesn't run it.
    """

    reading: Reading
    simulator: Simulator | None
    base: Values
    ladder: Ladder
    reserve_mib: Mapping[PoolKind, float]
    cards: Cards = field(default_factory=Cards)
    folder: str = "the run's directory"
    smaller: Mapping[PoolKind, str] = field(default_factory=dict)
    elsewhere: str = "simulator elsewhere"


@dataclass(frozen=True)
class PoolItem:
    """One item in the sum of a pool."""

    what: str
    figure: Figure


@dataclass(frozen=True)
class PoolSum:
    """The items that would be in one pool, and its total.

    Attributes:
        left_mib: total less all items; negative if they don't fit, None if the total is unknown.
    """

    pool: str
    kind: PoolKind
    lines: tuple[PoolItem, ...]
    total: Figure

    @property
    def needed_mib(self) -> float:
        """Sum of all items; an unknown one counts as 0."""
        return round(sum(line.figure.mib or 0.0 for line in self.lines), 1)

    @property
    def left_mib(self) -> float | None:
        """Return what is left of the total."""
        return None if self.total.mib is None else round(self.total.mib - self.needed_mib, 1)

    @property
    def short_mib(self) -> float:
        """MiB missing; 0 if it fits, or if the total is unknown."""
        return round(missing(self.needed_mib, self.total.mib), 1)


@dataclass(frozen=True)
class Candidate:
    """One possible configuration: the simulator's quality, the agent's device, the steps taken.

    Attributes:
        quality: None if the launcher starts no simulator.
        agent: the agent's sizes.
        shown: the simulator, for messages.
    """

    quality: str | None
    steps: tuple[RungStep, ...]
    sums: tuple[PoolSum, ...]
    agent: Sizes
    shown: str

    @property
    def values(self) -> Values:
        """Values of the agent's configuration that the steps set, and ``device``."""
        return self.agent.values

    @property
    def refusal(self) -> str:
        """Why the configuration is impossible; empty if it isn't."""
        return self.agent.refusal

    @property
    def device(self) -> str:
        """The agent's device: cuda or cpu."""
        return str(self.values[DEVICE])

    @property
    def fits(self) -> bool:
        """Whether all pools suffice."""
        return not self.refusal and not any(each.short_mib for each in self.sums)

    @property
    def short_mib(self) -> float:
        """MiB missing in all pools together."""
        return sum(each.short_mib for each in self.sums)

    def sum_of(self, pool: str) -> PoolSum:
        """Return the sum of a pool that was read."""
        return next(each for each in self.sums if each.pool == pool)

    def __str__(self) -> str:
        where = {"cuda": "the GPU", "cpu": "the CPU"}[self.device]
        reported = [step for step in self.steps if set(step.values) - {DEVICE}]
        taken = "".join(f", {step}" for step in reported)
        return f"{self.shown}, agent on {where}{taken}"


class Fits:
    """Computes the sums of candidates in one situation."""

    def __init__(self, situation: Situation, sizes_of: SizesOf) -> None:
        self._situation = situation
        self._sizes_of = sizes_of
        self._pools = [pool for kind in PoolKind for pool in situation.reading.of(kind)]

    def judge(
        self, choices: Sequence[tuple[RungStep, ...]], quality: str | None = None, device: str | None = None
    ) -> list[Candidate]:
        """Return a candidate for each tuple of steps. Steps may override ``quality`` and ``device``."""
        sizes = self._sizes_of([self._values(steps, device or self._situation.base[DEVICE]) for steps in choices])
        return [self._candidate(steps, found, quality) for steps, found in zip(choices, sizes, strict=True)]

    @staticmethod
    def _values(steps: Sequence[RungStep], device: str) -> Values:
        return merged_values({DEVICE: device}, *(step.values for step in steps))

    def _candidate(self, steps: tuple[RungStep, ...], sizes: Sizes, quality: str | None) -> Candidate:
        simulator, shown = self._situation.simulator, self._situation.elsewhere
        if simulator is not None:
            named = [step.quality for step in steps if step.quality]
            quality = named[-1] if named else quality or simulator.quality
            shown = simulator.shown(quality)
        sums = () if sizes.refusal else tuple(self._sum(pool, sizes, quality, steps) for pool in self._pools)
        return Candidate(quality, steps, sums, sizes, shown)

    def _sum(self, pool: Pool, sizes: Sizes, quality: str | None, steps: Sequence[RungStep]) -> PoolSum:
        simulator, agent = self._simulator(pool, quality, steps), self._agent(pool, sizes, steps)
        # There is no reserve on a GPU that this run wouldn't use.
        kept = (
            self._situation.reserve_mib.get(pool.kind, 0.0)
            if pool.kind is not PoolKind.VRAM or simulator or agent
            else 0.0
        )
        reserve = [PoolItem("reserve", estimated(kept))] if kept else []
        return PoolSum(pool.name, pool.kind, (*simulator, *foreign_items(pool), *agent, *reserve), pool.total)

    def _simulator(self, pool: Pool, quality: str | None, steps: Sequence[RungStep]) -> list[PoolItem]:
        simulator = self._situation.simulator
        if simulator is None or quality is None or not self._has(pool, OwnerKind.SIMULATOR):
            return []
        figure = simulator.peak(quality, pool.kind)
        if ended := sum(step.simulators_mib.get(pool.kind, 0.0) for step in steps):
            figure = replace(figure, mib=round(max(0.0, (figure.mib or 0.0) - ended), 1))
        return [PoolItem(simulator.at(quality), figure)] if figure.mib else []

    def _agent(self, pool: Pool, sizes: Sizes, steps: Sequence[RungStep]) -> list[PoolItem]:
        if not self._has(pool, OwnerKind.AGENT):
            return []
        unseen = sum(step.unseen_mib.get(pool.kind, 0.0) for step in steps)
        peak = sizes.figure(pool.kind)
        context = [sizes.context] if pool.kind is PoolKind.VRAM and sizes.context_mib else []
        own = replace(peak, mib=round(max(0.0, (peak.mib or 0.0) - len(context) * sizes.context_mib - unseen), 1))
        lines = [PoolItem("CUDA context", figure) for figure in context]
        if pool.kind in sizes.unknown:
            return [*lines, PoolItem("agent at its peak", UNKNOWN)]
        return [*lines, PoolItem("agent at its peak", own)] if own.mib else lines

    def _has(self, pool: Pool, owner: OwnerKind) -> bool:
        return uses_pool(owner, pool.name, pool.kind, self._situation.cards)


def uses_pool(owner: OwnerKind, pool: str, kind: PoolKind, cards: Cards) -> bool:
    """Return whether simulator or agent has its memory of a kind in this pool.

    Args:
        owner: simulator or agent.
        pool: name of the pool; name of the kind for any pool of it.
        kind: kind of memory.
        cards: GPUs of simulator and agent.
    """
    if kind is PoolKind.VRAM:
        return pool in (kind.value, cards.pool_of(owner))
    return owner in _OWNERS.get(pool, (OwnerKind.AGENT,) if kind is PoolKind.DISK else OURS)


def pools_of(owner: OwnerKind, kind: PoolKind, reading: Reading, cards: Cards) -> tuple[Pool, ...]:
    """Return the pools in which simulator or agent has its memory of a kind."""
    return tuple(pool for pool in reading.of(kind) if uses_pool(owner, pool.name, kind, cards))


def planned_bands(situation: Situation, agent: Sizes | None, quality: str | None) -> dict[BandKey, float]:
    """Return the most that simulator and agent should hold, MiB by owner, pool and phase.

    Args:
        situation: the input of the plan.
        agent: the agent's sizes on the present rung; None if unknown.
        quality: the simulator's present quality; None if it has none.
    """
    found: dict[BandKey, float] = {}
    simulator = situation.simulator
    for pool in situation.reading.pools:
        if simulator is not None and uses_pool(OwnerKind.SIMULATOR, pool.name, pool.kind, situation.cards):
            peak = simulator.peak(quality or simulator.quality, pool.kind)
            found[OwnerKind.SIMULATOR.value, pool.name, ""] = peak.mib or 0.0
        if agent is not None and uses_pool(OwnerKind.AGENT, pool.name, pool.kind, situation.cards):
            if pool.kind is PoolKind.DISK:
                found[OwnerKind.AGENT.value, pool.name, ""] = agent.mib.get(pool.kind, 0.0)
                continue
            phases = agent.by_phase.get(pool.kind, {})
            for phase, mib in phases.items():
                key = (OwnerKind.AGENT.value, pool.name, PHASES.get(phase, ""))
                if key[2]:
                    found[key] = max(mib, found.get(key, 0.0))
    return {key: mib for key, mib in found.items() if mib > 0}


def foreign_items(pool: Pool) -> list[PoolItem]:
    """Return the memory that other programs hold, by name, and the rest without a known process."""
    lines = [PoolItem(owner.name, owner.held) for owner in pool.owners if owner.kind not in OURS]
    if pool.total.mib is None or pool.free.mib is None:
        return lines
    if any(owner.held.mib is None for owner in pool.owners if owner.kind in OURS):
        return lines  # the rest may be this run's own
    rest = pool.total.mib - pool.free.mib - sum(owner.held.mib or 0.0 for owner in pool.owners)
    return [*lines, PoolItem("others, unnamed", Figure(round(rest, 1), Provenance.ESTIMATED))] if rest >= 1 else lines
