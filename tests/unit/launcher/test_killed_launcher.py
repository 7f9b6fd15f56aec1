"""SIGKILL of the launcher before and after everything it writes or does, as the code itself enumerates it.

The programs outlive it as containers do (``left``), or end with it as local processes do.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from carla_launcher.act.effects import State
from carla_launcher.act.runtime import Role
from carla_launcher.decide.detectors.causes import Cause, Finding
from carla_run.paths import RunPaths
from carla_run.readers import read_object
from tests.unit.launcher.simulated import KilledError, World


def short(deficit_mib: float) -> tuple[Finding, ...]:
    return (Finding(Cause.PRESSURE, "vram:0 is short", pool="vram:0", deficit_mib=deficit_mib),)


def story(world: World) -> None:
    """A life with everything in it: start, crash, a live step, a step by restart, a quality, a restore."""
    world.steps_until(State.RUNNING)
    world.last(Role.SIMULATOR).end(139)
    world.steps_for(10)
    for deficit_mib in (60, 400, 650):
        world.findings = short(deficit_mib)
        wait_for_a_step(world)
        world.findings = ()
        world.steps_for(60)
    world.free_mib = 4000
    world.steps_while(lambda: len(world.journal.state.taken) == 3, at_most=20_000)
    world.steps_for(60)


def wait_for_a_step(world: World) -> None:
    before = len(world.journal.state.taken)
    world.steps_while(lambda: len(world.journal.state.taken) == before, at_most=2000)


def outlives(_world: World) -> None:
    pass


def ends_with_it(world: World) -> None:
    for program in world.programs:
        program.end(75 if program.role is Role.AGENT else 143)


OTHERWISE = (*((ends_with_it, share) for share in (0, 2, 3)), *((outlives, share) for share in (1, 2, 3)))


def test_the_story_has_everything_in_it(tmp_path: Path) -> None:
    world = World(RunPaths(tmp_path / "run"), free_mib=300)
    story(world)
    for name in ("start simulator", "start agent", "ask apply", "ask drain", "ask resume", "ask checkpoint"):
        assert name in world.diary
    assert len(world.events("rung_taken")) == 3
    assert len(world.events("rung_left")) == 1
    assert world.points > 200


@pytest.mark.parametrize(
    ("fate", "share"),
    [
        *((outlives, 0), (ends_with_it, 1)),  # half of the points; all of them, both ways, with `long`
        *(pytest.param(fate, share, marks=pytest.mark.long) for fate, share in OTHERWISE),
    ],
)
def test_next_launcher_stands_on_the_same_rung(tmp_path: Path, fate: Callable[[World], None], share: int) -> None:
    whole = World(RunPaths(tmp_path / "whole"), free_mib=300)
    story(whole)
    for point in range(1 + share, whole.points + 1, 4):
        check_point(tmp_path / f"{point}", point, fate)


def check_point(folder: Path, point: int, fate: Callable[[World], None]) -> None:
    world = World(RunPaths(folder), free_mib=300, die_at=point)
    with pytest.raises(KilledError):
        story(world)
    fate(world)
    world.findings = ()
    recorded = read_object(world.run.launcher_state).get("taken", [])
    world.launch()
    world.steps_until(State.RUNNING, at_most=5000)
    what = f"killed at point {point}, {world.point_names[point // 2 - 2 : point // 2 + 1]}"
    for role in Role:
        assert len(world.living(role)) == 1, f"{what}: {role} duplicate or missing"
    state = read_object(world.run.launcher_state)
    assert state["taken"] == recorded, f"{what}: another rung"
    held = {key: value for each in recorded for key, value in each["values"].items()}
    agent = world.last(Role.AGENT)
    assert {key: value for key, value in agent.overrides.items() if value is not None} == held, what
    quality = [each["quality"] for each in recorded if each["quality"]]
    assert world.last(Role.SIMULATOR).start.quality == (quality or ["Epic"])[-1], what
    assert not world.drained, f"{what}: the agent waits for ever"
