"""Which simulator the options come to on this machine, started by what, or why neither.

Owns the refusals of a machine that isn't what it seems: a driver that fails, an engine that doesn't answer.
"""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Callable
from enum import Enum

from carla_launcher.observe.container_engine import WITHOUT_CARLA
from carla_launcher.observe.pools import Gpu, Reading
from carla_launcher.options import RefusedError, RunOptions, RuntimeKind
from carla_launcher.resolve import cluster
from carla_launcher.simulators import NAMED, Carla, CarlaLite, Simulator, asked_for

DOCKER_LIMIT_S = 10.0
Choice = tuple[RuntimeKind, type[Simulator], str]
"""What starts it, which it is, and why."""


class Docker(Enum):
    """What is there of Docker."""

    ABSENT = "absent"
    SILENT = "silent"
    """Installed, but its engine refuses or doesn't answer in time."""
    ANSWERS = "answers"


def docker_here() -> Docker:
    """Return whether Docker's engine answers within ``DOCKER_LIMIT_S``."""
    if shutil.which("docker") is None:
        return Docker.ABSENT
    try:
        asked = subprocess.run(["docker", "info"], capture_output=True, check=False, timeout=DOCKER_LIMIT_S)
    except (OSError, subprocess.TimeoutExpired):
        return Docker.SILENT
    return Docker.ANSWERS if asked.returncode == 0 else Docker.SILENT


def choose(
    options: RunOptions,
    reading: Reading,
    installed: bool,
    docker: Callable[[], Docker] = docker_here,
    starts: bool = True,
) -> tuple[RunOptions, str]:
    """Return the options with simulator and runtime as they are on this machine, and why; flags win.

    Args:
        options: what was asked for.
        reading: what the driver says.
        installed: the launcher's configuration knows how to start a CARLA of this machine.
        docker: asked only where it decides something.
        starts: the simulator is to be started; False for a plan, which needs nothing that starts it.

    Raises:
        RefusedError: the driver or the engine fails, so that what the machine has is unknown; or CARLA was asked for
            and can't be started here.
    """
    _refuse_a_failing_driver(options, reading)
    if options.cluster is not None:
        cluster.refuse(options.cluster, options)
        reason = f"each node of the cluster at {options.cluster} runs its own"
        return options.model_copy(update={"runtime": RuntimeKind.PROCESS}), reason
    runtime, simulator, reason = _choice(options, reading, installed, docker, starts)
    if runtime is RuntimeKind.AUTO:
        runtime = RuntimeKind.PROCESS
    return options.model_copy(update={"runtime": runtime, "simulator": simulator.kind}), reason


def _choice(
    options: RunOptions, reading: Reading, installed: bool, docker: Callable[[], Docker], starts: bool
) -> Choice:
    runtime, simulator = options.runtime, asked_for(options)
    if simulator is not None and not simulator.needs_card:
        host = options.simulator_host
        return runtime, simulator, "as asked for" if host is None else f"it runs at {host}"
    if simulator is None and reading.gpu is Gpu.NONE:
        return runtime, CarlaLite, "there is no GPU"
    if installed and runtime is not RuntimeKind.COMPOSE:
        return RuntimeKind.PROCESS, Carla, "there is a GPU"
    found = docker() if runtime is not RuntimeKind.PROCESS else Docker.ABSENT
    if found is Docker.ANSWERS:
        return RuntimeKind.COMPOSE, Carla, "there is a GPU"
    silent, named = found is Docker.SILENT, simulator is not None
    if not starts and (silent or named):
        why = "Docker's engine doesn't answer: `up` needs it" if silent else "nothing here starts CARLA yet"
        return RuntimeKind.PROCESS, Carla, f"there is a GPU; {why}; containers' limits are left out"
    if silent:
        raise RefusedError(
            "Docker is installed, but its engine doesn't answer `docker info`: start it (sudo systemctl start docker) "
            f"or join its group (sudo usermod -aG docker $USER), or {WITHOUT_CARLA}."
        )
    if named:
        raise RefusedError(
            "CARLA can't be started here: give its command in the launcher's configuration (simulator.command), "
            f"or install Docker and leave --runtime process out, or {WITHOUT_CARLA}."
        )
    return runtime, CarlaLite, "there is a GPU, but neither Docker nor an installed CARLA"


def _refuse_a_failing_driver(options: RunOptions, reading: Reading) -> None:
    named, simulator = NAMED.get(options.simulator), asked_for(options)
    cardless = named is not None and named.ours and not named.needs_card
    elsewhere = simulator is not None and not simulator.ours
    if reading.gpu is not Gpu.UNREADABLE or cardless or (elsewhere and options.device == "cpu"):
        return
    go_on = "leave it out: --device cpu" if elsewhere else WITHOUT_CARLA
    raise RefusedError(f"{reading.problem.rstrip('.')}; or {go_on}.")
