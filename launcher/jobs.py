"""From what a person asked for to the two programs that run: commands, environment, logs.

Pure: starts nothing, reads no file. Names the command lines of ``carla_lite`` and ``agent``, and nothing else of them.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path

from launcher.config import LauncherConfig
from launcher.run_directory import RunDirectory
from launcher.runtimes.job import Job
from launcher.runtimes.runtime import Role
from launcher.supervisor import Plan
from launcher.watching.health import Address

LOOPBACK = "127.0.0.1"


@dataclass(frozen=True)
class Wish:
    """What ``up`` was asked for.

    Attributes:
        map: None leaves the map to the launcher's configuration and the agent's.
        seed: None leaves it to both configurations.
        simulator_host: a simulator that somebody else runs; None starts one.
        port: of that simulator, or for the one to start; None takes 2000, or a free pair.
        agent_args: passed on to the agent as they are.
    """

    run: RunDirectory
    config: Path
    map: str | None = None
    seed: int | None = None
    simulator_host: str | None = None
    port: int | None = None
    max_timesteps: int | None = None
    resume: bool = False
    agent_args: tuple[str, ...] = ()


def plan(wish: Wish, limits: LauncherConfig, port: int) -> Plan:
    """Return the jobs of a run whose simulator is, or will be, at ``port``."""
    address = Address(wish.simulator_host or LOOPBACK, port)
    simulator = None if wish.simulator_host else _simulator(wish, limits, address)
    return Plan(address, simulator, _agent(wish, limits, address))


def _simulator(wish: Wish, limits: LauncherConfig, address: Address) -> Job:
    seed = limits.simulator.seed if wish.seed is None else wish.seed
    where = ("--host", address.host, "--port", str(address.port))
    return Job(
        role=Role.SIMULATOR,
        command=(*_python("carla_lite"), *where, "--map", wish.map or limits.simulator.map, "--seed", str(seed)),
        log=wish.run.logs / "simulator.log",
        grace_s=limits.simulator.stop_grace_s,
        environment={"PYTHONUNBUFFERED": "1"},
    )


def _agent(wish: Wish, limits: LauncherConfig, address: Address) -> Job:
    options = {"--map": wish.map, "--seed": wish.seed, "--max-timesteps": wish.max_timesteps}
    given = [part for name, value in options.items() if value is not None for part in (name, str(value))]
    resume = ("--resume",) if wish.resume else ()
    where = ("--config", str(wish.config), "--run-dir", str(wish.run.path))
    return Job(
        role=Role.AGENT,
        command=(*_python("agent"), "train", *where, *given, *resume, *wish.agent_args),
        log=wish.run.logs / "agent.log",
        grace_s=limits.agent.stop_grace_s,
        environment={"CARLA_HOST": address.host, "CARLA_PORT": str(address.port), "PYTHONUNBUFFERED": "1"},
        show=True,
    )


def _python(module: str) -> tuple[str, ...]:
    return (sys.executable, "-m", module)
