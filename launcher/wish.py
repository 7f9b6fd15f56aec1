"""What ``up`` was asked for, as plain data; what a machine makes of it is ``choosing``'s."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from pathlib import Path

from launcher.planning.outlook import Simulates
from launcher.run_directory import RunDirectory


class RuntimeKind(str, Enum):
    """What starts simulator and agent."""

    AUTO = "auto"
    """The Compose stack where there is a GPU and Docker, else local processes."""
    PROCESS = "process"
    COMPOSE = "compose"


@dataclass(frozen=True)
class Wish:
    """What ``up`` was asked for.

    Attributes:
        config: of the agent; None takes the run's own, or the shipped one.
        simulator: CARLA, carla-lite, or whatever the machine has.
        quality: of CARLA; None leaves it to the launcher's configuration.
        device: of the agent; None leaves it to its configuration.
        policy: rungs by name, in the order in which they shall be tried; None takes the configured ladders.
        map: None leaves the map to the launcher's configuration and the agent's.
        seed: None leaves it to both configurations.
        simulator_host: a simulator that somebody else runs; None starts one.
        port: of that simulator, or for the one to start; None takes 2000, or free ones.
        gpu: index of the GPU that simulator and agent share; None takes the run's own, or the one that Compose's
            variables name.
        on_event: a command that hears of what happens; empty for none.
        agent_args: passed on to the agent as they are.
        simulator_args: passed on to the simulator as they are.
    """

    run: RunDirectory
    config: Path | None = None
    runtime: RuntimeKind = RuntimeKind.AUTO
    simulator: Simulates = Simulates.AUTO
    quality: str | None = None
    device: str | None = None
    policy: tuple[str, ...] | None = None
    map: str | None = None
    seed: int | None = None
    simulator_host: str | None = None
    port: int | None = None
    gpu: int | None = None
    max_timesteps: int | None = None
    resume: bool = False
    on_event: str = ""
    agent_args: tuple[str, ...] = ()
    simulator_args: tuple[str, ...] = ()
