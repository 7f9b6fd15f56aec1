"""Findings, what is done about them and what becomes of it carry one id, within a run and after a launcher's death."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from carla_launcher.act.effects import State
from carla_launcher.act.launcher_state import recall
from carla_launcher.act.runtime import Role
from carla_launcher.decide.detectors.causes import Cause, Finding
from carla_run.paths import RunPaths
from carla_run.readers import read_lines
from tests.unit.launcher.simulated import World

SHORT = Finding(Cause.PRESSURE, "vram:0 has 100 MiB free, 512 should be", "vram:0")


@pytest.fixture
def world(tmp_path: Path) -> World:
    running = World(RunPaths(tmp_path / "run"))
    running.steps_until(State.RUNNING)
    running.steps_for(60)
    return running


def rows(world: World) -> list[dict[str, Any]]:
    return read_lines(world.run.launcher_events)


def test_all_that_a_crash_leads_to_carries_its_id(world: World) -> None:
    before = len(rows(world))
    world.last(Role.SIMULATOR).end(139)
    world.steps_for(120)
    reported = rows(world)
    named = {row["event"] for row in reported if row.get("incident") == "i1"}
    assert {"finding", "finding_over", "simulator_restart", "simulator_starts", "simulator_healthy"} <= named
    assert not [row for row in reported[:before] if "incident" in row]
    assert world.journal.state.incident == ""
    assert world.journal.state.incidents == 1


def test_an_agent_that_comes_back_names_its_incident(world: World) -> None:
    world.last(Role.AGENT).end(71)
    world.steps_for(5)
    world.steps_until(State.RUNNING)
    ids = {row["event"]: row.get("incident") for row in rows(world)}
    events = ("agent_ended", "finding", "rung_taken", "agent_restart", "agent_starts", "verified")
    assert {ids[event] for event in events} == {"i1"}


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
    recalled = recall(world.run)
    assert recalled is not None
    assert (recalled.state.incidents, recalled.state.incident) == (2, "i2")
    world.launch()
    world.steps_until(State.RUNNING)
    assert world.events("agent_adopted")[-1]["incident"] == "i2"
    assert world.events("verified")[-1]["incident"] == "i2"
    world.last(Role.SIMULATOR).end(139)
    world.steps_for(60)
    assert world.events("simulator_restart")[-1]["incident"] == "i3"


def test_what_ended_the_run_is_named(world: World, tmp_path: Path) -> None:
    asked = World(RunPaths(tmp_path / "asked"))
    asked.steps_until(State.RUNNING)
    asked.stop.count = 1
    asked.steps_until(State.STOPPED)
    assert "incident" not in asked.events("run_ended")[-1]
    world.findings = (Finding(Cause.GPU_LOST, "the GPU is lost"),)
    world.steps_until(State.STOPPED)
    assert world.events("run_ended")[-1]["incident"] == world.events("finding")[-1]["incident"]
