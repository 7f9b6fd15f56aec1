"""Verifications that need a real GPU and CARLA, step by step.

Owns the order of the steps, and the CARLA that they use. After a failed step the others are still run: failures on a
real GPU are what we want to know.
"""

from __future__ import annotations

import contextlib
import os
import random
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

import verification
import vulkan_devices
from verification import REPOSITORY, Step, Verification, assigned, refuse

from carla_launcher import config
from carla_launcher.config import LauncherConfig, LauncherConfigError
from carla_launcher.observe.health import Address, check
from carla_launcher.observe.memory import MemoryReader
from carla_launcher.observe.pools import Cards
from carla_launcher.places import SHIPPED
from carla_launcher.ports import free_ports
from carla_run.exits import Exit
from carla_run.memory.nvml import Nvml

QUICK = {"evaluation.final_episodes": 2, "evaluation.baselines": False, "environment.traffic.vehicles": 3}
DRIVER = "benchmarks/results/learning/td3/seed-0"
"""A driver that was trained with pictures in carla-lite: on CARLA it uses everything that it needs of a simulator."""
EMPTY = {"environment.traffic.vehicles": 0, "environment.traffic.walkers": 0, "environment.weather": ["ClearNoon"]}
SEES_CUDA = "import torch; print(torch.__version__, torch.version.cuda, torch.cuda.get_device_name())"
PYTEST = (sys.executable, "-m", "pytest", "-p", "no:cacheprovider")
COMPOSE = ("docker", "compose", "-p", "carla-td3-verify")
"""A separate Compose project, so that nothing of the user's is stopped."""
IMAGES = ("carla", "agent")
"""The services that the launcher starts but doesn't build."""
IMAGES_LIMIT_S = 6 * 3_600.0
"""CARLA's image has 20 GB: hours on a slow line, with progress on the terminal."""
USUAL_PORT = 2000


@dataclass(frozen=True)
class Where:
    """The simulator to verify with.

    Attributes:
        there: whether a CARLA is already running.
        address: of that CARLA, or of the one to start.
    """

    limits: LauncherConfig
    launcher_config: Path
    there: Address | None
    address: Address
    gpu: int

    @property
    def composed(self) -> bool:
        """Return whether Docker runs CARLA."""
        return self.there is None and self.limits.simulator.command is None

    @property
    def compose(self) -> tuple[str, ...]:
        """Return the beginning of a Compose command, on the ports of the address."""
        port = self.address.port
        return ("env", f"CARLA_PORT={port}", f"CARLA_PORTS={port}-{port + 2}", *COMPOSE)


def main(runs: Path, launcher_config: Path | None, gpu: int, steps: int) -> int:
    """Run everything, write the file into ``runs``, and return the exit code."""
    shipped = launcher_config or SHIPPED
    try:
        limits = config.load(shipped)
        there = given_address()
    except (LauncherConfigError, ValueError) as error:
        return refuse(str(error), Exit.BAD_CONFIG)
    if missing := what_is_missing(limits, there, gpu):
        return refuse(f"this needs {' and '.join(missing)}.", Exit.NO_SIMULATOR)
    # A free port: the usual one may be in use, for example by a running CARLA.
    port = free_ports(random.Random(), 3) or USUAL_PORT
    where = Where(limits, shipped.resolve(), there, there or Address("127.0.0.1", port), gpu)
    held = verification.begin(runs)
    try:
        verify(held, where, port, steps)
    finally:
        code = held.finish(runs)
    return code


def verify(held: Verification, where: Where, port: int, steps: int) -> None:
    """Run all steps, each one whatever the result of the previous one."""
    gpu = str(where.gpu)
    held.run("revision", "git", "rev-parse", "HEAD")
    if shutil.which("nvidia-smi"):
        held.run("nvidia-smi", "nvidia-smi", "-q", "-i", gpu)
    if where.composed:
        held.run("images", *where.compose, "build", *IMAGES, limit_s=IMAGES_LIMIT_S, shown=True)
        found = ("run", "--rm", "--no-deps", "--entrypoint", "carla-vulkan", "carla")
        held.run("vulkan-in-the-image", *where.compose, *found)
    if held.run("vulkan", sys.executable, vulkan_devices.__file__).code == vulkan_devices.NO_LOADER:
        held.steps[-1] = Step("vulkan", [], said=f"this machine has no {vulkan_devices.LOADER}")
    plan = ["plan", "--json", "--gpu", gpu, "--launcher-config", str(where.launcher_config)]
    held.run("doctor", *_launch("doctor", "--json", "--port", str(port)))
    held.run("plan-before", *_launch(*plan))
    _read_card(held, where, "before")
    with simulator(held, where) as address:
        if address is not None:
            _read_card(held, where, "with_carla")
            held.run("plan-with-carla", *_launch(*plan))
            empty = {**EMPTY, "simulator.host": address.host, "simulator.port": address.port}
            evaluate = ("evaluate", "--checkpoint", DRIVER, "--routes", "3", "--drivers", "td3,expert")
            held.run("drives", sys.executable, "-m", "carla_td3", *evaluate, *assigned(empty))
            wire = ("-m", "any_simulator", "--simulator", f"{address.host}:{address.port}")
            held.run("wire-tests", *PYTEST, "tests/wire", *wire)
            _read_card(held, where, "after_wire_tests")
    there = where.there
    given = ["--simulator-host", there.host, "--port", str(there.port)] if there else ["--simulator", "carla"]
    up = ["up", "--config", "lowmem", "--max-timesteps", str(steps), "--run-name", "run"]
    folders = ["--runs-dir", str(held.folder), *plan[2:]]
    settings = {**QUICK, "training.warmup_steps": steps // 5}
    held.run("run", *_launch(*up, *given, *folders, "--", *assigned(settings)))
    held.run("torch-sees-the-card", sys.executable, "-c", SEES_CUDA)  # otherwise all gpu tests would be skipped
    held.run("gpu-tests", *PYTEST, "-m", "gpu", "-rs")
    _read_card(held, where, "after")


@contextlib.contextmanager
def simulator(held: Verification, where: Where) -> Iterator[Address | None]:
    """Yield the address of a CARLA that answers while the block runs; None if none started."""
    limits, address = where.limits.simulator, where.address
    if where.there is not None:
        yield address if _answers(held, address, limits.running_limit_s) else None
        return
    with (held.folder / "carla.log").open("wb") as log:
        process = None
        if where.composed:
            held.run("carla-up", *where.compose, "up", "-d", "--wait", "carla")
        else:
            words = limits.installed(limits.quality, address.port)
            process = subprocess.Popen(words, cwd=REPOSITORY, stdout=log, stderr=log, start_new_session=True)
        try:
            yield address if _answers(held, address, limits.start_limit_s) else None
        finally:
            if process is None:
                held.run("carla-logs", *where.compose, "logs", "--no-color", "carla")
                held.run("carla-down", *where.compose, "down")
            else:
                verification.end(process)


def given_address() -> Address | None:
    """Return CARLA_HOST:CARLA_PORT; None if CARLA_HOST isn't set.

    Raises:
        ValueError: CARLA_PORT is no port; the message is one sentence.
    """
    host, port = os.environ.get("CARLA_HOST"), os.environ.get("CARLA_PORT") or str(USUAL_PORT)
    if not port.isdecimal() or not 0 < int(port) <= 65533:
        raise ValueError(f"CARLA_PORT is {port!r}, expected 1 to 65533; leave it empty for {USUAL_PORT}.")
    return Address(host, int(port)) if host else None


def what_is_missing(limits: LauncherConfig, there: Address | None, gpu: int) -> list[str]:
    """Return what this machine lacks, each with advice."""
    missing, look = [], Nvml(gpu).read()
    if look.card is None:
        said = look.problem.rstrip(".") or "there is none here"
        missing.append(f"an NVIDIA GPU of index {gpu} and its driver ({said})")
    words = limits.simulator.installed("Low", USUAL_PORT)
    if there is None and shutil.which(words[0] if words else "docker") is None:
        missing.append(
            "CARLA 0.9.16 (set CARLA_HOST, or simulator.command of --launcher-config, or install Docker; "
            "--no-carla does without)"
        )
    return missing


def _read_card(held: Verification, where: Where, when: str) -> None:
    """Record the driver's figures of the GPU, and the launcher's reading of them."""
    held.facts[f"card_{when}"] = asdict(Nvml(where.gpu).read())
    held.facts[f"pools_{when}"] = asdict(MemoryReader(held.folder, Cards(where.gpu, where.gpu)).read())


def _answers(held: Verification, address: Address, limit_s: float) -> bool:
    began = time.monotonic()
    while not (health := check(address)).ok:
        if time.monotonic() - began > limit_s:
            break
        time.sleep(0.5)
    held.facts["simulator"] = {**asdict(health), "took_s": round(time.monotonic() - began, 1)}
    held.steps.append(Step("simulator-answers", [str(address)], 0 if health.ok else Exit.NO_SIMULATOR))
    return health.ok


def _launch(*words: str) -> tuple[str, ...]:
    return (sys.executable, "scripts/launch.py", *words)
