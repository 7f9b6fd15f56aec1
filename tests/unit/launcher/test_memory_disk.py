"""The run's disk as a pool: what this user may write, and what replay and checkpoints take of it."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from carla_launcher.observe.memory import MemoryReader, size_mib
from carla_launcher.observe.pools import Cards, OwnerKind, Pool, PoolKind
from tests.disks import small_disk
from tests.memory_hog import write_file


def pool(run: Path) -> Pool:
    (found,) = MemoryReader(run, Cards()).read().of(PoolKind.DISK)
    return found


def test_replay_and_checkpoints_are_owners_on_a_real_disk(tmp_path: Path) -> None:
    with small_disk(tmp_path, 64) as disk:
        run = disk / "run"
        before = pool(run)
        assert (before.name, before.total.mib, before.owners) == ("disk", 64, ())
        (run / "replay").mkdir(parents=True)
        (run / "checkpoints" / "step-000000100").mkdir(parents=True)
        write_file(run / "checkpoints" / "step-000000100" / "tensors.safetensors", 3)
        write_file(run / "replay" / "frames.u8", 20)
        write_file(run / "other", 5)
        after = pool(run)
        assert [(each.name, each.kind, each.held.mib) for each in after.owners] == [
            ("replay", OwnerKind.AGENT, 20),
            ("checkpoints", OwnerKind.AGENT, 3),
        ]
        assert before.free.mib is not None
        assert after.free.mib == pytest.approx(before.free.mib - 28, abs=0.5)


def test_holes_in_a_file_take_nothing(tmp_path: Path) -> None:
    with (tmp_path / "sparse").open("wb") as file:
        os.truncate(file.fileno(), 2**30)
    assert size_mib(tmp_path) < 1


def test_a_run_that_is_not_there_yet_has_its_parent_s_disk(tmp_path: Path) -> None:
    assert pool(tmp_path / "runs" / "new").total == pool(tmp_path).total
