"""A wall clock that jumps by hours, forth and back, in all processes of a run at once: nothing is decided by it."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import pytest

from tests.conftest import REPOSITORY
from tests.wire.launched import ENDLESS, Launch, Launched, own_limits
from tests.wire.staged import QUICK

HOUR_S = 3600


def is_moved(run: Launched, began_s: float, hours: int) -> bool:
    """Return whether the agent has told of the time that it is now."""
    return bool(abs(run.beat["time"] - began_s - hours * HOUR_S) < HOUR_S)


@pytest.mark.long
def test_a_clock_that_jumps_both_ways_changes_nothing(launch: Launch, tmp_path: Path) -> None:
    clock = tmp_path / "clock"
    clock.write_text("0")
    environment = {"PYTHONPATH": str(REPOSITORY / "tests" / "wire" / "clock"), "CLOCK_FILE": str(clock)}
    run = launch(ENDLESS, *own_limits(tmp_path, QUICK), environment=environment)
    run.until_training()
    began_s = run.beat["time"]
    for hours in (5, -7, 0):
        clock.with_suffix(".new").write_text(str(hours * HOUR_S))
        clock.with_suffix(".new").replace(clock)
        run.until(partial(is_moved, run, began_s, hours))
        run.until_stepping(100)
        run.until_updates()
    assert (run.state["simulator_restarts"], run.state["agent_restarts"]) == (0, 0)
    assert not run.agent_events("collector_restarted", "checkpoint_failed")
    run.stop()
    assert run.command("status", "--once", "--json").returncode == 0
    assert (run.run / "report.md").exists()
