"""A real agent that can't begin as it is asked to, under the launcher: what is wrong is named; only that gives way."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from carla_launcher.observe.pools import PoolKind
from carla_launcher.resolve.footprint import Footprint
from tests.disks import small_disk
from tests.gpu_stub.stub import Figures
from tests.wire.launched import ENDLESS, QUICK, Launch, Launched, first_time, own_limits
from tests.wire.staged import QUICK as SOON
from tests.wire.staged import card_of, overrides, taken

pytestmark = pytest.mark.long

LEFT_MIB = 40.0
"""Free disk beside the agent's needs: less than its memory.reserve_mib of 64."""


without_cuda = pytest.mark.skipif(torch.version.cuda is not None, reason="torch is a build with CUDA")


@pytest.fixture
def card(tmp_path: Path) -> Iterator[Figures]:
    """A card that the driver shows, and that this environment's PyTorch, built without CUDA, can't use."""
    yield from card_of(tmp_path, 8192)


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """A disk on which the launcher, which here keeps none free, lets the agent begin, and on which it refuses to."""
    config = tmp_path / "quick.yaml"
    config.write_text(QUICK % {"steps": ENDLESS}, encoding="utf-8")
    (sizes,) = Footprint(str(config)).sizes([{"device": "cpu"}])
    with small_disk(tmp_path, mib=round(sizes.mib[PoolKind.DISK] + LEFT_MIB)) as found:
        yield found


def launched(disk: Path, folder: Path, **changes: Any) -> Launched:
    limits = {"memory.reserve_mib.disk": 0, **{key.replace("__", "."): value for key, value in changes.items()}}
    made = Launched(disk)
    made.up(*first_time(disk, ENDLESS), "--simulator", "carla-lite", "--device", "cpu", *own_limits(folder, limits))
    return made


def test_an_agent_that_refuses_for_disk_keeps_its_batch_and_fewer_checkpoints(disk: Path, tmp_path: Path) -> None:
    run = launched(disk, tmp_path)
    try:
        run.until_training()
        (refused,) = run.agent_events("cannot_fit")
        assert (refused["pool"], refused["folder"]) == ("disk", str(run.run))
        assert f"in {run.run}: free some disk there" in refused["cause"]
        (found,) = run.events("finding", diagnosis="agent_disk_full")
        assert (found["pool"], found["exit_code"]) == ("disk", 71)
        assert [each["rung"] for each in taken(run)] == ["fewer_checkpoints"]
        assert overrides(run) == {"training.keep_checkpoints": 1}
        assert run.beat["micro_batch"] == run.beat["batch"] == 8
        run.stop()
    finally:
        run.end()


def test_a_disk_that_no_rung_helps_ends_the_run_with_71_and_says_what_to_free(disk: Path, tmp_path: Path) -> None:
    stop = {"name": "stop", "does": "stop", "cost": "the run"}
    once = {"budget": 1, "stable_after_s": 600, "first_delay_s": 0.1, "longest_delay_s": 1, "jitter": 0}
    run = launched(disk, tmp_path, ladder__disk=[stop], agent__restarts=once)
    try:
        output = run.output()
        assert run.process.returncode == 71, output
        assert len(run.agent_events("cannot_fit")) == 2
        reason = run.state["reason"]
        assert reason.startswith("the agent needs more disk space than is free (exit code 71)")
        assert reason.endswith("free some of the disk that the run is on")
        assert run.state["taken"] == []
    finally:
        run.end()


@without_cuda
def test_a_card_that_torch_cant_use_is_said_once_and_the_run_goes_on_as_one_on_the_cpu(
    launch: Launch, tmp_path: Path, card: Figures
) -> None:
    limits = own_limits(tmp_path, {**SOON, "restore.hold_s": 1})
    run = launch(ENDLESS, "--simulator", "carla-lite", *limits, environment=card.environment)
    run.until(lambda: bool(run.events("planned_without_cuda")))
    agent = run.beat["pid"]
    (reported,) = run.agent_events("no_cuda")
    assert (reported["reason"], reported["device"]) == ("cpu_build", "auto")
    assert (run.beat["cuda"], run.beat["gave_way"], run.beat["device"]) == ("cpu_build", None, "cpu")
    run.until_stepping(300)  # many looks and more than one hold later
    assert [row["reason"] for row in run.events("planned_without_cuda")] == ["cpu_build"]
    assert not run.events("rung_adopted", "rung_taken", "rung_left", "agent_restart", "finding")
    assert (taken(run), overrides(run), run.beat["pid"]) == ([], {}, agent)
    run.process.terminate()
    output = run.output()
    assert run.process.returncode == 75, output
    assert output.count("its PyTorch was built without CUDA; the plan now expects that") == 1


@without_cuda
def test_cuda_that_is_asked_for_and_cant_be_used_ends_the_run_with_65_and_one_sentence(
    launch: Launch, card: Figures
) -> None:
    run = launch(ENDLESS, "--simulator", "carla-lite", "--device", "cuda", environment=card.environment)
    output = run.output()
    assert run.process.returncode == 65, output
    assert "Traceback" not in output
    assert len(run.events("agent_starts")) == 1
    assert run.state["reason"].startswith(
        "the agent refused its configuration, or a disk refused its files (exit code 65): torch 2.13.0+cpu is a build "
        "without CUDA"
    )
    assert not run.events("rung_adopted", "rung_taken")
