"""SIGTERM and SIGINT end a run in the middle of its work: exit code 75, a checkpoint is written, no process is left.

The collector ends by itself: its grace here is longer than any test.

torch.compile is not used in training, so there is no phase of that name to stop in.
"""

from __future__ import annotations

import signal
from collections.abc import Callable
from itertools import cycle
from typing import Any

import pytest

from carla_run.exits import Exit
from carla_run.heartbeat import CollectorState
from carla_td3.trainer import checkpoint
from tests.conftest import StartServer
from tests.crowd import PATIENCE_S
from tests.soak.run_monitor import RunMonitor
from tests.wire.conftest import NewRun
from tests.wire.trainee import SMALL, Run, running

# Widths and batch of Stable-Baselines3: an update takes a good part of a second, a rehearsal more.
LARGE: dict[str, Any] = {
    "batch_size": 256,
    "network": {"channels": [32, 64, 64], "features": 512, "hidden": [256, 256]},
}


def stop(run: Run, number: signal.Signals, unfinished: str = "evaluation.json") -> None:
    """Send the signal and require what the module's first line says; what it was at would have left ``unfinished``."""
    assert run.process is not None
    collectors = RunMonitor(run).collectors
    run.process.send_signal(number)
    out, _ = run.process.communicate(timeout=PATIENCE_S)
    assert run.process.returncode == Exit.STOPPED, out + run.collector_log
    assert not any(map(running, collectors))
    assert run.events("stopped")[-1]["cause"] == number.name
    assert run.events("checkpoint")[-1]["updates"] == run.events("stopped")[-1]["updates"]
    assert checkpoint.exists(run.path)
    assert not list(run.path.glob(unfinished))


def settings(**changes: dict[str, Any]) -> dict[str, Any]:
    """Return the small configuration, long, with sections changed."""
    training = {**SMALL["training"], "total_steps": 50_000}
    long: dict[str, Any] = {**SMALL, "training": training, "collector": {"stop_grace_s": 3600}}
    return {**long, **{name: {**long.get(name, {}), **values} for name, values in changes.items()}}


def importing(run: Run) -> bool:
    """Whether the run's directory is taken, which comes before torch is imported; about 2 s before ``rehearsing``."""
    return (run.path / "learner.lock").exists() and not run.events("footprint")


def rehearsing(run: Run) -> bool:
    return bool(run.events("started")) and not run.events("rehearsed")


PHASES: dict[str, tuple[dict[str, Any], Callable[[Run], bool]]] = {
    "importing": (settings(td3=LARGE), importing),
    "rehearsing": (settings(td3={**LARGE, "batch_size": 512}), rehearsing),
    "warming": (settings(training={"warmup_steps": 40_000}), lambda run: run.steps > 10),
    "updating": (settings(td3=LARGE), lambda run: run.beat.get("updates", 0) > 0),
    "saving": (settings(td3=LARGE, training={"checkpoint_every_steps": 1}), lambda run: RunMonitor(run).saving),
    "evaluating": (
        settings(evaluation={"every_steps": 30, "episodes": 60}, environment={"time_limit": {"constant_s": 50}}),
        lambda run: RunMonitor(run).state is CollectorState.EVALUATING,
    ),
    "recording": (
        settings(training={"total_steps": 60}, evaluation={"final_episodes": 1, "video": True}),
        lambda run: RunMonitor(run).state is CollectorState.RECORDING,
    ),
}


@pytest.mark.parametrize(("phase", "number"), list(zip(PHASES, cycle((signal.SIGTERM, signal.SIGINT)), strict=False)))
def test_a_stop_is_honoured_before_the_phase_is_over(
    start_server: StartServer, new_run: NewRun, phase: str, number: signal.Signals
) -> None:
    configuration, reached = PHASES[phase]
    run = new_run("run", start_server(), settings=configuration)
    run.start()
    run.wait(lambda: reached(run))
    stop(run, number, "videos/*.mp4" if phase == "recording" else "evaluation.json")


def test_a_stop_is_honoured_while_the_simulator_is_not_up_yet(start_server: StartServer, new_run: NewRun) -> None:
    server = start_server()
    server.end()
    run = new_run("run", server, settings=settings())
    run.start()
    run.wait(lambda: RunMonitor(run).state is CollectorState.CONNECTING)
    stop(run, signal.SIGTERM)


@pytest.mark.parametrize("vehicles", [0, 2])
def test_a_stop_is_honoured_while_a_lost_simulator_is_waited_for(
    start_server: StartServer, new_run: NewRun, vehicles: int
) -> None:
    server = start_server()
    run = new_run("run", server, settings=settings(environment={"traffic": {"vehicles": vehicles}}))
    run.start()
    run.wait(lambda: run.steps > 30)
    server.kill()
    run.wait(lambda: RunMonitor(run).state is CollectorState.CONNECTING)
    stop(run, signal.SIGTERM)
