"""From the ladder's rungs to the single steps that exist for one configuration, each with what it frees.

Pure: the sizes are asked of a function that is given. What is wrong with a ``--policy`` is said here.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from contract.exits import Exit, ExitError
from launcher.ladder.rungs import Does, Ladder, Rung, Step
from launcher.memory.pools import Kind
from launcher.planning.sizes import Simulator, Sizes, SizesOf, Values

HALF = "half"
_DEFAULTS = {"td3.micro_batch": "td3.batch_size"}
"""Keys that are another one's value where they are null."""

Rungs = Mapping[Kind, Sequence[Rung]]


class PolicyError(ExitError):
    """A ``--policy`` that can't be followed; the message is one sentence for a person."""

    code = Exit.BAD_CONFIG


def picked(rungs: Rungs, policy: Sequence[str] | None) -> dict[Kind, tuple[Rung, ...]]:
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


def build(rungs: Rungs, base: Values, simulator: Simulator | None, sizes_of: SizesOf) -> Ladder:
    """Return the steps of each pool's ladder; those that would change or free nothing there are left out.

    Args:
        rungs: as :func:`picked` returns them.
        base: the configuration's values by dotted key, as the steps find them; ``device`` is cuda or cpu.
        simulator: None where the launcher doesn't run it.
        sizes_of: for sets of values, each with ``device``; asked once.
    """
    start = {"device": base["device"]}
    sets = [{**start, **values} for ladder in rungs.values() for rung in ladder for values in unrolled(rung, base)]
    found = dict(zip(map(_key, [start, *sets]), sizes_of([start, *sets]), strict=True))

    def steps(kind: Kind, rung: Rung) -> Iterator[Step]:
        if rung.values:
            sizes = [(values, found[_key({**start, **values})]) for values in unrolled(rung, base)]
            yield from _of_agent(kind, rung, found[_key(start)], sizes)
        else:
            yield from _without_values(rung, simulator)

    return {kind: tuple(step for rung in ladder for step in steps(kind, rung)) for kind, ladder in rungs.items()}


def unrolled(rung: Rung, base: Values) -> list[dict[str, object]]:
    """Return the sets of values that a rung comes to, in falling order, each other than ``base`` and less.

    ``half`` halves what is there, again and again down to 1, and rounds down.
    """
    now = {key: _present(base, key) for key in rung.values}
    found: list[dict[str, object]] = []
    while True:
        then = {key: _next(now[key], wanted) for key, wanted in rung.values.items()}
        if not any(_gives_way(now[key], then[key]) for key in then):
            return found
        found.append(then)
        now = then


def _present(base: Values, key: str) -> object:
    value = base.get(key)
    return base.get(_DEFAULTS.get(key, "")) if value is None else value


def _next(now: object, wanted: object) -> object:
    if wanted != HALF:
        return wanted
    return max(1, now // 2) if isinstance(now, int) and now > 1 else now


def _gives_way(now: object, then: object) -> bool:
    """Return whether it is another value, and no greater one."""
    if isinstance(now, int | float) and isinstance(then, int | float):
        return then < now
    return now != then


def _of_agent(kind: Kind, rung: Rung, before: Sizes, sizes: Sequence[tuple[Values, Sizes]]) -> Iterator[Step]:
    unseen: dict[Kind, float] = {}
    for values, after in sizes:
        seen = _difference(rung, before, after)
        frees = {**seen, **rung.frees_mib}
        if after.refusal or frees.get(kind, 0.0) <= 0:
            continue
        unseen = {each: unseen.get(each, 0.0) + frees[each] - seen.get(each, 0.0) for each in rung.frees_mib}
        yield Step(rung.name, rung.does, rung.cost, values, frees_mib=frees, unseen_mib=dict(unseen))
        before = after


def _difference(rung: Rung, before: Sizes, after: Sizes) -> dict[Kind, float]:
    freed = {kind: round(before.mib.get(kind, 0.0) - mib, 1) for kind, mib in after.mib.items()}
    if rung.does is Does.APPLY and Kind.VRAM in freed:
        freed[Kind.VRAM] -= before.context_mib - after.context_mib  # only a process that ends gives its context back
    return {kind: mib for kind, mib in freed.items() if mib}


def _without_values(rung: Rung, simulator: Simulator | None) -> Iterator[Step]:
    if rung.does in (Does.RESTART_SIMULATOR, Does.QUALITY) and simulator is None:
        return
    frees = dict(rung.frees_mib)
    if rung.quality is not None and simulator is not None:
        if rung.quality == simulator.quality or rung.quality not in simulator.qualities:
            return
        frees = {**_coarser(simulator, rung.quality), **frees}
    yield Step(rung.name, rung.does, rung.cost, quality=rung.quality, frees_mib=frees)


def _coarser(simulator: Simulator, quality: str) -> dict[Kind, float]:
    freed = {
        kind: round((simulator.peak(simulator.quality, kind).mib or 0) - (simulator.peak(quality, kind).mib or 0), 1)
        for kind in Kind
    }
    return {kind: mib for kind, mib in freed.items() if mib}


def _key(values: Values) -> str:
    return repr(sorted(values.items()))
