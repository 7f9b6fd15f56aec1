"""A replay larger than memory: what is sampled next is read from the disk ahead of time, and is the same."""

from __future__ import annotations

import ctypes
import itertools
import mmap
import os
import resource
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from carla_td3.td3.replay.replay import Replay
from carla_td3.td3.replay.ring import Ring

RNG = np.random.default_rng


def drive(replay: Replay, steps: int, ends: bool = True) -> None:
    frame, vector = np.full((84, 84), 7, np.uint8), np.zeros(53, np.float32)
    replay.start_episode(frame, vector)
    for step in range(steps):
        replay.append(np.zeros(2, np.float32), 1.0, ends and step == steps - 1, False, frame, vector)


def on_disk_only(folder: Path) -> Path:
    """Fill a ring in a process of its own, then have the kernel forget its pages; return its frames' file."""
    program = (
        "import sys, pathlib; sys.path.insert(0, 'benchmarks'); from replay import fill; "
        "from carla_td3.td3.replay.replay import Replay; fill(Replay.create(pathlib.Path(sys.argv[1]), 8000), 7000)"
    )
    subprocess.run([sys.executable, "-c", program, str(folder)], check=True)
    for file in folder.iterdir():
        descriptor = os.open(file, os.O_RDWR)
        os.fsync(descriptor)
        os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
        os.close(descriptor)
    return folder / "frames.u8"


def pages_in_memory(file: Path) -> int:
    with file.open("rb") as opened:
        view = np.frombuffer(mmap.mmap(opened.fileno(), 0, access=mmap.ACCESS_READ), np.uint8)
    found = np.zeros(-(-view.size // mmap.PAGESIZE), np.uint8)
    assert (
        ctypes.CDLL(None).mincore(*(ctypes.c_void_p(at) for at in (view.ctypes.data, view.size, found.ctypes.data)))
        == 0
    )
    return int((found & 1).sum())


def settled_pages_in_memory(file: Path) -> int:
    held = -1
    while held != (held := pages_in_memory(file)):
        time.sleep(0.1)
    return held


def waits(sample: Callable[[], object]) -> int:
    before = resource.getrusage(resource.RUSAGE_THREAD).ru_majflt
    sample()
    return resource.getrusage(resource.RUSAGE_THREAD).ru_majflt - before


def test_a_batch_fetched_ahead_does_not_wait_for_the_disk(tmp_path: Path) -> None:
    frames = on_disk_only(tmp_path / "replay")
    replay = Replay.open(tmp_path / "replay")
    if settled_pages_in_memory(frames) > 100:
        pytest.skip(f"{tmp_path}: this file system keeps its pages in memory")
    unprepared = waits(lambda: replay.sample(64, RNG(0)))
    before = settled_pages_in_memory(frames)
    replay.fetch(64, RNG(1))
    assert before + 64 * 8 < settled_pages_in_memory(frames) < before + 64 * 16  # some strips overlap, 8 MiB more don't
    assert waits(lambda: replay.sample(64, RNG(1))) < unprepared / 10


def test_fetching_ahead_changes_no_batch(tmp_path: Path) -> None:
    on_disk_only(tmp_path / "replay")
    plain, fetching = (Replay.open(tmp_path / "replay") for _ in range(2))
    for seed in range(4):
        batch, same = plain.sample(64, RNG(seed)), fetching.sample(64, RNG(seed))
        assert all(torch.equal(getattr(batch, name), getattr(same, name)) for name in batch.__dataclass_fields__)
        fetching.fetch(64, RNG(seed + 1))


def test_what_is_fetched_ahead_covers_what_is_drawn_a_step_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    replay = Replay.create(tmp_path, 2_000)
    for _ in range(5):
        drive(replay, 300)
    drive(replay, 1, ends=False)
    fetched: list[tuple[np.ndarray, int]] = []
    read: list[np.ndarray] = []
    gather = replay.gather

    def gather_and_note(rows: np.ndarray, *how: Any) -> None:
        read.append(rows)
        gather(rows, *how)

    monkeypatch.setattr(Ring, "fetch", lambda _, slots, count: fetched.append((slots, count)))
    monkeypatch.setattr(replay, "gather", gather_and_note)
    monkeypatch.setattr("carla_td3.td3.replay.sampling._waits_for_disk", itertools.count().__next__)
    replay.sample(256, RNG(0))  # waits, says the kernel
    replay.fetch(256, RNG(1))
    drive(replay, 1, ends=False)
    replay.sample(256, RNG(1))
    (slots, count), rows = fetched[0], read[1]
    assert np.mean((slots <= rows - 4) & (rows < slots + count)) > 0.97


def test_a_ring_in_memory_is_not_fetched_ahead(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    replay = Replay.create(tmp_path, 200)
    drive(replay, 100)
    monkeypatch.setattr(Ring, "fetch", lambda *_: pytest.fail("its pages are there"))
    replay.sample(64, RNG(0))
    replay.fetch(64, RNG(1))
