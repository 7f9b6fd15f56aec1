"""``run --runtime compose -- COMMAND``: CARLA's container, here with a stand-in in it, and a command beside it."""

from __future__ import annotations

import os
import re
import signal
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.gpu_stub.stub import Figures, build
from tests.stack.contained import Contained
from tests.stack.stack import docker
from tests.stack.stand_in import DRIVER, TAG, WITHOUT_A_DEVICE
from tests.wire.launched import own_limits
from tests.wire.test_commands import FILE, PROGRAM, SOON

pytestmark = [pytest.mark.stack, pytest.mark.timeout(1500)]

LIMITS = {**SOON, "memory.pressure_s": 1, "memory.timeline_s": 0.5, "restore.settle_s": 1}
ENDLESS = ("--steps", "1000000")
EPIC_MIB, LOW_MIB, PROGRAM_MIB = 3000, 1800, 300


class Beside(Contained):
    """A run of CARLA's container and a command beside it, on a card of which the driver's figures are set."""

    def __init__(self, folder: Path, driver: Path, card: Figures) -> None:
        without = WITHOUT_A_DEVICE.format(driver=driver, target=DRIVER)
        # GPU_RUNTIME: the engine's default one, said to be the one that brings the card.
        super().__init__(folder, {}, over=without, CARLA_VERSION=TAG, GPU_RUNTIME="runc", CARLA_MEMORY="6g")
        self._environment = {**card.environment, **self._environment}
        self.card = card
        (folder / "train.yaml").write_text(FILE)

    def begin(self, *words: str, options: tuple[str, ...] = ()) -> None:
        folder = self.runs.parent
        where = ("--cwd", str(folder), "--program", str(folder / "train.yaml"))
        simulator = ("--runtime", "compose", "--simulator", "carla", "--quality", "Epic", *options)
        limits = own_limits(folder, LIMITS)
        self.run_command(*simulator, *where, *limits, "--", sys.executable, PROGRAM, "--port", "{port}", *words)

    def until_step(self, step: int) -> None:
        self.until(lambda: self.beat.get("step", 0) >= step and self.beat.get("phase") == "updating")

    def pid(self, name: str) -> int:
        """Return a program's process on this machine, once it has one."""
        self.until(lambda: (self.state.get(name) or {}).get("pid"))
        return int(self.state[name]["pid"])

    def in_simulator(self, number: str) -> None:
        """Send a signal to the process that serves the world."""
        process = re.findall(r"^process (\d+)$", (self.run / "logs" / "simulator.log").read_text(), re.MULTILINE)[-1]
        docker("exec", self.container("carla"), "sh", "-c", f"kill -{number} {process}")

    def steps(self) -> list[int]:
        return [int(line) for line in (self.runs.parent / "driven.txt").read_text().split()]


@pytest.fixture
def beside(stand_in: Path, tmp_path: Path) -> Iterator[Beside]:
    """Return a run that isn't started yet; ended after the test."""
    run = Beside(tmp_path, stand_in, Figures(tmp_path / "card", build(tmp_path)))
    yield run
    run.end()


def crash(run: Beside) -> None:
    run.in_simulator("SEGV")


def hang(run: Beside) -> None:
    run.in_simulator("STOP")


def kill_container(run: Beside) -> None:
    docker("kill", run.container("carla"))


Fault = Callable[[Beside], None]


@pytest.mark.parametrize(
    ("fault", "cause"),
    [
        (crash, "simulator_crash"),
        pytest.param(hang, "simulator_hang", marks=pytest.mark.long),
        pytest.param(kill_container, "simulator_crash", marks=pytest.mark.long),
    ],
)
def test_a_lost_simulator_is_made_again_and_the_command_resumes(beside: Beside, fault: Fault, cause: str) -> None:
    beside.begin()
    beside.until_step(22)
    first = beside.container("carla")
    fault(beside)
    output = beside.output()
    assert beside.process.returncode == 0, output
    assert {row["diagnosis"] for row in beside.findings()} == {cause}
    assert sorted(set(beside.steps())) == list(range(1, 61))
    assert len(beside.steps()) < 70
    healthy = beside.events("simulator_healthy")
    assert len(healthy) == 2
    assert first
    assert beside.left() == []


def owners(run: Beside, pool: str) -> dict[str, Any]:
    lines = run.timeline()
    return lines[-1]["pools"][pool]["owners"] if lines and pool in lines[-1]["pools"] else {}


def test_memory_is_told_by_owner_and_both_stop_in_order(beside: Beside) -> None:
    beside.begin(*ENDLESS)
    beside.until_step(5)
    beside.card.hold(beside.pid("simulator"), EPIC_MIB, "G")
    beside.card.hold(beside.pid("agent"), PROGRAM_MIB)
    beside.until(lambda: owners(beside, "vram:0") == {"simulator": EPIC_MIB, "agent": PROGRAM_MIB})
    assert {"simulator", "agent", "launcher"} <= owners(beside, "ram").keys()
    assert list(owners(beside, "ram:simulator")) == ["simulator"]
    os.kill(beside.process.pid, signal.SIGTERM)
    output = beside.output()
    assert beside.process.returncode == 75, output
    events = [row["event"] for row in beside.events("agent_stopped", "simulator_stopped")]
    assert events == ["agent_stopped", "simulator_stopped"]
    assert "signal SIGTERM" in (beside.run / "logs" / "simulator.log").read_text()
    assert beside.left() == []


@pytest.mark.long
def test_a_card_too_full_lowers_the_quality(beside: Beside) -> None:
    beside.begin(*ENDLESS, options=("--policy", "carla_low"))
    beside.until_step(12)
    beside.card.hold(beside.pid("simulator"), EPIC_MIB, "G")
    program = beside.pid("agent")
    beside.card.hold(program, PROGRAM_MIB)
    beside.until(lambda: owners(beside, "vram:0").get("simulator") == EPIC_MIB)
    beside.card.hold(program, beside.card.total_mib - EPIC_MIB - 40)
    beside.until(lambda: beside.events("rung_taken"))
    for pid, _ in [*beside.card.lines]:
        beside.card.release(pid)
    beside.until(lambda: len(beside.events("agent_started")) == 2)
    beside.card.hold(beside.pid("simulator"), LOW_MIB, "G")
    reached = beside.beat.get("step", 0)
    beside.until(lambda: beside.beat.get("step", 0) > reached + 5)
    assert [row["rung"] for row in beside.events("rung_taken")] == ["carla_low (Low)"]
    log = (beside.run / "logs" / "simulator.log").read_text()
    assert [line for line in log.splitlines() if "-quality-level=Low" in line]
    beside.stop()
    assert beside.left() == []
