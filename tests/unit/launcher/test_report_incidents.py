"""Findings, what was done and training again are joined into incidents, each with the cost that the journal tells."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from carla_launcher.show import history, report, sentences
from carla_launcher.show.history import RunHistory
from carla_launcher.show.incidents import Incident
from carla_launcher.show.run_time import RunTime
from carla_run.paths import RunPaths
from tests.unit.launcher.journalled import (
    CRASHED,
    Row,
    agent_again,
    agent_crash,
    crash,
    event,
    finding,
    lines,
    memory,
    of,
    over,
    stood,
)


def examined(folder: Path, events: Sequence[Row], rows: Sequence[Row] = (), **launcher: Any) -> RunHistory:
    for name, written in {"launcher-events": events, "launcher-memory": rows}.items():
        (folder / f"{name}.jsonl").write_text(lines(*written))
    (folder / "launcher.json").write_text(json.dumps(launcher))
    return history.examine(RunPaths(folder))


def read_incidents(rows: Sequence[Row]) -> list[Incident]:
    """Return all incidents, those without action too."""
    read = RunHistory()
    read.take_up(rows)
    return list(read.gathered.values())


def only(incidents: Sequence[Incident]) -> Incident:
    (incident,) = incidents
    return incident


def test_findings_are_named_by_the_gravest() -> None:
    rows = [finding(100, "foreign_process", "blender took 1200 MiB", "vram:0", "blender"), *crash(100.01, 115)]
    incident = only(read_incidents(rows))
    assert incident.cause == "simulator_crash"
    assert incident.sentences[-1] == "blender took 1200 MiB"


def test_failure_during_a_repair_belongs_to_it() -> None:
    repair = crash(100, 200)
    within = [finding(150, "agent_crash", CRASHED, owner="agent"), over(155, "agent_crash", owner="agent")]
    incident = only(read_incidents([*repair[:-1], *within, repair[-1], *agent_again(200, CRASHED, 215)]))
    assert incident.standstills == [(100, 200), (200, 215)]


def test_crash_during_a_shortage_is_another_incident() -> None:
    short = "disk has 95 MiB free, expected 512 MiB"
    rows = [
        finding(50, "pressure", short, "disk"),
        event(50, "waiting", short, incident="i1", diagnosis="pressure", reason="no rung is left that helps"),
        *crash(100, 115, "i2"),
        over(3600, "pressure", "disk"),
    ]
    assert [[action.event for action in each.actions] for each in read_incidents(rows)] == [
        ["waiting"],
        ["simulator_restart"],
    ]


def test_action_belongs_to_the_incident_it_names() -> None:
    rows = [
        finding(10, "leak", "simulator holds 4900 MiB and grows by 20 MiB a minute", "vram:0", "simulator"),
        finding(20, "pressure", "ram has 100 MiB free, expected 256 MiB", "ram", incident="i2"),
        event(70, "draining", "a sentence that was worded anew", incident="i1"),
        event(71, "simulator_restart", "another one", incident="i1"),
        stood(71, 92),
    ]
    leak, pressure = read_incidents(rows)
    assert [action.event for action in leak.actions] == ["draining", "simulator_restart"]
    assert leak.standstills == [(71, 92)]
    assert not pressure.actions


def test_killed_launcher_is_an_incident() -> None:
    first = [event(10, "run_started"), event(20, "verified")]
    again = [event(100, "run_started"), event(101, "agent_starts", resume=True), event(120, "verified")]
    gone = only(read_incidents([*first, *of("i1", [*again, stood(20, 120)])]))
    assert (gone.cause, gone.began_s, gone.standstills, gone.back_s) == ("launcher_gone", 20, [(20, 120)], 120)
    assert not read_incidents([*first, event(30, "run_ended", exit_code=75), *again])


def test_launcher_lived_until_its_last_line(tmp_path: Path) -> None:
    first = [event(10, "run_started"), event(20, "verified")]
    again = [*of("i1", [event(100, "run_started"), event(120, "verified")]), event(150, "run_ended", exit_code=0)]
    alive = [{"time": at, "phase": "collecting", "step": at} for at in (30, 60, 90, 130)]
    reported = examined(tmp_path, [*first, *again], alive)
    assert [(each.from_s, each.until_s) for each in reported.sessions] == [(10, 90), (100, 150)]
    gone = only(reported.incidents)
    assert (gone.cause, gone.began_s, gone.standstills) == ("launcher_gone", 90, [])


@pytest.mark.parametrize(
    ("rows", "launcher", "back", "price"),
    [
        (crash(100, 115), {}, "after 15 s", "15 s"),
        (
            agent_crash(100, 120, steps_lost=5, updates_repeated=60),
            {},
            "after 20 s",
            "20 s, 5 steps lost, ≥ 60 updates ",
        ),
        (crash(100, 115)[:-1], {"standstill": {"incidents": ["i1"], "from_s": 99}}, "not before the run ended", "16 s"),
        ([*crash(100, 115)[:-1], stood(99, 115, goes_on=False)], {}, "not before the run ended", "16 s"),
        ([*crash(100, 115)[:-1], event(120, "run_ended", incident="i1")], {"standstill": None}, "the run ended", "–"),
        (crash(100, 115)[:-1], {"standstill": None}, "never stopped", "–"),
        (crash(100, 115)[:-1], {}, "not known", "–"),
    ],
)
def test_cost(tmp_path: Path, rows: list[Row], launcher: dict[str, Any], back: str, price: str) -> None:
    reported = examined(tmp_path, [event(90, "run_started"), *rows], **launcher)
    incident = only(reported.incidents)
    shown = report.incident_row(incident, RunTime(reported.sessions), reported.records_standstills)
    assert shown["back"] == back
    assert shown["price"].startswith(price)


def test_standstill_of_two_incidents_is_lost_once(tmp_path: Path) -> None:
    hung = finding(90, "collector_hang", "a call has been out for 25 s")
    stands = stood(65, 120, "i2", incidents=["i1", "i2"], updates_repeated=60)
    found = examined(tmp_path, [hung, *of("i2", agent_crash(100, 120)[:-1]), stands])
    assert [(each.standstills, each.updates_repeated) for each in found.incidents] == [
        ([(65, 120)], 0),
        ([(65, 120)], 60),
    ]
    assert "stood still 1 time, for 55 s" in sentences.overview(found)[-1]


def test_older_log_says_that_costs_are_unknown(tmp_path: Path) -> None:
    assert sentences.overview(examined(tmp_path, crash(100, 115)[:-1]))[-1] == sentences.OLDER


def test_costs_are_summed(tmp_path: Path) -> None:
    unknown = agent_crash(300, 320, steps_lost=None, updates_repeated=None)
    lost = agent_crash(100, 120, steps_lost=5, updates_repeated=60)
    rows = [event(0.5, "run_started"), *lost, *of("i2", unknown), event(400, "run_ended", exit_code=0)]
    assert sentences.overview(examined(tmp_path, rows))[-1] == (
        "Training stood still 2 times, for 40 s in total (10.0%), 5 finished steps lost and at least 60 updates "
        "repeated (unknown for 1 incident)."
    )
    assert "an unknown number of updates" in sentences.overview(examined(tmp_path, unknown))[-1]


def test_a_standstill_until_the_next_launch_is_a_part_of_the_whole(tmp_path: Path) -> None:
    first = [event(10, "run_started"), event(20, "verified")]
    again = [*of("i1", [event(160, "run_started"), event(170, "verified"), stood(60, 170)]), event(210, "run_ended")]
    steps = [memory(at_s, step) for at_s, step in ((20, 0), (60, 400), (170, 400), (210, 800))]
    found = examined(tmp_path, [*first, *again], steps)
    assert found.steps_per_s == pytest.approx(10.0)
    said = sentences.overview(found)
    assert "10.0 steps/s while training" in said[0]
    assert "for 1 min 50 s in total (55.0%), about 1\u202f100 steps missed" in said[-1]
    shown = report._events(RunPaths(tmp_path), found)
    assert shown is not None
    assert [each["when"] for each in shown["shown"]] == [
        "0:00:00",
        "0:00:10",
        "0:00:50",
        "0:01:00",
        "0:01:00",
        "0:01:40",
    ]


def test_starts_and_evaluations_neither_slow_training_nor_miss_steps(tmp_path: Path) -> None:
    steps = [memory(at_s, step) for at_s, step in ((40, 0), (70, 300), (80, 400))]
    evaluated = [memory(at_s, 400, phase="evaluating") for at_s in (81, 100, 300)]
    rows = [event(10, "run_started"), *crash(90, 120), event(300, "run_ended", exit_code=0)]
    found = examined(tmp_path, rows, [*steps, *evaluated])
    assert found.steps_per_s == pytest.approx(400 / 41)
    assert sentences.overview(found)[-1] == (
        "Training stood still 1 time, for 30 s in total (10.3%), no finished step lost and no update repeated."
    )


def test_fault_that_ended_the_run_is_marked(tmp_path: Path) -> None:
    said = "the simulator ended by itself (signal 11)"
    rows = [
        finding(10, "simulator_crash", said, owner="simulator"),
        event(10, "crash_loop", f"{said}, and its 5 restarts are used up", incident="i1"),
        event(11, "run_ended", "another sentence", incident="i1", exit_code=70),
    ]
    assert only(examined(tmp_path, rows).incidents).ended_run


def test_simulator_that_never_came_back_is_named(tmp_path: Path) -> None:
    failed = finding(100, "simulator_not_ready", "simulator 1: it isn't ready after 300 s", owner="simulator 1")
    again = event(101, "further_simulator_restart", "it isn't ready", incident="i1", simulator=1)
    rows = [event(0, "run_started"), failed, again, again]
    missing = "From 0:01:40 on it went on without simulator 1 (simulator not ready)."
    ended = event(400, "run_ended", exit_code=0)
    found = examined(tmp_path, [*rows, ended])
    assert missing in sentences.overview(found)
    assert sentences.done(only(found.incidents)) == [
        "after 1.0 s simulator 1 restarted, the others continued (2 times)"
    ]
    up = event(150, "further_simulator_healthy", incident="i1", simulator=1)
    back = examined(tmp_path, [*rows, up, over(150, "simulator_not_ready", owner="simulator 1"), ended])
    assert missing not in sentences.overview(back)
    assert sentences.done(only(back.incidents))[-1] == "after 50 s simulator 1 answers again"
    assert missing not in sentences.overview(examined(tmp_path, [*rows, event(300, "run_started"), ended]))


def test_failure_at_the_files_end_is_told(tmp_path: Path) -> None:
    reported = only(examined(tmp_path, [finding(10, "agent_crash", CRASHED, owner="agent")]).incidents)
    assert sentences.done(reported) == ["none"]
    assert reported.is_fault


def test_findings_that_passed_are_no_incidents(tmp_path: Path) -> None:
    rows = [
        finding(10, "out_of_band", "the simulator holds 2600 MiB", "ram", "simulator"),
        finding(20, "foreign_process", "blender took 300 MiB", "vram:0", "blender", "i2"),
        over(30, "foreign_process", "vram:0", "blender", "i2"),
    ]
    found = examined(tmp_path, rows)
    assert not found.incidents
    assert [(each.began_s, each.cause) for each in found.without_action] == [(20, "foreign_process")]
    assert sentences.overview(found)[-1].startswith("No incident")


def test_holders_are_those_of_the_tightest_moment(tmp_path: Path) -> None:
    said = "the agent ran out of GPU memory (exit code 71)"
    rows = [memory(80, 900, free=900), memory(95, 1000, free=20), memory(103, 1100, free=60), memory(104.5, 1100, 4000)]
    rows.append(memory(112, 1100, free=1))
    found = examined(tmp_path, [finding(104, "agent_cuda_oom", said), *agent_again(104, said, 120)], rows)
    (reported,) = found.incidents
    assert reported.tightest is not None
    assert (reported.pool, reported.tightest.free) == ("vram:0", 20)
    holders = ", ".join(sentences.holders(reported.tightest))
    assert holders == "simulator 4\u202f800 MiB, Xorg 85 MiB, others 840 MiB, free 20 MiB"


def test_of_two_cards_the_fuller_one_is_told(tmp_path: Path) -> None:
    cards = {
        "vram:0": {"total": 6000.0, "free": 900.0, "owners": {"agent": 600.0}},
        "vram:10": {"total": 24_000.0, "free": 1000.0, "owners": {"agent": 9000.0}},
    }
    said = "the agent ran out of GPU memory (exit code 71)"
    struck = [finding(104, "agent_cuda_oom", said), *agent_again(104, said, 120)]
    assert examined(tmp_path, struck, [{"time": 100, "step": 5, "pools": cards}]).incidents[0].pool == "vram:10"


def test_a_clock_that_is_set_back_is_no_launch(tmp_path: Path) -> None:
    events = [event(7200, "run_started"), event(3700, "run_ended", "done", exit_code=0)]
    found = examined(tmp_path, events, [{"time": time_s, "step": 5, "pools": {}} for time_s in (7300, 3690)])
    assert "launches" not in sentences.overview(found)[0]


def test_times_of_two_launches_are_added(tmp_path: Path) -> None:
    first = [event(0.5, "run_started"), event(100.5, "run_ended", "stopped on request", exit_code=75)]
    found = examined(tmp_path, [*first, event(9000, "run_started"), event(9050, "run_ended", "done", exit_code=0)])
    assert found.ran_s == 150
    assert sentences.overview(found)[0].startswith("Ran for 0:02:30 in 2 launches")
