"""A disk whose blocks fail for reading and writing (EIO): one sentence with the file, nothing else lost, no circles."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from carla_run.exits import Exit
from tests.conftest import StartServer
from tests.crowd import PATIENCE_S
from tests.disks import FailingDisk, failing_disk
from tests.wire.conftest import NewRun
from tests.wire.launched import ENDLESS, Launched, first_time
from tests.wire.trainee import SMALL, Run

SETTINGS: dict[str, Any] = {
    **SMALL,
    "replay": {"capacity": 1000},
    "training": {**SMALL["training"], "total_steps": 20_000, "checkpoint_every_steps": 40},
}


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[FailingDisk]:
    with failing_disk(tmp_path, mib=64, goes_on=True) as found:
        yield found


def on_disk(disk: FailingDisk, run: Path, folder: str) -> Path:
    """Put one folder of a run on the disk that will fail."""
    there = disk.path / folder
    there.mkdir()
    (run / folder).symlink_to(there)
    return there


def stopped(run: Run, steps: int) -> None:
    """Train until so many steps, and stop."""
    process = run.start()
    run.wait(lambda: run.steps > steps)
    process.send_signal(signal.SIGTERM)
    process.communicate(timeout=PATIENCE_S)


@pytest.mark.parametrize("name", ["published", "rows.bin"])
def test_what_can_t_be_read_of_a_replay_is_named(
    start_server: StartServer, forked_run: NewRun, disk: FailingDisk, name: str
) -> None:
    run = forked_run("run", start_server(), settings=SETTINGS)
    there = on_disk(disk, run.path, "replay")
    stopped(run, 60)
    disk.break_off(there / name, known=there.glob("*.json"))
    sentence = f"{run.path}/replay/{name}: its disk fails (Input/output error): look at the kernel's messages"
    assert run.refused("--resume").startswith(sentence)


@pytest.mark.long
def test_rows_whose_pictures_can_t_be_read_are_left_out_and_a_block_that_can_t_be_stored_into_is_named(
    start_server: StartServer, new_run: NewRun, disk: FailingDisk
) -> None:
    run = new_run("run", start_server(), settings=SETTINGS)
    there = on_disk(disk, run.path, "replay")
    stopped(run, 150)
    known = [path for path in there.iterdir() if path.suffix != ".u8"]
    disk.break_off(there / "frames.u8", known=known, after=80 * 7056)
    said = run.refused("--resume")
    assert said.startswith("Collector 0 was killed by SIGBUS again and again: the disk of "), run.collector_log
    (damaged,) = run.events("rows_damaged")
    assert 70 <= damaged["rows"][1] <= 81, "the first 80 pictures can be read"
    assert {event["signal"] for event in run.events("collector_restarted")} == {signal.SIGBUS}


@pytest.mark.long
def test_a_checkpoint_that_can_t_be_written_costs_only_itself(
    start_server: StartServer, forked_run: NewRun, disk: FailingDisk
) -> None:
    run = forked_run("run", start_server(), settings=SETTINGS)
    there = on_disk(disk, run.path, "checkpoints")
    process = run.start()
    run.wait(lambda: len(run.events("checkpoint")) >= 2)
    kept = run.events("checkpoint")[-1]
    disk.cut(4 << 20)
    run.wait(lambda: len(run.events("checkpoint_failed")) >= 2)
    assert "can't be written (" in run.events("checkpoint_failed")[0]["cause"]
    process.send_signal(signal.SIGTERM)
    out, _ = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == Exit.BAD_CONFIG, out
    assert "Traceback" not in out
    assert f"--resume continues from step-{kept['steps']:09d}" in out.splitlines()[-1]
    assert there.exists()


@pytest.mark.long
def test_a_launcher_reports_a_disk_that_fails_and_restarts_nothing(tmp_path: Path, disk: FailingDisk) -> None:
    launched = Launched(tmp_path)
    launched.run.mkdir(parents=True)
    there = on_disk(disk, launched.run, "replay")
    try:
        launched.up(*first_time(tmp_path, ENDLESS), "--simulator", "carla-lite", "--", "--set", "replay.capacity=1000")
        launched.until_training()
        launched.stop()
        disk.break_off(there / "rows.bin", known=there.glob("*.json"))
        launched.up("--resume")
        output = launched.output()
    finally:
        launched.end()
    assert launched.process.returncode == Exit.BAD_CONFIG, output
    assert "rows.bin: its disk fails (Input/output error)" in output
    assert "Traceback" not in output
    assert launched.events("agent_restart") == []


@pytest.mark.long
def test_a_disk_that_fails_whole_ends_the_run_with_a_sentence(tmp_path: Path) -> None:
    with failing_disk(tmp_path, mib=900) as disk:
        (disk.path / "runs").mkdir()
        (tmp_path / "runs").symlink_to(disk.path / "runs")
        launched = Launched(tmp_path)
        try:
            launched.up(*first_time(tmp_path, ENDLESS), "--simulator", "carla-lite")
            launched.until_training()
            disk.cut(4 << 20)
            subprocess.run(["sync", "-f", str(disk.path)], check=False, capture_output=True)
            os.kill(launched.process.pid, signal.SIGTERM)
            output = launched.output()
        finally:
            launched.end()
        assert launched.process.returncode == Exit.BAD_CONFIG, output
        assert "Traceback" not in output
