"""State and events survive whatever happens while they are written; a run has one launcher."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from carla_launcher.act.journal import Journal, lock
from carla_launcher.act.launcher_state import LauncherState, ProcessState
from carla_launcher.act.saved_config import saved_config
from carla_launcher.show import dashboard
from carla_run.events import LauncherEvent
from carla_run.exits import ExitError
from carla_run.locks import is_held
from carla_run.paths import RunPaths, newest_first
from carla_run.readers import last_lines, read_lines, read_object, read_objects
from tests.unit.beats import BEAT


@pytest.fixture
def run(tmp_path: Path) -> RunPaths:
    (tmp_path / "run").mkdir()
    return RunPaths(tmp_path / "run")


def journal(run: RunPaths, now: float = 1000.0) -> Journal:
    return Journal(run, LauncherState("run", {"map": "Lite01"}, "127.0.0.1", 2000), lambda: now)


def test_nothing_is_written_through_links(run: RunPaths) -> None:
    precious = run.path.parent / "precious"
    precious.write_text("keep me")
    for path in (run.launcher_events, run.launcher_memory, run.path / f".launcher.json.{os.getpid()}"):
        path.symlink_to(precious)
    written = journal(run)
    written.event(LauncherEvent.SIMULATOR_FAILED, "signal 11")
    written.memory({"pools": {}})
    assert precious.read_text() == "keep me"
    assert read_object(run.launcher_state)["run"] == "run"


def test_event_saves_the_state(run: RunPaths) -> None:
    written = journal(run)
    written.state = replace(written.state, simulator=ProcessState(7, "python", "log"))
    written.event(LauncherEvent.SIMULATOR_FAILED, "signal 11", in_a_row=2)
    written.event(LauncherEvent.RUN_ENDED)
    assert read_lines(run.launcher_events)[0] == {
        "time": 1000.0,
        "event": "simulator_failed",
        "cause": "signal 11",
        "in_a_row": 2,
    }
    state = read_object(run.launcher_state)
    assert (state["simulator"]["pid"], state["options"], state["updated"]) == (7, {"map": "Lite01"}, 1000.0)
    assert not list(run.path.glob("launcher.[0-9]*")), "no temporary file stays"


def test_a_torn_last_line_is_no_line(run: RunPaths) -> None:
    journal(run).event(LauncherEvent.DRAINING)
    with run.launcher_events.open("a", encoding="utf-8") as file:
        file.write('{"time": 1, "eve')
    assert [row["event"] for row in read_lines(run.launcher_events)] == ["draining"]


def test_missing_and_broken_files_read_as_empty(run: RunPaths) -> None:
    folder = run.path / "broken"
    folder.mkdir()
    broken = RunPaths(folder).config
    for content in (None, b"", b"[1", b"\xff\xfe", b"3", b"[" * 100_000, b"a: [b: }"):
        if content is not None:
            broken.write_bytes(content)
        assert (read_object(broken), read_objects(broken), read_lines(broken)) == ({}, [], [])
        assert saved_config(RunPaths(folder)) == {}


def test_a_run_has_one_launcher_and_the_second_is_told_who(run: RunPaths) -> None:
    taken = lock(run)
    with pytest.raises(ExitError, match=f"in use by the launcher with process id {os.getpid()}"):
        lock(run)
    taken.release()
    lock(run).release()


def test_the_lock_stays_with_a_child_that_inherited_it(run: RunPaths) -> None:
    taken = lock(run)
    command = [sys.executable, "-c", "input()"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, pass_fds=(taken.descriptor,)) as child:
        taken.release()
        assert is_held(run.launcher_lock)
        child.communicate(b"\n")
    assert not is_held(run.launcher_lock)


def test_status_tells_killed_from_running(run: RunPaths) -> None:
    written = journal(run)
    written.state = replace(written.state, state="running")
    written.save()
    run.heartbeat.write_text(replace(BEAT, time=990.0).json())
    taken = lock(run)
    found = dashboard.status(run, now=1000.0)
    assert (found["state"], found["alive"], found["heartbeat_age_s"]) == ("running", True, 10.0)
    assert found["heartbeat"]["phase"] == "updating"
    taken.release()
    assert dashboard.status(run, now=1000.0)["state"] == "killed"
    assert dashboard.table(dashboard.status(run, now=1000.0)).row_count > 3


def test_status_of_a_folder_without_files_is_unknown(run: RunPaths) -> None:
    found = dashboard.status(run, now=0.0)
    assert (found["state"], found["alive"], found["heartbeat_age_s"]) == ("unknown", False, None)
    assert dashboard.table(found).row_count > 0


def test_the_newest_first_is_the_one_written_last(tmp_path: Path) -> None:
    assert newest_first(tmp_path) == []
    for name, when in (("b", 200), ("a", 300), ("c", 100)):
        (tmp_path / name).mkdir()
        state = tmp_path / name / "launcher.json"
        state.write_text("{}")
        os.utime(state, (when, when))
    (tmp_path / "gone").mkdir()
    (tmp_path / "gone" / "launcher.json").symlink_to("nothing")
    assert [run.path.name for run in newest_first(tmp_path)] == ["a", "b", "c"]


def test_the_end_of_a_log_skips_empty_lines_and_reads_little(tmp_path: Path) -> None:
    log = tmp_path / "log"
    assert last_lines(log) == ""
    log.write_text("x" * 100_000 + "\nfirst\n\nsecond\n\n")
    assert last_lines(log, 2) == "first\nsecond"
