"""Rungs that set values of the agent's configuration, and the one that a running agent applies."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import ClassVar

from carla_launcher.observe.pools import PoolKind
from carla_launcher.rungs.rung import InitialRun, Rung, RungStep, summed
from carla_launcher.sizes import Sizes, Values
from carla_run import keys
from carla_run.configuration.program_file import FEWER, HALF
from carla_run.exits import Exit, ExitError


class SetsValues(Rung):
    """A rung that sets keys of the agent's configuration. The agent's footprint says what that frees."""

    sets_values: ClassVar[bool] = True

    def sets(self, base: Values) -> list[dict[str, object]]:
        """Return the values of each step."""
        now, found = {key: base.get(key) for key in self.values}, list[dict[str, object]]()
        while True:
            then = {key: _next(now[key], wanted) for key, wanted in self.values.items()}
            if not any(reduces(now[key], then[key]) for key in then):
                return found
            found.append(then)
            now = then

    def steps(self, kind: PoolKind, start: InitialRun) -> Iterator[RungStep]:
        """Yield a step for each set of values that the agent accepts and that frees memory in the pool."""
        self._check(kind, start)
        before, one = start.sizes({}), self._ended_mib(start)
        unseen, ended = dict[PoolKind, float](), dict[PoolKind, float]()
        for values in self.sets(start.base):
            after = start.sizes(values)
            seen = self._seen_mib(before, after)
            frees = summed({**seen, **self.frees_mib}, one)
            if after.refusal or frees.get(kind, 0.0) <= 0:
                continue
            unseen = {each: unseen.get(each, 0.0) + mib - seen.get(each, 0.0) for each, mib in self.frees_mib.items()}
            ended = summed(ended, one)
            yield RungStep(self.name, type(self), self.cost, values, None, frees, unseen, ended)
            before = after

    def _ended_mib(self, start: InitialRun) -> Mapping[PoolKind, float]:  # noqa: ARG002 - those that end some go by it
        """Return the memory of the simulators that each step ends."""
        return {}

    def _seen_mib(self, before: Sizes, after: Sizes) -> dict[PoolKind, float]:
        """Return what a step frees by the agent's footprint."""
        freed = {kind: round(before.mib.get(kind, 0.0) - mib, 1) for kind, mib in after.mib.items()}
        return {kind: mib for kind, mib in freed.items() if mib}

    def _check(self, kind: PoolKind, start: InitialRun) -> None:
        """Refuse a key that the agent doesn't have, or a value that it doesn't accept.

        A value that it refuses only in combination with others is no error: that step is left out.

        Raises:
            ExitError: a key or value is wrong.
        """
        wrong = f"Rung {self.name} of ladder.{kind.value} can't be taken: "
        relative = {key: wanted for key, wanted in self.values.items() if wanted in (HALF, FEWER)}
        for key, wanted in relative.items():
            if not _is_amount(start.base.get(key)):
                amounts = ", ".join(sorted(each for each, value in start.base.items() if _is_amount(value)))
                raise ExitError(
                    f"{wrong}`{key}: {wanted}` needs a key with a whole number, and `{key}` is "
                    f"{keys.shown(start.base.get(key))}{f'; expected one of {amounts}' if amounts else ''}.",
                    Exit.BAD_CONFIG,
                )
        given = self.values.keys() - relative.keys()
        for after in map(start.sizes, self.sets(start.base)):
            if any(after.refused_key == key or after.refused_key.startswith(f"{key}.") for key in given):
                raise ExitError(f"{wrong}{after.refusal}", Exit.BAD_CONFIG)


class Apply(SetsValues):
    """The running agent applies the values, and ``overrides.yaml`` keeps them for its next start."""

    does: str = "apply"

    def _seen_mib(self, before: Sizes, after: Sizes) -> dict[PoolKind, float]:
        freed = super()._seen_mib(before, after)
        if PoolKind.VRAM in freed:  # only the end of a process frees its context
            freed[PoolKind.VRAM] -= before.context_mib - after.context_mib
        return {kind: mib for kind, mib in freed.items() if mib}


def reduces(now: object, then: object) -> bool:
    """Return whether the second value differs from the first and isn't greater."""
    if isinstance(now, int | float) and isinstance(then, int | float):
        return then < now
    return now != then


def _next(now: object, wanted: object) -> object:
    """Return the value of the next step; the same value if there is no further step."""
    if isinstance(wanted, tuple):  # values in their order
        left = wanted[wanted.index(now) :] if now in wanted else wanted
        return next((each for each in left if reduces(now, each)), now)
    if wanted == FEWER:
        return max(1, now - 1) if isinstance(now, int) else now
    if wanted != HALF:
        return wanted
    if isinstance(now, list):  # a range, as of cars
        return [_next(each, wanted) for each in now]
    return max(1, now // 2) if isinstance(now, int) and now > 1 else now


def _is_amount(value: object) -> bool:
    numbers = value if isinstance(value, list) and value else [value]
    return all(type(each) is int for each in numbers)
