"""Memory that really runs out for an agent under its launcher (RLIMIT_AS): in its first update, and in mid-run.

The limit is set in the learner, as an update begins (``scripts/shortage``): no test has to meet a moment.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import safetensors.numpy
import yaml

from tests.soak.witness import Witness
from tests.wire.launched import ENDLESS, Launch, Launched, own_limits
from tests.wire.staged import WIDE, overrides, settings, short_of_memory, taken
from tests.wire.trainee import SMALL

WARM_UP_STEPS, UPDATES = 20, 4
BATCH = WIDE["batch_size"]
SETTINGS: dict[str, Any] = {
    **SMALL,
    "seed": 3,
    "td3": WIDE,
    "training": {
        **SMALL["training"],
        "total_steps": ENDLESS,
        "warmup_steps": WARM_UP_STEPS,
        "lockstep": True,
        "checkpoint_every_steps": UPDATES,
        "keep_checkpoints": 100,
    },
}
RESTORES_SOON: dict[str, Any] = {
    "restore.settle_s": 1,
    "restore.hold_s": 5,
    "memory.pressure_s": 3600,
    "watch.interval_s": 0.5,
}
"""It is on probation for minutes, and nothing but the agent's own shortage makes a run give way."""


def configured(folder: Path, **training: Any) -> tuple[str, ...]:
    """Return the option for the agent's configuration in a file."""
    path = folder / "agent.yaml"
    path.write_text(yaml.safe_dump({**SETTINGS, "training": {**SETTINGS["training"], **training}}), encoding="utf-8")
    return "--config", str(path)


def learned(run: Launched) -> dict[str, bytes]:
    """Return all that the first checkpoint holds; its name may be of a step later, which is driven meanwhile."""
    first = run.agent_events("checkpoint")[0]
    assert first["updates"] == UPDATES
    tensors = run.run / "checkpoints" / f"step-{first['steps']:09d}" / "tensors.safetensors"
    return {name: tensor.tobytes() for name, tensor in safetensors.numpy.load_file(tensors).items()}


def driven(run: Launched) -> Witness:
    witness = Witness(run.run / "replay")
    assert witness.look() >= WARM_UP_STEPS + UPDATES
    return witness


def values(run: Launched) -> list[dict[str, Any]]:
    """Return the values of the steps on which a run stands."""
    return [step["values"] for step in taken(run)]


@pytest.mark.long
def test_a_shortage_in_the_first_update_is_met_before_the_first_step(launch: Launch, tmp_path: Path) -> None:
    """The launcher takes the rung that the rehearsal found, and the run is, bit for bit, one that was told to."""
    run = launch(ENDLESS, *configured(tmp_path), environment=short_of_memory(updates=1))
    # Two, so that the one of the stop isn't of the first one's step, and takes its place.
    run.until(lambda: bool(run.events("rung_adopted")) and len(run.agent_events("checkpoint")) > 1)
    run.stop()
    reported, (rehearsed,), (ready,) = map(run.agent_events, ("out_of_memory", "rehearsed", "collector_ready"))
    order = [row["event"] for row in run.agent_events("out_of_memory", "rehearsed", "collector_ready")]
    assert order == ["out_of_memory"] * len(reported) + ["rehearsed", "collector_ready"], "before anybody drives"
    assert {row["phase"] for row in reported} <= {"rehearsed critic", "rehearsed actor"}
    assert all("DefaultCPUAllocator" in row["cause"] or "primitive" in row["cause"] for row in reported)
    assert ({row["updates"] for row in reported}, ready["steps"]) == ({0}, 0)
    found = rehearsed["micro_batch"]
    assert (reported[-1]["action"], reported[-1]["next_micro_batch"]) == ("halved", found)
    assert found < BATCH

    rung = {"td3.micro_batch": found}
    assert [row["rung"] for row in run.events("rung_adopted")] == [f"micro_batches (td3.micro_batch = {found})"]
    assert values(run) == [overrides(run)] == [rung]
    assert (run.beat["batch"], run.beat["micro_batch"]) == (BATCH, found)
    assert len(run.events("agent_starts")) == len(run.agent_events("started")) == 1

    as_told = launch(ENDLESS, *configured(tmp_path), *settings(td3__micro_batch=found), run_name="as-told")
    as_told.until(lambda: len(as_told.agent_events("checkpoint")) > 1)
    as_told.stop()
    assert not as_told.agent_events("out_of_memory")
    assert driven(run).unlike(driven(as_told)) == []
    assert learned(run) == learned(as_told)


def test_a_shortage_in_mid_run_is_met_within_the_update_and_the_rung_outlives_the_launcher(
    launch: Launch, tmp_path: Path
) -> None:
    """The launcher restores to the whole batch, for which there is no room; then it is killed and started again."""
    free_running = configured(tmp_path, lockstep=False, updates_per_step=0.1, checkpoint_every_steps=ENDLESS)
    limits = own_limits(tmp_path, RESTORES_SOON)
    run = launch(ENDLESS, *free_running, *limits, environment=short_of_memory(updates=ENDLESS))

    def stands_again() -> bool:
        events = [row["event"] for row in run.events("rung_adopted", "rung_left")]
        return "rung_adopted" in events[events.index("rung_left") :] if "rung_left" in events else False

    run.until(stands_again)
    pid = run.beat["pid"]
    run.end()
    (asked,) = run.agent_events("applied")
    assert (asked["values"], run.events("request")[0]["kind"]) == ({"td3.micro_batch": None}, "apply")
    reported = [row for row in run.agent_events("out_of_memory") if row["time"] > asked["time"]]
    first = [row for row in reported if row["updates"] == reported[0]["updates"]]
    assert (first[0]["phase"], first[0]["micro_batch"], first[-1]["action"]) == ("critic", BATCH, "halved")
    assert 0 < first[0]["updates"] < run.beat["updates"], "the same update was finished"
    assert (len(run.agent_events("started", "resumed")), len(run.events("restore_failed"))) == (1, 1)
    rung = values(run)[-1]
    assert rung == {"td3.micro_batch": reported[-1]["next_micro_batch"]}
    assert rung["td3.micro_batch"] < BATCH

    again = launch(None)
    again.until(lambda: again.beat["pid"] != pid and again.beat["updates"] > reported[0]["updates"])
    assert [row["overrides"] for row in again.events("agent_starts")] == [{}, rung]
    assert [row["overrides"] for row in again.agent_events("started", "resumed")] == [{}, rung]
    assert again.agent_events("rehearsed")[-1]["micro_batch"] == rung["td3.micro_batch"]
    assert (again.beat["batch"], again.beat["micro_batch"]) == (BATCH, rung["td3.micro_batch"])
    assert values(again)[-1] == overrides(again) == rung
    again.stop()
