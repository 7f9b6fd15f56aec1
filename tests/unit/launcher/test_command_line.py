"""What the command line promises: jobs from wishes, refusals in a sentence, status and report from files alone."""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from typer.testing import CliRunner

from launcher import config, jobs, up
from launcher.__main__ import app
from launcher.jobs import Wish
from launcher.journal import Journal, LauncherState
from launcher.run_directory import RunDirectory
from launcher.signals import SAME_REQUEST_S, StopRequests

LIMITS = config.load()
PYTHON = (sys.executable, "-m")


@pytest.fixture
def run(tmp_path: Path) -> RunDirectory:
    run = RunDirectory(tmp_path / "runs" / "night")
    run.logs.mkdir(parents=True)
    return run


def test_a_bare_wish_leaves_map_and_seed_to_the_configurations(run: RunDirectory) -> None:
    plan = jobs.plan(Wish(run, Path("agent.yaml")), LIMITS, 21_000)
    assert plan.simulator is not None
    town, seed = LIMITS.simulator.map, str(LIMITS.simulator.seed)
    where = ("--host", "127.0.0.1", "--port", "21000")
    assert plan.simulator.command == (*PYTHON, "carla_lite", *where, "--map", town, "--seed", seed)
    assert plan.agent.command == (*PYTHON, "agent", "train", "--config", "agent.yaml", "--run-dir", str(run.path))
    assert plan.agent.environment["CARLA_HOST"] == "127.0.0.1"
    assert plan.agent.environment["CARLA_PORT"] == "21000"


def test_a_full_wish_reaches_both_programs(run: RunDirectory) -> None:
    wish = Wish(run, Path("a.yaml"), "t.xodr", 7, max_timesteps=5, resume=True, agent_args=("--set", "seed=1"))
    plan = jobs.plan(wish, LIMITS, 21_000)
    assert plan.simulator is not None
    assert plan.simulator.command[-4:] == ("--map", "t.xodr", "--seed", "7")
    given = ("--map", "t.xodr", "--seed", "7", "--max-timesteps", "5", "--resume", "--set", "seed=1")
    assert plan.agent.command[-len(given) :] == given


def test_a_simulator_elsewhere_is_not_started(run: RunDirectory) -> None:
    plan = jobs.plan(Wish(run, Path("a.yaml"), simulator_host="gpu-box"), LIMITS, 2000)
    assert plan.simulator is None
    assert plan.agent.environment["CARLA_HOST"] == "gpu-box"


def test_a_resumed_run_goes_on_with_its_own_configuration(run: RunDirectory) -> None:
    assert up.default_config(run, resume=True) == up.DEFAULT_CONFIG
    run.config.touch()
    assert up.default_config(run, resume=True) == run.config
    assert up.default_config(run, resume=False) == up.DEFAULT_CONFIG


def test_a_run_is_not_mixed_with_an_earlier_one(run: RunDirectory, tmp_path: Path) -> None:
    (run.path / "replay").mkdir()
    (run.path / "replay" / "published").write_bytes((7).to_bytes(8, sys.byteorder))
    agent_config = tmp_path / "a.yaml"
    agent_config.touch()
    before = sorted(run.path.rglob("*"))
    with pytest.raises(up.RefusedError, match="already holds a run: add --resume"):
        up.run(Wish(run, agent_config), LIMITS, print)
    assert sorted(run.path.rglob("*")) == before


@pytest.fixture
def requests() -> Iterator[StopRequests]:
    numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    before = [signal.getsignal(number) for number in numbers]
    requests = StopRequests()
    requests.install()
    yield requests
    for number, handler in zip(numbers, before, strict=True):
        signal.signal(number, handler)


def test_two_signals_at_once_are_one_request_and_a_later_one_is_the_second(requests: StopRequests) -> None:
    os.kill(os.getpid(), signal.SIGTERM)
    os.kill(os.getpid(), signal.SIGTERM)
    assert (requests.count, requests.cause) == (1, "SIGTERM")
    time.sleep(SAME_REQUEST_S + 0.1)
    os.kill(os.getpid(), signal.SIGINT)
    assert requests.count == 2


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        (("poll_s: 0.2", "poll: 0.2"), "unknown key `poll`|`poll_s` is missing"),
        (("budget: 5", "budget: many"), "`simulator.restarts.budget` is 'many'; input should be a valid integer"),
        (("jitter: 0.2", "jitter: 2"), "`simulator.restarts.jitter` is 2"),
        (("agent:", "agent: ]"), "isn't YAML"),
    ],
)
def test_a_mistake_in_the_launchers_configuration_is_one_sentence(
    tmp_path: Path, change: tuple[str, str], expected: str
) -> None:
    own = tmp_path / "own.yaml"
    own.write_text(config.SHIPPED.read_text(encoding="utf-8").replace(*change), encoding="utf-8")
    with pytest.raises(config.LauncherConfigError, match=expected) as refused:
        config.load(own)
    assert str(refused.value).startswith(str(own))


def finished(run: RunDirectory) -> None:
    state = LauncherState("night", "process", "127.0.0.1", 2000, None, None, state="stopped", exit_code=0)
    Journal(run, state, time.time).event("run_ended", "the agent finished")
    run.agent_status.write_text(json.dumps({"time": time.time(), "step": 120, "total_steps": 120}))


def test_status_is_for_programs_and_for_people(run: RunDirectory) -> None:
    finished(run)
    where = ["--runs-dir", str(run.path.parent)]
    for_programs = json.loads(CliRunner().invoke(app, ["status", "--once", "--json", *where]).stdout)
    assert (for_programs["run"], for_programs["state"], for_programs["exit_code"]) == ("night", "stopped", 0)
    assert for_programs["heartbeat"]["step"] == 120
    for options in (["--once"], []):  # following ends with the run
        assert "120 of 120" in CliRunner().invoke(app, ["status", "night", *options, *where]).stdout


def test_report_is_written_again_and_its_path_printed(run: RunDirectory) -> None:
    finished(run)
    printed = CliRunner().invoke(app, ["report", "--runs-dir", str(run.path.parent)]).stdout
    assert printed.strip() == str(run.report)
    assert "the agent finished" in run.report.read_text(encoding="utf-8")


@pytest.mark.parametrize("command", ["status", "report"])
@pytest.mark.parametrize(("name", "expected"), [([], "no run yet"), (["day"], "no run 'day'")])
def test_a_run_that_does_not_exist_is_said(tmp_path: Path, command: str, name: list[str], expected: str) -> None:
    result = CliRunner().invoke(app, [command, *name, "--runs-dir", str(tmp_path)])
    assert (result.exit_code, expected in result.stderr) == (65, True)


def test_an_unknown_runtime_is_a_usage_error_that_names_what_exists() -> None:
    result = CliRunner().invoke(app, ["up", "--runtime", "podman"])
    assert (result.exit_code, "'process'" in result.stderr) == (2, True)
