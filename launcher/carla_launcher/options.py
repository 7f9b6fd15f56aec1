"""What the user asked for, as plain data. What a machine makes of it is ``resolve``'s."""

from __future__ import annotations

from enum import Enum
from pathlib import Path
from typing import Any, Literal

from pydantic import Field, field_validator

from carla_launcher.config import SHIPPED, STACK
from carla_launcher.observe.pools import Cards
from carla_run.configuration.section import Section
from carla_run.exits import Exit, ExitError
from carla_run.paths import from_anywhere


class RefusedError(ExitError):
    """The options can't be had on this machine; the message is one sentence, and nothing was started or changed."""

    code = Exit.BAD_CONFIG


class RuntimeKind(str, Enum):
    """What starts simulator and agent."""

    AUTO = "auto"
    """The Compose stack where there is a GPU and Docker, else local processes."""
    PROCESS = "process"
    COMPOSE = "compose"


class SimulatorKind(str, Enum):
    """Which simulator a run uses."""

    AUTO = "auto"
    """CARLA where there is a GPU and something that starts it, else carla-lite."""
    CARLA = "carla"
    LITE = "carla-lite"
    ELSEWHERE = "elsewhere"
    """One that was started by others; what it holds here is already taken."""


class RunOptions(Section):
    """What a run is asked for, saved in ``launcher.json`` as far as it was given; each later start goes by it.

    Which fields were given, and which stand at their defaults, ``model_fields_set`` says.
    """

    config: Path | None = Field(None, description="Of the agent; None takes the run's own, or the shipped one.")
    launcher_config: Path = Field(SHIPPED, description="The launcher's own.")
    stack: Path = Field(STACK, description="The folder of the Compose files.")
    runtime: RuntimeKind = Field(RuntimeKind.AUTO, description="What starts simulator and agent.")
    simulator: SimulatorKind = Field(SimulatorKind.AUTO, description="CARLA, carla-lite, or what the machine has.")
    quality: Literal["Low", "Epic"] | None = Field(None, description="Of CARLA; None: the launcher's configuration's.")
    device: Literal["auto", "cpu", "cuda"] | None = Field(None, description="Of the agent; None: its configuration's.")
    policy: tuple[str, ...] | None = Field(
        None, description="Rungs by name, in the order in which they shall be tried; None takes the configured ladders."
    )
    map: str | None = Field(None, description="None leaves it to the launcher's configuration and the agent's.")
    seed: int | None = Field(None, ge=0, description="None leaves it to both configurations.")
    simulator_host: str | None = Field(None, description="Of a simulator that already runs; None starts one.")
    port: int | None = Field(
        None, ge=1, le=65533, description="Of that simulator, or for the one to start; None takes 2000, or free ones."
    )
    cluster: str | None = Field(None, description="HOST:PORT of a Ray cluster whose nodes drive, or auto; None: here.")
    collectors: int | None = Field(None, ge=1, le=64, description="None leaves it to the agent's configuration.")
    gpu: Cards | None = Field(None, description="By index; None takes the run's own cards, or Compose's variables.")
    share_gpu: bool = Field(False, description="Go on beside another launcher that holds the card.")
    max_timesteps: int | None = Field(None, ge=1, description="Of the agent; None leaves it to its configuration.")
    dashboard_port: int | None = Field(
        None, ge=0, le=65535, description="Of the live page on 127.0.0.1; 0 takes a free one, None serves none."
    )
    on_event: str = Field("", description="A shell command that gets each event; empty for none.")
    agent_args: tuple[str, ...] = Field((), description="Passed on to the agent as they are.")
    ignore_measured: bool = Field(False, exclude=True, description="Plan by first figures; of this start only.")
    simulator_args: tuple[str, ...] = Field((), description="Passed on to the simulator as they are.")

    @field_validator("launcher_config", "stack")
    @classmethod
    def _from_another_folder(cls, path: Path) -> Path:
        return path.absolute()

    @field_validator("config")
    @classmethod
    def _config_from_another_folder(cls, path: Path | None) -> Path | None:
        return None if path is None else from_anywhere(path)

    @field_validator("map")
    @classmethod
    def _map_file_by_its_path(cls, name: str | None) -> str | None:
        if name and name.endswith(".xodr"):  # a start from another folder finds it again
            return str(Path(name).absolute())
        return name or None

    @field_validator("policy", "agent_args", "simulator_args")
    @classmethod
    def _without_empty_words(cls, words: tuple[str, ...] | None) -> tuple[str, ...] | None:
        return None if words is None else tuple(filter(None, words))

    @field_validator("policy", "simulator_host", "cluster")
    @classmethod
    def _empty_takes_it_back(cls, value: Any) -> Any:
        return value or None

    def given(self) -> dict[str, Any]:
        """Return the options that were given, the ones at their defaults left out."""
        return {name: getattr(self, name) for name in type(self).model_fields if name in self.model_fields_set}
