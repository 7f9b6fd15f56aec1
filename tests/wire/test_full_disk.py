"""Trainings on a disk that is full or read-only: one sentence, and what was saved before still loads."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from agent.exits import Exit
from tests.conftest import StartServer
from tests.disks import fill, read_only, small_disk
from tests.wire.trainee import SMALL, Run

SETTINGS: dict[str, Any] = {
    **SMALL,
    "training": {**SMALL["training"], "total_steps": 20_000, "checkpoint_every_steps": 40},
}
ENOUGH_MIB = 160
"""The ring's 29, memory.reserve_mib's 64, and room for checkpoints."""


def refused(run: Run, *extra: str) -> str:
    """Return the last line of what a run that can't begin says."""
    assert run.process is None or run.process.poll() is not None
    out, _ = run.start(*extra).communicate(timeout=60)
    assert run.process is not None
    assert run.process.returncode == Exit.BAD_CONFIG, out
    assert "Traceback" not in out
    return out.splitlines()[-1]


def test_a_run_can_t_begin_on_a_full_or_read_only_disk(tmp_path: Path) -> None:
    with small_disk(tmp_path, mib=ENOUGH_MIB) as disk:
        run = Run(disk / "run", port=1)
        filler = fill(disk)
        assert "can't be written (No space left on device): free some space" in refused(run)
        filler.unlink()
        with read_only(disk):
            assert "can't be written (Read-only file system); choose another --run-dir" in refused(run)


def test_a_disk_that_fills_up_ends_the_run_with_its_last_checkpoint_whole(
    start_server: StartServer, tmp_path: Path
) -> None:
    with small_disk(tmp_path, mib=ENOUGH_MIB) as disk:
        run = Run(disk / "run", start_server().port, SETTINGS)
        process = run.start()
        run.wait(lambda: len(run.events("checkpoint")) >= 2)
        filler = fill(disk)
        out, _ = process.communicate(timeout=60)
        assert process.returncode == Exit.BAD_CONFIG, out
        assert "can't be written (No space left on device); earlier checkpoints are untouched" in out
        steps, saved = run.steps, run.events("checkpoint")[-1]["updates"]
        filler.unlink()
        run.start("--resume")
        run.wait(lambda: run.steps > steps)
        assert (run.events("resumed")[0]["steps"], run.events("resumed")[0]["updates"]) == (steps, saved)
        run.kill()
