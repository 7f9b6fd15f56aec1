"""Report, status and live page of an evaluation: its routes, what was driven again and why, the simulator's deaths."""

from __future__ import annotations

import io
import json
from pathlib import Path

import pytest
from rich.console import Console

from carla_launcher import config
from carla_launcher.plugins.page.buttons import Buttons
from carla_launcher.plugins.page.parts import Parts
from carla_launcher.show import dashboard, report, routes
from carla_run.locks import Lock
from carla_run.paths import RunPaths, newest_first
from tests.unit.launcher.journalled import Row, event, finding, lines, of, over

KILLED, NOW = "the simulator ended by itself (signal 9)", 2000.0
HELD = {"simulator": {"ram": 812.0}, "program": {"ram": 240.0, "vram": 1024.0}}


def drive(at_s: float, item: str, number: int, outcome: str, why: str | None, cause: str) -> list[Row]:
    about: Row = {"item": item, "drive": number}
    ended: Row = {**about, "outcome": outcome, "why": why, "exit_code": 0, "took_s": 60.0, "peak_mib": HELD}
    return [
        event(at_s, "drive_starts", **about, simulator=0, folder=f"drives/{item}/{number}"),
        event(at_s + 60, "drive_ended", cause, **ended),
    ]


def lost(at_s: float, incident: str, item: str, number: int) -> list[Row]:
    starts, ended = drive(at_s, item, number, "again", "simulator", KILLED)
    rows = [
        finding(at_s + 59, "simulator_crash", KILLED, owner="simulator", incident=incident),
        ended,
        event(at_s + 61, "simulator_restart", KILLED, simulator=0),
        over(at_s + 65, "simulator_crash", owner="simulator", incident=incident),
    ]
    return [starts, *of(incident, rows)]


EVENTS = [
    event(1000, "run_started", config="night.yaml"),
    event(1000, "items", items=["straight", "<b>kills</b>", "3", "4"], drives=2),
    *drive(1010, "straight", 1, "done", None, "it is done"),
    *lost(1100, "i1", "<b>kills</b>", 1),
    *drive(1200, "3", 1, "failed", None, "it failed, and that is its result"),
    *lost(1300, "i2", "<b>kills</b>", 2),
    event(1400, "drive_starts", item="4", drive=1, simulator=0, folder="drives/4/1"),
]
AGAIN = "1 of them driven again: 1 because the simulator was lost"
SENTENCE = f"4 items: 1 open, 1 done, 1 failed by itself, 1 left; 5 drives, {AGAIN}"
"""Of a launcher that is gone; as long as one lives, the last drive is under way."""
POOLS = {"ram": {"total": 8000.0, "free": 5000.0, "owners": {"simulator": 800.0, "agent": 240.0}}}


@pytest.fixture
def night(tmp_path: Path) -> RunPaths:
    run = RunPaths(tmp_path / "night")
    run.path.mkdir()
    run.launcher_events.write_text(lines(*EVENTS))
    run.launcher_memory.write_text(lines(*({"time": at_s, "pools": POOLS} for at_s in range(1000, 1400, 10))))
    state = {"state": "running", "host": "127.0.0.1", "port": 2000, "evaluation": "night.yaml", "simulator_restarts": 2}
    run.launcher_state.write_text(json.dumps(state))
    return run


def test_the_report_has_routes_and_deaths_of_the_simulator(night: RunPaths) -> None:
    report.write(night)
    page, text = night.report.read_text(), night.report.with_suffix(".md").read_text()
    assert "Ran for 0:06:40. 4 items: 1 under way, 1 done, 1 failed by itself, 1 left" in text
    assert "2 faults: simulator crashed 2. Restarts: simulator 2. Drives without a result took 2 min 00 s." in text
    for expected in ("<h2>Routes</h2>", "<h2>Incidents</h2>", "<h2>Memory over the run</h2>", "failed by itself"):
        assert expected in page
    assert f"drive 2: {KILLED}" in page
    assert "1024 MiB vram" in page
    assert "&lt;b&gt;kills&lt;/b&gt;, drive 2 has no result" in page
    assert "<b>kills" not in page
    assert "training" not in page.replace("Routes that were not used in training", "")


def test_restarts_without_an_incident_are_told(night: RunPaths) -> None:
    failed = drive(1010, "3", 1, "again", "exit", "the program ended with 3")
    night.launcher_events.write_text(lines(*EVENTS[:2], *failed, event(1080, "simulator_restart", simulator=0)))
    report.write(night)
    text = night.report.with_suffix(".md").read_text()
    assert "No incidents. Restarts: simulator 1. Drives without a result took 1 min 00 s." in text


def test_status_has_the_table_and_what_a_killed_launcher_left(night: RunPaths) -> None:
    found = dashboard.status(night, NOW)
    assert dashboard.figures(found)["routes"] == SENTENCE
    assert found["routes"]["routes"][3]["drives"][0]["why"] == "launcher_killed"
    console = Console(file=io.StringIO(), width=120)
    console.print(dashboard.view(found))
    assert "failed by itself" in console.file.getvalue()  # type: ignore[attr-defined]
    assert dashboard.ending(found).endswith("the same `routes` command continues.")
    lock = Lock(night.launcher_lock)
    assert dashboard.status(night, NOW)["routes"]["under_way"] == 1
    lock.release()
    assert newest_first(night.path.parent) == [night]


def test_only_drives_that_have_ended_took_time(night: RunPaths) -> None:
    items = event(1000, "items", items=["straight", "<b>kills</b>", "3", "4", "5"], drives=2)
    night.launcher_events.write_text(lines(EVENTS[0], items, *EVENTS[2:]))
    lock = Lock(night.launcher_lock)
    rows = routes.rows(dashboard.status(night, NOW)["routes"])
    lock.release()
    took = {row[0]: (row[1], row[routes.HEADS.index("took")]) for row in rows}
    assert (took["straight"], took["<b>kills</b>"]) == (("done", "1 min 00 s"), ("left", "2 min 00 s"))
    assert (took["4"], took["5"]) == (("under way", ""), ("open", ""))


def test_the_page_shows_routes_and_no_camera(night: RunPaths) -> None:
    parts = Parts(night, Buttons(night, config.load()))
    assert '<section class="views" hidden>' in parts.page()
    assert 'data-do="checkpoint"' not in parts.page()
    shown = {name: part["html"] for name, part in parts.changed((), NOW)["parts"].items()}
    assert "&lt;b&gt;kills&lt;/b&gt;" in shown["routes"]
    assert "drive 2 has no result" in shown["incidents"]
    assert "items driven" in shown["figures"]
    assert "style=" not in "".join(shown.values())
