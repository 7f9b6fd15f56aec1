"""The report of simulated hours says what the files say: nothing done is left out, and no pause is made up."""

from __future__ import annotations

from pathlib import Path

import pytest

from carla_launcher.show import history, report
from tests.unit.launcher.hours import Sweep, live
from tests.unit.launcher.machine import STEPS_PER_S, Machine
from tests.unit.launcher.simulated import Clock

HOURS = 2.0


@pytest.mark.parametrize("seed", [0, 3, 9])
def test_what_the_report_counts_is_what_the_files_hold(tmp_path: Path, seed: int) -> None:
    machine = live(tmp_path / "run", seed, Sweep(), HOURS)
    reported = history.examine(machine.run)
    assert reported.events["simulator_restart"] == machine.journal.state.simulator_restarts
    assert reported.events["agent_restart"] == machine.journal.state.agent_restarts
    assert reported.last_step == pytest.approx(machine.learned.steps, abs=10 * STEPS_PER_S)
    assert reported.ran_s == pytest.approx(machine.clock.now_s - Clock().now_s, rel=0.01)
    actions = [action.event for each in reported.incidents for action in each.actions]
    for name in ("simulator_restart", "agent_restart", "rung_taken", "rung_adopted", "rung_left", "waiting"):
        assert actions.count(name) == len(machine.events(name)), name
    _each_is_whole(reported)
    _time_adds_up(reported, machine)
    assert report.write(machine.run).stat().st_size < 500_000


def _each_is_whole(reported: history.RunHistory) -> None:
    for each in reported.incidents[:-1]:
        assert each.goes_on
        assert (each.back_s is None) == (not each.standstills)


def _time_adds_up(reported: history.RunHistory, machine: Machine) -> None:
    """A simulated agent drives at one speed or stands: all time without a pause must have driven the steps there are.

    What came to stand just before the end, and wasn't noticed any more, is left out.
    """
    last_s = next(each.time_s for each in reported.timeline.progress if each.step == reported.last_step)
    standstill_s = sum(min(until_s, last_s) - from_s for from_s, until_s in reported.standstills if from_s < last_s)
    drove_s = last_s - reported.sessions[0].from_s - standstill_s
    assert drove_s * STEPS_PER_S == pytest.approx(machine.learned.steps, rel=0.02)
