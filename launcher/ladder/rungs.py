"""The ladder as data: rungs as ``config/launcher.yaml`` writes them, and the single steps that they come to.

Owns these types. What a step frees is worked out by ``planning``, which step is taken by ``policy``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, Literal

from pydantic import Field, model_validator

from contract.section import Section
from launcher.memory.pools import Kind


class Does(str, Enum):
    """What taking a rung means."""

    RESTART_SIMULATOR = "restart_simulator"
    """Once, not for good: what leaked comes back."""
    APPLY = "apply"
    """Values that a running agent takes exactly (request ``apply``), and ``overrides.yaml`` for its next start."""
    RESTART_AGENT = "restart_agent"
    """Values that need a new process: checkpoint, stop, ``overrides.yaml``, start again."""
    QUALITY = "quality"
    """The simulator is started again with another quality; what the agent sees changes, and the run says so."""
    STOP = "stop"
    """A checkpoint, a report, exit 71."""


class Rung(Section):
    """One line of the ladder."""

    name: str = Field(description="Unique; `--policy` orders and picks by it.")
    does: Does
    values: dict[str, Any] = Field(
        {}, description="Keys of the agent's configuration; `half` halves what it is, again and again down to 1."
    )
    quality: Literal["Low"] | None = Field(None, description="Of the simulator, for does: quality.")
    frees_mib: dict[Kind, float] = Field(
        {}, description="Predicted, by pool; negative where it costs. Empty: from the agent's footprint, or measured."
    )
    cost: str = Field(description="What the run loses by it, for the report.")
    allowed: bool = Field(True, description="false: never taken unless --policy names it.")

    @model_validator(mode="after")
    def _says_what_it_changes(self) -> Rung:
        if bool(self.values) != (self.does in (Does.APPLY, Does.RESTART_AGENT)):
            raise ValueError(f"rung {self.name}: `values` belong to apply and restart_agent, and only there")
        if bool(self.quality) != (self.does is Does.QUALITY):
            raise ValueError(f"rung {self.name}: `quality` belongs to does: quality, and only there")
        return self


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
    """

    rung: str
    does: Does
    cost: str
    values: Mapping[str, Any] = field(default_factory=dict)
    quality: str | None = None
    frees_mib: Mapping[Kind, float] = field(default_factory=dict)
    unseen_mib: Mapping[Kind, float] = field(default_factory=dict)

    @property
    def stays(self) -> bool:
        """Return whether it lasts until it is taken back: only such a step is climbed from."""
        return self.does in (Does.APPLY, Does.RESTART_AGENT, Does.QUALITY)

    def __str__(self) -> str:
        return in_words(self.rung, self.values, self.quality)


Ladder = Mapping[Kind, tuple[Step, ...]]
"""The steps of each pool's ladder, first choice first."""
