"""Memory that really runs out or is taken by others, and what the launcher does about it (issue 5's scenarios)."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.conftest import REPOSITORY
from tests.gpu_stub.stub import Figures
from tests.memory_hog import Hog
from tests.wire.launched import ENDLESS, Launch, own_limits
from tests.wire.staged import (
    CARLA,
    QUICK,
    card_of,
    free_ram_mib,
    only_micro_batches,
    overrides,
    settings,
    status,
    taken,
)

pytestmark = pytest.mark.long

FOREIGN_MIB = 2048
CARLA_MIB = 1500
SLACK_MIB = 2200
"""Beyond the reserve when a run begins: its own 600 fit into it, and the foreign process doesn't fit beside them."""


@pytest.fixture
def foreign_process(tmp_path: Path) -> Iterator[Hog]:
    """A foreign program, named ``borrower``."""
    program = tmp_path / "borrower"
    program.symlink_to(sys.executable)
    with Hog(str(program), str(REPOSITORY / "tests" / "memory_hog.py")) as hog:
        yield hog


@pytest.fixture
def card(tmp_path: Path) -> Iterator[Figures]:
    """A card on which CARLA and the foreign process leave 50 MiB."""
    yield from card_of(tmp_path, CARLA_MIB + FOREIGN_MIB + 50)


def reserve_all_but(folder: Path, mib: float) -> dict[str, Any]:
    """Return limits that leave so much of the free RAM to a run, however large this machine is."""
    return {**QUICK, "memory.reserve_mib.ram": round(free_ram_mib(folder) - mib), "memory.foreign_share": 0.01}


def take(foreign: Hog, folder: Path, changes: dict[str, Any]) -> None:
    """Let it take its memory, and what other programs and the kernel free meanwhile."""
    assert foreign.touch(FOREIGN_MIB)
    while (left_mib := free_ram_mib(folder) - changes["memory.reserve_mib.ram"]) > SLACK_MIB - FOREIGN_MIB:
        assert foreign.touch(max(1, round(left_mib - (SLACK_MIB - FOREIGN_MIB))))


def test_4_a_foreign_process_between_check_and_use_is_named_and_waited_for(
    launch: Launch, tmp_path: Path, foreign_process: Hog
) -> None:
    """Scenario 4, in RAM: the foreign program takes 2 GiB after the plan, while the simulator starts."""
    changes = reserve_all_but(tmp_path, SLACK_MIB)
    run = launch(100, *own_limits(tmp_path, changes), environment={"LITE_FAULTS": "slow-start:by_s=4"})
    run.until(lambda: bool(run.events("simulator_starts")))
    take(foreign_process, tmp_path, changes)
    run.until(lambda: bool(run.events("waiting")))
    assert run.events("waiting")[0]["diagnosis"] == "foreign_process"
    run.until(lambda: bool(run.events("finding", diagnosis="foreign_process", owner="borrower")))
    assert not run.events("agent_starts")
    run.until(lambda: "borrower" in json.dumps(status(run)))
    assert psutil.Process(foreign_process.pid).memory_info().rss >= FOREIGN_MIB * 2**20
    assert foreign_process.touch(1), "it lives"
    foreign_process.__exit__()
    output = run.output()
    assert run.process.returncode == 0, output
    assert "Traceback" not in output
    assert (run.state["simulator_restarts"], run.state["agent_restarts"]) == (0, 0)


def test_4_a_foreign_process_on_the_card_is_named_and_left_alone(
    launch: Launch, tmp_path: Path, foreign_process: Hog, card: Figures
) -> None:
    """Scenario 4, in VRAM: CARLA is there, the agent on the CPU, and 2 GiB more can't be had."""
    limits = own_limits(tmp_path, {**QUICK, "simulator.command": CARLA, "sizes.vram_mib.Low": CARLA_MIB})
    options = ("--simulator", "carla", "--device", "cpu", *limits)
    run = launch(ENDLESS, *options, environment=card.environment)
    run.until(lambda: bool(run.events("simulator_started")))
    card.hold(run.events("simulator_started")[-1]["pid"], CARLA_MIB, "G")
    run.until_training()
    card.hold(foreign_process.pid, FOREIGN_MIB, name="borrower")
    run.until(lambda: bool(run.events("waiting")))
    assert run.events("finding", pool="vram:0", owner="borrower", diagnosis="foreign_process")
    assert "vram:0 has 50 MiB free, expected 100 MiB; borrower" in run.events("waiting")[0]["cause"]
    run.until_stepping()
    assert foreign_process.touch(1), "it lives"
    assert run.state["state"] == "pressure"
    card.release(foreign_process.pid)
    run.until(lambda: run.state["state"] == "running")
    assert (run.state["simulator_restarts"], run.state["agent_restarts"]) == (0, 0)
    run.stop()


def test_a_rung_taken_by_apply_is_restored(launch: Launch, tmp_path: Path, foreign_process: Hog) -> None:
    """The pressure is a foreign process's RAM; once it leaves and it has fitted for the hold, the values come back."""
    changes = {**reserve_all_but(tmp_path, SLACK_MIB), "ladder": only_micro_batches(8, 2 * FOREIGN_MIB)}
    run = launch(ENDLESS, *own_limits(tmp_path, changes), *settings(td3__batch_size=16))
    run.until_training()
    pid = run.beat["pid"]
    take(foreign_process, tmp_path, changes)
    run.until(lambda: bool(run.events("rung_taken")))
    assert "borrower" in run.events("rung_taken")[0]["cause"]
    run.until(lambda: run.beat["micro_batch"] == 8)
    assert overrides(run) == {"td3.micro_batch": 8}
    foreign_process.__exit__()
    run.until(lambda: bool(run.events("rung_left")))
    run.until(lambda: run.beat["micro_batch"] == 16)
    run.until(lambda: overrides(run) == {})
    asked = run.events("request", kind="apply")
    assert [row["values"] for row in asked] == [{"td3.micro_batch": 8}, {"td3.micro_batch": None}]
    run.until(lambda: bool(run.events("restore_stands")))
    assert (taken(run), run.beat["pid"], run.state["agent_restarts"]) == ([], pid, 0)
    run.stop()
