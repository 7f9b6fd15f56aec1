"""Findings, what was done and training again are joined into incidents, and each is priced by what the files say."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from carla_launcher.show import history, sentences
from carla_launcher.show.history import RunHistory
from carla_launcher.show.incidents import Incident
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
)


def examined(
    folder: Path,
    events: Sequence[Row],
    rows: Sequence[Row] = (),
    agent: Sequence[Row] = (),
    metrics: Sequence[Row] = (),
) -> RunHistory:
    files = {"launcher-events": events, "launcher-memory": rows, "agent-events": agent, "metrics": metrics}
    for name, written in files.items():
        (folder / f"{name}.jsonl").write_text(lines(*written))
    return history.examine(RunPaths(folder))


def read_incidents(rows: Sequence[Row]) -> list[Incident]:
    """Return all incidents, those that passed too."""
    read = RunHistory()
    for row in rows:
        read.add(row)
    return list(read.gathered.values())


def only(incidents: Sequence[Incident]) -> Incident:
    (incident,) = incidents
    return incident


def test_one_looks_findings_are_named_by_the_gravest() -> None:
    rows = [finding(100, "foreign_process", "blender took 1200 MiB", "vram:0", "blender"), *crash(100.01, 115)]
    incident = only(read_incidents(rows))
    assert incident.cause == "simulator_crash"
    assert incident.sentences[-1] == "blender took 1200 MiB"


def test_what_fails_during_a_repair_belongs_to_it() -> None:
    repair = crash(100, 200)
    within = [finding(150, "agent_crash", CRASHED, owner="agent"), over(155, "agent_crash", owner="agent")]
    incident = only(read_incidents([*repair[:-1], *within, repair[-1], *agent_again(200, CRASHED, 215)]))
    assert [(pause.from_s, pause.until_s) for pause in incident.pauses] == [(100, 200), (200, 215)]


def test_a_crash_during_a_shortage_is_another_incident() -> None:
    short = "disk has 95 MiB free, 512 should be"
    rows = [
        finding(50, "pressure", short, "disk"),
        event(50, "waiting", short, incident="i1", diagnosis="pressure", reason="no rung is left that helps"),
        *crash(100, 115, "i2"),
        over(3600, "pressure", "disk"),
    ]
    short_of_disk, crashed = read_incidents(rows)
    assert [action.event for action in short_of_disk.actions] == ["waiting"]
    assert short_of_disk.over_s == 3600
    assert [action.event for action in crashed.actions] == ["simulator_restart"]
    assert crashed.over_s == 115


def test_an_action_belongs_to_the_incident_that_it_names() -> None:
    rows = [
        finding(10, "leak", "simulator holds 4900 MiB and grows by 20 MiB a minute", "vram:0", "simulator"),
        finding(20, "pressure", "ram has 100 MiB free, 256 should be", "ram", incident="i2"),
        event(70, "draining", "a sentence that was worded anew", incident="i1"),
        event(71, "request_answered", incident="i1", kind="drain", ok=True),
        event(71, "simulator_restart", "another one", incident="i1"),
        event(90, "simulator_healthy", incident="i1"),
        event(92, "request_answered", incident="i1", kind="resume", ok=True),
    ]
    leak, pressure = read_incidents(rows)
    assert [action.event for action in leak.actions] == ["draining", "simulator_restart"]
    assert [(pause.from_s, pause.until_s) for pause in leak.pauses] == [(70, 92)]
    assert not pressure.actions


def test_a_drain_that_nobody_answered_isnt_waited_for() -> None:
    said = "restores carla_low (Low)"
    rows = [
        event(10, "rung_left", "carla_low (Low) fitted for 600 s", rung="carla_low (Low)"),
        event(10, "draining", said),
        event(70, "request_unanswered", kind="drain", id=1),
        event(70, "simulator_restart", said),
        event(85, "simulator_healthy"),
    ]
    restore = only(read_incidents(of("i1", rows)))
    assert restore.cause == "restore"
    assert restore.pauses[-1].until_s == 85


def test_a_killed_launcher_is_an_incident_an_ended_one_isnt() -> None:
    first = [event(10, "run_started"), event(20, "verified")]
    again = [event(100, "run_started"), event(101, "agent_starts", resume=True), event(120, "verified")]
    gone = only(read_incidents([*first, *of("i1", again)]))
    assert (gone.cause, gone.began_s, gone.pauses[0].until_s) == ("launcher_gone", 20, 120)
    assert not read_incidents([*first, event(30, "run_ended", exit_code=75), *again])


def test_a_launcher_lived_until_its_last_line_of_either_file(tmp_path: Path) -> None:
    run = RunPaths(tmp_path)
    first = [event(10, "run_started"), event(20, "verified")]
    again = [*of("i1", [event(100, "run_started"), event(120, "verified")]), event(150, "run_ended", exit_code=0)]
    alive = [{"time": at, "phase": "collecting", "step": at} for at in (30, 60, 90, 130)]
    for path, rows in ((run.launcher_events, [*first, *again]), (run.launcher_memory, alive)):
        path.write_text(lines(*rows), encoding="utf-8")
    reported = history.examine(run)
    assert [(each.from_s, each.until_s) for each in reported.sessions] == [(10, 90), (100, 150)]
    (gone,) = reported.incidents
    assert (gone.cause, gone.began_s, gone.cost.stood[0][0]) == ("launcher_gone", 90, 90)


def test_an_agent_that_goes_on_without_its_launcher_never_stood() -> None:
    adopted = [event(100, "run_started"), event(100, "simulator_adopted"), event(100, "agent_adopted")]
    adopted = of("i1", [*adopted, event(101, "simulator_healthy")])
    gone = only(read_incidents([event(10, "run_started"), event(20, "verified"), *adopted]))
    assert not gone.pauses


def test_the_fault_that_ended_the_run_is_marked(tmp_path: Path) -> None:
    said = "the simulator ended by itself (signal 11)"
    rows = [
        finding(10, "simulator_crash", said, owner="simulator"),
        event(10, "crash_loop", f"{said}, and its 5 restarts are spent", incident="i1"),
        event(11, "run_ended", "another sentence", incident="i1", exit_code=70),
    ]
    (reported,) = examined(tmp_path, rows).incidents
    assert reported.ended_run
    assert sentences.back(reported) == "the run ended"


def test_a_failure_at_the_files_end_is_told(tmp_path: Path) -> None:
    (reported,) = examined(tmp_path, [finding(10, "agent_crash", CRASHED, owner="agent")]).incidents
    assert sentences.done(reported) == ["nothing"]
    assert reported.is_fault


def test_unusual_sizes_and_findings_that_passed_are_no_incidents(tmp_path: Path) -> None:
    rows = [
        finding(10, "out_of_band", "the simulator holds 2600 MiB", "ram", "simulator"),
        finding(20, "foreign_process", "blender took 300 MiB", "vram:0", "blender", "i2"),
        over(30, "foreign_process", "vram:0", "blender", "i2"),
    ]
    found = examined(tmp_path, rows)
    assert not found.incidents
    assert [(each.began_s, each.cause) for each in found.passed] == [(20, "foreign_process")]
    assert sentences.overview(found)[-1].startswith("No incident")


# What it cost


SILENT = "the agent has given no heartbeat for 62 s, 60 are allowed"
HUNG = [
    finding(152, "agent_hang", SILENT, owner="agent"),
    over(153, "agent_hang", owner="agent"),
    *agent_again(153, SILENT, 170),
]
REPLACED = [
    finding(125, "collector_hang", "a call has been out for 25 s", owner="agent", no_tick_for_s=25.0),
    over(130, "collector_hang", owner="agent"),
]
STALLED = [memory(80, 900), memory(90, 1000), *(memory(at, 1000) for at in range(100, 160, 10)), memory(180, 1010)]
GROWS = [memory(90, 1000), memory(100, 1100), memory(110, 1140), memory(120, 1140), memory(130, 1190)]
READY = {"time": 121.5, "event": "collector_ready", "steps": 1100}


@pytest.mark.parametrize(
    ("events", "rows", "agent", "stood"),
    [
        pytest.param(crash(104, 115), GROWS, [], (104, 130), id="until steps grow again"),
        pytest.param(crash(104, 115), [*GROWS, memory(140, 1290)], [], (104, 125), id="between two lines by the speed"),
        pytest.param(
            crash(104, 115), [GROWS[1], memory(110, 1100), memory(130, 1150)], [READY], (104, 121.5), id="by its word"
        ),
        pytest.param(crash(104, 115), [GROWS[1], memory(2000, 1150)], [], (104, 115), id="not for an evaluation"),
        pytest.param(HUNG, STALLED, [], (90, 180), id="a hang from when nothing went on"),
        pytest.param(REPLACED, [], [], (100, 130), id="a collector that the agent replaces"),
    ],
)
def test_training_stood_until_it_really_drove_again(
    tmp_path: Path, events: list[Row], rows: list[Row], agent: list[Row], stood: tuple[float, float]
) -> None:
    cost = examined(tmp_path, events, rows, agent).incidents[0].cost
    assert (cost.stood, cost.back_s) == ((stood,), stood[1])


@pytest.mark.parametrize("told_by", ["timeline", "metrics"])
def test_repeated_updates_and_lost_steps_are_counted(tmp_path: Path, told_by: str) -> None:
    rows = [memory(90, 1000), memory(100, 1100), memory(130, 1100)]
    metrics: list[Row] = [{"step": 1100, "train/n_updates": 700}] if told_by == "metrics" else []
    if told_by == "timeline":
        rows[1]["updates"] = 700
    resumed = [{"time": 110, "event": "resumed", "steps": 1095, "updates": 640}]
    cost = examined(tmp_path, agent_crash(104, 120), rows, resumed, metrics).incidents[0].cost
    assert (cost.updates_repeated, cost.steps_lost) == (60, 5)


def test_nothing_is_claimed_where_nobody_told(tmp_path: Path) -> None:
    found = examined(tmp_path, agent_crash(104, 120))
    assert (found.incidents[0].cost.updates_repeated, found.incidents[0].cost.steps_lost) == (None, None)
    assert "unknown how many updates" in sentences.overview(found)[-1]


def test_who_held_what_is_told_of_the_tightest_moment(tmp_path: Path) -> None:
    said = "the agent ran out of GPU memory (exit code 71)"
    rows = [memory(80, 900, free=900), memory(95, 1000, free=20), memory(103, 1100, free=60), memory(104.5, 1100, 4000)]
    rows.append(memory(112, 1100, free=1))
    found = examined(tmp_path, [finding(104, "agent_cuda_oom", said), *agent_again(104, said, 120)], rows)
    assert found.incidents[0].tightest is not None
    assert (found.incidents[0].pool, found.incidents[0].tightest.free) == ("vram:0", 20)
    holders = ", ".join(sentences.holders(found.incidents[0].tightest))
    assert holders == "simulator 4\u202f800 MiB, Xorg 85 MiB, others 840 MiB, free 20 MiB"


def test_of_two_cards_the_fuller_one_is_told(tmp_path: Path) -> None:
    cards = {
        "vram:0": {"total": 6000.0, "free": 900.0, "owners": {"agent": 600.0}},
        "vram:10": {"total": 24_000.0, "free": 1000.0, "owners": {"agent": 9000.0}},
    }
    said = "the agent ran out of GPU memory (exit code 71)"
    struck = [finding(104, "agent_cuda_oom", said), *agent_again(104, said, 120)]
    assert examined(tmp_path, struck, [{"time": 100, "step": 5, "pools": cards}]).incidents[0].pool == "vram:10"


def test_times_of_two_launches_are_added(tmp_path: Path) -> None:
    first = [event(0.5, "run_started"), event(100.5, "run_ended", "stopped on request", exit_code=75)]
    found = examined(tmp_path, [*first, event(9000, "run_started"), event(9050, "run_ended", "done", exit_code=0)])
    assert found.ran_s == 150
    assert sentences.overview(found)[0].startswith("Ran for 0:02:30 in 2 launches")
