"""Chooses the simulator and the runtime on this machine, or refuses.

Refuses a machine whose driver fails or whose container engine doesn't answer.
"""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Callable
from enum import Enum

from carla_launcher import hooks
from carla_launcher.observe.container_engine import WITHOUT_CARLA
from carla_launcher.observe.pools import Gpu, Reading
from carla_launcher.options import RefusedError, RunOptions, RuntimeKind
from carla_launcher.simulators import NAMED, Carla, CarlaLite, Simulator, asked_for

DOCKER_LIMIT_S = 10.0
WITHOUT_ADDRESS = "--simulator elsewhere needs the simulator's address: give --simulator-host."
Choice = tuple[RuntimeKind, type[Simulator], str]
"""Runtime, simulator, and the reason."""


class Docker(Enum):
    """State of Docker on this machine."""

    ABSENT = "absent"
    SILENT = "silent"
    """Installed, but the engine refuses or doesn't answer in time."""
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
    """Return the options with simulator and runtime chosen, and the reason. Explicit options stay.

    Args:
        options: the user's options.
        reading: all pools, with the GPU's state.
        installed: the launcher's configuration has a command that starts CARLA.
        docker: returns Docker's state; called only if it matters.
        starts: the simulator will be started; False for a plan.

    Raises:
        RefusedError: the driver or the engine fails, or CARLA was asked for and can't be started here.
    """
    _refuse_a_failing_driver(options, reading)
    if options.cluster is not None:
        hooks.refuse_cluster(options.cluster, options)
        reason = f"on each node of the cluster at {options.cluster}"
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
        return runtime, simulator, "as requested" if host is None else f"it runs at {host}"
    if simulator is None and reading.gpu is Gpu.NONE:
        return runtime, CarlaLite, "there is no GPU"
    if installed and runtime is not RuntimeKind.COMPOSE:
        return RuntimeKind.PROCESS, Carla, "there is a GPU"
    found = docker() if runtime is not RuntimeKind.PROCESS else Docker.ABSENT
    if found is Docker.ANSWERS:
        return RuntimeKind.COMPOSE, Carla, "there is a GPU"
    silent, named = found is Docker.SILENT, simulator is not None
    if not starts and (silent or named):
        why = "Docker's engine doesn't answer, but `up` needs it" if silent else "nothing here can start CARLA yet"
        return RuntimeKind.PROCESS, Carla, f"there is a GPU; {why}; the plan leaves out containers' memory limits"
    if silent:
        raise RefusedError(
            "Docker is installed, but its engine doesn't answer `docker info`: start it (sudo systemctl start docker) "
            f"or join its group (sudo usermod -aG docker $USER), or {WITHOUT_CARLA}."
        )
    if named:
        raise RefusedError(
            "CARLA can't be started here: give its command in the launcher's configuration (simulator.command), "
            f"or install Docker and leave out --runtime process, or {WITHOUT_CARLA}."
        )
    return runtime, CarlaLite, "there is a GPU, but neither Docker nor an installed CARLA"


def _refuse_a_failing_driver(options: RunOptions, reading: Reading) -> None:
    named, simulator = NAMED.get(options.simulator), asked_for(options)
    cardless = named is not None and named.ours and not named.needs_card
    elsewhere = simulator is not None and not simulator.ours
    if reading.gpu is not Gpu.UNREADABLE or cardless or (elsewhere and options.device == "cpu"):
        return
    go_on = "do without a GPU (agent: --device cpu)" if elsewhere else WITHOUT_CARLA
    raise RefusedError(f"{reading.problem.rstrip('.')}; or {go_on}.")
