"""``run -- docker run …``: the container's memory, end and report are the command's, and none is left running."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from carla_launcher.act.compose.engine import Engine
from tests.conftest import REPOSITORY
from tests.crowd import until
from tests.stack.stack import docker
from tests.wire.launched import Launched, own_limits

pytestmark = [pytest.mark.stack, pytest.mark.timeout(600)]

SOON = {"watch.interval_s": 0.5, "agent.restarts.first_delay_s": 0.1, "memory.timeline_s": 0.5, "restore.settle_s": 0.5}
LIMIT_MIB = 512
PODMAN_LIMITS = ("--ulimit", "nofile=1024:1024", "--ulimit", "nproc=4096:4096")
"""Podman's own are higher than root may set them within some containers and virtual machines."""
STEPS = r"alive: {log: 'step (\d+)', within_s: 60}"
# Holds so many MiB, touched; "stops" writes a word at SIGTERM, "stays" ignores it.
PROGRAM = """
import signal, sys, time
mib, manner = int(sys.argv[1]), sys.argv[2]
def stop(*_):
    print("last words", flush=True)
    raise SystemExit(75)
signal.signal(signal.SIGTERM, stop if manner == "stops" else signal.SIG_IGN)
held = bytearray(b"x") * (mib * 2**20)  # at once, without a copy beside it
for step in range(20 if manner == "ends" else 10**6):
    print("step", step, flush=True)
    time.sleep(0.1)
"""


class InContainer(Launched):
    """A run of a command that is ``docker run`` or ``podman run``."""

    def __init__(self, folder: Path, image: str, engine: str = "docker") -> None:
        super().__init__(folder)
        self.engine = engine
        self.label, self.image = f"carla-td3-test={uuid.uuid4().hex[:8]}", image
        (folder / "program.py").write_text(PROGRAM)

    def begin(self, *program: str, file: str = STEPS, options: tuple[str, ...] = ()) -> None:
        folder = self.runs.parent
        (folder / "train.yaml").write_text(file)
        container = (*self.run_words, f"--memory={LIMIT_MIB}m", "--memory-swap", "512m")
        mount = ("-v", f"{folder / 'program.py'}:/program.py:ro", *options)
        self.run_command(
            *("--simulator", "none", "--program", str(folder / "train.yaml"), *own_limits(folder, SOON)),
            *("--", *container, *mount, self.image, *(PYTHON[:1] if program[0] == "-c" else PYTHON), *program),
        )

    @property
    def run_words(self) -> tuple[str, ...]:
        """Return the words that begin a container."""
        limits = PODMAN_LIMITS if self.engine == "podman" else ()
        return (self.engine, "run", "--rm", "--label", self.label, *limits)

    def containers(self, *options: str) -> list[str]:
        return asked(self.engine, "ps", "-q", "--filter", f"label={self.label}", *options).split()

    def end(self) -> None:
        super().end()
        if left := self.containers("-a"):
            asked(self.engine, "rm", "-f", *left)

    def pool(self) -> dict[str, Any]:
        """Return the newest line on the container's memory."""
        found = [row["pools"]["ram:agent"] for row in self.timeline() if "ram:agent" in row["pools"]]
        return found[-1] if found else {}


PYTHON = ("python3", "/program.py")
BOTH = pytest.mark.parametrize("engine", ["docker", pytest.param("podman", marks=pytest.mark.long)])


def asked(engine: str, *words: str) -> str:
    """Return what an engine's command prints."""
    return subprocess.run([engine, *words], check=True, capture_output=True, text=True, timeout=120).stdout


@pytest.fixture
def engine() -> str:
    """The engine's command."""
    return "docker"


@pytest.fixture
def launched(base_image: str, tmp_path: Path, engine: str) -> Iterator[InContainer]:
    """Return a run that isn't started yet; ended after the test."""
    if engine == "podman":
        _podman_or_skip(base_image)
    run = InContainer(tmp_path, base_image, engine)
    yield run
    run.end()


def _podman_or_skip(image: str) -> None:
    """Give Podman Docker's image; skip where it can't run it."""
    if shutil.which("podman") is None:
        pytest.skip("no podman here: apt-get install podman")
    for command in (
        ["podman", "pull", "-q", f"docker-daemon:{image}"],
        ["podman", "run", "--rm", *PODMAN_LIMITS, image, "true"],
    ):
        ended = subprocess.run(command, check=False, capture_output=True, text=True, timeout=120)
        if ended.returncode:
            pytest.skip(f"podman runs no container here: {ended.stderr.strip()[-300:]}")


def held(launched: InContainer) -> float:
    return float(launched.pool().get("owners", {}).get("agent") or 0.0)


@BOTH
def test_its_memory_is_its_containers(launched: InContainer) -> None:
    launched.begin("150", "stops")
    launched.until(lambda: held(launched) > 150)
    assert held(launched) < 200
    assert launched.pool()["total"] == LIMIT_MIB
    (host,) = {row["pools"]["ram"]["owners"]["agent"] > 150 for row in launched.timeline()[-1:]}
    assert host
    launched.stop()
    assert "last words" in (launched.run / "logs" / "agent.log").read_text()
    assert launched.containers("-a") == []


@pytest.mark.long
@BOTH
def test_one_that_ignores_sigterm_is_killed(launched: InContainer) -> None:
    launched.begin("1", "stays", file=f"{STEPS}\nstop_grace_s: 1")
    launched.until(lambda: launched.events("verified"))
    launched.process.send_signal(signal.SIGTERM)
    output = launched.output()
    assert launched.process.returncode == 75, output
    assert "the agent is killed: its grace period is over" in output
    assert launched.containers("-a") == []


@BOTH
def test_a_kill_for_memory_is_a_rung(launched: InContainer) -> None:
    less = "settings: {mib: {word: '--mib'}}\nrungs: [{name: less, values: {mib: [900, 50]}, frees_mib: {ram: 700}}]"
    take = "import sys\nheld = bytearray(b'x' * (int(sys.argv[2]) * 2**20))\nprint('step 1')"
    launched.begin("-c", take, "--mib", "900", file=less)
    output = launched.output()
    assert launched.process.returncode == 0, output
    (killed,) = launched.events("finding", diagnosis="agent_host_oom")
    assert killed["exit_code"] == 137
    assert [row["rung"] for row in launched.events("rung_taken")] == ["less (mib = 50)"]
    assert launched.containers("-a") == []


def test_the_engine_tells_of_a_kill_for_memory_after_the_container_is_gone(launched: InContainer) -> None:
    take = ("python3", "-c", "held = bytearray(b'x' * 2**30)")
    limits = ("--memory=64m", "--memory-swap=64m")
    identity = docker("run", "-d", "--label", launched.label, *limits, launched.image, *take).stdout.strip()
    docker("wait", identity)
    found = Engine().container(identity)
    assert found is not None
    docker("rm", identity)
    assert Engine().saw_oom_kill(found)


@BOTH
@pytest.mark.parametrize("shim_too", [pytest.param(False, marks=pytest.mark.long), True])
def test_no_container_outlives_a_killed_launcher(launched: InContainer, shim_too: bool) -> None:
    launched.begin("1", "stays", file=f"{STEPS}\nstop_grace_s: 1")
    launched.until(lambda: launched.events("verified"))
    (first,) = launched.containers()
    shims = psutil.Process(launched.process.pid).children() if shim_too else []
    for process in (psutil.Process(launched.process.pid), *shims):
        process.kill()
    launched.process.wait()
    if not shim_too:
        until(lambda: not launched.containers())
        return
    assert launched.containers() == [first]
    launched.run_command()
    launched.until(lambda: len(launched.events("verified")) == 2)
    assert first not in launched.containers()
    os.kill(launched.process.pid, signal.SIGTERM)
    launched.output()
    assert launched.containers("-a") == []


DRIVE = """
import signal, sys, time
item, result = sys.argv[1:]
held = bytearray(b"x") * ({"memory": 1024, "long": 150}.get(item, 150) * 2**20)
if item == "long":
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    print("driving", flush=True)
    time.sleep(99)
time.sleep(2)
open(result, "w").write(item)
"""


class RoutesInContainer(InContainer):
    """An evaluation whose program is ``docker run``."""

    def drive(self, *items: str, options: tuple[str, ...] = ()) -> None:
        folder = self.runs.parent
        (folder / "program.py").write_text(DRIVE)
        mounts = ("-v", f"{folder}:{folder}", "-v", f"{folder / 'program.py'}:/program.py:ro")
        container = ["docker", "run", "--rm", "--label", self.label, "--memory=512m", "--memory-swap=512m", *options]
        words = [*container, *mounts, self.image, *PYTHON, "{item}", "{result}"]
        rules = {"items": {"names": items}, "command": words, "stop_grace_s": 1, "drives": 1}
        (folder / "night.yaml").write_text(json.dumps({"routes": {**rules, "simulator": {"by_program": True}}}))
        where = ("--program", str(folder / "night.yaml"), "--runs-dir", str(self.runs), "--run-name", self.name)
        self.process = self._start("routes", *where, *own_limits(folder, SOON))


@pytest.fixture
def evaluation(base_image: str, tmp_path: Path) -> Iterator[RoutesInContainer]:
    """Return an evaluation that isn't started yet; ended after the test."""
    run = RoutesInContainer(tmp_path, base_image)
    yield run
    run.end()


def test_the_memory_and_the_end_of_a_drive_are_its_containers(evaluation: RoutesInContainer) -> None:
    evaluation.drive("a", "memory")
    output = evaluation.output()
    assert evaluation.process.returncode == 70, output
    assert (evaluation.run / "results" / "a.json").read_text() == "a"
    done, killed = evaluation.events("drive_ended")
    assert 150 < done["peak_mib"]["program"]["ram"] < 250
    assert (killed["outcome"], killed["why"], killed["exit_code"]) == ("again", "exit", 137)
    assert "signal 9, killed for memory" in killed["cause"]
    assert evaluation.containers("-a") == []


def test_no_container_of_a_drive_outlives_a_stop(evaluation: RoutesInContainer) -> None:
    evaluation.drive("long")
    log = evaluation.run / "drives" / "long" / "1" / "log.txt"
    evaluation.until(lambda: log.exists() and "driving" in log.read_text())
    evaluation.process.send_signal(signal.SIGTERM)
    output = evaluation.output()
    assert evaluation.process.returncode == 75, output
    assert evaluation.containers("-a") == []


def test_a_drive_that_would_go_into_the_background_is_refused(evaluation: RoutesInContainer) -> None:
    evaluation.drive("a", options=("-d",))
    assert "`docker run -d` goes into the background: leave -d out." in evaluation.output()
    assert evaluation.process.returncode == 65
    assert not evaluation.run.exists()


REPORTING = """
import sys, time
sys.path.insert(0, "/contract")
from carla_run import run
with run.report(sigterm=True) as r:
    for step in range(10**6):
        r.step(step)
        if step == 100:
            r.phase("evaluating")
            held = bytearray(b"x" * (80 * 2**20))
        for request in r.requests():
            request.done("at-%d" % step if request.kind == "checkpoint" else None)
        if r.stop_asked:
            break
        time.sleep(0.02)
raise SystemExit(r.exit_code)
"""


def peaks(launched: InContainer) -> dict[str, float]:
    """Return what was measured in RAM, by phase."""
    rows = launched.state.get("command_peaks_mib") or [{}]
    found: dict[str, float] = rows[0].get("by_phase", {}).get("ram", {})
    return found


@BOTH
def test_it_reports_from_inside(launched: InContainer) -> None:
    """Its process id there is another one than here."""
    mounts = ("-v", f"{launched.run}:/run", "-e", "CARLA_RUN_DIR=/run", "-v", f"{REPOSITORY / 'contract'}:/contract:ro")
    launched.begin("-c", REPORTING, file="{}", options=mounts)
    launched.until(lambda: int(launched.beat.get("step", 0)) > 20)
    assert launched.beat["pid"] == 1
    shown = launched.command("status", "--json").stdout
    assert '"running"' in shown
    launched.until(lambda: peaks(launched).get("evaluating", 0.0) > peaks(launched).get("updating", 0.0) + 60)
    launched.stop()
    assert launched.beat["phase"] == "stopped"
    assert launched.containers("-a") == []
