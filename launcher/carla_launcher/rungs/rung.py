"""A line of the ladder, the steps that it comes to, and what is done to the programs for them: plain data."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, ClassVar, Literal, Protocol

from pydantic import Field, ModelWrapValidatorHandler, field_validator, model_validator
from pydantic_core import PydanticKnownError

from carla_launcher.observe.pools import OwnerKind, PoolKind
from carla_launcher.sizes import Simulator, Sizes, Values
from carla_run.configuration.program_file import Loses
from carla_run.configuration.section import Section


class Act(Enum):
    """A change to the run's programs; for several steps at once each is made once, in this order."""

    FRESH_SIMULATOR = "fresh_simulator"
    """The agent is drained, the simulator started again."""
    FRESH_AGENT = "fresh_agent"
    """The agent writes a checkpoint, and is started again with the values that hold."""
    APPLY = "apply"
    """The running agent takes the values."""


@dataclass(frozen=True)
class Start:
    """A run before any step.

    Attributes:
        base: values of the agent's configuration by dotted key, each null replaced by what it stands for.
        simulator: None where the launcher doesn't run it.
        sizes: what the agent takes with values laid over these: any that :meth:`Rung.sets` returns, or none.
    """

    base: Values
    simulator: Simulator | None
    sizes: Callable[[Values], Sizes]


class Now(Protocol):
    """A run at a moment."""

    @property
    def fresh_mib(self) -> Mapping[PoolKind, float]:
        """What the simulator took just after its start, as far as that is known."""

    def held(self, kind: PoolKind, owner: OwnerKind) -> float:
        """Return what simulator or agent holds."""

    def predicted(self) -> Mapping[PoolKind, float]:
        """Return what the agent takes at its peak, as far as that is known."""


Freed = Mapping[OwnerKind, Mapping[PoolKind, float]]
"""What simulator and agent would hold less, MiB."""


class Rung(Section):
    """A line of the ladder. What it means is said by a subclass, its kind: ``does`` has the name of that one's file."""

    acts: ClassVar[tuple[Act, ...]] = ()
    """What is done to take a step, and again to undo it."""
    stays: ClassVar[bool] = True
    """A step lasts until it is taken back."""
    ends_run: ClassVar[bool] = False
    sets_values: ClassVar[bool] = False
    """It sets keys of the agent's configuration."""
    sets_quality: ClassVar[bool] = False

    name: str = Field(description="Name of the rung, unique in its pool. --policy picks and orders rungs by it.")
    does: str
    values: dict[str, Any] = Field(
        {},
        description="Values for keys of the agent's configuration. `half` halves a number, one step after the other, "
        "down to 1; `fewer` lowers it by 1.",
    )
    quality: Literal["Low"] | None = Field(None, description="The simulator's quality, for does: quality.")
    frees_mib: dict[PoolKind, float] = Field(
        {}, description="MiB that it frees in each pool; negative if it costs. Left out: the agent's footprint says it."
    )
    cost: str = Field(description="What it costs the run, for people.")
    allowed: bool = Field(True, description="false: taken only if --policy names it.")
    after: tuple[Loses, ...] = Field(
        (), description="Losses (little, time, experiment) of the agent's rungs that come before it."
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
        """Return what ``does`` says of it; empty for what several kinds have in common."""
        does = cls.model_fields["does"].default
        return does if isinstance(does, str) else ""

    def sets(self, base: Values) -> list[dict[str, object]]:  # noqa: ARG002 - those that have any go by it
        """Return the sets of values that it comes to, in falling order, each other than ``base`` and less."""
        return []

    def steps(self, kind: PoolKind, start: Start) -> Iterator[Step]:  # noqa: ARG002 - those with several go by it
        """Yield the steps that it comes to in the ladder of a pool, in order; none where it would change nothing.

        Raises:
            RungError: it can't ever be taken.
        """
        yield Step(self.name, type(self), self.cost, quality=self.quality, frees_mib=dict(self.frees_mib))

    @classmethod
    def frees(cls, step: Step, now: Now) -> Freed:  # noqa: ARG003 - those that free something else go by it
        """Return what a step frees now beside what its values, and simulators that it ends, come to."""
        return {}


def kinds(of: type[Rung] = Rung) -> dict[str, type[Rung]]:
    """Return the kinds that there are, by what ``does`` says."""
    found = {of.kind(): of} if of.kind() else {}
    for each in of.__subclasses__():
        found |= kinds(each)
    return found


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
    does: type[Rung]
    cost: str
    values: Mapping[str, Any] = field(default_factory=dict)
    quality: str | None = None
    frees_mib: Mapping[PoolKind, float] = field(default_factory=dict)
    unseen_mib: Mapping[PoolKind, float] = field(default_factory=dict)
    simulators_mib: Mapping[PoolKind, float] = field(default_factory=dict)

    @property
    def stays(self) -> bool:
        """Return whether it lasts until it is taken back: only such a step is restored from."""
        return self.does.stays

    def __str__(self) -> str:
        return in_words(self.rung, self.values, self.quality)


def summed(*amounts: Mapping[PoolKind, float]) -> dict[PoolKind, float]:
    """Return amounts added up, by pool kind."""
    found = dict.fromkeys(kind for each in amounts for kind in each)
    return {kind: sum(each.get(kind, 0.0) for each in amounts) for kind in found}
