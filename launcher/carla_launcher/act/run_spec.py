"""The data that either runtime needs to start a run."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from carla_launcher.act.command import Command, began_s
from carla_launcher.act.container_words import container_of
from carla_launcher.hooks import StepBefore
from carla_launcher.observe.health import Address
from carla_launcher.observe.pools import Cards
from carla_launcher.places import DEFAULT_CONFIG, STACK
from carla_launcher.simulators import PORTS, Simulator
from carla_run.paths import RunPaths

LOOPBACK = "127.0.0.1"


@dataclass(frozen=True)
class RunSpec:
    """The settings of simulator and agent, fixed for the run.

    Attributes:
        port: the simulator's RPC port; carla-lite takes the next port as well, CARLA the next two.
        host: address of the simulator; only local programs can use another one than 127.0.0.1.
        config: the agent's configuration.
        agent_options: options of ``python -m carla_td3 train`` for every runtime.
        cards: GPUs of simulator and agent, by the driver's index.
        in_containers: Compose runs both; False for local processes.
        stack: folder of the Compose files.
        on_cluster: the simulators run on the nodes of a cluster, which the launcher doesn't observe.
        resume: the agent resumes the run in its directory.
        gpu_uuids: UUIDs of the simulator's GPU and of the agent's; empty leaves the choice open.
        simulators: number of simulators, one per collector; each further one has the next three ports.
        step_before: step of a Slurm job in which the last launcher was killed; None if there was none.
        command: that runs in the agent's place; None for the agent.
        tm_port: free for a Traffic Manager of the command's.
        inherited: descriptors that all programs on this machine inherit, such as the run's lock.
    """

    run: RunPaths
    simulator: Simulator
    port: int
    host: str = LOOPBACK
    config: Path = DEFAULT_CONFIG
    agent_options: tuple[str, ...] = ()
    cards: Cards = field(default_factory=Cards)
    in_containers: bool = False
    stack: Path = STACK
    on_cluster: bool = False
    resume: bool = False
    gpu_uuids: tuple[str, str] = ("", "")
    simulators: int = 1
    step_before: StepBefore | None = None
    command: Command | None = None
    tm_port: int = 8000
    inherited: tuple[int, ...] = ()

    @property
    def sees_simulator(self) -> bool:
        """Return whether there is a simulator that this launcher can look at."""
        return self.simulator.exists and not self.on_cluster

    @property
    def reconnects(self) -> bool:
        """Return whether a program that drives goes on by itself in a simulator that was started again."""
        return self.command is None or self.command.file.reconnects or not self.simulator.ours

    @property
    def agent_in_container(self) -> bool:
        """Return whether each start of the agent, or of the command in its place, makes a container."""
        return self.in_containers if self.command is None else container_of(self.command.words) is not None

    @property
    def resumes(self) -> bool:
        """Return whether a program that is started again now goes on from a checkpoint."""
        return self.command is None or self.command.resumes(began_s(self.run.launcher_events))

    @property
    def wants_fresh_simulator(self) -> bool:
        """Return whether each start of the program gets a simulator that no other one drove in."""
        return self.command is not None and self.command.file.fresh_simulator and self.simulator.ours

    @property
    def address(self) -> Address:
        """Return the simulator's address."""
        return self.address_of(0)

    def address_of(self, simulator: int) -> Address:
        """Return the address of one of several simulators, as the agent expects it."""
        return Address(self.host, self.port + PORTS * simulator)

    def simulator_log(self, simulator: int = 0) -> Path:
        """Return the log of one of several simulators."""
        return self.run.logs / (f"simulator-{simulator}.log" if simulator else "simulator.log")
