"""A rung of the ladder, its steps, and what is restarted to take them: plain data."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal, Protocol

from pydantic import Field, ModelWrapValidatorHandler, field_validator, model_validator
from pydantic_core import PydanticKnownError

from carla_launcher.observe.pools import OwnerKind, PoolKind
from carla_launcher.sizes import Simulator, Sizes, Values
from carla_run.configuration.program_file import Loss
from carla_run.configuration.section import Section


@dataclass(frozen=True)
class InitialRun:
    """A run before any step.

    Attributes:
        base: values of the agent's configuration by dotted key, each null replaced by its meaning.
        simulator: None if the launcher doesn't start it.
        sizes: returns the agent's sizes with other values: any that :meth:`Rung.sets` returns, or none.
    """

    base: Values
    simulator: Simulator | None
    sizes: Callable[[Values], Sizes]


class CurrentRun(Protocol):
    """A run at one moment."""

    @property
    def fresh_mib(self) -> Mapping[PoolKind, float]:
        """Memory of the simulator just after its start, as far as known."""

    def held(self, kind: PoolKind, owner: OwnerKind) -> float:
        """Return the memory that simulator or agent holds."""


Freed = Mapping[OwnerKind, Mapping[PoolKind, float]]
"""MiB that simulator and agent would free, by kind of pool."""


class Rung(Section):
    """A rung of the ladder. Its kind, a subclass, defines what it does; ``does`` is the name of the kind's file."""

    restarts: ClassVar[OwnerKind | None] = None
    """Program that is restarted to take a step, and to undo it; None: the running agent applies the values."""
    lasting: ClassVar[bool] = True
    """A step lasts until it is restored."""
    ends_run: ClassVar[bool] = False
    sets_values: ClassVar[bool] = False
    """A step sets keys of the agent's configuration."""
    sets_quality: ClassVar[bool] = False

    name: str = Field(description="Name of the rung, unique in its pool. --policy picks and orders rungs by it.")
    does: str
    values: dict[str, Any] = Field(
        {},
        description="Values for keys of the agent's configuration. `half` halves the number each time, down to 1. "
        "`fewer` lowers it by 1 each time.",
    )
    quality: Literal["Low"] | None = Field(None, description="Rendering quality that the rung sets (does: quality).")
    frees_mib: dict[PoolKind, float] = Field(
        {},
        description="MiB that the rung frees in each pool; negative if it takes memory. By default the agent's "
        "footprint tells them.",
    )
    cost: str = Field(description="What the rung costs the run, as a phrase for users.")
    allowed: bool = Field(True, description="false: the rung is taken only if --policy names it.")
    after: tuple[Loss, ...] = Field(
        (), description="The rung comes after the agent's rungs with these losses (little, time, experiment)."
    )

    @model_validator(mode="wrap")
    @classmethod
    def _is_of_its_kind(cls, value: Any, handler: ModelWrapValidatorHandler[Rung]) -> Rung:
        does = value.get("does") if cls is Rung and isinstance(value, dict) else None
        kind = kinds().get(does) if isinstance(does, str) else None
        return handler(value) if kind is None else kind.model_validate(value)

    @field_validator("does")
    @classmethod
    def _is_a_kind(cls, does: str) -> str:
        if does not in (known := kinds()):
            raise PydanticKnownError("enum", {"expected": " or ".join(map(repr, known))})
        return does

    @model_validator(mode="after")
    def _says_what_it_changes(self) -> Rung:
        if bool(self.values) != self.sets_values:
            raise ValueError(f"rung {self.name}: `values` belong to apply and restart_agent, and only there")
        if bool(self.quality) != self.sets_quality:
            raise ValueError(f"rung {self.name}: `quality` belongs to does: quality, and only there")
        return self

    @classmethod
    def kind(cls) -> str:
        """Return the kind's name in ``does``; empty for a base class of several kinds."""
        does = cls.model_fields["does"].default
        return does if isinstance(does, str) else ""

    def sets(self, base: Values) -> list[dict[str, object]]:  # noqa: ARG002 - those that have any go by it
        """Return the values of each step, in falling order, each less than ``base``."""
        return []

    def steps(self, kind: PoolKind, start: InitialRun) -> Iterator[RungStep]:  # noqa: ARG002 - those with several go by it
        """Yield the rung's steps in the ladder of a pool, in order; none if they would change nothing.

        Raises:
            ExitError: the rung can never be taken.
        """
        yield RungStep(self.name, type(self), self.cost, quality=self.quality, frees_mib=dict(self.frees_mib))

    @classmethod
    def frees(cls, step: RungStep, now: CurrentRun) -> Freed:  # noqa: ARG003 - those that free something else go by it
        """Return what a step frees now, without the effect of its values and of simulators that it ends."""
        return {}


def kinds(of: type[Rung] = Rung) -> dict[str, type[Rung]]:
    """Return all kinds by their names in ``does``."""
    found = {of.kind(): of} if of.kind() else {}
    for each in of.__subclasses__():
        found |= kinds(each)
    return found


def in_words(rung: str, values: Mapping[str, Any], quality: str | None) -> str:
    """Return a step as text: the rung's name, with the values that it sets."""
    what = ", ".join(f"{key} = {value}" for key, value in values.items()) or quality
    return f"{rung} ({what})" if what else rung


@dataclass(frozen=True)
class RungStep:
    """A step of a rung, with its values worked out.

    Attributes:
        rung: the rung's name; a rung with ``half`` has several steps, in falling order.
        values: for ``overrides.yaml``: dotted keys to values.
        frees_mib: predicted, relative to the step before it of the same rung, or to no step.
        unseen_mib: the part of what it and the steps before it free that only the configuration says, not the agent's
            footprint.
        simulators_mib: the part of it that ended simulators free.
    """

    rung: str
    does: type[Rung]
    cost: str
    values: Mapping[str, Any] = field(default_factory=dict)
    quality: str | None = None
    frees_mib: Mapping[PoolKind, float] = field(default_factory=dict)
    unseen_mib: Mapping[PoolKind, float] = field(default_factory=dict)
    simulators_mib: Mapping[PoolKind, float] = field(default_factory=dict)

    @property
    def lasting(self) -> bool:
        """Return whether it lasts until it is restored."""
        return self.does.lasting

    def __str__(self) -> str:
        return in_words(self.rung, self.values, self.quality)


def summed(*amounts: Mapping[PoolKind, float]) -> dict[PoolKind, float]:
    """Return amounts added up, by pool kind."""
    found = dict.fromkeys(kind for each in amounts for kind in each)
    return {kind: sum(each.get(kind, 0.0) for each in amounts) for kind in found}
