"""Which peaks of a run become later runs' first figures: none of a life that leaked, grew or failed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from carla_launcher.act.effects import State
from carla_launcher.act.runtime import Role
from carla_launcher.decide.detectors.causes import Cause, Finding
from carla_run.paths import RunPaths
from tests.unit.launcher.simulated import LIMITS, World

FIRST_MINUTES_S = LIMITS.simulator.restarts.stable_after_s
LEAK_SHOWS_S = LIMITS.memory.slope_window_s
LEAK = Finding(Cause.LEAK, "simulator grows", pool="vram:0", owner="simulator", exhausted_in_s=500)
PRESSURE = Finding(Cause.PRESSURE, "simulator took 700 MiB", pool="vram:0", owner="simulator")
GROWTH = Finding(
    Cause.OUT_OF_BAND,
    "the simulator holds more",
    pool="vram:0",
    owner="simulator",
    numbers={"expected": "measured before", "held_mib": 4000, "expected_mib": 3000},
)
BEYOND_ESTIMATE = Finding(
    Cause.OUT_OF_BAND,
    "the simulator holds more",
    pool="vram:0",
    owner="simulator",
    numbers={"expected": "planned", "held_mib": 4000, "expected_mib": 3000},
)


@pytest.fixture
def world(tmp_path: Path) -> World:
    made = World(RunPaths(tmp_path / "runs" / "night"))
    made.steps_until(State.RUNNING)
    made.steps_for(5)
    return made


def state(world: World) -> Any:
    return json.loads(world.run.launcher_state.read_text())


def kept(world: World) -> dict[str, dict[str, float]]:
    world.journal.save()
    found: dict[str, dict[str, float]] = state(world)["simulator_peak_mib"]
    return found


def finish(world: World) -> None:
    world.last(Role.AGENT).end(0)
    world.steps_until(State.STOPPED)


def test_it_is_kept_at_the_runs_orderly_end(world: World) -> None:
    assert not kept(world), "not before: a launcher that is killed now leaves none"
    finish(world)
    assert kept(world)["vram"] == {"Epic": 3000.0}


def test_it_is_kept_while_the_run_goes_on_once_a_leak_would_have_been_found(world: World) -> None:
    world.steps_for(FIRST_MINUTES_S)
    assert not kept(world)
    world.steps_for(LEAK_SHOWS_S)
    assert kept(world)["vram"] == {"Epic": 3000.0}


@pytest.mark.parametrize("finding", [LEAK, PRESSURE, GROWTH], ids=["leak", "pressure", "growth"])
def test_that_of_a_life_that_leaked_or_grew_is_not_kept(world: World, finding: Finding) -> None:
    world.findings = (finding,)
    world.steps_for(2)
    world.findings = ()
    finish(world)
    assert not kept(world)


def test_what_the_estimate_was_too_low_for_is_kept(world: World) -> None:
    world.findings = (BEYOND_ESTIMATE,)
    world.steps_for(2)
    finish(world)
    assert kept(world)["vram"] == {"Epic": 3000.0}


def test_that_of_a_simulator_that_an_earlier_launcher_left_is_not_kept(world: World) -> None:
    world.launch()
    world.steps_until(State.RUNNING)
    world.steps_for(5)
    finish(world)
    assert not kept(world)


def test_an_agent_s_figures_are_doubted_from_its_leak_until_another_one_starts(world: World) -> None:
    world.findings = (Finding(Cause.LEAK, "agent grows", pool="ram", owner="agent", exhausted_in_s=500),)
    world.steps_for(2)
    world.findings = ()
    assert state(world)["agent_figures_doubted"] == "agent grows", "on the disk, for a launcher that is killed"
    before = world.last(Role.AGENT)
    before.end(1)
    world.steps_while(lambda: world.last(Role.AGENT) is before)
    world.journal.save()
    assert not state(world)["agent_figures_doubted"]
