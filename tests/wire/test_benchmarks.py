"""The two commands that train and judge drivers, at their smallest: they go on after a kill and do nothing twice."""

from __future__ import annotations

import contextlib
import json
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest
import yaml

from carla_run.exits import Exit
from carla_run.heartbeat import read_heartbeat
from carla_run.memory.processes import tree
from carla_run.paths import RunPaths
from carla_run.readers import read_lines
from carla_td3 import config
from carla_td3.cli.evaluation import trained
from carla_td3.run_directory import prepare, save_config
from carla_td3.td3.replay.replay import Replay
from carla_td3.trainer.learner import Learner
from carla_td3.trainer.pacing import Counters
from tests.conftest import REPOSITORY
from tests.crowd import PATIENCE_S, until
from tests.wire.trainee import SMALL, running

DRIVING = ("benchmarks/driving.py",)


def command(*words: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, *words], cwd=REPOSITORY, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    )


def ended(*words: str) -> str:
    process = command(*words)
    out, _ = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 0, out
    return out


def untrained(path: Path, sees: str, seed: int) -> Path:
    run, settings = RunPaths(path), {**SMALL, "seed": seed, "td3": {**SMALL["td3"]}}
    settings["td3"]["network"] = {**SMALL["td3"]["network"], "sees": sees}
    settings["environment"] = {**SMALL["environment"], "privileged": sees == "privileged"}
    resolved = config.validate(settings, "test")
    with prepare(run, resume=False):
        save_config(run, resolved)
        Learner(resolved, run).save(Counters(steps=5, updates=0), score=None)
    return path


@pytest.mark.long
def test_drivers_are_judged_once_a_route_and_a_folder_of_runs_is_a_drivers_seeds(tmp_path: Path) -> None:
    untrained(tmp_path / "trained" / "seed-3", "image", 3)
    out = tmp_path / "out"
    asked = (*DRIVING, "--out", str(out), "--traffic", "empty", "--weathers", "ClearNoon", "--routes", "1")
    words = (*asked, "--no-blanked", "--checkpoint", f"td3={tmp_path / 'trained'}", "--drivers", "pid")
    first = ended(*words)
    drives = [json.loads(line) for line in (out / "drives.jsonl").read_text().splitlines()]
    assert {(drive["driver"], drive["seed"], drive["route"]) for drive in drives} == {("td3", 3, 0), ("pid", 0, 0)}
    assert ended(*words).partition(" drives; ")[2] == first.partition(" drives; ")[2] != "", "the same table"
    assert len((out / "drives.jsonl").read_text().splitlines()) == 2
    report = json.loads((out / "driving.json").read_text())
    assert report["traffic"]["empty"]["pid"]["success"] == 1.0
    assert "success_95" in report["traffic"]["empty"]["td3"]["beyond"]["pid"]
    assert (out / "driving.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize("kills", [1, 3])
def test_a_group_whose_process_is_lost_is_driven_again_and_at_last_named(tmp_path: Path, kills: int) -> None:
    asked = ("--out", str(tmp_path), "--traffic", "empty", "--weathers", "ClearNoon", "--routes", "1")
    process, killed = command(*DRIVING, *asked, "--drivers", "pid"), set[int]()
    deadline_s = time.monotonic() + PATIENCE_S
    while len(killed) < kills:
        assert time.monotonic() < deadline_s
        time.sleep(0.05)
        for child in psutil.Process(process.pid).children():
            with contextlib.suppress(psutil.Error):  # a killed process that isn't reaped yet
                if "spawn_main" in " ".join(child.cmdline()):
                    child.kill()
                    killed.add(child.pid)
    out, _ = process.communicate(timeout=PATIENCE_S)
    named = "Not finished: pid (seed 0) in empty, ClearNoon; run it again." in out
    assert (process.returncode, named) == ((0, False) if kills == 1 else (1, True)), out


def test_a_benchmark_that_is_stopped_leaves_the_figures_of_what_was_driven_and_no_process(tmp_path: Path) -> None:
    asked = ("--out", str(tmp_path), "--traffic", "empty", "--weathers", "ClearNoon", "--drivers", "stop")
    process = command(*DRIVING, *asked)
    until(lambda: read_lines(tmp_path / "drives.jsonl") != [] or process.poll() is not None)
    children = psutil.Process(process.pid).children(recursive=True)
    process.send_signal(signal.SIGTERM)
    out, _ = process.communicate(timeout=100)
    assert process.returncode == Exit.STOPPED, out
    assert "Stopped by SIGTERM: run the same command to resume after what" in " ".join(out.split())
    report = json.loads((tmp_path / "driving.json").read_text())
    assert report["drives"] == len(read_lines(tmp_path / "drives.jsonl")) >= 1
    until(lambda: not any(running(child.pid) for child in children))


def test_figures_of_what_was_driven_are_of_the_asked_town_and_weathers_and_change_no_file(tmp_path: Path) -> None:
    kept = REPOSITORY / "benchmarks" / "results" / "driving" / "drives.jsonl"
    drives = read_lines(kept)
    (tmp_path / "drives.jsonl").write_bytes(kept.read_bytes())
    asked = ("--town", "Town02", "--traffic", "regular", "--weathers", "ClearNoon", "--against", "td3")
    out = ended(*DRIVING, "--out", str(tmp_path), "--figures-only", *asked)
    asked_for = [d for d in drives if (d["town"], d["traffic"], d["weather"]) == ("Town02", "regular", "ClearNoon")]
    assert 0 < len(asked_for) < len(drives)
    assert out.startswith(f"{len(asked_for)} drives; ")
    assert "beyond td3" in out
    assert [path.name for path in tmp_path.iterdir()] == ["drives.jsonl"]


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        (("--traffic", "rush"), "--traffic rush is unknown: expected some of empty, regular, dense."),
        (("--against", "ghost"), "--against ghost is unknown: expected some of imitation-only, pid, stop, twin."),
        (("--town", "Lite:seed=7,size=400"), "--town Lite:seed=7,size=400 has no routes: expected Lite:seed=800,"),
        (("--town", "Town02", "--map-dir", "nowhere"), "nowhere/Town02.xodr doesn't exist; give --map-dir the folder"),
    ],
)
def test_what_cannot_be_driven_is_refused_before_a_drive(tmp_path: Path, wrong: tuple[str, ...], said: str) -> None:
    refused = command(*DRIVING, "--out", str(tmp_path / "out"), "--drivers", "stop", *wrong)
    out, _ = refused.communicate(timeout=100)
    assert refused.returncode == 2
    assert said in " ".join(out.replace("│", "").split())
    assert not (tmp_path / "out").exists()


def test_who_is_told_what_only_the_simulator_knows_is_judged_as_a_control_alone(tmp_path: Path) -> None:
    told = untrained(tmp_path / "told", "privileged", 0)
    refused = command(*DRIVING, "--out", str(tmp_path / "out"), "--checkpoint", f"td3={told}")
    out, _ = refused.communicate(timeout=100)
    assert refused.returncode != 0
    assert "told what only the simulator knows; begin its name with control" in " ".join(out.split())


TINY: dict[str, Any] = {
    **SMALL,
    "environment": {**SMALL["environment"], "time_limit": {"constant_s": 3}, "privileged": True, "blocked_s": 2},
    "training": {
        **SMALL["training"],
        "checkpoint_every_steps": 20,
        "towns": {"maps": ["Lite:seed={seed},size=200"], "every_episodes": 2, "evaluation_map": "Lite02"},
    },
    "evaluation": {**SMALL["evaluation"], "every_steps": 60, "episodes": 1, "final_episodes": 1},
}


def test_demonstrations_that_are_stopped_end_before_their_simulator(tmp_path: Path) -> None:
    given, runs = tmp_path / "tiny.yaml", tmp_path / "runs"
    given.write_text(yaml.safe_dump(TINY))
    where = ("benchmarks/learning.py", "--config", str(given), "--runs", str(runs), "--variants", "td3")
    process = command(*where, "--seeds", "0", "--updates", "100", "--demonstrations", "100000")
    published = RunPaths(runs / "demonstrations").replay / "published"
    until(lambda: process.poll() is not None or (published.exists() and (np.fromfile(published, np.int64) > 10).any()))
    children = tree(process.pid)
    process.send_signal(signal.SIGTERM)
    out, _ = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 128 + signal.SIGTERM
    assert "connection" not in out
    assert "resume" in out
    until(lambda: not any(running(pid) for pid in children))


@pytest.mark.long
def test_trainings_that_were_killed_go_on_finished_ones_are_left_alone_and_others_learn_from_their_rows(
    tmp_path: Path,
) -> None:
    given, runs = tmp_path / "tiny.yaml", tmp_path / "runs"
    given.write_text(yaml.safe_dump(TINY))
    where = ("benchmarks/learning.py", "--config", str(given), "--runs", str(runs), "--variants", "td3,twin")
    words = (*where, "--seeds", "0", "--updates", "100", "--demonstrations", "100", "--parallel", "2", "--keep-rows")
    twin = RunPaths(runs / "twin" / "seed-0")
    first = command(*words)
    deadline_s = time.monotonic() + PATIENCE_S
    while (beat := read_heartbeat(twin.heartbeat)) is None or beat.updates < 25:
        assert first.poll() is None, first.communicate()[0]
        assert time.monotonic() < deadline_s
        time.sleep(0.05)
    children = tree(first.pid)
    first.kill()
    first.wait()
    while any(running(pid) for pid in children):
        assert time.monotonic() < deadline_s, "nobody outlives the command"
        time.sleep(0.05)
    assert not (twin.path / "figures.json").exists()
    out = ended(*words)
    for variant in ("td3", "twin"):
        run = RunPaths(runs / variant / "seed-0")
        figures = json.loads((run.path / "figures.json").read_text())
        assert [point["steps"] for point in figures["curve"]] == [60, 120]
        assert Replay.open(run.replay).steps == 120
        assert (run.checkpoints / "latest").exists()
    events = [json.loads(line) for line in twin.agent_events.read_text().splitlines()]
    assert any(row["event"] == "resumed" for row in events)
    shown = Replay.open(RunPaths(runs / "demonstrations").replay)
    assert shown.steps == 100
    assert shown.episodes >= 3
    assert "twin" in out
    before = sorted(path.stat().st_mtime_ns for path in runs.glob("*/seed-0/*"))
    ended(*words)
    assert sorted(path.stat().st_mtime_ns for path in runs.glob("*/seed-0/*")) == before
    rows = ("--judged", str(runs / "demonstrations"), "--run", str(runs / "td3" / "seed-0"))
    told = ended("benchmarks/encoder.py", *rows, "--updates", "2", "--keep", str(tmp_path / "kept"), "--json")
    assert [(row["updates"], row["rows"]) for row in json.loads(told[told.index("{") :])["found"]] == [
        (2, "own"),
        (2, "judged"),
    ]
    assert trained(tmp_path / "kept").policy is not None
