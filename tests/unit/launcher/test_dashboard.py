"""The output of ``status``: only from a run's files, however torn, in 80 columns, with keys that never change."""

from __future__ import annotations

import io
import json
import threading
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rich.console import Console

from carla_launcher.act import launcher_state
from carla_launcher.observe.tail import Tail
from carla_launcher.show import dashboard, history, status
from carla_launcher.show.bars import bar, cells_of
from carla_launcher.show.formatting import seconds_as_date, time_of_day
from carla_launcher.show.status import StatusReader
from carla_run.locks import Lock
from carla_run.paths import RunPaths
from carla_run.readers import read_object
from tests.unit.beats import BEAT
from tests.unit.launcher.journalled import ANYTHING, lines

NOW = 2_000_000_000.0
OWNERS = {"simulator": 4800.0, "agent": 490.0, "Xorg": 85.0, "blender": 200.0}
TAKEN = {"rung": "micro_batches", "kind": "vram", "cause": "vram:0 has 5 MiB free", "values": {"td3.micro_batch": 32}}
SHORT = {
    "cause": "pressure",
    "sentence": "vram:0 has 5 MiB free, expected 100 MiB",
    "pool": "vram:0",
    "since": NOW - 210,
}
STATE = {
    "run": "night",
    "host": "127.0.0.1",
    "port": 2000,
    "options": {"map": "Town01"},
    "quality": "Low",
    "started": NOW - 3600,
    "updated": NOW - 5,
    "state": "running",
    "taken": [TAKEN],
    "hold_s": 600.0,
    "changed_s": NOW - 200,
    "rung_since": {"micro_batches (td3.micro_batch = 32)": NOW - 200},
    "findings": [SHORT],
    "standstill": {"incidents": ["i2"], "from_s": NOW - 30, "down": {"simulator": [NOW - 28, NOW - 1]}},
    "simulator_restarts": 3,
    "agent_restarts": 1,
}
DRIVING = replace(
    BEAT,
    time=NOW - 1,
    step=120_400,
    total_steps=240_000,
    updates=118_350,
    micro_batch=32,
    collector_restarts=2,
)
MEMORY = [
    {
        "time": NOW - at,
        "step": 120_410 - 10 * at,
        "pools": {"vram:0": {"total": 5745.0, "free": 70.0, "owners": OWNERS}},
    }
    for at in range(90, 0, -10)
]
FILES = {
    "launcher.json": json.dumps(STATE),
    "agent.json": DRIVING.json(),
    "launcher-memory.jsonl": lines(*MEMORY),
}


def written(folder: Path, **changed: str) -> RunPaths:
    for name, text in {**FILES, **changed}.items():
        (folder / name).write_text(text)
    return RunPaths(folder)


def text_of(found: dict[str, Any], width: int = 80) -> str:
    console = Console(file=io.StringIO(), width=width)
    console.print(dashboard.view(found))
    file = console.file
    assert isinstance(file, io.StringIO)
    return file.getvalue()


def test_a_run_that_runs_is_shown_in_80_columns(tmp_path: Path) -> None:
    run = written(tmp_path)
    lock = Lock(run.launcher_lock)
    text = text_of(dashboard.status(run, NOW))
    lock.release()
    assert max(len(line) for line in text.splitlines()) <= 80
    for expected in (
        "running, 1:00:00 after its start",
        "training stands still since ",
        ": waits for simulator",
        "step 120400 of 240000 (50.2%), 10.0 steps/s, 3 h 19 min to go",
        "updating, on cuda, micro-batch 32, updates 118350, heartbeat 1.0 s ago",
        "127.0.0.1:2000, Town01, quality Low",
        "simulator 3, agent 1, collector 2",
        "micro_batches (td3.micro_batch = 32) since ",
        "next restore: in 6 min 40 s at the earliest",
        "VRAM of GPU 0",
        "5675 of 5745 MiB (99%)",
        "█ simulator 4800 ▓ agent 490 ▒ blender 200 ▒ Xorg 85 ░ unattributed 100",
        "! memory short since ",
    ):
        assert expected in text or expected in " ".join(text.replace("│", " ").split())


def test_on_a_cluster_the_simulator_is_each_nodes_own(tmp_path: Path) -> None:
    found = {**dashboard.status(written(tmp_path), NOW), "options": {"map": "Lite01", "cluster": "auto"}}
    assert dashboard.figures(found)["simulator"] == "on each node of the cluster at auto, Lite01, quality Low"


def test_each_card_has_its_own_bar(tmp_path: Path) -> None:
    held = {"vram:0": {"simulator": 4800.0, "Xorg": 85.0}, "vram:1": {"agent": 490.0, "blender": 200.0}}
    pools = {name: {"total": 6000.0, "free": 1000.0, "owners": owners} for name, owners in held.items()}
    row = json.dumps({"time": NOW - 10, "step": 1, "pools": pools}) + "\n"
    text = text_of(dashboard.status(written(tmp_path, **{"launcher-memory.jsonl": row}), NOW))
    first, _, second = text.partition("VRAM of GPU 0")[2].partition("VRAM of GPU 1")
    assert "simulator 4800" in first
    assert "agent" not in first
    assert "agent 490" in second
    assert "simulator 4800" not in second


def test_the_plans_figures_of_the_phase_are_shown(tmp_path: Path) -> None:
    bands = {"agent": {"vram:0": {"updating": 490.0, "warming": 300.0}}, "simulator": {"vram:0": {"": 4800.0}}}
    text = text_of({**dashboard.status(written(tmp_path), NOW), "planned_bands_mib": bands})
    assert "agent 490 MiB of VRAM of GPU 0 while updating" in text
    assert "simulator 4\u202f800 MiB of VRAM of GPU 0" in text
    assert "300 MiB" not in text


def test_keys_are_the_same_with_files_and_without(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "full").mkdir()
    nothing = dashboard.status(RunPaths(tmp_path / "empty"), NOW)
    found = dashboard.status(written(tmp_path / "full"), NOW)
    assert nothing.keys() == found.keys()
    json.dumps(found)
    assert {
        "restarts",
        "rungs",
        "next_restore_s",
        "findings",
        "memory",
        "steps_per_s",
        "eta_s",
        "alive",
    } <= found.keys()
    assert nothing["restarts"] == {"simulator": None, "agent": None, "collector": None}


def test_restarts_of_collectors_count_from_the_runs_start(tmp_path: Path) -> None:
    restarted = lines({"event": "collector_restarted"})
    run = written(tmp_path, **{"agent-events.jsonl": restarted + lines({"event": "resumed"}) + restarted * 2})
    look = StatusReader(run)
    assert look.at(NOW)["restarts"]["collector"] == 3  # of which the heartbeat knows two
    with run.agent_events.open("a") as file:
        file.write(restarted)
    assert look.at(NOW)["restarts"]["collector"] == history.examine(run).collector_restarts == 4


def test_a_killed_launcher_has_no_findings_and_no_speed(tmp_path: Path) -> None:
    found = dashboard.status(written(tmp_path), NOW)
    assert (found["state"], found["findings"], found["steps_per_s"], found["eta_s"]) == ("killed", [], None, None)
    assert "Memory when last measured" in text_of(found)
    assert dashboard.ending(found).startswith("The run's launcher was killed")
    assert f"`up --runs-dir {tmp_path.parent} --run-name {tmp_path.name} --resume`" in dashboard.ending(found)


def test_a_killed_launcher_ran_until_its_last_sign(tmp_path: Path) -> None:
    for updated_s, ran_s in ((3500, 3590), (3595, 3595)):  # the last line of memory is 3590 s after the start
        state = json.dumps({**STATE, "updated": NOW - 3600 + updated_s})
        assert dashboard.status(written(tmp_path, **{"launcher.json": state}), NOW)["ran_s"] == ran_s


def test_a_time_of_another_day_has_its_date() -> None:
    now_s = time.time()
    assert len(time_of_day(now_s)) == len("02:13:45")
    assert time_of_day(now_s - 5 * 86_400) == seconds_as_date(now_s - 5 * 86_400)
    assert time_of_day(0.0) == time_of_day(None) == time_of_day(1e18) == ""


def test_a_total_that_was_passed_is_unknown(tmp_path: Path) -> None:
    found = dashboard.status(written(tmp_path, **{"agent.json": replace(DRIVING, total_steps=300).json()}), NOW)
    assert (found["total_steps"], found["eta_s"]) == (None, None)
    assert "step 120400\n" in dashboard.figures(found)["progress"] + "\n"


def test_an_end_is_told_with_its_reason(tmp_path: Path) -> None:
    ended = {**STATE, "state": "stopped", "exit_code": 71, "reason": "nothing [fits] any more"}
    found = dashboard.status(written(tmp_path, **{"launcher.json": json.dumps(ended)}), NOW)
    assert dashboard.ending(found) == "The run ended: nothing [fits] any more. The launcher's exit code is 71."


def test_a_training_without_a_launcher_has_not_ended(tmp_path: Path) -> None:
    run = RunPaths(tmp_path)
    lock = Lock(run.learner_lock)
    found = dashboard.status(run, NOW)
    assert (dashboard.figures(found)["state"], dashboard.ending(found)) == ("training without a launcher", "")
    lock.release()
    assert dashboard.ending(dashboard.status(run, NOW)) == "No launcher has run here."


def test_the_journals_end_counts_though_the_state_has_none(tmp_path: Path) -> None:
    """As on a disk that was full at last."""
    ended = lines({"event": "run_ended", "cause": "the agent finished", "exit_code": 0})
    run = written(tmp_path, **{"launcher-events.jsonl": ended})
    assert dashboard.ending(dashboard.status(run, NOW)).startswith("The run ended: the agent finished.")
    assert history.examine(run).launcher["exit_code"] == 0


def test_following_ends_with_the_run_and_says_how(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(dashboard, "FOLLOW_S", 0.02)
    run, held = written(tmp_path), threading.Event()

    def launcher() -> None:
        lock = Lock(run.launcher_lock)
        held.set()
        time.sleep(0.3)
        ended = {**STATE, "state": "stopped", "exit_code": 0, "reason": "the agent finished"}
        written(tmp_path, **{"launcher.json": json.dumps(ended)})
        lock.release()

    thread = threading.Thread(target=launcher)
    thread.start()
    held.wait()
    dashboard.follow(run)
    thread.join()
    shown = capsys.readouterr().out
    assert shown.count("The run ended: the agent finished. The launcher's exit code is 0.") == 1
    assert shown.count("run ") >= 1


@pytest.mark.parametrize("begins", [True, False])
def test_a_launcher_that_ends_during_a_look_wasnt_killed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, begins: bool
) -> None:
    run = written(tmp_path)
    locks = [] if begins else [Lock(run.launcher_lock)]

    def read_meanwhile(path: Path) -> dict[str, Any]:
        if begins:
            locks.append(Lock(run.launcher_lock))
            return read_object(path)
        seen = read_object(path)
        ended = {**STATE, "state": "stopped", "exit_code": 0, "reason": "the agent finished"}
        written(tmp_path, **{"launcher.json": json.dumps(ended)})
        locks.pop().release()
        return seen

    monkeypatch.setattr(launcher_state, "read_object", read_meanwhile)
    look = StatusReader(run)
    assert look.at(NOW)["state"] == "running"
    monkeypatch.undo()
    assert look.at(NOW)["state"] == ("running" if begins else "stopped")
    for lock in locks:
        lock.release()


def test_only_what_is_new_is_read_and_a_half_written_line_waits(tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    grown = Tail(path, from_end=False)
    assert grown.objects() == []
    path.write_text('{"a": 1}\n{"a": ')
    assert grown.objects() == [{"a": 1}]
    with path.open("a") as file:
        file.write("2}\nno object\n[3]\n")
    assert grown.objects() == [{"a": 2}]
    path.write_text('{"b": 1}\n')
    assert grown.objects() == [{"b": 1}]


def test_what_holds_is_followed_over_many_looks(tmp_path: Path) -> None:
    run = written(tmp_path)
    lock, look = Lock(run.launcher_lock), StatusReader(run)
    assert [each["pool"] for each in look.at(NOW)["findings"]] == ["vram:0"]
    written(tmp_path, **{"launcher.json": json.dumps({**STATE, "findings": []})})
    assert look.at(NOW)["findings"] == []
    lock.release()


def test_a_run_that_began_again_has_no_speed_until_it_moves(tmp_path: Path) -> None:
    rows = [{"time": NOW - 40, "step": 200_000}, {"time": NOW - 5, "step": 120_000}]
    run = written(tmp_path, **{"launcher-memory.jsonl": lines(*rows)})
    lock = Lock(run.launcher_lock)
    assert dashboard.status(run, NOW)["steps_per_s"] is None
    lock.release()


def test_the_speed_after_a_clock_was_set_back_is_the_present_one(tmp_path: Path) -> None:
    before = [{"time": NOW + 3600 - at, "step": 1_000 - 10 * at} for at in range(90, 0, -10)]
    rows = [*before, {"time": NOW - 21, "step": 120_300}]
    run = written(tmp_path, **{"launcher-memory.jsonl": lines(*rows)})
    with Lock(run.launcher_lock):
        assert dashboard.status(run, NOW)["steps_per_s"] == 5.0


@given(st.lists(st.floats(0, 1e5), min_size=1, max_size=8), st.floats(0, 4e5))
def test_a_bar_is_as_wide_as_what_is_known(amounts: list[float], total: float) -> None:
    cells = cells_of(amounts, total, 30)
    assert all(count >= 0 for count in cells)
    assert sum(cells) <= 30
    if sum(amounts) >= total > 1:
        assert sum(cells) == 30


def test_a_pool_whose_total_is_unknown_is_said_to_be() -> None:
    assert bar({"total": None, "free": 3}).plain == "unknown"


POOLS = st.dictionaries(st.text(max_size=6), st.dictionaries(st.sampled_from(["total", "free", "owners"]), ANYTHING))


@settings(max_examples=150)
@given(st.data())
def test_values_of_any_kind_and_torn_lines_never_stop_it(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    def some(row: dict[str, Any]) -> dict[str, Any]:
        return {key: data.draw(ANYTHING | st.just(value)) for key, value in row.items()}

    row = {"time": data.draw(ANYTHING), "step": data.draw(ANYTHING), "pools": data.draw(ANYTHING | POOLS)}
    changed = {
        "launcher.json": json.dumps(some(STATE)),
        "agent.json": json.dumps(some(DRIVING.data())),
        "launcher-memory.jsonl": json.dumps(row)
        + "\n"
        + FILES["launcher-memory.jsonl"][: data.draw(st.integers(0, 300))],
    }
    run = written(tmp_path_factory.mktemp("run"), **changed)
    lock = Lock(run.launcher_lock) if data.draw(st.booleans()) else None
    found = dashboard.status(run, NOW)
    text_of(found)
    dashboard.ending(found)
    if lock is not None:
        lock.release()


def test_the_status_of_a_long_run_reads_only_its_end(tmp_path: Path) -> None:
    run = RunPaths(tmp_path)
    row = json.dumps({"step": 1, "pools": {name: {"total_mib": 1000.0} for name in ("vram", "ram", "disk")}})[1:]
    run.launcher_memory.write_text("".join(f'{{"time": {float(number)}, {row}\n' for number in range(50_000)))
    assert status.status(run, 1e6)["memory"]["time"] == 49_999.0
    assert len(StatusReader(run)._memory.look()) < 25_000
