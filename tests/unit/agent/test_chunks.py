"""Steps between two machines: each comes once, whatever is lost, asked for again, or driven again."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from carla_td3.cluster.chunks import Chunk, ChunkReceiver, GapError, Head, begin_at, cut
from carla_td3.td3.replay.replay import Replay
from carla_td3.td3.replay.ring import Ring

CAPACITY = 200


def frame(number: int) -> NDArray[np.uint8]:
    return np.full((1, 84, 84), number % 251, np.uint8)


def vector(number: int) -> NDArray[np.float32]:
    return np.full(53, number, np.float32)


class There:
    """A collector's node: drives episodes of so many steps into a ring that begins at a head."""

    def __init__(self, folder: Path, head: Head, length: int = 5) -> None:
        ring = Ring.create(folder, CAPACITY)
        begin_at(ring, head)
        assert ring.lock is not None
        ring.lock.close()
        self.replay, self.length = Replay.create(folder, CAPACITY), length
        self.ring = Ring.open(folder, writable=False)
        self.left = 0

    def drive(self, steps: int) -> None:
        for _ in range(steps):
            if self.left == 0:
                self.replay.start_episode(frame(self.replay.steps), vector(-1))
                self.left = self.length
            self.left -= 1
            number = self.replay.steps + 1
            self.replay.append(
                np.full(2, 0.5, np.float32), float(number), self.left == 0, False, frame(number), vector(number)
            )

    def cut(self, acknowledged: int) -> Chunk:
        found = cut(self.ring, acknowledged)
        assert found is not None
        return found


@pytest.fixture
def here(tmp_path: Path) -> ChunkReceiver:
    return ChunkReceiver(Ring.create(tmp_path / "here", CAPACITY), sleep=lambda _: None)


def content(tmp_path: Path) -> Replay:
    return Replay.open(tmp_path / "here")


def assert_each_step_once(replay: Replay, steps: int) -> None:
    rows = replay._ring.rows[: replay.rows]
    found = rows[rows["episode_step"] > 0]
    assert found["step"].tolist() == found["reward"].astype(int).tolist() == list(range(1, steps + 1))
    assert [int(each[0]) for each in found["vector"]] == list(range(1, steps + 1))


def test_what_a_node_drives_lies_here_as_it_does_there(tmp_path: Path, here: ChunkReceiver) -> None:
    there = There(tmp_path / "there", here.head)
    for steps in (1, 16, 7, 40):
        there.drive(steps)
        here.take(there.cut(here.head.rows))
    ours = content(tmp_path)
    assert (ours.rows, ours.steps, ours.episodes) == (there.replay.rows, 64, 13)
    assert ours._ring.rows[: ours.rows].tobytes() == there.ring.rows[: ours.rows].tobytes()
    assert np.array_equal(ours._ring.frames[: ours.rows], there.ring.frames[: ours.rows])
    assert_each_step_once(ours, 64)


def test_an_answer_that_came_twice_or_grew_meanwhile_counts_once(tmp_path: Path, here: ChunkReceiver) -> None:
    there = There(tmp_path / "there", here.head)
    there.drive(12)
    lost = there.cut(0)
    there.drive(9)
    assert here.take(there.cut(0)) == 21 + 5
    assert here.take(lost) == 0
    assert here.take(there.cut(0)) == 0
    assert_each_step_once(content(tmp_path), 21)


def test_rows_that_do_not_follow_are_refused_and_nothing_of_them_is_taken(tmp_path: Path, here: ChunkReceiver) -> None:
    there = There(tmp_path / "there", here.head)
    there.drive(10)
    here.take(there.cut(0))
    there.drive(10)
    whole = there.cut(here.head.rows)
    with pytest.raises(GapError, match="rows 12 to 12 are missing"):
        here.take(Chunk(whole.first + 1, whole.rows[1:], whole.frames[1:]))
    assert here.head == Head(rows=12, steps=10)


def test_another_node_goes_on_where_the_acknowledged_steps_end(tmp_path: Path, here: ChunkReceiver) -> None:
    first = There(tmp_path / "first", here.head)
    first.drive(13)
    here.take(first.cut(0))
    first.drive(8)  # driven, and lost with the node
    second = There(tmp_path / "second", here.head)
    assert (second.replay.steps, second.replay.episodes) == (13, 3)
    assert cut(second.ring, here.head.rows) is None
    second.drive(9)
    here.take(second.cut(here.head.rows))
    assert_each_step_once(content(tmp_path), 22)


def test_a_node_says_so_when_it_is_asked_for_rows_that_it_never_had(tmp_path: Path) -> None:
    there = There(tmp_path / "there", Head(0, 0))
    there.drive(3)
    with pytest.raises(GapError):
        cut(there.ring, 9)


def test_both_rings_may_come_round(tmp_path: Path) -> None:
    waits: list[float] = []
    here = ChunkReceiver(Ring.create(tmp_path / "here", CAPACITY), sleep=waits.append)
    there = There(tmp_path / "there", here.head)
    for _ in range(20):
        there.drive(30)
        here.take(there.cut(here.head.rows))
    ours = content(tmp_path)
    assert ours.steps == 600
    newest = ours._ring.rows[np.arange(ours.rows - 100, ours.rows) % CAPACITY]
    assert sorted(newest["reward"][newest["episode_step"] > 0]) == sorted(
        newest["step"][newest["episode_step"] > 0].astype(float)
    )
    assert waits, "readers have time to finish a batch while its oldest rows are overwritten"


def test_an_episode_s_first_observation_is_published_with_its_first_step(tmp_path: Path, here: ChunkReceiver) -> None:
    there = There(tmp_path / "there", here.head)
    there.drive(5)
    chunk = there.cut(0)
    alone = Chunk(0, chunk.rows[:1], chunk.frames[:1])
    here.take(alone)
    assert here.head == Head(0, 0)
    here.take(chunk)
    assert here.head == Head(6, 5)
