"""What ``up`` was asked for, and what a machine makes of it: which programs, started by what. Plain data and pure."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from pathlib import Path

from launcher.memory.pools import Gpu
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
        gpu: index of the GPU that simulator and agent share.
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
    gpu: int = 0
    max_timesteps: int | None = None
    resume: bool = False
    on_event: str = ""
    agent_args: tuple[str, ...] = ()
    simulator_args: tuple[str, ...] = ()


@dataclass(frozen=True)
class Choice:
    """What is run here, and why."""

    runtime: RuntimeKind
    simulator: Simulates
    reason: str


def choose(wish: Wish, gpu: Gpu, docker: bool, carla_installed: bool) -> Choice:
    """Return what a wish comes to on this machine; flags win.

    Args:
        gpu: what the driver says.
        docker: an engine answers.
        carla_installed: the launcher's configuration knows how to start a CARLA of this machine.
    """
    if wish.simulator_host is not None:
        return Choice(_or(wish.runtime, RuntimeKind.PROCESS), Simulates.ELSEWHERE, f"it runs at {wish.simulator_host}")
    has_gpu = gpu is not Gpu.NONE
    startable = carla_installed or (docker and wish.runtime is not RuntimeKind.PROCESS)
    simulator = wish.simulator
    if simulator is Simulates.AUTO:
        simulator = Simulates.CARLA if has_gpu and startable else Simulates.LITE
    runtime = wish.runtime
    if runtime is RuntimeKind.AUTO:
        needs_compose = simulator is Simulates.CARLA and docker and not carla_installed
        runtime = RuntimeKind.COMPOSE if needs_compose else RuntimeKind.PROCESS
    why = "there is a GPU" if has_gpu else "there is no GPU"
    if has_gpu and not startable:
        why = "there is a GPU, but neither Docker nor an installed CARLA"
    return Choice(runtime, simulator, why)


def _or(runtime: RuntimeKind, default: RuntimeKind) -> RuntimeKind:
    return default if runtime is RuntimeKind.AUTO else runtime
