"""Whole trainings against a real carla-lite: to the end, through every kind of death, and twice the same."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import safetensors.numpy
import yaml

from agent.exits import Exit
from agent.td3.replay import Replay
from tests.conftest import REPOSITORY, Server, StartServer

SMALL = {
    "environment": {"max_steps": 60, "route": {"min_length_m": 60, "max_length_m": 200}},
    "td3": {"batch_size": 8, "network": {"channels": [4, 4, 4], "features": 16, "hidden": [16]}},
    "replay": {"capacity": 4000},
    "training": {
        "total_steps": 120,
        "warmup_steps": 20,
        "learner_threads": 1,
        "log_every_steps": 20,
        "checkpoint_every_steps": 50,
    },
    "evaluation": {"every_steps": 0, "final_episodes": 0, "baselines": False, "video": False},
}


class Run:
    """One run directory and the training in it."""

    def __init__(self, path: Path, port: int) -> None:
        self.path = path
        self.port = port
        self.process: subprocess.Popen[str] | None = None
        path.mkdir()
        (path.parent / "small.yaml").write_text(yaml.safe_dump(SMALL))

    def start(self, *extra: str) -> subprocess.Popen[str]:
        command = [sys.executable, "-m", "agent", "train", "--config", str(self.path.parent / "small.yaml")]
        self.process = subprocess.Popen(
            [*command, "--run-dir", str(self.path), *extra],
            cwd=REPOSITORY,
            env={**os.environ, "CARLA_HOST": "127.0.0.1", "CARLA_PORT": str(self.port)},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        return self.process

    def train(self, *extra: str) -> str:
        """Return what a training that finished said."""
        out, _ = self.start(*extra).communicate(timeout=120)
        assert self.process is not None
        assert self.process.returncode == Exit.FINISHED, out + self.collector_log
        return out

    def finish(self) -> None:
        assert self.process is not None
        out, _ = self.process.communicate(timeout=120)
        assert self.process.returncode == Exit.FINISHED, out + self.collector_log

    @property
    def collector_log(self) -> str:
        path = self.path / "collector.log"
        return path.read_text() if path.exists() else ""

    @property
    def beat(self) -> dict[str, Any]:
        path = self.path / "agent.json"
        return dict(json.loads(path.read_text())) if path.exists() else {"step": 0, "phase": "none"}

    def events(self, name: str) -> list[dict[str, Any]]:
        path = self.path / "agent-events.jsonl"
        found = [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []
        return [event for event in found if event["event"] == name]

    @property
    def steps(self) -> int:
        return Replay.open(self.path / "replay").steps if (self.path / "replay" / "replay.json").exists() else 0

    @property
    def tensors(self) -> dict[str, Any]:
        latest = (self.path / "checkpoints" / "latest").read_text().strip()
        return dict(safetensors.numpy.load_file(self.path / "checkpoints" / latest / "tensors.safetensors"))

    def wait(self, condition: Callable[[], bool], timeout_s: float = 60.0) -> None:
        deadline = time.monotonic() + timeout_s
        while not condition():
            assert self.process is not None
            assert self.process.poll() is None, f"the training ended with {self.process.returncode}"
            assert time.monotonic() < deadline, f"it didn't happen in time: {self.beat}\n{self.collector_log}"
            time.sleep(0.02)


def program(port: int, *command: str) -> subprocess.CompletedProcess[str]:
    """Run one of the commands to its end."""
    return subprocess.run(
        [sys.executable, *command],
        check=False,
        capture_output=True,
        text=True,
        cwd=REPOSITORY,
        env={**os.environ, "CARLA_HOST": "127.0.0.1", "CARLA_PORT": str(port)},
        timeout=150,
    )


NewRun = Callable[[str, Server], Run]


@pytest.fixture
def new_run(tmp_path: Path) -> Iterator[NewRun]:
    runs: list[Run] = []

    def make(name: str, server: Server) -> Run:
        runs.append(Run(tmp_path / name, server.port))
        return runs[-1]

    yield make
    for run in runs:
        if run.process is not None and run.process.poll() is None:
            run.process.kill()
            run.process.wait()


def running(pid: int) -> bool:
    try:
        return "\nState:\tZ" not in Path(f"/proc/{pid}/status").read_text()
    except FileNotFoundError:
        return False


def test_a_run_trains_evaluates_and_leaves_its_directory(start_server: StartServer, new_run: NewRun) -> None:
    run = new_run("whole", start_server())
    said = run.train(
        *("--eval-freq", "60", "--num-eval-episodes", "1", "--set", "evaluation.baselines=true"),
        *("--set", "evaluation.video=true", "--set", "environment.max_steps=30"),
    )
    for name in ("td3", "stop", "random", "pid", "120 steps, 100 updates"):
        assert name in said
    for path in ("config.yaml", "evaluation.csv", "evaluation.json", "metrics.jsonl", "checkpoints/latest"):
        assert (run.path / path).stat().st_size > 0, path
    assert list((run.path / "tensorboard").iterdir())
    assert (run.path / "videos" / "td3.mp4").stat().st_size > 10_000
    beat = run.beat
    assert (beat["phase"], beat["step"], beat["updates"], beat["exit_code"]) == ("finished", 120, 100, 0)
    assert beat["ticks"] > 120
    assert [event["step"] for event in run.events("evaluated")] == [60, 120]
    rows = [json.loads(line) for line in (run.path / "metrics.jsonl").read_text().splitlines()]
    names = {name for row in rows for name in row}
    assert names >= {
        *("rollout/ep_rew_mean", "rollout/ep_len_mean", "rollout/success_rate", "reward/progress"),
        *("train/actor_loss", "train/critic_loss", "train/q_buffer", "train/q_policy", "train/n_updates"),
        *("time/fps", "time/total_timesteps", "eval/mean_reward", "eval/mean_ep_length", "eval/success_rate"),
    }
    assert "is finished" in run.train("--resume")


def test_lockstep_runs_of_one_seed_are_equal_bit_for_bit(start_server: StartServer, new_run: NewRun) -> None:
    runs = [new_run(name, start_server(seed=3)) for name in ("first", "second")]
    for run in runs:
        run.train(
            *("--seed", "3", "--max-timesteps", "60", "--set", "training.lockstep=true"),
            *("--set", "environment.traffic.vehicles=3", "--set", "environment.max_steps=25"),
        )
    first, second = runs
    assert first.steps == second.steps == 60
    for name in ("frames.u8", "rows.bin"):
        assert (first.path / "replay" / name).read_bytes() == (second.path / "replay" / name).read_bytes(), name
    assert first.tensors.keys() == second.tensors.keys()
    assert all((first.tensors[name] == second.tensors[name]).all() for name in first.tensors)


def test_another_seed_is_another_run(start_server: StartServer, new_run: NewRun) -> None:
    server = start_server()
    runs = [new_run(name, server) for name in ("first", "second")]
    for seed, run in enumerate(runs):
        run.train("--seed", str(seed), "--max-timesteps", "30", "--set", "training.lockstep=true")
    first, second = ((run.path / "replay" / "rows.bin").read_bytes() for run in runs)
    assert first != second


@pytest.mark.parametrize("death", [signal.SIGKILL, signal.SIGABRT, signal.SIGSTOP])
def test_a_collector_that_dies_or_hangs_is_replaced(
    start_server: StartServer, new_run: NewRun, death: signal.Signals
) -> None:
    run = new_run("run", start_server())
    run.start(
        *("--max-timesteps", "400", "--set", "environment.traffic.vehicles=2"),
        *("--set", "simulator.timeout_s=1", "--set", "collector.hang_margin_s=0.5"),
    )
    run.wait(lambda: run.steps >= 40)
    pid, steps = run.beat["collector"]["pid"], run.steps
    os.kill(pid, death)
    run.finish()
    assert run.beat["collector_restarts"] >= 1
    assert run.steps == 400 > steps
    cause = run.events("collector_restarted")[0]["cause"]
    assert ("hung" if death is signal.SIGSTOP else death.name) in cause
    assert not running(pid)


def test_a_killed_agent_resumes_with_every_finished_transition(start_server: StartServer, new_run: NewRun) -> None:
    run = new_run("run", start_server())
    run.start("--max-timesteps", "600")
    run.wait(lambda: run.steps >= 80 and bool(run.events("checkpoint")))
    assert run.process is not None
    collector = run.beat["collector"]["pid"]
    run.process.kill()
    run.process.wait()
    deadline = time.monotonic() + 5
    while running(collector):
        assert time.monotonic() < deadline, "the collector outlived its learner"
        time.sleep(0.01)
    kept = run.steps
    saved = run.events("checkpoint")[-1]["updates"]
    run.train("--max-timesteps", "600", "--resume")
    resumed = run.events("resumed")[0]
    assert (resumed["steps"], resumed["updates"]) == (kept, saved)
    assert (run.beat["step"], run.beat["updates"]) == (600, 580)


def test_a_stopped_run_leaves_a_checkpoint_and_goes_on(start_server: StartServer, new_run: NewRun) -> None:
    run = new_run("run", start_server())
    process = run.start("--max-timesteps", "800")
    run.wait(lambda: run.steps >= 60)
    collector = run.beat["collector"]["pid"]
    process.send_signal(signal.SIGINT)
    assert process.wait(20) == Exit.STOPPED
    assert not running(collector)
    stopped = run.events("stopped")[0]
    assert stopped["cause"] == "SIGINT"
    assert run.events("checkpoint")[-1]["updates"] == stopped["updates"]
    run.train("--max-timesteps", "800", "--resume")
    assert run.events("resumed")[0]["updates"] == stopped["updates"]
    assert run.steps == 800


def test_a_stop_is_honoured_in_the_middle_of_an_evaluation(start_server: StartServer, new_run: NewRun) -> None:
    run = new_run("run", start_server())
    process = run.start(
        "--max-timesteps", "200", "--eval-freq", "40", "--num-eval-episodes", "60", "--set", "environment.max_steps=500"
    )
    run.wait(lambda: run.beat["collector"]["doing"] == "evaluating" if "collector" in run.beat else False)
    process.send_signal(signal.SIGTERM)
    assert process.wait(20) == Exit.STOPPED
    assert not run.events("evaluated")


def test_training_survives_the_death_of_its_simulator(start_server: StartServer, new_run: NewRun) -> None:
    server = start_server()
    run = new_run("run", server)
    run.start("--max-timesteps", "500")
    run.wait(lambda: run.steps >= 60)
    server.kill()
    steps = run.steps
    run.wait(lambda: run.beat["phase"] == "waiting_for_simulator")
    start_server(port=server.port)
    run.finish()
    assert run.steps == 500 > steps


def test_a_simulator_that_dies_with_traffic_costs_one_collector(start_server: StartServer, new_run: NewRun) -> None:
    server = start_server()
    run = new_run("run", server)
    run.start("--max-timesteps", "400", "--set", "environment.traffic.vehicles=3")
    run.wait(lambda: run.steps >= 60)
    server.kill()
    start_server(port=server.port)
    run.finish()
    assert run.steps == 400
    assert run.beat["collector_restarts"] >= 1


def test_a_collector_that_never_gets_a_step_done_ends_the_run(start_server: StartServer, new_run: NewRun) -> None:
    run = new_run("run", start_server())
    process = run.start("--set", "collector.attempts=2", "--set", "collector.start_limit_s=0.01")
    out, _ = process.communicate(timeout=60)
    assert process.returncode == Exit.CRASH
    assert "The collector ended 2 times in a row without a finished step" in out
    assert "Traceback" not in out


def test_a_missing_map_is_one_sentence_naming_those_there_are(start_server: StartServer, new_run: NewRun) -> None:
    run = new_run("run", start_server())
    process = run.start("--map", "Nowhere07")
    out, _ = process.communicate(timeout=60)
    assert process.returncode == Exit.BAD_CONFIG, out
    assert "'Nowhere07'" in out
    assert "Lite01" in out
    assert "Traceback" not in out


def test_a_run_is_never_overwritten_and_never_shared(start_server: StartServer, new_run: NewRun) -> None:
    run = new_run("run", start_server())
    process = run.start("--max-timesteps", "3000")
    run.wait(lambda: run.steps >= 30)
    for extra, sentence in ((("--resume",), "is being trained by process"), ((), "already holds a run")):
        second = program(run.port, "-m", "agent", "train", "--run-dir", str(run.path), *extra)
        assert second.returncode == Exit.BAD_CONFIG
        assert sentence in second.stderr
    process.send_signal(signal.SIGTERM)
    assert process.wait(20) == Exit.STOPPED


def test_evaluate_prints_and_writes_the_figures(start_server: StartServer, new_run: NewRun, tmp_path: Path) -> None:
    server = start_server()
    run = new_run("run", server)
    run.train("--max-timesteps", "40")
    ended = program(
        server.port,
        *("scripts/evaluate_td3.py", "--checkpoint", str(run.path), "--routes", "2", "--drivers", "td3,pid"),
        *("--csv", str(tmp_path / "e.csv"), "--json", str(tmp_path / "e.json"), "--video", str(tmp_path / "e.mp4")),
    )
    assert ended.returncode == 0, ended.stderr
    assert "driving score" in ended.stdout
    assert len((tmp_path / "e.csv").read_text().splitlines()) == 1 + 2 * 2
    assert [found["name"] for found in json.loads((tmp_path / "e.json").read_text())] == ["td3", "pid"]
    assert (tmp_path / "e.mp4").stat().st_size > 10_000


def test_the_visual_test_films_a_hundred_steps(start_server: StartServer, tmp_path: Path) -> None:
    ended = program(start_server().port, "scripts/test_visual_navigation.py", "--video", str(tmp_path / "v.mp4"))
    assert ended.returncode == 0, ended.stderr
    assert ended.stdout.startswith("pid: 10.0 s")
    assert (tmp_path / "v.mp4").stat().st_size > 10_000


def test_memory_is_measured_by_the_stability_command(start_server: StartServer, new_run: NewRun) -> None:
    run = new_run("run", start_server())
    config = str(run.path.parent / "small.yaml")
    ended = program(
        run.port,
        *("-m", "agent", "stability", "--steps", "2000", "--run-dir", str(run.path / "run"), "--config", config),
    )
    assert "Memory is" in ended.stdout, ended.stderr
    assert ended.returncode == (0 if "Memory is flat" in ended.stdout else 1)
