"""A resumed run is the run that went on, bit for bit: states, random numbers, and the next 200 steps with traffic.

A simulator can't be restored in mid-episode, so both runs meet a fresh one at the checkpoint: the learner of the first
lives on and only its simulator is replaced; the second's learner ends there too, in order or by SIGKILL.
"""

from __future__ import annotations

import json
import signal
from collections.abc import Callable
from typing import Any

import pytest
import yaml

from carla_run.exits import Exit
from carla_run.heartbeat import CollectorState
from tests.conftest import Server, StartServer
from tests.crowd import PATIENCE_S
from tests.soak.run_monitor import RunMonitor
from tests.wire.conftest import NewRun
from tests.wire.trainee import SMALL, Run

SEED = 5
WARM_UP_STEPS, BOUNDARY, AFTER = 20, 80, 200
SETTINGS: dict[str, Any] = {
    **SMALL,
    "seed": SEED,
    "environment": {
        "time_limit": {"constant_s": 3},
        "blocked_s": 2,  # evaluations, which have NoCrash's time, of a driver that stands
        "route": {"min_length_m": 60, "max_length_m": 200},
        "traffic": {"vehicles": [2, 4], "walkers": [2, 6], "lights": True},
        "weather": ["ClearNoon", "WetNoon"],
    },
    "training": {
        "total_steps": BOUNDARY + AFTER,
        "warmup_steps": WARM_UP_STEPS,
        "lockstep": True,
        "learner_threads": 1,
        "checkpoint_every_steps": BOUNDARY - WARM_UP_STEPS,  # counted in updates: it falls on the boundary
    },
    # The boundary is an evaluation: in lockstep both processes rest there, and a training episode ends in any case.
    "evaluation": {"every_steps": BOUNDARY, "episodes": 2, "final_episodes": 1, "baselines": False, "video": False},
}


def goes_on(run: Run, server: Server, start_server: StartServer) -> None:
    server.kill()
    start_server(seed=SEED, port=server.port)


def stopped_in_order(run: Run, server: Server, start_server: StartServer) -> None:
    assert run.process is not None
    run.process.send_signal(signal.SIGTERM)
    assert run.process.wait(PATIENCE_S) == Exit.STOPPED
    server.kill()
    start_server(seed=SEED, port=server.port)
    run.start("--resume")


def killed(run: Run, server: Server, start_server: StartServer) -> None:
    run.kill()
    server.kill()
    start_server(seed=SEED, port=server.port)
    run.start("--resume")


def killed_and_given_another_rung(run: Run, server: Server, start_server: StartServer) -> None:
    """Keys that the launcher may change without changing what is learned."""
    values = {
        "device": "cpu",
        "memory.offload": ["optimizer", "targets"],
        "training.max_lead_steps": 32,
        "training.keep_checkpoints": 1,
        "evaluation.video": True,
    }
    (run.path / "overrides.yaml").write_text(yaml.safe_dump(values))
    killed(run, server, start_server)


def trained(
    run: Run, server: Server, start_server: StartServer, at_the_boundary: Callable[[Run, Server, StartServer], None]
) -> Run:
    monitor = RunMonitor(run)
    run.start()
    run.wait(lambda: run.steps == BOUNDARY and monitor.state is CollectorState.EVALUATING and monitor.saved_updates > 0)
    assert not run.events("evaluated")
    at_the_boundary(run, server, start_server)
    run.finish()
    return run


def everything(run: Run) -> dict[str, Any]:
    """Return what a run leaves that the next step depends on, and what it found on the way."""
    root = run.path / "checkpoints"
    values = json.loads((root / (root / "latest").read_text().strip() / "values.json").read_text())
    replay = {name: (run.path / "replay" / name).read_bytes() for name in ("frames.u8", "rows.bin", "published")}
    tensors = {name: tensor.tobytes() for name, tensor in run.tensors.items()}
    found = [(event["step"], event["totals"]) for event in run.events("evaluated")]
    return {**replay, **tensors, "values": values, "evaluations": found}


@pytest.mark.long
def test_a_resumed_run_equals_the_one_that_went_on(start_server: StartServer, new_run: NewRun) -> None:
    left = {}
    for ending in (goes_on, stopped_in_order, killed, killed_and_given_another_rung):
        server = start_server(seed=SEED)
        run = new_run(ending.__name__, server, settings=SETTINGS)
        left[ending.__name__] = everything(trained(run, server, start_server, ending))
    expected = left.pop("goes_on")
    assert expected["values"]["updates"] == BOUNDARY + AFTER - WARM_UP_STEPS
    assert [step for step, _ in expected["evaluations"]] == [80, 160, 240, 280]
    assert {"noise", "updates", "adam.encoder.layers.0.weight.exp_avg"} & expected.keys()
    for name, found in left.items():
        assert found.keys() == expected.keys()
        assert [part for part in expected if found[part] != expected[part]] == [], name


@pytest.mark.long
def test_so_does_one_that_goes_from_town_to_town(start_server: StartServer, new_run: NewRun) -> None:
    towns = {"maps": ["Lite:seed={seed},size=200"], "every_episodes": 2}
    settings = {**SETTINGS, "training": {**SETTINGS["training"], "total_steps": BOUNDARY + 40, "towns": towns}}
    left = []
    for ending in (goes_on, killed):
        server = start_server(seed=SEED)
        run = trained(new_run(ending.__name__, server, settings=settings), server, start_server, ending)
        left.append(everything(run))
        assert len({row["map"] for row in run.events("town")}) >= 3
    assert [part for part in left[0] if left[1].get(part) != left[0][part]] == []
