"""The ladder as data: the rungs and their steps, a run's position on it, and what each step frees.

``choose`` chooses the steps.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from typing import Any

from carla_launcher.observe.pools import PoolKind
from carla_launcher.rungs.one_simulator_less import OneSimulatorLess
from carla_launcher.rungs.rung import InitialRun, Rung, in_words, summed
from carla_launcher.rungs.rung import RungStep as RungStep
from carla_launcher.sizes import DEVICE, Simulator, SizesOf, Values, key_of
from carla_run.configuration.program_file import ProgramFile, ProgramRung
from carla_run.exits import Exit, ExitError

Ladder = Mapping[PoolKind, tuple[RungStep, ...]]
"""The steps of each pool's ladder, first choice first."""
Rungs = Mapping[PoolKind, Sequence[Rung]]
Needs = Callable[[Mapping[str, Any]], Mapping[PoolKind, float]]
"""Takes overrides, returns the agent's predicted peak in MiB by pool kind, as far as known; empty if unknown."""


@dataclass
class AppliedRung:
    """A lasting step that was taken.

    Attributes:
        rung, values, quality: of the step.
        cause: why it was taken.
        kind: kind of the pool whose ladder has the step.
    """

    rung: str
    kind: str
    cause: str
    values: dict[str, Any] = field(default_factory=dict)
    quality: str | None = None

    def __str__(self) -> str:
        return in_words(self.rung, self.values, self.quality)


def overrides(taken: Sequence[AppliedRung]) -> dict[str, Any]:
    """Return the values that the taken steps set, for ``overrides.yaml``."""
    return merged_values({}, *(each.values for each in taken))


def merged_values(values: Mapping[str, Any], *more: Mapping[str, Any]) -> dict[str, Any]:
    """Return values merged with others, which win; of two numbers the smaller one wins."""
    found = dict(values)
    for each in more:
        found |= {key: _further(found.get(key), value) for key, value in each.items()}
    return found


def _further(one: object, other: object) -> object:
    if isinstance(one, int | float) and isinstance(other, int | float):
        return min(one, other)
    return other


def kind_of(step: RungStep, ladder: Ladder, default: PoolKind = PoolKind.RAM) -> PoolKind:
    """Return the kind of the pool whose ladder has this step."""
    return next((kind for kind, steps in ladder.items() if any(each is step for each in steps)), default)


# The rungs of a run


def with_program(rungs: Rungs, program: ProgramFile) -> dict[PoolKind, tuple[Rung, ...]]:
    """Return the launcher's rungs and the program's, each program's rung before the first with its loss in ``after``.

    A program's rung with the name of a launcher's rung in the same pool is left out.
    """

    def merged(kind: PoolKind, ladder: Sequence[Rung]) -> Iterator[Rung]:
        own = [each for each in program.rungs if kind.value in each.pools]
        own = [each for each in own if each.name not in {rung.name for rung in ladder}]
        for rung in ladder:
            yield from (of_program(each) for each in own if each.loses in rung.after)
            ends_one = program.keys.simulators_at_work in rung.values
            yield OneSimulatorLess(**{**rung.model_dump(), "does": OneSimulatorLess.kind()}) if ends_one else rung

    return {kind: tuple(merged(kind, ladder)) for kind, ladder in rungs.items()}


def of_program(rung: ProgramRung) -> Rung:
    """Return a program's rung as a rung of the ladder; a list of values becomes a tuple, taken in order."""
    values = {key: tuple(each) if isinstance(each, list) else each for key, each in rung.values.items()}
    line = rung.model_dump(include={"name", "does", "frees_mib", "cost", "allowed"})
    return Rung.model_validate({**line, "values": values})


def picked_rungs(rungs: Rungs, policy: Sequence[str] | None) -> dict[PoolKind, tuple[Rung, ...]]:
    """Return the rungs to use, in order: the allowed ones, or those that ``policy`` names, in its order.

    A pool of which no rung is named keeps its own order. ``stop`` is always the last rung.

    Raises:
        ExitError: no pool has a rung of this name.
    """
    named = [name.strip() for name in policy or () if name.strip()]
    known = {rung.name for ladder in rungs.values() for rung in ladder}
    if unknown := [name for name in named if name not in known]:
        raise ExitError(
            f"--policy names {', '.join(unknown)}, which the ladder doesn't have: it has {', '.join(sorted(known))}.",
            Exit.BAD_CONFIG,
        )
    return {
        kind: tuple(sorted(_named(ladder, named), key=lambda rung: rung.ends_run)) for kind, ladder in rungs.items()
    }


def _named(ladder: Sequence[Rung], named: Sequence[str]) -> list[Rung]:
    by_name = {rung.name: rung for rung in ladder}
    wanted = [by_name[name] for name in dict.fromkeys(named) if name in by_name]
    if all(rung.ends_run for rung in wanted):
        return [rung for rung in ladder if rung.allowed]
    return [*wanted, *(rung for rung in ladder if rung.ends_run and rung not in wanted)]


def build_ladder(rungs: Rungs, base: Values, simulator: Simulator | None, sizes_of: SizesOf) -> Ladder:
    """Return the steps of each pool's ladder, without those that change or free nothing there.

    Args:
        rungs: as :func:`picked_rungs` returns them.
        base: the configuration's values by dotted key, each null replaced by its meaning; ``device`` is cuda or cpu.
        simulator: None if the launcher doesn't start it.
        sizes_of: returns the agent's sizes for sets of values, each with ``device``; called once.

    Raises:
        ExitError: a rung sets a key that the agent doesn't have.
    """
    start, *_ = variants = variants_of(rungs, base)
    found = dict(zip(map(key_of, variants), sizes_of(variants), strict=True))
    begins = InitialRun(base, simulator, lambda values: found[key_of({**start, **values})])
    return {kind: tuple(step for rung in ladder for step in rung.steps(kind, begins)) for kind, ladder in rungs.items()}


def variants_of(rungs: Rungs, base: Values) -> list[Values]:
    """Return the sets of values whose sizes :func:`build_ladder` needs; the first is without any step."""
    start = {DEVICE: base[DEVICE]}
    return [start, *({**start, **values} for ladder in rungs.values() for rung in ladder for values in rung.sets(base))]


@dataclass(frozen=True)
class LadderPosition:
    """A run's position on the ladder, and what the steps from there free.

    Attributes:
        ladder: all steps of this run.
        taken: the steps taken, in order.
        needs: returns the agent's predicted peak.
    """

    ladder: Ladder
    taken: Sequence[AppliedRung]
    needs: Needs

    def step_of(self, rung: str) -> RungStep | None:
        """Return the last step taken of a rung; None if none was taken, or if the ladder doesn't have it."""
        last = next((each for each in reversed(self.taken) if each.rung == rung), None)
        return None if last is None else next((step for step in self._same(rung) if _alike(step, last)), None)

    def is_taken(self, step: RungStep) -> bool:
        """Return whether a step, or a further one of the same rung, was taken already."""
        if not any(each.rung == step.rung for each in self.taken):
            return False
        held, same = self.step_of(step.rung), self._same(step.rung)
        place = next((index for index, each in enumerate(same) if _alike(each, step)), None)
        return held is None or place is None or place <= same.index(held)

    def relief(self, chosen: Sequence[RungStep]) -> dict[PoolKind, float]:
        """Return what the agent's steps free together in each pool, from the present position; negative if they cost.

        If the agent's sizes aren't known yet, the configured figures of each step are used.
        """
        steps = [step for step in chosen if step.values]
        if not steps:
            return {}
        holds = overrides(self.taken)
        now, then = self.needs(holds), self.needs(merged_values(holds, *(step.values for step in steps)))
        freed = {kind: now[kind] - then[kind] for kind in now.keys() & then.keys()}
        known = bool(now and then)
        more = (self._beyond_held(step, "unseen_mib") if known else self._configured(step) for step in steps)
        return summed(freed, *more)

    def freed_by_simulators(self, chosen: Sequence[RungStep]) -> dict[PoolKind, float]:
        """Return the memory of the simulators that these steps end."""
        return summed(*(self._beyond_held(step, "simulators_mib") for step in chosen if step.simulators_mib))

    def predicted(self) -> Mapping[PoolKind, float]:
        """Return the agent's predicted peak on this rung; empty if unknown."""
        if known := self.needs(overrides(self.taken)):
            return known
        steps = [step for rung in {each.rung: None for each in self.taken} if (step := self.step_of(rung))]
        freed = LadderPosition(self.ladder, (), lambda _: {}).relief(steps)
        return {kind: mib - freed.get(kind, 0.0) for kind, mib in self.needs({}).items()}

    def within_reach(self) -> list[dict[str, Any]]:
        """Return the overrides that the next choice may ask about, the present ones first.

        They are the last step restored, each step by itself, and each step after all rungs before it.
        """
        holds = overrides(self.taken)
        found = [holds, overrides(self.taken[:-1])]
        for steps in self.ladder.values():
            before: list[dict[str, Any]] = [{}]
            for _, rung in groupby((step for step in steps if step.values), key=lambda step: step.rung):
                values = [step.values for step in rung]
                found += [merged_values(holds, each, value) for each in (before[0], before[-1]) for value in values]
                before.append(merged_values(before[-1], values[-1]))
        return list({key_of(each): each for each in found}.values())

    def _configured(self, step: RungStep) -> dict[PoolKind, float]:
        """Return what a step frees of the agent by the configured figures, with the steps before it of its rung."""
        same, held = self._same(step.rung), self.step_of(step.rung)
        first = 0 if held is None else same.index(held) + 1
        last = next((index for index, each in enumerate(same) if _alike(each, step)), len(same))
        ended = self.freed_by_simulators([step])
        all_freed = (each.frees_mib for each in (*same[first:last], step))
        return summed(*all_freed, {kind: -mib for kind, mib in ended.items()})

    def _beyond_held(self, step: RungStep, figures: str) -> dict[PoolKind, float]:
        held = self.step_of(step.rung)
        before: Mapping[PoolKind, float] = {} if held is None else getattr(held, figures)
        return summed(getattr(step, figures), {kind: -mib for kind, mib in before.items()})

    def _same(self, rung: str) -> list[RungStep]:
        """Return a rung's steps, of the first ladder that has the rung."""
        found = ([step for step in steps if step.rung == rung] for steps in self.ladder.values())
        return next((steps for steps in found if steps), [])


def _alike(step: RungStep, other: RungStep | AppliedRung) -> bool:
    return dict(step.values) == dict(other.values) and step.quality == other.quality
