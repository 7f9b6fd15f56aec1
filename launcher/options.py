"""What ``up`` was asked for, as plain data; what a machine makes of it is ``choosing``'s."""

from __future__ import annotations

from enum import Enum
from pathlib import Path
from typing import Any, Literal

from pydantic import Field, field_validator

from contract.paths import RunPaths
from contract.section import Section
from launcher.config import SHIPPED, STACK
from launcher.resolve.planning import Simulates


class RuntimeKind(str, Enum):
    """What starts simulator and agent."""

    AUTO = "auto"
    """The Compose stack where there is a GPU and Docker, else local processes."""
    PROCESS = "process"
    COMPOSE = "compose"


class Options(Section):
    """What a run is asked for: saved once in ``launcher.json``, as far as it was given, and given again at each start.

    Which fields were given, and which stand at their defaults, ``model_fields_set`` tells.
    """

    config: Path | None = Field(None, description="Of the agent; None takes the run's own, or the shipped one.")
    launcher_config: Path = Field(SHIPPED, description="The launcher's own.")
    stack: Path = Field(STACK, description="The folder of the Compose files.")
    runtime: RuntimeKind = Field(RuntimeKind.AUTO, description="What starts simulator and agent.")
    simulator: Simulates = Field(Simulates.AUTO, description="CARLA, carla-lite, or whatever the machine has.")
    quality: Literal["Low", "Epic"] | None = Field(None, description="Of CARLA; None: the launcher's configuration's.")
    device: Literal["auto", "cpu", "cuda"] | None = Field(None, description="Of the agent; None: its configuration's.")
    policy: tuple[str, ...] | None = Field(
        None, description="Rungs by name, in the order in which they shall be tried; None takes the configured ladders."
    )
    map: str | None = Field(None, description="None leaves it to the launcher's configuration and the agent's.")
    seed: int | None = Field(None, ge=0, description="None leaves it to both configurations.")
    simulator_host: str | None = Field(None, description="A simulator that somebody else runs; None starts one.")
    port: int | None = Field(
        None, ge=1, le=65533, description="Of that simulator, or for the one to start; None takes 2000, or free ones."
    )
    gpu: int | None = Field(
        None,
        ge=0,
        description="Index of the card that both share; None takes the run's own, or Compose's.",
    )
    max_timesteps: int | None = Field(None, ge=1, description="Of the agent; None leaves it to its configuration.")
    on_event: str = Field("", description="A shell command that hears of what happens; empty for none.")
    agent_args: tuple[str, ...] = Field((), description="Passed on to the agent as they are.")
    simulator_args: tuple[str, ...] = Field((), description="Passed on to the simulator as they are.")

    @field_validator("config", "launcher_config", "stack")
    @classmethod
    def _from_another_folder(cls, path: Path | None) -> Path | None:
        return None if path is None else path.absolute()

    @field_validator("map")
    @classmethod
    def _a_map_s_file_too(cls, name: str | None) -> str | None:
        return lasting_map(name) or None

    @field_validator("policy", "agent_args", "simulator_args")
    @classmethod
    def _words_that_say_something(cls, words: tuple[str, ...] | None) -> tuple[str, ...] | None:
        return None if words is None else tuple(filter(None, words))

    @field_validator("policy", "simulator_host")
    @classmethod
    def _nothing_takes_it_back(cls, value: Any) -> Any:
        return value or None


def lasting_map(name: str | None) -> str | None:
    """Return a map's name, or of a file the path that a start from another folder finds again."""
    return str(Path(name).absolute()) if name is not None and name.endswith(".xodr") else name


class Wish(Options):
    """What one start of ``up`` is asked for: the options, of which run, and whether it may go on with an old one."""

    run: RunPaths
    resume: bool = False

    def options(self) -> Options:
        """Return what lasts of it, as far as it was given."""
        return Options(**given(self))


def given(options: Options) -> dict[str, Any]:
    """Return the options that don't stand at their defaults just because nobody spoke of them."""
    return {name: getattr(options, name) for name in Options.model_fields if name in options.model_fields_set}
