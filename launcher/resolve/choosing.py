"""What a machine makes of a wish: which simulator, started by what, or why neither. ``plan`` and ``up`` both ask here.

Owns the refusals of a machine that isn't what it seems: a driver that fails, an engine that doesn't answer.
"""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum

from contract.exits import Exit
from launcher.observe.pools import Gpu, Reading
from launcher.options import RuntimeKind, Wish
from launcher.resolve.planning import ImpossibleError, Simulates

DOCKER_LIMIT_S = 10.0
WITHOUT_CARLA = "go on without CARLA: --simulator carla-lite"


class Docker(Enum):
    """What is there of Docker."""

    ABSENT = "absent"
    SILENT = "silent"
    """Installed, but its engine refuses or doesn't answer in time."""
    ANSWERS = "answers"


@dataclass(frozen=True)
class Choice:
    """What is run here, and why."""

    runtime: RuntimeKind
    simulator: Simulates
    reason: str


def docker_here() -> Docker:
    """Return whether Docker's engine answers within ``DOCKER_LIMIT_S``."""
    if shutil.which("docker") is None:
        return Docker.ABSENT
    try:
        asked = subprocess.run(["docker", "info"], capture_output=True, check=False, timeout=DOCKER_LIMIT_S)
    except (OSError, subprocess.TimeoutExpired):
        return Docker.SILENT
    return Docker.ANSWERS if asked.returncode == 0 else Docker.SILENT


def choose(wish: Wish, reading: Reading, installed: bool, docker: Callable[[], Docker] = docker_here) -> Choice:
    """Return what a wish comes to on this machine; flags win.

    Args:
        wish: what was asked for.
        reading: what the driver says.
        installed: the launcher's configuration knows how to start a CARLA of this machine.
        docker: asked only where it decides something.

    Raises:
        ImpossibleError: the driver or the engine fails, so that nobody can say what the machine has; or CARLA was
            asked for and can't be started here (65).
    """
    _refuse_a_failing_driver(wish, reading)
    if wish.simulator_host is not None:
        return Choice(_or(wish.runtime, RuntimeKind.PROCESS), Simulates.ELSEWHERE, f"it runs at {wish.simulator_host}")
    has_gpu = reading.gpu is not Gpu.NONE
    if wish.simulator not in (Simulates.AUTO, Simulates.CARLA):
        return Choice(_or(wish.runtime, RuntimeKind.PROCESS), wish.simulator, "as asked for")
    if wish.simulator is Simulates.AUTO and not has_gpu:
        return Choice(_or(wish.runtime, RuntimeKind.PROCESS), Simulates.LITE, "there is no GPU")
    if installed and wish.runtime is not RuntimeKind.COMPOSE:
        return Choice(RuntimeKind.PROCESS, Simulates.CARLA, "there is a GPU")
    return _in_docker(wish, docker() if wish.runtime is not RuntimeKind.PROCESS else Docker.ABSENT)


def _in_docker(wish: Wish, docker: Docker) -> Choice:
    """Return the stack with CARLA; where there is no Docker, carla-lite unless CARLA was asked for by name."""
    if docker is Docker.ANSWERS:
        return Choice(RuntimeKind.COMPOSE, Simulates.CARLA, "there is a GPU")
    if docker is Docker.SILENT:
        raise ImpossibleError(
            "Docker is installed, but its engine doesn't answer `docker info`: start it (sudo systemctl start docker) "
            f"or join its group (sudo usermod -aG docker $USER), or {WITHOUT_CARLA}.",
            Exit.BAD_CONFIG,
        )
    if wish.simulator is Simulates.CARLA:
        raise ImpossibleError(
            "CARLA can't be started here: give its command in the launcher's configuration (simulator.command), "
            f"or install Docker and leave --runtime process out, or {WITHOUT_CARLA}.",
            Exit.BAD_CONFIG,
        )
    runtime = _or(wish.runtime, RuntimeKind.PROCESS)
    return Choice(runtime, Simulates.LITE, "there is a GPU, but neither Docker nor an installed CARLA")


def _refuse_a_failing_driver(wish: Wish, reading: Reading) -> None:
    elsewhere = wish.simulator is Simulates.ELSEWHERE or wish.simulator_host is not None
    if reading.gpu is not Gpu.UNREADABLE or wish.simulator is Simulates.LITE or (elsewhere and wish.device == "cpu"):
        return
    go_on = "leave it out: --device cpu" if elsewhere else WITHOUT_CARLA
    raise ImpossibleError(f"{reading.problem.rstrip('.')}; or {go_on}.", Exit.BAD_CONFIG)


def _or(runtime: RuntimeKind, default: RuntimeKind) -> RuntimeKind:
    return default if runtime is RuntimeKind.AUTO else runtime
