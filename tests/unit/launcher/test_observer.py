"""The observer as a whole, with real processes and a real heartbeat."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import time
import weakref
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest
import torch
from hypothesis import example, given
from hypothesis import strategies as st

from carla_launcher import config
from carla_launcher.observe import health
from carla_launcher.observe.agent import AgentMonitor
from carla_launcher.observe.health import Address, Health
from carla_launcher.observe.observation import Ended, Sign
from carla_launcher.observe.observer import RunObserver
from carla_launcher.observe.pools import Reading
from carla_launcher.observe.simulator import Questions, SimulatorMonitor
from carla_run.event_log import EventLog
from carla_run.heartbeat import CollectorFigures, CollectorState, Phase, read_heartbeat
from carla_run.paths import RunPaths
from carla_run.paths import RunPaths as AgentRun
from carla_td3.exchange.status import Status
from carla_td3.memory.watermarks import Watermarks
from carla_td3.telemetry.heartbeat import HeartbeatWriter as Writer
from carla_td3.telemetry.heartbeat import Vitals
from tests.conftest import StartServer
from tests.crowd import until
from tests.unit.beats import BEAT

LIMITS = config.load().watch

# The agent's files


@pytest.fixture
def run(tmp_path: Path) -> AgentRun:
    run = AgentRun(tmp_path / "run")
    run.exchange.mkdir(parents=True)
    return run


@pytest.fixture
def writer(run: AgentRun) -> Iterator[tuple[Vitals, Status]]:
    """A real heartbeat, once a second."""
    vitals, status = Vitals(total_steps=1000, device="cpu", micro_batch=16), Status(run.exchange / "status.bin")
    with Writer(run, vitals, [status], Watermarks(torch.device("cpu"))):
        yield vitals, status


class Child:
    """A program that runs."""

    pid, log = 7, Path()

    def poll(self) -> None:
        return None

    def pids(self) -> frozenset[int]:
        return frozenset({7})


def test_a_real_heartbeat_is_read_and_its_age_counted(run: AgentRun, writer: tuple[Vitals, Status]) -> None:
    vitals, status = writer
    agent, child = AgentMonitor(RunPaths(run.path)), Child()
    vitals.set(phase=Phase.UPDATING, step=7, updates=3)
    status.state, status.ticks = CollectorState.STEPPING, 41
    until(lambda: (beat := agent.look(time.monotonic(), child).beat) is not None and beat.step == 7)
    beat = agent.look(time.monotonic(), child).beat
    assert beat is not None
    assert (beat.pid, beat.phase, beat.updates, beat.ticks) == (os.getpid(), Phase.UPDATING, 3, 41)
    assert beat.collector == CollectorFigures(None, CollectorState.STEPPING)
    assert (beat.total_steps, beat.device, beat.micro_batch, beat.exit_code) == (1000, "cpu", 16, None)
    assert beat.memory.peak_by_phase_mib is not None
    assert beat.memory.peak_by_phase_mib["updating"]["learner"] > 1
    until(lambda: agent.look(time.monotonic(), child).beat_age_s == 0)


def agent_json(run: AgentRun, time_s: float) -> None:
    run.heartbeat.write_text(replace(BEAT, time=time_s).json())


def test_only_a_change_is_a_beat(run: AgentRun) -> None:
    agent_json(run, 1e9)
    agent, child = AgentMonitor(RunPaths(run.path)), Child()
    assert agent.look(0.0, child).beat is None, "of a process before"
    agent_json(run, 1e9 + 1)
    assert agent.look(1.0, child).beat_age_s == 0
    assert agent.look(50.0, child).beat_age_s == 49
    agent_json(run, 1e9 - 8 * 3600)  # the wall clock was put back
    assert agent.look(51.0, child).beat_age_s == 0
    run.heartbeat.write_text('{"time": 1e9, "pid"')
    assert agent.look(52.0, child).beat_age_s == 1
    assert agent.look(52.0, child).beat is not None, "a torn file takes nothing back"
    run.heartbeat.unlink()
    assert agent.look(53.0, child).beat_age_s == 2
    agent.restart_age(4000.0)
    assert agent.look(4001.0, child).beat_age_s == 1
    assert agent.look(4002.0, Child()).beat is None


WHOLE = json.loads(BEAT.json())


@given(st.sampled_from(sorted(WHOLE)), st.none() | st.booleans() | st.floats() | st.text(max_size=5) | st.just({}))
@example("pid", "0")
def test_a_heartbeat_is_whole_or_none(tmp_path_factory: pytest.TempPathFactory, name: str, value: object) -> None:
    path = tmp_path_factory.getbasetemp() / "foreign.json"
    path.write_text(json.dumps({**WHOLE, name: value}))
    beat = read_heartbeat(path)
    assert beat is None or json.loads(beat.json()).keys() == WHOLE.keys()
    if name in ("phase", "pid", "step", "ticks") and not isinstance(value, float | bool):
        assert beat is None


@pytest.mark.parametrize("text", ["", "{", "[]", "3", '{"time": 1, "pid": 7}', json.dumps({**WHOLE, "more": 1})])
def test_a_torn_or_foreign_file_is_no_heartbeat(tmp_path: Path, text: str) -> None:
    path = tmp_path / "agent.json"
    assert read_heartbeat(path) is None
    path.write_text(text)
    assert read_heartbeat(path) is None
    path.write_text(BEAT.json())
    assert read_heartbeat(path) == BEAT


def test_events_are_given_once(run: AgentRun) -> None:
    log = EventLog(run.agent_events)
    log.append("started", steps=0)
    agent = AgentMonitor(RunPaths(run.path))
    assert agent.look(0.0, None).events == ()
    log.append("collector_restarted", "killed by SIGABRT", restarts=1)
    with run.agent_events.open("ab") as file:
        file.write(b'[1, 2]\nnot json \xff\n{"event": "half')
    (event,) = agent.look(1.0, None).events
    assert (event["event"], event["cause"], event["restarts"]) == ("collector_restarted", "killed by SIGABRT", 1)
    with run.agent_events.open("ab") as file:
        file.write(b' a line"}\n')
    assert [row["event"] for row in agent.look(2.0, None).events] == ["half a line"]


# All together


@dataclass
class Program:
    """A real process as a runtime's child."""

    process: subprocess.Popen[str]
    log: Path

    @property
    def pid(self) -> int:
        return self.process.pid

    def poll(self) -> Ended | None:
        code = self.process.poll()
        return None if code is None else Ended(code if code >= 0 else 128 - code)

    def pids(self) -> frozenset[int]:
        return frozenset({self.process.pid})

    def terminate(self) -> None:
        self.process.terminate()

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()


def program(source: str, log: Path) -> Program:
    with log.open("ab") as file:
        return Program(subprocess.Popen([sys.executable, "-uc", source], stdout=file, stderr=file, text=True), log)


@dataclass
class Asked:
    """Counts the questions."""

    answer: Health = field(default_factory=lambda: Health("0.9.16", 3))
    ready: int = 0
    answers: int = 0
    pids: list[tuple[frozenset[int], frozenset[int]]] = field(default_factory=list)

    def questions(self) -> Questions:
        return Questions(self.ask_ready, self.ask_answers, LIMITS.check_every_s)

    def ask_ready(self, _in_use: bool) -> Health:
        self.ready += 1
        return self.answer

    def ask_answers(self) -> Health:
        self.answers += 1
        return self.answer

    def memory(self, simulator: frozenset[int], agent: frozenset[int]) -> Reading:
        self.pids.append((simulator, agent))
        return Reading(())


@pytest.fixture
def asked() -> Asked:
    return Asked()


@pytest.fixture
def observer(run: AgentRun, asked: Asked) -> Iterator[RunObserver]:
    log = run.path / "simulator.log"
    log.write_text("lavapipe is not a conformant (of a run before)\n")
    with socket.create_server(("127.0.0.1", 0)) as taken:
        absent = Address("127.0.0.1", int(taken.getsockname()[1]))
    simulator = SimulatorMonitor(absent, asked.questions(), log)
    observer = RunObserver(RunPaths(run.path), simulator, asked.memory, LIMITS.gap_s)
    yield observer
    observer.close()


def test_real_death_has_code_and_last_words(run: AgentRun, asked: Asked, observer: RunObserver) -> None:
    dying = "import os; print('VK_ERROR_OUT_OF_DEVICE_MEMORY'); os.kill(os.getpid(), 11)"
    child = program(dying, run.path / "simulator.log")
    child.process.wait()
    seen = observer.look(0.0, child, None).simulator
    assert (seen.running, seen.ended, seen.pid) == (False, Ended(139), child.pid)
    assert seen.signs == ((Sign.OUT_OF_VRAM, "VK_ERROR_OUT_OF_DEVICE_MEMORY"),)
    assert asked.ready == 0, "who has ended isn't asked"
    seen = observer.look(1.0, child, None).simulator
    assert (seen.ended, seen.signs) == (Ended(139), ())


def test_end_that_was_asked_for_is_planned(run: AgentRun, observer: RunObserver) -> None:
    sleeping = "import time; time.sleep(60)"
    first, second = (program(sleeping, run.path / "simulator.log") for _ in range(2))
    assert observer.look(0.0, first, None).simulator.running
    observer.expect_end(first)
    first.kill()
    assert observer.look(1.0, first, None).simulator.ended == Ended(137, planned=True)
    second.kill()
    gone = weakref.ref(first)
    assert observer.look(2.0, second, None).simulator.ended == Ended(137)
    del first
    assert gone() is None, "a program that was put away keeps its descriptors"
    agent = program("raise SystemExit(75)", run.path / "agent.log")
    observer.expect_end(agent)
    agent.process.wait()
    seen = observer.look(3.0, second, agent)
    assert (seen.agent.ended, seen.simulator.ended) == (Ended(75, planned=True), Ended(137))


def test_ready_simulator_is_seldom_asked(run: AgentRun, asked: Asked, observer: RunObserver) -> None:
    child = program("import time; time.sleep(60)", run.path / "simulator.log")
    try:
        asked.answer = Health(problem="nothing listens there")
        looks = [observer.look(float(t), child, None).simulator for t in range(3)]
        assert [(look.healthy, look.checks_failed) for look in looks] == [(False, 0)] * 3
        asked.answer = Health("0.9.16", 3)
        assert all(observer.look(float(t), child, None).simulator.healthy for t in range(3, 24))
        assert (asked.ready, asked.answers) == (4, 20 // LIMITS.check_every_s)
        asked.answer = Health(problem="silent")
        looks = [observer.look(float(t), child, None).simulator for t in range(24, 40)]
        assert (looks[-1].checks_failed, looks[-1].problem) == (3, "silent")
        assert asked.pids[-1] == (frozenset({child.pid}), frozenset())
    finally:
        child.kill()


def test_a_gap_between_looks_does_not_age_the_heartbeat(run: AgentRun, observer: RunObserver) -> None:
    agent = program("import time; time.sleep(60)", run.path / "agent.log")
    try:
        observer.look(0.0, None, agent)
        agent_json(run, 1e9)
        observer.look(1.0, None, agent)
        assert observer.look(9.0, None, agent).agent.beat_age_s == 8
        assert observer.look(9.0 + 8 * 3600, None, agent).agent.beat_age_s == 0
    finally:
        agent.kill()


def test_external_simulator_is_looked_at(run: AgentRun, start_server: StartServer) -> None:
    server = start_server()
    address = Address("127.0.0.1", server.port)
    questions = Questions(
        lambda in_use: health.check(address, 1.0, may_tick=not in_use),
        lambda: health.answers(address, 1.0),
        LIMITS.check_every_s,
    )
    simulator = SimulatorMonitor(address, questions, log=None)
    observer = RunObserver(RunPaths(run.path), simulator, Asked().memory, LIMITS.gap_s)
    until(lambda: bool(observer.look(time.monotonic(), None, None).simulator.healthy))
    observer.look(time.monotonic(), None, None)
    server.kill()
    until(lambda: observer.look(time.monotonic(), None, None).simulator.connection_lost)
    seen = observer.look(time.monotonic(), None, None).simulator
    assert (seen.running, seen.healthy, seen.problem) == (True, False, "its connection ended")
    assert seen.checks_failed == 0, "its end was seen, no question waited for"
    observer.close()
