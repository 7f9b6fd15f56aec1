"""``make verify-gpu``, for the first person with a real card and CARLA: runs what needs both, leaves one file to send.

Owns the order of the steps and the file, ``runs/verify-gpu-DATE.zip``: every step's words and exit code, the versions,
and what driver and launcher say of the card before and while CARLA runs. A step that fails doesn't keep the others from
being run: what fails on a real card is what we want to read. Leaves no path or name of the person's in it.
"""

from __future__ import annotations

import contextlib
import getpass
import importlib.metadata
import json
import os
import platform
import random
import shutil
import socket
import subprocess
import sys
import time
import zipfile
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Annotated, Any, NoReturn

import typer

from launcher import config
from launcher.config import LauncherConfig, LauncherConfigError
from launcher.exits import Exit
from launcher.memory.nvml import Nvml
from launcher.memory.survey import Survey
from launcher.ports import free_port_triple
from launcher.watching.health import Address, check

REPOSITORY = Path(__file__).resolve().parents[1]
RUN_FILES = ("*.json", "*.jsonl", "*.yaml", "report.html", "report.md", "collector.log", "logs/*.log", "memory/*.json")
QUICK = {"evaluation.final_episodes": 2, "evaluation.baselines": False, "environment.traffic.vehicles": 3}
SEES_CUDA = "import torch; print(torch.__version__, torch.version.cuda, torch.cuda.get_device_name())"
PACKAGES = ("torch", "carla", "nvidia-ml-py", "docker", "numpy", "gymnasium")
PYTEST = (sys.executable, "-m", "pytest", "-p", "no:cacheprovider")
COMPOSE = ("docker", "compose", "-p", "carla-td3-verify")
"""A project of its own: nothing of the person's is stopped."""
LONGEST_LOG_BYTES = 4 << 20
LIMIT_S = 1_800.0


@dataclass
class Step:
    """A command, and what came of it."""

    name: str
    words: list[str]
    code: int | None = None
    took_s: float = 0.0


@dataclass
class Verification:
    """What is verified with what, and all that goes into the file; ``there``: a CARLA that runs already."""

    folder: Path
    limits: LauncherConfig
    launcher_config: Path
    there: Address | None
    gpu: int
    steps: list[Step] = field(default_factory=list)
    facts: dict[str, Any] = field(default_factory=dict)

    def run(self, name: str, *words: str) -> None:
        """Run a step, its words in a file and the last of them on the terminal; whatever comes of it."""
        step = Step(name, list(words))
        self.steps.append(step)
        print(f"\n--- {name}: {' '.join(words)}", flush=True)
        began = time.monotonic()
        with (self.folder / f"{name}.txt").open("wb") as log:
            step.code = _run(words, log.fileno())
        step.took_s = round(time.monotonic() - began, 1)
        sys.stdout.write((self.folder / f"{name}.txt").read_text(encoding="utf-8", errors="replace")[-3000:])
        print(f"--- {name}: exit code {step.code} after {step.took_s} s", flush=True)

    def read_card(self, when: str) -> None:
        """Keep what the driver says of the card, and what the launcher makes of it."""
        nvml = Nvml(self.gpu)
        self.facts[f"card_{when}"] = asdict(nvml.read())
        self.facts[f"pools_{when}"] = asdict(Survey(self.folder, nvml).read())

    def pack(self, runs: Path) -> Path:
        """Write the one file and return its path."""
        self.facts["steps"] = [asdict(step) for step in self.steps]
        (self.folder / "summary.json").write_text(json.dumps(self.facts, indent=1, default=str), encoding="utf-8")
        packed = runs / f"{self.folder.name}.zip"
        with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as archive:
            for path in _worth_sending(self.folder):
                text = path.read_bytes()[-LONGEST_LOG_BYTES:].decode(errors="replace")
                archive.writestr(str(path.relative_to(self.folder)), nameless(text))
        return packed


def main(
    runs: Annotated[Path, typer.Option("--runs-dir", help="Where the file is left.")] = Path("runs"),
    launcher_config: Annotated[Path, typer.Option(help="The launcher's own configuration.")] = config.SHIPPED,
    gpu: Annotated[int, typer.Option(min=0, help="Index of the GPU.")] = 0,
    steps: Annotated[int, typer.Option(min=100, help="Environment steps of the run under the launcher.")] = 1_000,
) -> None:
    """Run everything that needs a real card and CARLA; leave one file to send back.

    CARLA is taken at CARLA_HOST:CARLA_PORT if CARLA_HOST is set, else started: by `simulator.command` of the launcher's
    configuration, else by Docker. Exit codes: 0 all well, 1 a step failed (send the file), 65 what was given can't be,
    69 there is no card or no CARLA.
    """
    try:
        limits = config.load(launcher_config)
        there = given_address()
    except (LauncherConfigError, ValueError) as error:
        _refuse(str(error), Exit.CONFIGURATION)
    if missing := what_is_missing(limits, there, gpu):
        _refuse(f"this needs {' and '.join(missing)}.", Exit.NO_SIMULATOR)
    folder = runs.resolve() / time.strftime("verify-gpu-%Y%m%d-%H%M%S")  # absolute: steps are run in the repository
    verification = Verification(folder, limits, launcher_config.resolve(), there, gpu)
    folder.mkdir(parents=True)
    try:
        verify(verification, steps)
    finally:
        packed = verification.pack(runs)
        shutil.rmtree(folder, ignore_errors=True)
    failed = [step.name for step in verification.steps if step.code != 0]
    print(f"\n{len(verification.steps)} steps, of which went wrong: {', '.join(failed) or 'none'}.")
    print(f"Please send {packed} to whoever gave you this; what went wrong is as welcome as what went well.")
    raise typer.Exit(1 if failed else 0)


def verify(verification: Verification, steps: int) -> None:
    """Run all steps, each whatever became of the one before."""
    there, gpu = verification.there, str(verification.gpu)
    verification.facts |= machine()
    verification.run("revision", "git", "rev-parse", "HEAD")
    if shutil.which("nvidia-smi"):
        verification.run("nvidia-smi", "nvidia-smi", "-q", "-i", gpu)
    plan = ["plan", "--json", "--gpu", gpu, "--launcher-config", str(verification.launcher_config)]
    verification.run("doctor", *_launch("doctor", "--json"))
    verification.run("plan-before", *_launch(*plan))
    verification.read_card("before")
    with simulator(verification) as address:
        if address is not None:
            verification.read_card("with_carla")
            verification.run("plan-with-carla", *_launch(*plan))
            wire = ("-m", "any_simulator", "--simulator", f"{address.host}:{address.port}")
            verification.run("wire-tests", *PYTEST, "tests/wire", *wire)
            verification.read_card("after_wire_tests")
    where = ["--simulator-host", there.host, "--port", str(there.port)] if there else ["--simulator", "carla"]
    up = ["up", "--config", "config/td3_config_lowmem.yaml", "--max-timesteps", str(steps), "--run-name", "run"]
    folders = ["--runs-dir", str(verification.folder), *plan[2:]]
    settings = {**QUICK, "training.warmup_steps": steps // 5}
    changed = [word for key, value in settings.items() for word in ("--set", f"{key}={value}")]
    verification.run("run", *_launch(*up, *where, *folders, "--", *changed))
    verification.run("torch-sees-the-card", sys.executable, "-c", SEES_CUDA)  # else all gpu tests would be skipped
    verification.run("gpu-tests", *PYTEST, "-m", "gpu", "-rs")
    verification.read_card("after")


@contextlib.contextmanager
def simulator(verification: Verification) -> Iterator[Address | None]:
    """Yield the address of a CARLA that answers while the block lasts; None where none came up."""
    there, limits = verification.there, verification.limits
    if there is not None:
        yield there if _answers(verification, there, limits.simulator.running_limit_s) else None
        return
    installed = limits.simulator.command is not None
    address = Address("127.0.0.1", (free_port_triple(random.Random()) if installed else None) or 2000)
    with (verification.folder / "carla.log").open("wb") as log:
        process = None
        if installed:
            words = limits.simulator.installed(limits.simulator.quality, address.port)
            process = subprocess.Popen(words, cwd=REPOSITORY, stdout=log, stderr=log, start_new_session=True)
        else:
            verification.run("carla-up", *COMPOSE, "up", "-d", "--build", "--wait", "carla")
        try:
            yield address if _answers(verification, address, limits.simulator.start_limit_s) else None
        finally:
            _end(verification, process)


def _answers(verification: Verification, address: Address, limit_s: float) -> bool:
    began = time.monotonic()
    while not (health := check(address)).ok:
        if time.monotonic() - began > limit_s:
            break
        time.sleep(0.5)
    verification.facts["simulator"] = {**asdict(health), "took_s": round(time.monotonic() - began, 1)}
    verification.steps.append(Step("simulator-answers", [str(address)], 0 if health.ok else Exit.NO_SIMULATOR))
    return health.ok


def _end(verification: Verification, process: subprocess.Popen[bytes] | None) -> None:
    if process is None:
        verification.run("carla-logs", *COMPOSE, "logs", "--no-color", "carla")
        verification.run("carla-down", *COMPOSE, "down")
        return
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, 15)  # CarlaUE4.sh hands no signal on to the program that it starts
    try:
        process.wait(30)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, 9)
        process.wait()


def given_address() -> Address | None:
    """Return CARLA_HOST:CARLA_PORT; None if CARLA_HOST isn't set.

    Raises:
        ValueError: with a sentence on a port that can't be.
    """
    host, port = os.environ.get("CARLA_HOST"), os.environ.get("CARLA_PORT") or "2000"
    if not port.isdecimal() or not 0 < int(port) <= 65533:
        raise ValueError(f"CARLA_PORT is {port!r}, expected 1 to 65533; leave it empty for 2000.")
    return Address(host, int(port)) if host else None


def what_is_missing(limits: LauncherConfig, there: Address | None, gpu: int) -> list[str]:
    """Return what this machine lacks, each with what to do."""
    missing, look = [], Nvml(gpu).read()
    if look.card is None:
        said = look.problem.rstrip(".") or "there is none here"
        missing.append(f"an NVIDIA GPU of index {gpu} and its driver ({said})")
    words = limits.simulator.installed("Low", 2000)
    if there is None and shutil.which(words[0] if words else "docker") is None:
        missing.append("CARLA 0.9.16 (set CARLA_HOST, or simulator.command in config/launcher.yaml, or install Docker)")
    return missing


def machine() -> dict[str, Any]:
    """Return the versions of the system, Python and packages."""
    packages = {}
    for name in PACKAGES:
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            packages[name] = importlib.metadata.version(name)
    system = f"{platform.platform()}, {os.cpu_count()} cores, Python {platform.python_version()}"
    return {"system": system, "packages": packages}


def nameless(text: str) -> str:
    """Return a text without the person's folders, user name and machine name."""
    hide = {str(REPOSITORY): ".", sys.prefix: ".venv", str(Path.home()): "~", socket.gethostname(): "MACHINE"}
    for hidden, shown in {**hide, f"/{getpass.getuser()}/": "/USER/"}.items():
        text = text.replace(hidden, shown)
    return text


def _worth_sending(folder: Path) -> list[Path]:
    run = folder / "run"
    found = {path for pattern in RUN_FILES for path in run.glob(pattern)}
    return sorted(found | {path for path in folder.iterdir() if path.is_file()})


def _launch(*words: str) -> tuple[str, ...]:
    return (sys.executable, "scripts/launch.py", *words)


def _run(words: tuple[str, ...], log: int) -> int:
    try:
        ended = subprocess.run(words, cwd=REPOSITORY, stdout=log, stderr=log, timeout=LIMIT_S, check=False)
    except FileNotFoundError:
        return 127
    except subprocess.TimeoutExpired:
        return 124
    return ended.returncode


def _refuse(sentence: str, code: Exit) -> NoReturn:
    print(f"verify-gpu: {sentence}", file=sys.stderr)
    raise typer.Exit(int(code))


if __name__ == "__main__":
    typer.run(main)
