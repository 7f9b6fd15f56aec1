"""Findings, what is done about them and what becomes of it carry one id, within a run and after a launcher's death."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from carla_launcher.act.effects import State
from carla_launcher.act.launcher_state import read_previous
from carla_launcher.act.runtime import Role
from carla_launcher.decide.detectors.causes import Cause, Finding
from carla_launcher.show import history, sentences
from carla_launcher.show.history import RunHistory
from carla_run.paths import RunPaths
from carla_run.readers import read_lines
from tests.unit.launcher.simulated import DEAD, HEALTHY, World

SHORT = Finding(Cause.PRESSURE, "vram:0 has 100 MiB free, expected 512 MiB", "vram:0")


@pytest.fixture
def world(tmp_path: Path) -> World:
    running = World(RunPaths(tmp_path / "run"))
    running.steps_until(State.RUNNING)
    running.steps_for(60)
    return running


def rows(world: World) -> list[dict[str, Any]]:
    return read_lines(world.run.launcher_events)


def told(world: World) -> RunHistory:
    """Return what the run's files say of it."""
    return history.examine(world.run)


def test_a_crash_and_its_repair_are_one_incident(world: World) -> None:
    before, struck_s = len(rows(world)), world.clock.now_s
    world.last(Role.SIMULATOR).end(139)
    world.health = lambda: DEAD
    world.steps_for(10)
    world.health = lambda: HEALTHY
    world.steps_for(120)
    named = {row["event"] for row in rows(world) if row.get("incident") == "i1"}
    assert {"finding", "finding_over", "simulator_restart", "simulator_starts", "simulator_healthy"} <= named
    assert not [row for row in rows(world)[:before] if "incident" in row]
    assert (world.journal.state.incident, world.journal.state.incidents) == ("", 1)
    (crashed,) = told(world).incidents
    (healthy,) = [row["time"] for row in world.events("simulator_healthy") if row["time"] > struck_s]
    ((from_s, until_s),) = crashed.standstills
    assert crashed.cause == "simulator_crash"
    assert [action.event for action in crashed.actions] == ["simulator_restart"]
    assert abs(crashed.began_s - struck_s) <= 2
    assert abs(from_s - struck_s) <= 1
    assert healthy <= until_s <= healthy + 2
    assert told(world).events["simulator_restart"] == world.journal.state.simulator_restarts == 1


def test_out_of_memory_and_the_new_start_are_one_incident(world: World) -> None:
    world.last(Role.AGENT).end(71)
    world.steps_for(5)
    world.steps_until(State.RUNNING)
    ids = {row["event"]: row.get("incident") for row in rows(world)}
    events = ("agent_ended", "finding", "rung_taken", "agent_restart", "agent_starts", "verified")
    assert {ids[event] for event in events} == {"i1"}
    (incident,) = told(world).incidents
    assert incident.cause == "agent_cuda_oom"
    assert [action.event for action in incident.actions] == ["rung_taken", "agent_restart"]
    verified = world.events("verified")[-1]["time"]
    world.steps_for(2)
    (incident,) = told(world).incidents
    assert verified <= incident.standstills[0][1] <= verified + 2
    world.steps_while(lambda: not world.events("rung_left"))
    world.steps_for(120)
    assert [each.cause for each in told(world).incidents] == ["agent_cuda_oom", "restore"]
    assert dict(told(world).faults) == {"agent_cuda_oom": 1}
    assert "1 step down the ladder, 1 restored" in " ".join(sentences.overview(told(world)))


def test_an_agent_that_no_finding_explains_is_an_incident(world: World) -> None:
    world.diagnose = lambda _seen: ()
    world.last(Role.AGENT).end(3)
    world.steps_for(5)
    world.steps_until(State.RUNNING)
    (incident,) = told(world).incidents
    assert (incident.cause, incident.sentences) == ("agent_crash", ["the agent ended (exit code 3)"])
    assert [action.event for action in incident.actions] == ["agent_restart"]


def test_trouble_that_comes_back_is_another_incident(world: World) -> None:
    found = replace(SHORT, deficit_mib=0.0)
    for sentence in ("100 MiB", "90 MiB"):
        world.findings = (replace(found, sentence=sentence),)
        world.steps_for(5)
    world.findings = ()
    world.steps_for(5)
    world.findings = (found,)
    world.steps_for(5)
    assert [row["incident"] for row in world.events("finding", "finding_over")] == ["i1", "i1", "i2"]


def test_what_one_look_finds_is_one_incident(world: World) -> None:
    world.findings = (SHORT, replace(SHORT, cause=Cause.LEAK, owner="Xorg"))
    world.steps_for(3)
    assert {row["incident"] for row in world.events("finding")} == {"i1"}


def test_ids_go_on_after_a_launcher_that_was_killed(world: World) -> None:
    world.findings = (replace(SHORT, deficit_mib=0.0),)
    world.steps_for(5)
    world.findings = ()
    recalled = read_previous(world.run)
    assert recalled is not None
    assert (recalled.state.incidents, recalled.state.incident) == (2, "i2")
    world.launch()
    world.steps_until(State.RUNNING)
    assert world.events("agent_adopted")[-1]["incident"] == "i2"
    assert world.events("verified")[-1]["incident"] == "i2"
    world.last(Role.SIMULATOR).end(139)
    world.steps_for(60)
    assert world.events("simulator_restart")[-1]["incident"] == "i3"


def test_killed_launcher_that_took_its_programs_along_cost_time(world: World) -> None:
    for program in world.programs:
        program.end(143)
    killed_s = world.clock.now_s
    world.clock.sleep(60)
    world.launch()
    world.steps_until(State.RUNNING)
    world.steps_for(10)
    (gone,) = told(world).incidents
    ((from_s, until_s),) = gone.standstills
    assert (gone.name, gone.back_s) == ("i1", until_s)
    assert killed_s - 15 <= from_s <= killed_s
    assert killed_s + 60 < until_s < killed_s + 80


def test_what_ended_the_run_is_named(world: World, tmp_path: Path) -> None:
    asked = World(RunPaths(tmp_path / "asked"))
    asked.steps_until(State.RUNNING)
    asked.stop.count = 1
    asked.steps_until(State.STOPPED)
    assert "incident" not in asked.events("run_ended")[-1]
    world.findings = (Finding(Cause.GPU_LOST, "the GPU is lost"),)
    world.steps_until(State.STOPPED)
    assert world.events("run_ended")[-1]["incident"] == world.events("finding")[-1]["incident"]
