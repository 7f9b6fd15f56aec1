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
from carla_launcher.options import RefusedError, RunOptions, RuntimeKind, SimulatorKind
from carla_launcher.resolve import cluster

DOCKER_LIMIT_S = 10.0


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
        return cluster.options_of(options), f"each node of the cluster at {options.cluster} runs its own"
    runtime, simulator, reason = _choice(options, reading, installed, docker, starts)
    if runtime is RuntimeKind.AUTO:
        runtime = RuntimeKind.PROCESS
    return options.model_copy(update={"runtime": runtime, "simulator": simulator}), reason


def _choice(
    options: RunOptions, reading: Reading, installed: bool, docker: Callable[[], Docker], starts: bool
) -> tuple[RuntimeKind, SimulatorKind, str]:
    runtime, simulator = options.runtime, options.simulator
    if options.simulator_host is not None:
        return runtime, SimulatorKind.ELSEWHERE, f"it runs at {options.simulator_host}"
    if simulator not in (SimulatorKind.AUTO, SimulatorKind.CARLA):
        return runtime, simulator, "as asked for"
    if simulator is SimulatorKind.AUTO and reading.gpu is Gpu.NONE:
        return runtime, SimulatorKind.LITE, "there is no GPU"
    if installed and runtime is not RuntimeKind.COMPOSE:
        return RuntimeKind.PROCESS, SimulatorKind.CARLA, "there is a GPU"
    found = docker() if runtime is not RuntimeKind.PROCESS else Docker.ABSENT
    if found is Docker.ANSWERS:
        return RuntimeKind.COMPOSE, SimulatorKind.CARLA, "there is a GPU"
    return _without_an_engine(runtime, simulator, found, starts)


def _without_an_engine(
    runtime: RuntimeKind, simulator: SimulatorKind, found: Docker, starts: bool
) -> tuple[RuntimeKind, SimulatorKind, str]:
    silent = found is Docker.SILENT
    if not starts and (silent or simulator is SimulatorKind.CARLA):
        why = "Docker's engine doesn't answer: `up` needs it" if silent else "nothing here starts CARLA yet"
        return RuntimeKind.PROCESS, SimulatorKind.CARLA, f"there is a GPU; {why}; containers' limits are left out"
    if silent:
        raise RefusedError(
            "Docker is installed, but its engine doesn't answer `docker info`: start it (sudo systemctl start docker) "
            f"or join its group (sudo usermod -aG docker $USER), or {WITHOUT_CARLA}."
        )
    if simulator is SimulatorKind.CARLA:
        raise RefusedError(
            "CARLA can't be started here: give its command in the launcher's configuration (simulator.command), "
            f"or install Docker and leave --runtime process out, or {WITHOUT_CARLA}."
        )
    return runtime, SimulatorKind.LITE, "there is a GPU, but neither Docker nor an installed CARLA"


def _refuse_a_failing_driver(options: RunOptions, reading: Reading) -> None:
    placed = options.simulator_host is not None or options.cluster is not None
    elsewhere = options.simulator is SimulatorKind.ELSEWHERE or placed
    lite = options.simulator is SimulatorKind.LITE
    if reading.gpu is not Gpu.UNREADABLE or lite or (elsewhere and options.device == "cpu"):
        return
    go_on = "leave it out: --device cpu" if elsewhere else WITHOUT_CARLA
    raise RefusedError(f"{reading.problem.rstrip('.')}; or {go_on}.")
