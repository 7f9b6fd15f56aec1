"""Memory of an evaluation: known before training, and without effect on it."""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path

import psutil
import pytest

from carla_run.heartbeat import CollectorState
from carla_run.memory.processes import held_mib
from carla_run.paths import RunPaths
from carla_td3.collector.evaluations import RunEvaluations
from carla_td3.collector.watchdog import WatchdogEnv
from carla_td3.config import AgentConfig, validate
from carla_td3.evaluation.routes import completed
from carla_td3.exchange.messages import Driving
from carla_td3.exchange.status import Status
from carla_td3.td3.networks import Policy
from tests.conftest import Server, StartServer
from tests.wire.conftest import Connect, NewRun
from tests.wire.trainee import SMALL, Run

# Driving makes this much of an evaluation's growth: the car, its sensors, an episode (2 MiB seen).
DRIVING_MIB = 6.0
# The chase camera's pictures, on their way and here (13 MiB seen).
CHASE_MIB = 24.0


@dataclass
class Peaks:
    """The highest memory of the collector and its children, MiB, by what the collector was doing."""

    evaluating: float = 0.0
    recording: float = 0.0

    def watch(self, run: Run) -> None:
        """Look at a running collector until the training ends."""
        assert run.process is not None
        status = Status(run.path / "exchange" / "status.bin")
        while run.process.poll() is None:
            doing = status.read().state
            if doing is CollectorState.EVALUATING:
                self.evaluating = max(self.evaluating, _family_mib(run))
            elif doing is CollectorState.RECORDING:
                self.recording = max(self.recording, _family_mib(run))
            time.sleep(0.01)


def _family_mib(run: Run) -> float:
    try:
        collector = psutil.Process(run.beat["collector"]["pid"])
        encoders = [child.pid for child in collector.children() if "ffmpeg" in child.name()]
    except (psutil.Error, TypeError, ValueError):
        return 0.0
    return sum(held_mib(pid) or 0.0 for pid in (collector.pid, *encoders))


@pytest.mark.long
def test_an_evaluation_takes_what_was_rehearsed(start_server: StartServer, new_run: NewRun) -> None:
    run = new_run("run", start_server())
    run.start(
        *("--eval-freq", "60", "--num-eval-episodes", "2", "--set", "environment.time_limit.constant_s=6"),
        *("--set", "evaluation.video=true", "--set", "evaluation.baselines=true"),
    )
    run.wait(lambda: bool(run.events("evaluation_rehearsed")))
    rehearsed = run.events("evaluation_rehearsed")[0]
    assert rehearsed["before_mib"] <= rehearsed["after_mib"] < 1.1 * rehearsed["before_mib"]
    assert 10 < rehearsed["encoder_mib"] < 60
    peaks = Peaks()
    peaks.watch(run)
    run.finish()
    assert rehearsed["before_mib"] < peaks.evaluating < rehearsed["after_mib"] + DRIVING_MIB
    filming = rehearsed["after_mib"] + rehearsed["encoder_mib"]
    assert rehearsed["after_mib"] < peaks.recording < filming + DRIVING_MIB + CHASE_MIB
    final = run.events("evaluated")[-1]
    assert final["collector_mib"] < rehearsed["after_mib"] + DRIVING_MIB + CHASE_MIB
    assert abs(final["encoder_mib"] - rehearsed["encoder_mib"]) < 15


@pytest.mark.long
def test_a_second_collector_rehearses_nothing(start_server: StartServer, new_run: NewRun) -> None:
    run = new_run("run", start_server())
    run.start("--max-timesteps", "200", "--eval-freq", "150", "--num-eval-episodes", "1")
    run.wait(lambda: run.steps >= 30)
    psutil.Process(run.beat["collector"]["pid"]).kill()
    run.finish()
    assert len(run.events("collector_ready")) == 2
    assert len(run.events("evaluation_rehearsed")) == 1


def watched_env(server: Server, folder: Path) -> tuple[AgentConfig, WatchdogEnv, Status]:
    settings = validate({**SMALL, "evaluation": {"video": False}, "simulator": {"port": server.port}}, source="test")
    status = Status(folder / "status.bin")
    return settings, WatchdogEnv(settings, status), status


def test_a_rehearsal_leaves_simulator_and_draws_as_they_were(
    start_server: StartServer, connect: Connect, tmp_path: Path
) -> None:
    server = start_server()
    names: list[str] = []
    told: list[Driving] = []
    for rehearse in (False, True):
        settings, env, status = watched_env(server, tmp_path)
        try:
            if rehearse:
                policy = Policy(settings.td3.network)
                evaluations = RunEvaluations(settings, RunPaths(tmp_path), env, policy, status, told.append)
                assert completed(evaluations.rehearse()).routes == settings.evaluation.final_episodes
                assert env.session.ticks == 0
                vehicles = connect(server, synchronous=False).world.get_actors().filter("vehicle.*")
                assert len(vehicles) == 0
            env.reset(seed=5)
            names.append(env.state.route.name)
        finally:
            env.close()
    assert names[0] == names[1]
    assert told == []
