"""Trainings on a disk that is full or read-only: no start, or training goes on; what was saved before still loads."""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from carla_run.exits import Exit
from tests.conftest import StartServer
from tests.crowd import PATIENCE_S
from tests.disks import failing_disk, fill, read_only, small_disk
from tests.wire.trainee import SMALL, Run

SETTINGS: dict[str, Any] = {
    **SMALL,
    "training": {**SMALL["training"], "total_steps": 20_000, "checkpoint_every_steps": 40},
}
WIDE: dict[str, Any] = {
    **SETTINGS,
    "td3": {"batch_size": 8, "network": {"channels": [8, 8, 8], "features": 64, "hidden": [128, 128]}},
    "memory": {"reserve_mib": 16},
}
"""A checkpoint takes 2 MiB."""
ENOUGH_MIB = 160
"""The ring's 29, memory.reserve_mib's 64, and room for checkpoints."""


def test_a_run_can_t_begin_on_a_full_or_read_only_disk(tmp_path: Path) -> None:
    with small_disk(tmp_path, mib=ENOUGH_MIB) as disk:
        run = Run(disk / "run", port=1, forked=True)
        filler = fill(disk)
        assert "can't be written (No space left on device): free some space" in run.refused()
        filler.unlink()
        with read_only(disk):
            assert "can't be written (Read-only file system); choose another place" in run.refused()


@contextlib.contextmanager
def filled(disk: Path, left_kib: int) -> Iterator[None]:
    """Leave so little free on a disk while the block lasts: lines still fit, no checkpoint does."""
    filler = fill(disk)
    os.truncate(filler, filler.stat().st_size - 1024 * left_kib)
    yield
    filler.unlink()


def test_a_disk_that_is_full_for_a_while_costs_nothing(start_server: StartServer, tmp_path: Path) -> None:
    with small_disk(tmp_path, mib=ENOUGH_MIB) as disk:
        run = Run(disk / "run", start_server().port, WIDE, forked=True)
        run.start("--max-timesteps", "700")
        run.wait(lambda: len(run.events("checkpoint")) >= 2)
        with filled(disk, left_kib=512):
            run.wait(lambda: len(run.events("checkpoint_failed")) >= 2)
        refused, kept = run.events("checkpoint_failed")[0], run.events("checkpoint")[-1]
        assert "can't be written (No space left on device); earlier checkpoints are untouched" in refused["cause"]
        assert (refused["wanted"], refused["kept"]) == ("interval", f"step-{kept['steps']:09d}")
        run.finish()
        first, *_, last = [e for e in run.events("checkpoint_failed", "checkpoint") if e["time"] >= refused["time"]]
        assert first["event"] == "checkpoint_failed"
        assert (last["event"], last["updates"]) == ("checkpoint", 680)
        assert (run.beat["updates"], run.beat["exit_code"]) == (680, 0)


@pytest.mark.parametrize("ending", [pytest.param("finishes", marks=pytest.mark.long), "is stopped"])
def test_a_disk_that_stays_full_ends_the_run_only_at_its_end(
    start_server: StartServer, tmp_path: Path, ending: str
) -> None:
    with small_disk(tmp_path, mib=ENOUGH_MIB) as disk:
        run = Run(disk / "run", start_server().port, WIDE, forked=True)
        steps = ("--max-timesteps", "400" if ending == "finishes" else "20000")
        process = run.start(*steps)
        run.wait(lambda: len(run.events("checkpoint")) >= 2)
        with filled(disk, left_kib=512):
            if ending == "is stopped":
                run.wait(lambda: len(run.events("checkpoint_failed")) >= 1)
                process.send_signal(signal.SIGTERM)
            out, _ = process.communicate(timeout=PATIENCE_S)
        kept = run.events("checkpoint")[-1]
        assert process.returncode == Exit.BAD_CONFIG, out
        assert "Traceback" not in out
        assert f"--resume continues from step-{kept['steps']:09d} and repeats " in out.splitlines()[-1]
        assert run.events("failed")[0]["exit_code"] == Exit.BAD_CONFIG
        done = run.steps
        run.start(*steps, "--resume")
        run.wait(lambda: bool(run.events("resumed")))
        assert [run.events("resumed")[0][name] for name in ("steps", "updates")] == [done, kept["updates"]]
        if ending == "finishes":
            run.finish()
            assert run.beat["updates"] == 380
        run.kill()


@pytest.mark.long
def test_a_disk_that_turns_read_only_costs_only_what_came_after(start_server: StartServer, tmp_path: Path) -> None:
    with failing_disk(tmp_path, mib=2 * ENOUGH_MIB) as disk:
        run = Run(disk.path / "run", start_server().port, WIDE, forked=True)
        os.sync()  # the configuration is older than the error, so it survives it
        process = run.start("--max-timesteps", "20000")
        run.wait(lambda: len(run.events("checkpoint")) >= 2)
        kept, before = run.events("checkpoint")[-1], run.steps
        disk.fail()
        run.wait(lambda: run.steps > before + 60)
        process.send_signal(signal.SIGTERM)
        out, _ = process.communicate(timeout=PATIENCE_S)
        assert process.returncode == Exit.BAD_CONFIG, out
        assert "Read-only file system" in out
        assert "Traceback" not in out
        disk.unmount()
        disk.mount()
        run.start("--max-timesteps", "20000", "--resume")
        run.wait(lambda: bool(run.events("resumed")))
        resumed = run.events("resumed")[0]
        assert resumed["updates"] >= kept["updates"]
        run.wait(lambda: run.steps > resumed["steps"] + 20)
        run.kill()
