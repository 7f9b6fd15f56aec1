"""What one run is started with, by either runtime: plain data, and the agent's options that follow from it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from carla_launcher.hooks import StepBefore
from carla_launcher.observe.health import Address
from carla_launcher.observe.pools import Cards
from carla_launcher.options import RunOptions
from carla_launcher.simulators import PORTS, Simulator, simulator_of
from carla_run.paths import RunPaths

LOOPBACK = "127.0.0.1"


@dataclass(frozen=True)
class RunSpec:
    """What simulator and agent of one run have in common for its whole life.

    Attributes:
        options: as resolved on this machine: the agent's configuration, runtime, simulator and cards are chosen.
        port: the simulator's RPC port; carla-lite takes the next one too, CARLA the next two.
        host: where the simulator listens; only local programs can use another one than this machine's loopback.
        resume: the agent goes on with what is in the run directory.
        gpu_uuids: of the simulator's card and of the agent's; empty gives either none in particular.
        simulators: how many, one a collector; of those from the second on, each has the next three ports.
        step_before: of Slurm's job, with which the launcher before was killed; None if none was, or not so.
        inherited: descriptors that everything started on this machine holds too, such as the run's lock.
    """

    run: RunPaths
    options: RunOptions
    port: int
    host: str = LOOPBACK
    resume: bool = False
    gpu_uuids: tuple[str, str] = ("", "")
    simulators: int = 1
    step_before: StepBefore | None = None
    inherited: tuple[int, ...] = ()

    @property
    def address(self) -> Address:
        """Return where the simulator listens."""
        return self.address_of(0)

    def address_of(self, simulator: int) -> Address:
        """Return where one of several listens; the agent expects it there."""
        return Address(self.host, self.port + PORTS * simulator)

    @property
    def cards(self) -> Cards:
        """Return the cards of both as the driver counts."""
        return self.options.gpu or Cards()

    @property
    def simulator(self) -> Simulator:
        """Return which simulator the run has."""
        return simulator_of(self.options)

    @property
    def on_cluster(self) -> bool:
        """Return whether the nodes of a cluster have the simulators: none is to be seen from here."""
        return self.options.cluster is not None

    @property
    def config(self) -> Path:
        """Return the path of the agent's configuration."""
        assert self.options.config is not None
        return self.options.config

    @property
    def agent_options(self) -> tuple[str, ...]:
        """Return the options of ``python -m carla_td3 train`` that are the same in every runtime."""
        asked = self.options
        options = {"--map": asked.map, "--seed": asked.seed, "--max-timesteps": asked.max_timesteps}
        options["--device"] = asked.device
        given = [part for name, value in options.items() if value is not None for part in (name, str(value))]
        return (*given, *asked.agent_args)
