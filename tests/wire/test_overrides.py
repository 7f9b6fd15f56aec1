"""A run that ended goes on with what the launcher's ``overrides.yaml`` changes: nothing is lost, changes are told.

That the changes which cost nothing leave the run bit for bit what it was is shown by ``test_resume``.
"""

from __future__ import annotations

import signal
from collections.abc import Callable
from typing import Any

import pytest
import yaml

from carla_run.exits import Exit
from carla_td3.td3.replay.replay import Replay
from tests.conftest import StartServer
from tests.crowd import PATIENCE_S
from tests.wire.conftest import NewRun
from tests.wire.trainee import SMALL, Run, program

pytestmark = pytest.mark.long

WARM_UP_STEPS = 20
SETTINGS: dict[str, Any] = {
    **SMALL,
    "environment": {**SMALL["environment"], "time_limit": {"constant_s": 3}},
    "training": {**SMALL["training"], "lockstep": True, "checkpoint_every_steps": 20},
    "replay": {"capacity": 3000},
}


def stopped(run: Run) -> None:
    assert run.process is not None
    run.process.send_signal(signal.SIGTERM)
    assert run.process.wait(PATIENCE_S) == Exit.STOPPED


def killed(run: Run) -> None:
    run.kill()


def setting(run: Run, dotted: str) -> Any:
    """Return a value of the configuration that the run was last started with."""
    value = yaml.safe_load((run.path / "config.yaml").read_text())
    for key in dotted.split("."):
        value = value[key]
    return value


def ended(run: Run, end: Callable[[Run], None], steps: int) -> tuple[int, int]:
    """Let a run come so far and end it; return the steps and the updates that are on disk."""
    run.start("--max-timesteps", "20000")
    run.wait(lambda: run.steps >= steps and bool(run.events("checkpoint")))
    end(run)
    return run.steps, run.events("checkpoint")[-1]["updates"]


def gone_on(run: Run, on_disk: tuple[int, int], values: dict[str, Any], *extra: str) -> dict[str, Any]:
    """Let it go on to its end with other values; return the event of the resume after checking what it goes on from."""
    (run.path / "overrides.yaml").write_text(yaml.safe_dump(values))
    before = len(run.events("resumed"))
    run.train("--max-timesteps", str(on_disk[0] + 40), "--resume", *extra)
    resumed = run.events("resumed")[before]
    assert (resumed["steps"], resumed["updates"]) == on_disk
    assert resumed["overrides"] == values
    assert {key: after for key, (_, after) in resumed["changed"].items() if key in values}.items() <= values.items()
    assert {key: setting(run, key) for key in values} == values
    assert (run.beat["step"], run.beat["exit_code"]) == (on_disk[0] + 40, 0)
    assert run.steps == on_disk[0] + 40
    return resumed


@pytest.mark.parametrize("end", [stopped, killed])
def test_changes_that_cost_no_learning(
    start_server: StartServer, forked_run: NewRun, end: Callable[[Run], None]
) -> None:
    run = forked_run("run", start_server(), settings=SETTINGS)
    on_disk = ended(run, end, steps=70)
    values = {
        "device": "cpu",
        "td3.micro_batch": 3,
        "memory.offload": ["optimizer", "targets"],
        "training.max_lead_steps": 32,
        "training.keep_checkpoints": 1,
        "training.learner_threads": 2,
        "evaluation.video": True,
    }
    resumed = gone_on(run, on_disk, values)
    assert resumed["changed"]["td3.micro_batch"] == [None, 3]
    assert (run.beat["updates"], run.beat["batch"], run.beat["micro_batch"]) == (on_disk[0] + 40 - WARM_UP_STEPS, 8, 3)
    assert len(list((run.path / "checkpoints").glob("step-*"))) == 1


def test_changes_of_the_experiment(start_server: StartServer, forked_run: NewRun) -> None:
    run = forked_run("run", start_server(), settings=SETTINGS)
    on_disk = ended(run, stopped, steps=70)
    values = {"td3.batch_size": 4, "environment.traffic.vehicles": 2, "training.updates_per_step": 0.5}
    gone_on(run, on_disk, values)
    owed = on_disk[0] - WARM_UP_STEPS + 20  # one a step up to here, one every other step from here on
    assert (run.beat["updates"], run.beat["batch"]) == (owed, 4)
    owed_later = owed + 40
    gone_on(run, (on_disk[0] + 40, owed), {**values, "training.updates_per_step": 1.0})
    assert run.beat["updates"] == owed_later


def test_another_ratio_of_updates_outlives_a_kill(start_server: StartServer, forked_run: NewRun) -> None:
    run = forked_run("run", start_server(), settings=SETTINGS)
    changed_at, _ = ended(run, stopped, steps=70)
    seldom = ("--resume", "--set", "training.checkpoint_every_steps=20000", "--set", "training.updates_per_step=0.5")
    run.start("--max-timesteps", "20000", *seldom)
    run.wait(lambda: run.steps >= changed_at + 40)
    killed(run)
    end = run.steps + 20
    run.train("--max-timesteps", str(end), *seldom)
    assert run.beat["updates"] == changed_at - WARM_UP_STEPS + (end - changed_at) // 2


def test_a_smaller_replay_keeps_the_newest_rows_and_a_larger_one_all(
    start_server: StartServer, forked_run: NewRun
) -> None:
    run = forked_run(
        "run", start_server(), settings={**SETTINGS, "training": {**SETTINGS["training"], "lockstep": False}}
    )
    fast = ("--set", "training.updates_per_step=0.05", "--set", "training.warmup_steps=1200")
    run.start("--max-timesteps", "20000", *fast)
    run.wait(lambda: run.steps >= 1300 and bool(run.events("checkpoint")))
    killed(run)
    on_disk = (run.steps, run.events("checkpoint")[-1]["updates"])
    before = Replay.open(run.path / "replay")
    rows = before.rows
    gone_on(run, on_disk, {"replay.capacity": 1000}, *fast)
    reported, after = run.events("replay_reshaped")[0], Replay.open(run.path / "replay")
    assert (reported["capacity_before"], reported["capacity"], reported["rows"]) == (3000, 1000, 1000)
    assert reported["dropped"] == rows - 1000
    assert (after.capacity, after.size) == (1000, 1000)
    unchanged = range(after.rows - 900, rows)
    for row in unchanged:
        assert after._ring.rows[row % 1000] == before._ring.rows[row % 3000]
        assert (after._ring.frames[row % 1000] == before._ring.frames[row % 3000]).all()
    gone_on(run, (run.steps, run.beat["updates"]), {"replay.capacity": 2000}, *fast)
    assert Replay.open(run.path / "replay").capacity == 2000


def test_a_smaller_observation_and_back(start_server: StartServer, forked_run: NewRun) -> None:
    server = start_server()
    evaluated = {"every_steps": 0, "final_episodes": 1, "baselines": False, "video": True}
    run = forked_run("run", server, settings={**SETTINGS, "evaluation": evaluated})
    on_disk = ended(run, stopped, steps=70)
    smaller = {"environment.camera.width": 64, "environment.camera.height": 64}
    resumed = gone_on(run, on_disk, smaller)
    assert resumed["changed"] == {key: [84, 64] for key in smaller} | {
        key: change for key, change in resumed["changed"].items() if key not in smaller
    }
    reported = run.events("replay_reshaped", "features_adapted")
    assert [event["event"] for event in reported] == ["replay_reshaped", "features_adapted"]
    assert (reported[0]["side_before"], reported[0]["side"], reported[0]["dropped"]) == (84, 64, 0)
    assert "another frame size" in reported[1]["cause"]
    assert run.tensors["online.encoder.trunk.weight"].shape == (16, 4 * 4 * 4)
    updates = on_disk[0] + 40 - WARM_UP_STEPS
    assert run.beat["updates"] == updates
    assert [event["step"] for event in run.events("evaluated")] == [on_disk[0] + 40]
    assert (run.path / "videos" / "td3.mp4").stat().st_size > 10_000
    judged = program(
        server.port, "scripts/evaluate_td3.py", "--checkpoint", str(run.path), "--routes", "1", "--drivers", "td3"
    )
    assert judged.returncode == 0, judged.stderr
    gone_on(run, (on_disk[0] + 40, updates), dict.fromkeys(smaller, 84))
    assert run.tensors["online.encoder.trunk.weight"].shape == (16, 7 * 7 * 4)
