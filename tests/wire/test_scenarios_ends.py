"""A program that ends without a word that the launcher knows: put down to the memory that it had, by real figures."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.gpu_stub.stub import Figures
from tests.wire.launched import ENDLESS, Launch, own_limits
from tests.wire.staged import CARLA, card_of

CARLA_MIB, FOREIGN_MIB = 1500, 800
LEFT_MIB = 40
"""Less than the reserve of 100."""


@pytest.fixture
def card(tmp_path: Path) -> Iterator[Figures]:
    """A card on which CARLA has room, and a foreign process beside it leaves next to nothing."""
    yield from card_of(tmp_path, CARLA_MIB + FOREIGN_MIB + LEFT_MIB)


def test_a_simulator_that_crashes_silently_ran_out_of_memory_on_a_full_card_and_crashed_on_another(
    launch: Launch, tmp_path: Path, card: Figures
) -> None:
    calm = {"memory.pressure_s": 60}  # nothing is given up for the full card before CARLA ends
    limits = own_limits(tmp_path, {"simulator.command": CARLA, "sizes.vram_mib.Low": CARLA_MIB, **calm})
    run = launch(ENDLESS, "--simulator", "carla", "--device", "cpu", *limits, environment=card.environment)

    def crash(times: int) -> str:
        """Have CARLA hold its memory of the card, and end it by a fault; return what the launcher puts it down to."""
        run.until(lambda: len(run.events("simulator_healthy")) == times)
        pid = run.events("simulator_started")[-1]["pid"]
        card.hold(pid, CARLA_MIB, "G")
        run.until(lambda: run.timeline()[-1]["pools"]["vram:0"]["owners"].get("simulator") == CARLA_MIB)
        os.kill(pid, signal.SIGSEGV)
        card.release(pid)
        run.until(lambda: len(run.events("simulator_restart")) == times)
        return str(run.events("simulator_restart")[-1]["cause"])

    run.until_training()
    assert crash(1) == "the simulator ended by itself (signal 11)"
    assert run.events("finding", diagnosis="simulator_crash")
    card.hold(os.getpid(), FOREIGN_MIB, name="borrower")
    room = f"vram:0 had {LEFT_MIB} MiB free, expected 100 MiB"
    assert crash(2) == f"the simulator ended by itself (signal 11) while {room}: its memory ran out"
    (found,) = run.events("finding", diagnosis="simulator_out_of_vram")
    assert (found["pool"], found["deficit_mib"], found["exit_code"]) == ("vram:0", 100 - LEFT_MIB, 139)
    run.stop()


@pytest.mark.parametrize(
    ("words", "missing"),
    [
        ("Cannot find a compatible Vulkan driver (ICD).", "no Vulkan driver that it can use"),
        ("Refusing to run with the root privileges.", "refuses to run as root"),
        ("CarlaUE4: error while loading shared libraries: libomp.so.5", "libomp.so.5), and a restart won't help"),
    ],
)
def test_a_simulator_that_no_restart_mends_ends_the_run_at_once_with_cause_and_cure(
    launch: Launch, tmp_path: Path, card: Figures, words: str, missing: str
) -> None:
    program = tmp_path / "carla.py"
    program.write_text(f"import os\nprint({words!r}, flush=True)\nos.abort()\n", encoding="utf-8")
    command = f"{sys.executable} {program} {{port}}"
    limits = own_limits(tmp_path, {"simulator.command": command, "sizes.vram_mib.Low": CARLA_MIB})
    run = launch(ENDLESS, "--simulator", "carla", "--device", "cpu", *limits, environment=card.environment)
    output = run.output()
    assert run.process.returncode == 65, output
    assert missing in output
    assert len(run.events("simulator_starts")) == 1
    assert not run.events("agent_starts")
