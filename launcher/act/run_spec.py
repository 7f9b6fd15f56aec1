"""What a run is started with, whichever runtime starts it: plain data, and the agent's options that follow from it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from contract.paths import RunPaths
from launcher.config import STACK

LOOPBACK = "127.0.0.1"


@dataclass(frozen=True)
class Setup:
    """What simulator and agent of one run have in common for its whole life.

    Attributes:
        config: the agent's configuration.
        port: the simulator's RPC port; carla-lite takes the next one too, CARLA the next two.
        host: where the simulator listens; only local programs can use another one than this machine's loopback.
        map: None leaves it to both configurations.
        seed: None leaves it to both configurations.
        agent_args: passed on to ``python -m agent train``.
        simulator_args: passed on to the simulator.
        inherited: descriptors that everything started on this machine holds too, such as the run's lock.
        gpu_uuid: of the card that simulator and agent share; empty gives them none in particular.
        gpu_index: the same card as the driver counts.
        stack: the folder of the Compose files.
    """

    run: RunPaths
    config: Path
    port: int
    host: str = LOOPBACK
    map: str | None = None
    seed: int | None = None
    max_timesteps: int | None = None
    agent_args: tuple[str, ...] = ()
    simulator_args: tuple[str, ...] = ()
    inherited: tuple[int, ...] = ()
    gpu_uuid: str = ""
    gpu_index: int = 0
    stack: Path = STACK

    @property
    def agent_options(self) -> tuple[str, ...]:
        """Return the options of ``python -m agent train`` that are the same in every runtime."""
        options = {"--map": self.map, "--seed": self.seed, "--max-timesteps": self.max_timesteps}
        given = [part for name, value in options.items() if value is not None for part in (name, str(value))]
        return (*given, *self.agent_args)
