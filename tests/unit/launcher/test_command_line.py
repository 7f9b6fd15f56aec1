"""The command line: runs from options, refusals in a sentence, status and report from files only."""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from typer.testing import CliRunner

from carla_launcher import cli, config, up
from carla_launcher.act.journal import Journal
from carla_launcher.act.launcher_state import LauncherState
from carla_launcher.cli import app
from carla_launcher.decide.ladder import AppliedRung
from carla_launcher.observe.pools import Cards, PoolKind
from carla_launcher.options import RefusedError, RunOptions, RuntimeKind, SimulatorKind
from carla_launcher.places import SHIPPED
from carla_launcher.resolve.prepare import PreparedRun, _state, prepare
from carla_launcher.resolve.resuming import run_request
from carla_launcher.show import doctor
from carla_launcher.simulators import Carla
from carla_run import signals
from carla_run.events import LauncherEvent
from carla_run.exits import Exit, ExitError
from carla_run.locks import Lock
from carla_run.paths import RunPaths
from carla_run.signals import SAME_REQUEST_S, StopRequests
from tests.crowd import PATIENCE_S
from tests.unit.beats import BEAT

LIMITS = config.load()


@pytest.fixture
def run(tmp_path: Path) -> RunPaths:
    run = RunPaths(tmp_path / "runs" / "night")
    run.logs.mkdir(parents=True)
    return run


def prepared(run: RunPaths, **asked: Any) -> PreparedRun:
    resume = asked.pop("resume", False)
    return prepare(run_request(run, RunOptions(runtime=RuntimeKind.PROCESS, **asked), resume))


def test_a_new_run_begins_on_the_plans_rung(run: RunPaths) -> None:
    found = prepared(run, device="cpu", seed=3, policy=("micro_batches",))
    assert not found.spec.resume
    assert found.state.taken == ()
    assert found.state.options == {
        "config": "lowmem",
        "policy": ["micro_batches"],
        "device": "cpu",
        "seed": 3,
        "runtime": "process",
        "simulator": "carla-lite",
    }
    assert found.planned.situation.base["device"] == "cpu"
    assert found.state.quality is None, "carla-lite knows none"
    carla = replace(found.spec, simulator=Carla(finest="Epic"))
    assert _state(RunOptions(), None, carla, found.planned, LIMITS).quality == "Epic"


def test_killed_launchers_run_keeps_rung_port_and_options(run: RunPaths, tmp_path: Path) -> None:
    begun = prepared(run, device="cpu", seed=3, map="Lite02", port=23_456)
    taken = (AppliedRung("micro_batches", "ram", "short", {"td3.micro_batch": 16}),)
    state = replace(begun.state, taken=taken, state="running")
    Journal(run, state, time.time).save()
    lay_a_row(run)
    again = prepared(run)
    assert again.spec.resume
    assert again.state.taken == taken
    assert prepared(run, port=24_456).state.port == 24_456
    assert again.state.port == 23_456
    assert again.spec.agent_options == ("--map", "Lite02", "--seed", "3", "--device", "cpu")
    Journal(run, replace(state, state="stopped"), time.time).save()
    with pytest.raises(RefusedError, match="add --resume"):
        prepared(run)
    resumed = prepared(run, resume=True, port=23_457, simulator_host="localhost").state
    assert (resumed.taken, resumed.host, resumed.port) == (taken, "localhost", 23_457)
    asked = resumed.options
    assert (asked["port"], asked["simulator_host"]) == (23_457, "localhost")
    assert (asked["seed"], asked["simulator"]) == (3, "carla-lite")


@pytest.mark.parametrize("position", [0, 2])
def test_a_port_not_named_changes_where_it_is_taken(run: RunPaths, position: int) -> None:
    begun = prepared(run, device="cpu")
    Journal(run, begun.state, time.time).save()
    assert prepared(run).state.port == begun.state.port
    with socket.create_server(("127.0.0.1", begun.state.port + position)):
        assert prepared(run).state.port != begun.state.port


def lay_a_row(run: RunPaths) -> None:
    (run.path / "replay").mkdir()
    (run.path / "replay" / "published").write_bytes((7).to_bytes(8, sys.byteorder))


def test_what_cannot_fit_is_refused_with_numbers_and_71(run: RunPaths) -> None:
    huge = LIMITS.model_copy(
        update={
            "memory": LIMITS.memory.model_copy(
                update={"reserve_mib": {PoolKind.RAM: 1e6, PoolKind.DISK: 0, PoolKind.VRAM: 0}}
            )
        }
    )
    with pytest.raises(RefusedError, match="MiB short in ram") as refused:
        prepare(replace(run_request(run, RunOptions(runtime=RuntimeKind.PROCESS)), limits=huge))
    assert refused.value.code == Exit.OUT_OF_MEMORY


def test_a_run_is_not_mixed_with_an_earlier_one(run: RunPaths, tmp_path: Path) -> None:
    lay_a_row(run)
    agent_config = tmp_path / "a.yaml"
    agent_config.touch()
    before = sorted(run.path.rglob("*"))
    with pytest.raises(RefusedError, match="already holds a run: add --resume"):
        up.run(run, RunOptions(config=agent_config), False, print)
    assert sorted(run.path.rglob("*")) == before


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        ({"config": Path("quik")}, "quik"),
        ({"agent_args": ("--set", "td3.batchsize=3")}, "did you mean `td3.batch_size`"),
        ({"simulator": SimulatorKind.CARLA, "runtime": RuntimeKind.PROCESS}, "CARLA can't be started here"),
        ({"gpu": Cards(0, 1)}, "--gpu 0,1: there is no GPU here: leave it out."),
        ({"gpu": Cards(0, 0), "command": ("true",)}, "--gpu 0: there is no GPU here: leave it out."),
    ],
)
def test_a_refused_start_leaves_no_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, asked: dict[str, Any], said: str
) -> None:
    monkeypatch.setattr(up, "_supervise", lambda *_: pytest.fail("it would train"))
    run = RunPaths(tmp_path / "runs" / "night")
    with pytest.raises(ExitError, match=re.escape(said)) as refused:
        up.run(run, RunOptions(**asked), False, print)
    assert (refused.value.code, run.path.exists()) == (Exit.BAD_CONFIG, False)


def test_a_simulator_elsewhere_needs_a_place(run: RunPaths) -> None:
    with pytest.raises(RefusedError, match="--simulator-host"):
        prepared(run, simulator=SimulatorKind.ELSEWHERE)


def test_only_a_command_does_without_a_simulator(run: RunPaths) -> None:
    with pytest.raises(RefusedError, match="the agent needs a simulator"):
        prepared(run, simulator=SimulatorKind.NONE)
    told = CliRunner().invoke(app, ["simulator", "--folder", str(run.path), "--simulator", "none"])
    assert (told.exit_code, "expected one that this command can start" in " ".join(told.stderr.split())) == (65, True)


@pytest.mark.parametrize("words", [("--set", "td3.batch_size=32"), ("--set=td3.batch_size=32",)])
def test_the_plan_counts_with_what_the_agents_arguments_set(run: RunPaths, words: tuple[str, ...]) -> None:
    assert prepared(run, agent_args=words).planned.situation.base["td3.batch_size"] == 32


@pytest.fixture
def requests() -> Iterator[StopRequests]:
    numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    before = [signal.getsignal(number) for number in numbers]
    requests = StopRequests()
    requests.install()
    yield requests
    for number, handler in zip(numbers, before, strict=True):
        signal.signal(number, handler)


def test_two_signals_at_once_are_one_request(requests: StopRequests, monkeypatch: pytest.MonkeyPatch) -> None:
    now = [100.0]
    monkeypatch.setattr(signals, "time", SimpleNamespace(monotonic=lambda: now[0]))
    os.kill(os.getpid(), signal.SIGTERM)
    os.kill(os.getpid(), signal.SIGTERM)
    assert (requests.count, requests.cause) == (1, "SIGTERM")
    now[0] += SAME_REQUEST_S + 0.1
    os.kill(os.getpid(), signal.SIGINT)
    assert requests.count == 2


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        (("poll_s: 0.2", "poll: 0.2"), r"unknown key `poll` \(did you mean `poll_s`\?\)"),
        (("poll_s: 0.2", ""), "`poll_s` is missing; launcher.yaml as shipped has it"),
        (("budget: 5", "budget: many"), "`simulator.restarts.budget` is 'many'; expected a whole number"),
        (("Low: 4813", "low: 4813"), r"unknown key `sizes.vram_mib.low` \(did you mean `sizes.vram_mib.Low`\?\)"),
        (("Low: 4813, ", ""), "sizes.vram_mib has no value for Low"),
        (("Low: 4813", "Low: -4813"), "`sizes.vram_mib.Low` is -4813; expected more than 0"),
        (("{vram: 100", "{vram: -1"), "`memory.reserve_mib.vram` is -1; expected at least 0"),
        (("{vram: 100", "{vram: .nan"), "`memory.reserve_mib.vram` is nan; expected a finite number"),
        (("{vram: 100, ", "{"), "memory.reserve_mib has no value for vram"),
        (("ladder:", "ladder: {vram: [], ram: [], disk: []}\nrest:"), "unknown key `rest`"),
        (("poll_s: 0.2", "poll_s: 0.2\npoll_s: 0.1"), r"`poll_s` stands twice, in lines \d+ and \d+"),
        (("simulator:\n", "reserve_mib: 3\nsimulator:\n"), r"`reserve_mib` \(did you mean `memory.reserve_mib`\?\)"),
        (
            ("after: [little]", "behind: [little]"),
            "unknown key `ladder.vram.0.behind`; known here: after, allowed, cost, does, frees_mib, name",
        ),
        (
            ("does: restart_simulator, cost", "does: nap, cost"),
            "`ladder.vram.0.does` is 'nap'; expected 'apply' or 'one_simulator_less' or 'restart_agent' or",
        ),
        (
            ("after: [little]", "quality: Low"),
            "rung restart_simulator: `quality` belongs to does: quality, and only there",
        ),
        (
            ("after: [little]", "values: {td3.batch_size: half}"),
            "rung restart_simulator: `values` belong to apply and restart_agent, and only there",
        ),
        (
            ("after: [little]", "frees_mib: {rum: 8}"),
            "unknown key `ladder.vram.0.frees_mib.rum`; known here: vram, ram",
        ),
        (("jitter: 0.2", "jitter: 2"), "`simulator.restarts.jitter` is 2"),
        (("agent:", "agent: ]"), "isn't YAML"),
    ],
)
def test_a_mistake_in_launcher_yaml_is_one_sentence(tmp_path: Path, change: tuple[str, str], expected: str) -> None:
    own = tmp_path / "own.yaml"
    own.write_text(SHIPPED.read_text(encoding="utf-8").replace(*change), encoding="utf-8")
    with pytest.raises(config.LauncherConfigError, match=expected) as refused:
        config.load(own)
    assert str(refused.value).startswith(str(own))


def test_an_empty_ladder_is_refused_and_a_pool_may_have_none() -> None:
    values = LIMITS.model_dump(mode="json")
    for ladder, said in (({}, "`ladder` is {}"), ({"ram": []}, "`ladder.ram` is []"), (None, "`ladder` is empty")):
        with pytest.raises(config.LauncherConfigError, match=re.escape(said)):
            config.validate({**values, "ladder": ladder}, "own.yaml")
    kept = {"ram": values["ladder"]["ram"]}
    assert list(config.validate({**values, "ladder": kept}, "own.yaml").ladder) == [PoolKind.RAM]


def finished(run: RunPaths) -> None:
    state = LauncherState("night", {}, "127.0.0.1", 2000, state="stopped", exit_code=0)
    Journal(run, state, time.time).event(LauncherEvent.RUN_ENDED, "the agent finished")
    run.heartbeat.write_text(replace(BEAT, time=time.time(), step=120, total_steps=120).json())


def test_status_is_for_programs_and_for_people(run: RunPaths) -> None:
    finished(run)
    where = ["--runs-dir", str(run.path.parent)]
    for_programs = json.loads(CliRunner().invoke(app, ["status", "--once", "--json", *where]).stdout)
    assert (for_programs["run"], for_programs["state"], for_programs["exit_code"]) == ("night", "stopped", 0)
    assert for_programs["heartbeat"]["step"] == 120
    for options in (["--once"], []):  # following ends with the run
        assert "120 of 120" in CliRunner().invoke(app, ["status", "night", *options, *where]).stdout


def test_report_is_written_again_and_its_path_printed(run: RunPaths) -> None:
    finished(run)
    printed = CliRunner().invoke(app, ["report", "--runs-dir", str(run.path.parent)]).stdout
    assert printed.strip() == str(run.report)
    assert "the agent finished" in run.report.read_text(encoding="utf-8")


@pytest.mark.parametrize("command", ["status", "report"])
@pytest.mark.parametrize(("name", "expected"), [([], "no run yet"), (["day"], "no run 'day'")])
def test_a_run_that_does_not_exist_is_said(tmp_path: Path, command: str, name: list[str], expected: str) -> None:
    result = CliRunner().invoke(app, [command, *name, "--runs-dir", str(tmp_path)])
    assert (result.exit_code, expected in result.stderr) == (65, True)


@pytest.mark.parametrize(
    ("name", "meant"), [("runs/night", "(did you mean night?)"), ("nights", "night"), ("x", ": start")]
)
def test_a_run_of_nearly_that_name_is_proposed(run: RunPaths, name: str, meant: str) -> None:
    finished(RunPaths(run.path.parent / "night"))
    result = CliRunner().invoke(app, ["status", name, "--runs-dir", str(run.path.parent)])
    assert (result.exit_code, meant in result.stderr) == (65, True), result.stderr


@pytest.mark.parametrize(
    "words",
    [
        ["up", "--seed", str(10**20)],
        ["up", "--max-timesteps", str(10**20)],
        ["submit", "--dry-run", "--warn", str(10**20)],
        *(["plan", "--nodes", "2", name, value] for name in ("--node-ram", "--node-vram") for value in ("inf", "nan")),
        ["plan", "--nodes", str(10**9)],
        ["plan", "--nodes", "2", "--gpus-per-node", str(10**9)],
    ],
)
def test_a_number_that_nothing_can_hold_is_a_usage_error(words: list[str]) -> None:
    result = CliRunner().invoke(app, words)
    assert (result.exit_code, "Invalid value" in result.stderr) == (2, True), result.output


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["plan", "--node-vram", "24"], "give --nodes, too"),
        (["plan", "--gpus-per-node", "8"], "give --nodes, too"),
        (["up", "--run-name=-x"], "-x begins with a dash"),
        (["up", "--run-name", ".."], ".. names no folder in --runs-dir"),
        (["routes", "--run-name", "."], ". names no folder in --runs-dir"),
        (["up", "--resume", "--run-name", "runs/first"], "runs/first names no folder in --runs-dir"),
        (["run", "--run-name", "a\nb"], "'a\\nb' has a character"),
        (["submit", "--run-name", "\x1b[2J", "--", "run"], "'\\x1b[2J' has a character"),
        (["submit", "--run-name", "/tmp/a"], "/tmp/a names no folder in --runs-dir"),
        (["report", "night", "--compare", "a", "b"], "leave out night"),
    ],
)
def test_options_that_would_be_ignored_are_a_usage_error(words: list[str], expected: str) -> None:
    result = CliRunner().invoke(app, words)
    assert (result.exit_code, expected in " ".join(result.stderr.split())) == (2, True), result.stderr


def test_status_into_a_pipe_is_printed_at_once_and_ends_its_lines(run: RunPaths) -> None:
    finished(run)
    words = [sys.executable, "-m", "carla_launcher", "status", "night", "--runs-dir", str(run.path.parent)]
    with Lock(run.launcher_lock):  # as a run that goes on
        printed = subprocess.run(words, stdout=subprocess.PIPE, text=True, check=True, timeout=PATIENCE_S).stdout
    assert "120 of 120" in printed
    ended = subprocess.run(words, stdout=subprocess.PIPE, text=True, check=True, timeout=PATIENCE_S).stdout
    assert any(line.startswith("The run ended") for line in ended.splitlines())


def test_the_doctor_takes_the_environments_ports_unless_one_is_given(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[tuple[int, ...] | None] = []
    monkeypatch.setattr(doctor, "run", lambda machine, _as_json: seen.append(machine.ports))
    for words in ([], ["--port", "2100"]):
        CliRunner().invoke(app, ["doctor", *words], standalone_mode=False)
    assert seen == [None, (2100, 2101, 2102)]


def test_an_unknown_runtime_is_a_usage_error() -> None:
    result = CliRunner().invoke(app, ["up", "--runtime", "podman"])
    assert (result.exit_code, "'process'" in result.stderr) == (2, True)


def test_a_stopped_terminal_holds_no_launcher_up(monkeypatch: pytest.MonkeyPatch) -> None:
    source, sink = os.pipe()
    os.set_blocking(sink, False)
    with os.fdopen(source, "rb") as read, os.fdopen(sink, "w") as stopped:
        with contextlib.suppress(BlockingIOError):
            while os.write(sink, bytes(4096)):
                pass
        os.set_blocking(sink, True)
        monkeypatch.setattr(sys, "stdout", stopped)
        monkeypatch.setattr(cli, "TERMINAL_PATIENCE_S", 0.0)
        cli._say("this is left out")
        filled = len(read.read1(2**20))
        cli._say("this is read")
        assert read.read1(2**20).decode() == "launcher: this is read\n", filled
