"""The ladder as data: rungs as ``launcher/launcher.yaml`` writes them, the steps that they come to, what each frees.

Which step is taken is chosen in ``choose``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from typing import Any

from carla_launcher.config import Does, Rung
from carla_launcher.decide.sizes import Simulator, Sizes, SizesOf, Values, key_of
from carla_launcher.observe.pools import PoolKind
from carla_run.exits import Exit, ExitError


def in_words(rung: str, values: Mapping[str, Any], quality: str | None) -> str:
    """Return a step as people read it: the rung's name, with what it sets."""
    what = ", ".join(f"{key} = {value}" for key, value in values.items()) or quality
    return f"{rung} ({what})" if what else rung


@dataclass(frozen=True)
class Step:
    """One thing that can be done now: a rung with its values worked out.

    Attributes:
        rung: the rung's name; a rung with ``half`` comes to several steps, in falling order.
        values: for ``overrides.yaml``: dotted keys to values.
        frees_mib: predicted, against the step before it of the same rung (or against nothing taken).
        unseen_mib: of what it and the steps before it free, the part that ``launcher.yaml`` says and the agent's
            footprint doesn't.
        simulators_mib: likewise the part that simulators have that it ends.
    """

    rung: str
    does: Does
    cost: str
    values: Mapping[str, Any] = field(default_factory=dict)
    quality: str | None = None
    frees_mib: Mapping[PoolKind, float] = field(default_factory=dict)
    unseen_mib: Mapping[PoolKind, float] = field(default_factory=dict)
    simulators_mib: Mapping[PoolKind, float] = field(default_factory=dict)

    @property
    def stays(self) -> bool:
        """Return whether it lasts until it is taken back: only such a step is restored from."""
        return bool(self.values) or self.quality is not None

    def __str__(self) -> str:
        return in_words(self.rung, self.values, self.quality)


Ladder = Mapping[PoolKind, tuple[Step, ...]]
"""The steps of each pool's ladder, first choice first."""


@dataclass
class Taken:
    """A step that was taken and lasts.

    Attributes:
        rung, values, quality: of the step.
        cause: why it was taken.
        kind: whose ladder it stands in.
    """

    rung: str
    kind: str
    cause: str
    values: dict[str, Any] = field(default_factory=dict)
    quality: str | None = None

    def __str__(self) -> str:
        return in_words(self.rung, self.values, self.quality)


def overrides(taken: Sequence[Taken]) -> dict[str, Any]:
    """Return the values that hold, for ``overrides.yaml``."""
    return laid_over({}, *(each.values for each in taken))


def laid_over(values: Mapping[str, Any], *more: Mapping[str, Any]) -> dict[str, Any]:
    """Return values with others over them: of two numbers the smaller holds, which gives way more."""
    found = dict(values)
    for each in more:
        found |= {key: _further(found.get(key), value) for key, value in each.items()}
    return found


def _further(one: object, other: object) -> object:
    if isinstance(one, int | float) and isinstance(other, int | float):
        return min(one, other)
    return other


def kind_of(step: Step, ladder: Ladder, default: PoolKind = PoolKind.RAM) -> PoolKind:
    """Return in whose ladder this very step stands."""
    return next((kind for kind, steps in ladder.items() if any(each is step for each in steps)), default)


# The steps of a configuration

HALF, FEWER = "half", "fewer"
AT_WORK = "collector.at_work"
"""Key of how many collectors drive, each in a simulator of its own."""
_DEFAULTS = {"td3.micro_batch": "td3.batch_size", AT_WORK: "training.collectors"}
"""Keys that are another one's value where they are null."""

Rungs = Mapping[PoolKind, Sequence[Rung]]


class PolicyError(ExitError):
    """A ``--policy`` that can't be followed; the message is one sentence for a person."""

    code = Exit.BAD_CONFIG


def picked_rungs(rungs: Rungs, policy: Sequence[str] | None) -> dict[PoolKind, tuple[Rung, ...]]:
    """Return the rungs to use, in order: those that are allowed, or those that ``policy`` names, as it orders them.

    A pool none of whose rungs is named keeps its own order; ``stop`` is always there and last.

    Raises:
        PolicyError: a name that no pool has.
    """
    named = [name.strip() for name in policy or () if name.strip()]
    known = {rung.name for ladder in rungs.values() for rung in ladder}
    if unknown := [name for name in named if name not in known]:
        raise PolicyError(
            f"--policy names {', '.join(unknown)}, which the ladder hasn't: there are {', '.join(sorted(known))}."
        )
    return {kind: _stop_last(_named(ladder, named)) for kind, ladder in rungs.items()}


def _named(ladder: Sequence[Rung], named: Sequence[str]) -> list[Rung]:
    by_name = {rung.name: rung for rung in ladder}
    wanted = [by_name[name] for name in dict.fromkeys(named) if name in by_name]
    stops = [rung for rung in ladder if rung.does is Does.STOP]
    if any(rung.does is not Does.STOP for rung in wanted):
        return [*wanted, *(rung for rung in stops if rung not in wanted)]
    return [rung for rung in ladder if rung.allowed]


def _stop_last(ladder: Sequence[Rung]) -> tuple[Rung, ...]:
    return tuple(sorted(ladder, key=lambda rung: rung.does is Does.STOP))


def build_ladder(rungs: Rungs, base: Values, simulator: Simulator | None, sizes_of: SizesOf) -> Ladder:
    """Return the steps of each pool's ladder; those that would change or free nothing there are left out.

    Args:
        rungs: as :func:`picked_rungs` returns them.
        base: the configuration's values by dotted key, as the steps find them; ``device`` is cuda or cpu.
        simulator: None where the launcher doesn't run it.
        sizes_of: for sets of values, each with ``device``; asked once.
    """
    start, *_ = variants = variants_of(rungs, base)
    found = dict(zip(map(key_of, variants), sizes_of(variants), strict=True))

    def steps(kind: PoolKind, rung: Rung) -> Iterator[Step]:
        if rung.values:
            sizes = [(values, found[key_of({**start, **values})]) for values in unrolled(rung, base)]
            yield from _of_agent(kind, rung, found[key_of(start)], sizes, _one_less(rung, simulator))
        else:
            yield from _without_values(rung, simulator)

    return {kind: tuple(step for rung in ladder for step in steps(kind, rung)) for kind, ladder in rungs.items()}


def variants_of(rungs: Rungs, base: Values) -> list[Values]:
    """Return the sets of values that :func:`build_ladder` asks about, the one without any step first."""
    start = {"device": base["device"]}
    sets = [{**start, **values} for ladder in rungs.values() for rung in ladder for values in unrolled(rung, base)]
    return [start, *sets]


def unrolled(rung: Rung, base: Values) -> list[dict[str, object]]:
    """Return the sets of values that a rung comes to, in falling order, each other than ``base`` and less.

    ``half`` halves what is there, or both ends of a range, again and again down to 1, and rounds down; ``fewer`` takes
    one away.
    """
    now = {key: present(base, key) for key in rung.values}
    found: list[dict[str, object]] = []
    while True:
        then = {key: _next(now[key], wanted) for key, wanted in rung.values.items()}
        if not any(_gives_way(now[key], then[key]) for key in then):
            return found
        found.append(then)
        now = then


def present(base: Values, key: str) -> object:
    """Return what a key's value comes to, null included."""
    value = base.get(key)
    return base.get(_DEFAULTS.get(key, "")) if value is None else value


def _next(now: object, wanted: object) -> object:
    if wanted == FEWER:
        return max(1, now - 1) if isinstance(now, int) else now
    if wanted != HALF:
        return wanted
    if isinstance(now, list):  # a range, as of cars
        return [_next(each, wanted) for each in now]
    return max(1, now // 2) if isinstance(now, int) and now > 1 else now


def _gives_way(now: object, then: object) -> bool:
    """Return whether it is another value, and no greater one."""
    if isinstance(now, int | float) and isinstance(then, int | float):
        return then < now
    return now != then


def _of_agent(
    kind: PoolKind,
    rung: Rung,
    before: Sizes,
    sizes: Sequence[tuple[Values, Sizes]],
    simulator_mib: Mapping[PoolKind, float],
) -> Iterator[Step]:
    unseen: dict[PoolKind, float] = {}
    ended: dict[PoolKind, float] = {}
    for values, after in sizes:
        seen = _difference(rung, before, after)
        frees = summed({**seen, **rung.frees_mib}, simulator_mib)
        if after.refusal or frees.get(kind, 0.0) <= 0:
            continue
        unseen = {each: unseen.get(each, 0.0) + mib - seen.get(each, 0.0) for each, mib in rung.frees_mib.items()}
        ended = summed(ended, simulator_mib)
        yield Step(rung.name, rung.does, rung.cost, values, None, frees, dict(unseen), ended)
        before = after


def _one_less(rung: Rung, simulator: Simulator | None) -> dict[PoolKind, float]:
    """Return what one simulator takes, where each step of the rung ends one."""
    if simulator is None or AT_WORK not in rung.values:
        return {}
    peaks = {kind: simulator.peak(simulator.quality, kind).mib or 0.0 for kind in PoolKind}
    return {kind: round(mib / simulator.count, 1) for kind, mib in peaks.items() if mib}


def summed(*amounts: Mapping[PoolKind, float]) -> dict[PoolKind, float]:
    """Return amounts added up, by pool kind."""
    kinds = dict.fromkeys(kind for each in amounts for kind in each)
    return {kind: sum(each.get(kind, 0.0) for each in amounts) for kind in kinds}


def _less(one: Mapping[PoolKind, float], other: Mapping[PoolKind, float]) -> dict[PoolKind, float]:
    return summed(one, {kind: -mib for kind, mib in other.items()})


def _difference(rung: Rung, before: Sizes, after: Sizes) -> dict[PoolKind, float]:
    freed = {kind: round(before.mib.get(kind, 0.0) - mib, 1) for kind, mib in after.mib.items()}
    if rung.does is Does.APPLY and PoolKind.VRAM in freed:
        freed[PoolKind.VRAM] -= (
            before.context_mib - after.context_mib
        )  # only a process that ends gives its context back
    return {kind: mib for kind, mib in freed.items() if mib}


def _without_values(rung: Rung, simulator: Simulator | None) -> Iterator[Step]:
    if rung.does.restarts == "simulator" and simulator is None:
        return
    frees = dict(rung.frees_mib)
    if rung.quality is not None and simulator is not None:
        if rung.quality == simulator.quality or rung.quality not in simulator.qualities:
            return
        frees = {**_coarser(simulator, rung.quality), **frees}
    yield Step(rung.name, rung.does, rung.cost, quality=rung.quality, frees_mib=frees)


def _coarser(simulator: Simulator, quality: str) -> dict[PoolKind, float]:
    freed = {
        kind: round((simulator.peak(simulator.quality, kind).mib or 0) - (simulator.peak(quality, kind).mib or 0), 1)
        for kind in PoolKind
    }
    return {kind: mib for kind, mib in freed.items() if mib}


# What steps free

Needs = Callable[[Mapping[str, Any]], Mapping[PoolKind, float]]
"""From overrides to the agent's predicted peak, MiB by pool kind, as far as it is known; empty where it isn't."""


def relief(way: Sequence[Step], ladder: Ladder, taken: Sequence[Taken], needs: Needs) -> dict[PoolKind, float]:
    """Return what the agent's steps free together in each pool, against what holds; negative where they cost.

    Where it isn't known yet what the agent takes then, each step's own figures hold.
    """
    steps = [step for step in way if step.values]
    if not steps:
        return {}
    holds = overrides(taken)
    now, then = needs(holds), needs(laid_over(holds, *(step.values for step in steps)))
    freed = {kind: now[kind] - then[kind] for kind in now.keys() & then.keys()}
    for step in steps:
        held = held_step(step.rung, ladder, taken)
        unseen = {} if held is None else held.unseen_mib
        more = (
            {kind: mib - unseen.get(kind, 0.0) for kind, mib in step.unseen_mib.items()}
            if now and then
            else _less(_configured(step, held, ladder), of_simulators([step], ladder, taken))
        )
        freed = {kind: freed.get(kind, 0.0) + more.get(kind, 0.0) for kind in freed.keys() | more.keys()}
    return freed


def of_simulators(way: Sequence[Step], ladder: Ladder, taken: Sequence[Taken]) -> dict[PoolKind, float]:
    """Return what the simulators hold that these steps end, beyond those that are ended already."""
    freed: dict[PoolKind, float] = {}
    for step in way:
        held = held_step(step.rung, ladder, taken) if step.simulators_mib else None
        freed = summed(freed, _less(step.simulators_mib, {} if held is None else held.simulators_mib))
    return freed


def predicted(ladder: Ladder, taken: Sequence[Taken], needs: Needs) -> Mapping[PoolKind, float]:
    """Return what the agent takes at its peak on a rung; empty where it isn't known for any."""
    known = needs(overrides(taken))
    if known:
        return known
    steps = [step for rung in {each.rung: None for each in taken} if (step := held_step(rung, ladder, taken))]
    freed = relief(steps, ladder, (), lambda _: {})
    return {kind: mib - freed.get(kind, 0.0) for kind, mib in needs({}).items()}


def within_reach(ladder: Ladder, taken: Sequence[Taken]) -> list[dict[str, Any]]:
    """Return the overrides that a choice may ask about next, those that hold first.

    These are the last step taken back, each step alone, and each after the rungs before it, as far as those go.
    """
    holds = overrides(taken)
    found = [holds, overrides(taken[:-1])]
    for steps in ladder.values():
        before: list[dict[str, Any]] = [{}]
        for _, rung in groupby((step for step in steps if step.values), key=lambda step: step.rung):
            values = [step.values for step in rung]
            found += [laid_over(holds, each, value) for each in (before[0], before[-1]) for value in values]
            before.append(laid_over(before[-1], values[-1]))
    return list({key_of(each): each for each in found}.values())


def is_taken(step: Step, ladder: Ladder, taken: Sequence[Taken]) -> bool:
    """Return whether a step, or one further down the same rung, holds already."""
    if not any(each.rung == step.rung for each in taken):
        return False
    held, same = held_step(step.rung, ladder, taken), _steps_of(step.rung, ladder)
    places = [index for index, each in enumerate(same) if _alike(each, step.values, step.quality)]
    return held is None or not places or places[0] <= same.index(held)


def held_step(rung: str, ladder: Ladder, taken: Sequence[Taken]) -> Step | None:
    """Return the step of a rung that holds; None if none does, or one that this ladder doesn't have."""
    held = [each for each in taken if each.rung == rung]
    steps = (step for step in _steps_of(rung, ladder) if held and _alike(step, held[-1].values, held[-1].quality))
    return next(steps, None)


def _configured(step: Step, held: Step | None, ladder: Ladder) -> dict[PoolKind, float]:
    """Return what the ladder says that a step frees, with those between it and the one of its rung that holds."""
    same = _steps_of(step.rung, ladder)
    first = 0 if held is None else same.index(held) + 1
    last = next((index for index, each in enumerate(same) if _alike(each, step.values, step.quality)), len(same))
    freed: dict[PoolKind, float] = {}
    for each in (*same[first:last], step):
        freed = {kind: freed.get(kind, 0.0) + each.frees_mib.get(kind, 0.0) for kind in freed.keys() | each.frees_mib}
    return freed


def _alike(step: Step, values: Mapping[str, Any], quality: str | None) -> bool:
    return dict(step.values) == dict(values) and step.quality == quality


def _steps_of(rung: str, ladder: Ladder) -> list[Step]:
    """Return a rung's steps in the first ladder that has it."""
    found = ([step for step in steps if step.rung == rung] for steps in ladder.values())
    return next((steps for steps in found if steps), [])
