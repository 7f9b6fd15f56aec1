"""Whether the values that rungs set are values of the agent's configuration.

A pure check of what the agent was asked. A value that the agent refuses only beside others is none of this: such a step
is left out of the ladder.
"""

from __future__ import annotations

from carla_launcher.config import Rung
from carla_launcher.decide.ladder import FEWER, HALF, Rungs, present, unrolled, variants_of
from carla_launcher.decide.sizes import SizesOf, Values, key_of
from carla_launcher.observe.pools import PoolKind
from carla_run.exits import Exit, ExitError


class RungError(ExitError):
    """A rung that can't ever be taken; the message is one sentence for a person."""

    code = Exit.BAD_CONFIG


def check(rungs: Rungs, base: Values, sizes_of: SizesOf) -> None:
    """Refuse a rung with a key that the agent hasn't, or with a value that the key can't have.

    Args:
        rungs, base, sizes_of: as for ``build_ladder``, which has asked for the same sizes.

    Raises:
        RungError: there is one.
    """
    variants = variants_of(rungs, base)
    found = dict(zip(map(key_of, variants), sizes_of(variants), strict=True))
    for kind, ladder in rungs.items():
        for rung in ladder:
            _check_amounts(kind, rung, base)
            for values in unrolled(rung, base):
                after = found[key_of({**variants[0], **values})]
                if any(_is_within(after.refused_key, key) for key, wanted in rung.values.items() if _is_given(wanted)):
                    raise RungError(f"Rung {rung.name} of ladder.{kind.value} can't be taken: {after.refusal}")


def _check_amounts(kind: PoolKind, rung: Rung, base: Values) -> None:
    for key, wanted in rung.values.items():
        if not _is_given(wanted) and not _is_amount(present(base, key)):
            amounts = sorted(each for each in base if _is_amount(present(base, each)))
            raise RungError(
                f"Rung {rung.name} of ladder.{kind.value} can't be taken: `{key}: {wanted}` is of no amount that the "
                f"agent has; expected one of {', '.join(amounts)}."
            )


def _is_given(wanted: object) -> bool:
    """Return whether a rung says the value itself, not how it is to be made less."""
    return wanted not in (HALF, FEWER)


def _is_within(refused: str, key: str) -> bool:
    return refused == key or refused.startswith(f"{key}.")


def _is_amount(value: object) -> bool:
    numbers = value if isinstance(value, list) and value else [value]
    return all(type(each) is int for each in numbers)
