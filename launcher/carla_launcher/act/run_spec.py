"""What one run is started with, by either runtime: plain data."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from carla_launcher.act.command import Command
from carla_launcher.config import DEFAULT_CONFIG, STACK
from carla_launcher.hooks import StepBefore
from carla_launcher.observe.health import Address
from carla_launcher.observe.pools import Cards
from carla_launcher.simulators import PORTS, Simulator
from carla_run.paths import RunPaths

LOOPBACK = "127.0.0.1"


@dataclass(frozen=True)
class RunSpec:
    """What simulator and agent of one run have in common for its whole life.

    Attributes:
        port: the simulator's RPC port; carla-lite takes the next one too, CARLA the next two.
        host: where the simulator listens; only local programs can use another one than this machine's loopback.
        config: of the agent.
        agent_options: of ``python -m carla_td3 train``, those that are the same in every runtime.
        cards: of simulator and agent, as the driver counts.
        in_containers: the Compose stack runs both; False for local processes.
        stack: the folder of the Compose files.
        on_cluster: the nodes of a cluster have the simulators: none is to be seen from here.
        resume: the agent goes on with what is in the run directory.
        gpu_uuids: of the simulator's card and of the agent's; empty gives either none in particular.
        simulators: how many, one a collector; of those from the second on, each has the next three ports.
        step_before: of Slurm's job, with which the launcher before was killed; None if none was, or not so.
        command: that runs in the agent's place; None for the agent.
        tm_port: free for a Traffic Manager of the command's.
        inherited: descriptors that everything started on this machine holds too, such as the run's lock.
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
    def resumes(self) -> bool:
        """Return whether a program that is started again goes on from a checkpoint."""
        return self.command is None or self.command.file.resume is not None

    @property
    def wants_fresh_simulator(self) -> bool:
        """Return whether each start of the program gets a simulator that no other one drove in."""
        return self.command is not None and self.command.file.fresh_simulator and self.simulator.ours

    @property
    def address(self) -> Address:
        """Return where the simulator listens."""
        return self.address_of(0)

    def address_of(self, simulator: int) -> Address:
        """Return where one of several listens; the agent expects it there."""
        return Address(self.host, self.port + PORTS * simulator)
