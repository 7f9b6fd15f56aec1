"""A resized ring holds the newest rows, whole, whatever kills the process that makes it over."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from carla_run.event_log import EventLog
from carla_run.exits import Exit
from carla_run.paths import RunPaths
from carla_td3.exits import AgentError
from carla_td3.td3.replay import index, resampling
from carla_td3.td3.replay.frames import DEFAULT, FrameStack, depth_to_space, space_to_depth
from carla_td3.td3.replay.replay import MIN_CAPACITY, Replay, ReplayError
from carla_td3.td3.replay.resize_replay import resize, resize_replay
from carla_td3.td3.replay.ring import locked
from tests.crowd import PATIENCE_S
from tests.disks import fill as fill_disk
from tests.disks import small_disk
from tests.unit.agent.test_replay import drawn, fill, frame

REPOSITORY = Path(__file__).resolve().parents[3]
EPISODES = [(13, True), (7, False), (30, True)]


def ring(directory: Path, capacity: int, turns: int = 8) -> Replay:
    """Return a replay of some turns, its writer gone."""
    replay = Replay.create(directory, capacity)
    fill(replay, EPISODES * turns)
    replay.close()
    return replay


def contents(directory: Path) -> dict[int, tuple[bytes, bytes]]:
    """Return the bytes of the rows that are whole, by row."""
    replay = Replay.open(directory)
    oldest = max(0, replay.oldest_whole() - 4)
    slots = {row: row % replay.capacity for row in range(oldest, replay.rows)}
    held = replay._ring
    return {row: (held.frames[slot].tobytes(), held.rows[slot].tobytes()) for row, slot in slots.items()}


@settings(max_examples=40)
@given(st.integers(0, 9), st.integers(0, 150), st.integers(0, 150))
def test_the_newest_rows_are_kept_and_steps_go_on(
    tmp_path_factory: pytest.TempPathFactory, turns: int, before: int, after: int
) -> None:
    directory = tmp_path_factory.mktemp("run") / "replay"
    old = ring(directory, MIN_CAPACITY + before, turns)
    steps, rows, held = old.steps, old.rows, contents(directory)
    done = resize(directory, MIN_CAPACITY + after, DEFAULT)
    assert (done is None) == (before == after)
    kept = contents(directory)
    assert kept.keys() <= held.keys()
    assert all(held[row] == content for row, content in kept.items())
    assert set(kept) >= set(sorted(held)[-(MIN_CAPACITY + after - 12) :]), "newest rows are missing"
    replay = Replay.create(directory, MIN_CAPACITY + after)
    assert (replay.steps, replay.rows) == (steps, rows)
    if steps:
        drawn(replay)  # compares every pixel with what its row says it is
    new = fill(replay, EPISODES, start=10_000)
    assert replay.steps == steps + len(new.transitions)
    assert replay.size <= replay.capacity
    drawn(replay)


def test_a_smaller_one_leaves_the_disk_the_difference(tmp_path: Path) -> None:
    directory = tmp_path / "replay"
    ring(directory, 400)
    done = resize(directory, 100, DEFAULT)
    assert done is not None
    assert (done.capacity_before, done.capacity, done.rows, done.dropped) == (400, 100, 100, 298)
    files = {path.name: path.stat().st_size for path in directory.iterdir()}
    assert sum(files.values()) < 100 * 7400
    assert files.keys() == {"frames.1.u8", "rows.1.bin", "published", "replay.json", "replay.copy.json", "lock"}
    assert resize(directory, 100, DEFAULT) is None
    assert resize(directory, 120, DEFAULT) is not None
    assert {"frames.2.u8", "rows.2.bin"} <= {path.name for path in directory.iterdir()}


def test_frames_of_another_size_are_those_averaged_once(tmp_path: Path) -> None:
    directory = tmp_path / "replay"
    ring(directory, 200, turns=1)
    before = Replay.open(directory)
    assert resize(directory, 200, FrameStack(64)) is not None
    after = Replay.open(directory)
    assert (after.rows, after.steps, after.layout.side) == (before.rows, before.steps, 64)
    first = depth_to_space(after._ring.frames[0].reshape(16, 16, 16))
    assert (first == depth_to_space(resampling.frames(space_to_depth(frame(0))[None], 64))[0]).all()
    one, other = (replay.sample(64, np.random.default_rng(1)) for replay in (before, after))
    assert other.frames.shape == (64, 5, 16, 16, 16)
    assert (resampling.frames(one.frames.numpy(), 64) == other.frames.numpy()).all()
    assert all((getattr(one, name) == getattr(other, name)).all() for name in ("vector", "action", "reward"))
    Replay.create(directory, 200, FrameStack(64)).start_episode(np.zeros((64, 64), np.uint8), np.zeros(53, np.float32))


def test_every_plane_is_resized_and_other_planes_are_refused(tmp_path: Path) -> None:
    eyes = FrameStack(84, planes=4, frames=2, every=3)
    replay = Replay.create(tmp_path, 200, eyes)
    rng = np.random.default_rng(0)
    pictures = rng.integers(0, 256, (2, 4, 84, 84), dtype=np.uint8)
    replay.start_episode(pictures[0], np.zeros(53, np.float32))
    replay.append(np.zeros(2, np.float32), 0.0, False, True, pictures[1], np.zeros(53, np.float32))
    replay.close()
    with pytest.raises(ReplayError, match="4 planes"):
        resize(tmp_path, 200, FrameStack(64))
    small = FrameStack(64, planes=4, frames=2, every=3)
    assert resize(tmp_path, 200, small) is not None
    cells = Replay.open(tmp_path, stack=small)._ring.frames[1].reshape(16, 16, 4, 16)
    for plane in range(4):
        alone = resampling.frames(space_to_depth(pictures[1, plane])[None], 64)[0]
        assert (cells[:, :, plane] == alone).all()


# Resizes rings, each in a child of its own: the n-th dies by SIGKILL just before the n-th call that touches a file.
KILLED = """
import os, pathlib, signal, sys
from carla_td3.td3.replay import resize_replay
from carla_td3.td3.replay.frames import FrameStack
capacity, side, *directories = map(str, sys.argv[1:])
calls = [(os, "posix_fallocate"), (os, "fsync"), (pathlib.Path, "replace"), (pathlib.Path, "unlink"),
         (pathlib.Path, "open"), (resize_replay.np, "arange")]
resize_replay._BLOCK = 50
count = 0
def counted(owner, name, deadly):
    real = getattr(owner, name)
    def call(*arguments, **named):
        global count
        count += 1
        if count == deadly:
            os.kill(os.getpid(), signal.SIGKILL)
        return real(*arguments, **named)
    setattr(owner, name, call)
for number, directory in enumerate(directories, 1):
    if os.fork() == 0:
        for owner, name in calls:
            counted(owner, name, number)
        resize_replay.resize(pathlib.Path(directory), int(capacity), FrameStack(int(side)))
        os._exit(0)
    print(os.wait()[1])
"""
INSTANTS = 40


def killed(directories: list[Path], capacity: int, side: int) -> list[int]:
    """Return how each process ended: 9, or 0 for one that had nothing left to do when its turn would have come."""
    command = [sys.executable, "-c", KILLED, str(capacity), str(side), *map(str, directories)]
    ended = subprocess.run(command, check=True, capture_output=True, text=True, cwd=REPOSITORY, timeout=PATIENCE_S)
    return [int(line) for line in ended.stdout.splitlines()]


@pytest.mark.parametrize(("capacity", "side"), [(120, 84), (300, 64)])
def test_a_kill_at_any_call_leaves_the_old_ring_or_the_new_one(tmp_path: Path, capacity: int, side: int) -> None:
    old = ring(tmp_path / "ring", 300)
    before = contents(tmp_path / "ring")
    copies = [shutil.copytree(tmp_path / "ring", tmp_path / str(number)) for number in range(INSTANTS)]
    outcomes: list[str] = []
    for number, (directory, status) in enumerate(zip(copies, killed(copies, capacity, side), strict=True)):
        found = index.read(directory)
        is_new = (found.capacity, found.side) == (capacity, side)
        outcomes.append("done" if status == 0 else "new" if is_new else "old")
        if not is_new and number % 2:  # the old one can be asked for again
            assert resize(directory, 300, DEFAULT) is None
            assert not (directory / "frames.1.u8").exists()
        if not is_new:
            assert (found.capacity, found.side, contents(directory)) == (300, 84, before)
        resize(directory, capacity, FrameStack(side))
        replay = Replay.create(directory, capacity, FrameStack(side))
        assert (replay.rows, replay.steps) == (old.rows, old.steps)
        assert len(list(directory.iterdir())) == 6, "something that doesn't count was left"
        if side == 84:
            assert all(before[row] == content for row, content in contents(directory).items())
    assert outcomes == sorted(outcomes, key=["old", "new", "done"].index)
    assert outcomes.count("old") > 8
    assert outcomes.count("new") >= 2  # before each of the old files is removed
    assert outcomes[-1] == "done"


def test_a_disk_without_room_for_both_changes_nothing(tmp_path: Path) -> None:
    with small_disk(tmp_path, mib=8) as disk:
        run = RunPaths(disk)
        ring(run.replay, 400)
        before = contents(run.replay)
        filler = fill_disk(disk)
        os.truncate(filler, filler.stat().st_size - 2 * 2**20)
        with pytest.raises(AgentError, match=r"takes 2 MiB beside .* the disk has 2 MiB free: free some, or") as caught:
            resize_to_300(run)
        assert caught.value.code is Exit.OUT_OF_MEMORY
        reported = json.loads(run.agent_events.read_text().splitlines()[-1])
        assert (reported["event"], reported["pool"], reported["cause"]) == ("cannot_fit", "disk", str(caught.value))
        assert reported["needed_mib"] + reported["reserve_mib"] > reported["free_mib"] > 0
        assert 100 < reported["fitting_replay"] < 200
        assert contents(run.replay) == before
        filler.unlink()
        resize_to_300(run)
        assert Replay.open(run.replay).capacity == 300


def resize_to_300(run: RunPaths) -> None:
    resize_replay(run.replay, 300, DEFAULT, 1.0, EventLog(run.agent_events).append)


def test_what_was_done_is_told(tmp_path: Path) -> None:
    run = RunPaths(tmp_path)
    resize_to_300(run)  # no replay yet: the collector makes it
    ring(run.replay, 400)
    resize_to_300(run)
    resize_to_300(run)
    reported = [json.loads(line) for line in run.agent_events.read_text().splitlines()]
    assert [event["event"] for event in reported] == ["replay_reshaped"]
    assert (reported[0]["capacity_before"], reported[0]["capacity"], reported[0]["side"]) == (400, 300, 84)
    assert reported[0]["rows"] == 300


def test_a_dying_writer_is_waited_for_a_living_one_isnt(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    directory = tmp_path / "replay"
    ring(directory, 300)
    lock = locked(directory)
    monkeypatch.setattr("carla_td3.td3.replay.ring._LAST_WRITER_S", 0.2)
    with pytest.raises(ReplayError, match="another process writes this replay"):
        resize(directory, 120, DEFAULT)
    monkeypatch.setattr("carla_td3.td3.replay.ring._LAST_WRITER_S", PATIENCE_S)
    threading.Timer(0.3, lock.close).start()
    assert resize(directory, 120, DEFAULT) is not None
