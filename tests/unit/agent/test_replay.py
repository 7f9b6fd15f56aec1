"""The replay against a naive list: borders, endings, wrap-around, reopening, and a writer killed for real."""

from __future__ import annotations

import functools
import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from carla_td3.td3.replay.frames import FrameStack, space_to_depth
from carla_td3.td3.replay.replay import MIN_CAPACITY, Replay, ReplayError
from tests.crowd import until
from tests.disks import fill as fill_disk
from tests.disks import read_only, small_disk

RNG = np.random.default_rng


def frame(number: int) -> np.ndarray:
    """Return a frame that its number can be read from: every pixel differs from the neighbouring numbers'."""
    return _frame(7 * number % 251)


@functools.cache
def _frame(first: int) -> np.ndarray:
    return ((np.arange(84 * 84) + first) % 251).astype(np.uint8).reshape(84, 84)


@functools.cache
def stored(first: int) -> np.ndarray:
    """Return the bytes in which a frame lies in the ring, by its first pixel."""
    return space_to_depth(_frame(first))


def vector(number: int) -> np.ndarray:
    return np.full(53, number, dtype=np.float32)


class Transition(NamedTuple):
    frames: tuple[int, ...]  # numbers of the strip t-3..t+1
    action: float
    reward: float
    terminated: bool


class Naive:
    """The same episodes in a list, with no cleverness."""

    def __init__(self) -> None:
        self.transitions: list[Transition] = []
        self.arrivals: list[int] = []  # the row that each arrives at
        self.rows = 0

    def episode(self, numbers: list[int], terminated: bool) -> None:
        for step in range(1, len(numbers)):
            strip = tuple(numbers[max(0, step + offset)] for offset in range(-4, 1))
            last = step == len(numbers) - 1
            self.transitions.append(Transition(strip, step / 100, float(numbers[step]), terminated and last))
            self.arrivals.append(self.rows + step)
        self.rows += len(numbers)


def drive(replay: Replay, numbers: list[int], terminated: bool, finish: bool = True) -> None:
    replay.start_episode(frame(numbers[0]), vector(numbers[0]))
    for step, number in enumerate(numbers[1:], start=1):
        last = finish and step == len(numbers) - 1
        action = np.full(2, step / 100, dtype=np.float32)
        replay.append(
            action, float(number), terminated and last, not terminated and last, frame(number), vector(number)
        )


def fill(replay: Replay, lengths: list[tuple[int, bool]], start: int = 0) -> Naive:
    naive, number = Naive(), start
    for steps, terminated in lengths:
        numbers = list(range(number, number + steps + 1))
        drive(replay, numbers, terminated)
        naive.episode(numbers, terminated)
        number += steps + 1
    return naive


def drawn(replay: Replay, count: int = 400, until: int | None = None) -> set[Transition]:
    """Return what ``sample`` gives as naive transitions, after checking the pixels and both vectors."""
    batch = replay.sample(count, RNG(0), until)
    frames, seen = batch.frames.numpy(), set()
    for index in range(count):
        newest = int(batch.next_vector[index, 0])
        assert int(batch.vector[index, 0]) == newest - 1  # numbers grow by one within an episode
        start = newest - round(float(batch.action[index, 0]) * 100)
        strip = tuple(max(start, newest + offset) for offset in range(-4, 1))
        for held, number in zip(frames[index], strip, strict=True):
            assert np.array_equal(held, stored(7 * number % 251))
        action = round(float(batch.action[index, 1]), 2)
        seen.add(Transition(strip, action, float(batch.reward[index]), bool(batch.terminated[index])))
    return seen


EPISODES = st.lists(st.tuples(st.integers(1, 30), st.booleans()), min_size=1, max_size=12)


@settings(max_examples=40)
@given(lengths=EPISODES, extra=st.integers(0, 40))
@example(lengths=[(1, True)] * 60, extra=0)
@example(lengths=[(3, False), (3, True)], extra=0)
def test_samples_are_the_naive_lists_transitions(lengths: list[tuple[int, bool]], extra: int) -> None:
    """Every draw is exactly one of the list's; with wrap-around only overwritten and nearly overwritten ones miss."""
    with tempfile.TemporaryDirectory() as directory:
        replay = Replay.create(Path(directory) / "replay", MIN_CAPACITY + extra)
        naive = fill(replay, lengths)
        assert replay.steps == len(naive.transitions)
        assert replay.rows == naive.rows
        assert replay.size == min(naive.rows, replay.capacity)
        seen = drawn(replay)
        arrived = list(zip(naive.transitions, naive.arrivals, strict=True))
        held, newest = ({t for t, row in arrived if row >= naive.rows - replay.size + less} for less in (0, 16))
        assert seen <= held
        assert len(newest) == 0 or len(seen & newest) > 0.9 * len(newest)


@settings(max_examples=40)
@given(lengths=EPISODES, later=EPISODES, until=st.integers(1, 100))
def test_until_makes_a_batch_independent_of_later_rows(
    lengths: list[tuple[int, bool]], later: list[tuple[int, bool]], until: int
) -> None:
    with tempfile.TemporaryDirectory() as directory:
        replay = Replay.create(Path(directory) / "replay", 1_000)
        naive = fill(replay, lengths)
        until = min(until, replay.steps)
        before = replay.sample(64, RNG(5), until)
        kept = before.frames.clone()
        fill(replay, later, start=10_000)
        after = replay.sample(64, RNG(5), until)
        assert (after.frames == kept).all()
        assert (after.reward == before.reward).all()
        assert drawn(replay, until=until) <= set(naive.transitions[:until])


def test_an_open_episode_can_be_sampled_up_to_its_last_step(tmp_path: Path) -> None:
    replay = Replay.create(tmp_path / "replay", MIN_CAPACITY)
    drive(replay, [0, 1, 2, 3], terminated=False, finish=False)
    assert len(drawn(replay)) == 3


def test_nothing_to_sample_is_one_sentence(tmp_path: Path) -> None:
    replay = Replay.create(tmp_path / "replay", MIN_CAPACITY)
    with pytest.raises(ReplayError, match="no transition to sample"):
        replay.sample(4, RNG(0))
    replay.start_episode(frame(0), vector(0))
    with pytest.raises(ReplayError, match="no transition to sample"):
        replay.sample(4, RNG(0))
    drive(replay, [0, 1], terminated=True)
    with pytest.raises(ReplayError, match="no transition to sample"):
        replay.sample(4, RNG(0), until=0)


def test_overwritten_transitions_are_not_replaced_by_later_ones(tmp_path: Path) -> None:
    replay = Replay.create(tmp_path / "replay", MIN_CAPACITY)
    fill(replay, [(9, True)] * 20)
    with pytest.raises(ReplayError, match="no transition to sample"):
        replay.sample(4, RNG(0), until=100)
    assert replay.sample(64, RNG(0), until=170).reward.max() <= 188  # the reward is the frame's number


def test_a_start_without_a_step_leaves_no_row(tmp_path: Path) -> None:
    replay = Replay.create(tmp_path / "replay", MIN_CAPACITY)
    for _ in range(100):  # a simulator that is lost at each reset
        replay.start_episode(frame(0), vector(0))
    assert replay.rows == 0


def test_frames_apart_and_with_planes_are_stacked_as_seen(tmp_path: Path) -> None:
    eyes = FrameStack(84, planes=2, frames=3, every=4)
    replay = Replay.create(tmp_path, 200, eyes)
    for start, length in ((0, 30), (31, 90), (122, 90)):  # so that the ring comes round
        for number in range(start, start + length + 1):
            seen = np.stack([frame(number), 255 - frame(number)])
            if number == start:
                replay.start_episode(seen, vector(number))
            else:
                step = np.full(2, number - start, np.float32)
                replay.append(step, 0.0, False, number == start + length, seen, vector(number))
    batch = replay.sample(300, RNG(0))
    assert batch.frames.shape == (300, 6, 21, 21, 32)
    for row in range(300):
        newest = int(batch.next_vector[row, 0])
        start = newest - int(batch.action[row, 0])
        for last, stack in ((newest - 1, batch.frames[row, :3]), (newest, batch.frames[row, -3:])):
            numbers = [max(start, last - 4 * back) for back in (2, 1, 0)]
            image = np.concatenate([np.stack([frame(number), 255 - frame(number)]) for number in numbers])
            np.testing.assert_array_equal(stack.numpy(), eyes.cells(image))


def test_appending_outside_an_episode_is_refused(tmp_path: Path) -> None:
    replay = Replay.create(tmp_path / "replay", MIN_CAPACITY)
    drive(replay, [0, 1], terminated=True)
    with pytest.raises(ReplayError, match="start_episode"):
        replay.append(np.zeros(2, np.float32), 0.0, False, False, frame(2), vector(2))


def test_a_second_writer_is_refused_until_the_first_closes(tmp_path: Path) -> None:
    first = Replay.create(tmp_path / "replay", MIN_CAPACITY)
    with pytest.raises(ReplayError, match="another process writes"):
        Replay.create(tmp_path / "replay", MIN_CAPACITY)
    with pytest.raises(ReplayError, match="another process writes"):
        Replay.open(tmp_path / "replay", writable=True)
    first.close()
    Replay.open(tmp_path / "replay", writable=True).close()


def test_reopened_replay_goes_on_where_it_stopped(tmp_path: Path) -> None:
    first = Replay.create(tmp_path / "replay", 100)
    drive(first, [0, 1, 2, 3], terminated=False, finish=False)  # ends in mid-episode, as a kill does
    first.close()
    second = Replay.create(tmp_path / "replay", 100)
    assert second.steps == 3
    drive(second, [50, 51], terminated=True)
    assert second.steps == 4
    assert {t.frames for t in drawn(second)} == {
        (0, 0, 0, 0, 1),
        (0, 0, 0, 1, 2),
        (0, 0, 1, 2, 3),
        (50, 50, 50, 50, 51),
    }


def test_another_capacity_is_refused_and_nothing_overwritten(tmp_path: Path) -> None:
    first = Replay.create(tmp_path / "replay", 100)
    drive(first, [0, 1], terminated=True)
    first.close()
    with pytest.raises(ReplayError, match="holds a ring of 100 rows of 84×84 pixels, the configuration asks for 200"):
        Replay.create(tmp_path / "replay", 200)
    assert Replay.create(tmp_path / "replay", 100).steps == 1


def test_a_disk_that_is_too_small_is_refused_with_what_would_fit(tmp_path: Path) -> None:
    with pytest.raises(ReplayError, match=r"needs .* MiB and the disk has .* set replay.capacity to at most \d+"):
        Replay.create(tmp_path / "replay", 10**10)
    assert not list((tmp_path / "replay").glob("*.u8"))
    Replay.create(tmp_path / "replay", 100)  # a smaller one can follow at once


def test_a_disk_that_is_really_too_small_is_left_empty(tmp_path: Path) -> None:
    with small_disk(tmp_path, mib=1) as disk:
        with pytest.raises(ReplayError, match=r"a replay of 500 rows needs 3 MiB and the disk has 1 MiB free"):
            Replay.create(disk / "replay", 500)
        Replay.create(disk / "replay", 100)
        with pytest.raises(ReplayError, match="the disk has 0 MiB free"):
            Replay.create(disk / "second", 100)


def test_a_directory_that_cant_be_written_is_one_sentence(tmp_path: Path) -> None:
    Replay.create(tmp_path / "run" / "replay", 100).close()
    with read_only(tmp_path / "run"):
        with pytest.raises(ReplayError, match=r"can't be written .* choose another run directory"):
            Replay.create(tmp_path / "run" / "replay", 100)
        assert Replay.open(tmp_path / "run" / "replay").capacity == 100


def test_the_ring_is_allocated_whole(tmp_path: Path) -> None:
    Replay.create(tmp_path / "replay", 5_000)
    status = (tmp_path / "replay" / "frames.u8").stat()
    assert status.st_size == 5_000 * 7056
    assert status.st_blocks * 512 >= status.st_size


@pytest.mark.parametrize("name", ["frames.u8", "rows.bin", "published"])
def test_a_file_of_another_size_is_named_with_both_sizes(tmp_path: Path, name: str) -> None:
    Replay.create(tmp_path, 100).close()
    size = (tmp_path / name).stat().st_size
    for has, said in ((5, f"is cut short to 5 of {size} bytes"), (size + 1, f"has {size + 1} bytes, expected {size}")):
        os.truncate(tmp_path / name, has)
        with pytest.raises(ReplayError, match=f"^{tmp_path / name}: this replay can't be used, the file {said}"):
            Replay.open(tmp_path)


@pytest.mark.parametrize("name", ["frames.u8", "rows.bin"])
def test_a_sparse_copy_is_refused_on_a_full_disk_and_filled_where_there_is_room(tmp_path: Path, name: str) -> None:
    with small_disk(tmp_path, mib=4) as disk:
        Replay.create(disk / "replay", 200).close()
        file = disk / "replay" / name
        content = file.read_bytes()
        os.truncate(file, 0)
        os.truncate(file, len(content))
        filler = fill_disk(disk)
        with pytest.raises(ReplayError, match=rf"^{file}: is sparse, and the disk has no room for the \d+ MiB"):
            Replay.create(disk / "replay", 200)
        assert Replay.open(disk / "replay").capacity == 200
        filler.unlink()
        Replay.create(disk / "replay", 200).close()
        assert file.stat().st_blocks * 512 >= len(content)
        assert file.read_bytes() == content


def test_a_creation_killed_halfway_is_started_again(tmp_path: Path) -> None:
    (tmp_path / "replay").mkdir()
    (tmp_path / "replay" / "frames.u8").write_bytes(b"\xff" * 1000)  # no replay.json: it never got that far
    replay = Replay.create(tmp_path / "replay", 100)
    assert replay.rows == 0


def test_hundred_thousand_transitions_fit_the_budget() -> None:
    from carla_td3.td3.replay.layout import bytes_for

    assert bytes_for(100_000 + 200) <= 725 * 2**20  # 500-step episodes: 200 rows more


WRITER = """
import sys
from pathlib import Path
import numpy as np
from carla_td3.td3.replay.replay import Replay
replay = Replay.create(Path(sys.argv[1]), 300)
number = 0
while True:
    frame = lambda n: ((np.arange(84 * 84) + 7 * n) % 251).astype(np.uint8).reshape(84, 84)
    vector = lambda n: np.full(53, n, dtype=np.float32)
    replay.start_episode(frame(number), vector(number))
    for step in range(1, 14):
        number += 1
        last = step == 13
        replay.append(np.full(2, step / 100, np.float32), float(number), last, False, frame(number), vector(number))
        sys.stdout.write(f"{replay.steps}\\n")
        sys.stdout.flush()
    number += 1
"""


@pytest.mark.parametrize("after", [3, 40, 700])  # in the first episode, later, and after several turns of the ring
def test_killed_writer_loses_no_finished_transition(tmp_path: Path, after: int) -> None:
    directory = tmp_path / "replay"
    writer = subprocess.Popen([sys.executable, "-c", WRITER, str(directory)], stdout=subprocess.PIPE, text=True)
    assert writer.stdout is not None
    for _ in range(after):
        writer.stdout.readline()
    reader = Replay.open(directory)
    drawn(reader, 64)  # while it is being written
    writer.send_signal(signal.SIGKILL)
    writer.wait()
    reported = [int(line) for line in writer.stdout.read().splitlines() if line]
    writer.stdout.close()
    replay = Replay.create(directory, 300)  # the lock went with the process
    assert replay.steps >= max([after, *reported[:-1]])
    seen = drawn(replay)
    assert {transition.terminated for transition in seen} <= {False, True}
    before = replay.steps
    drive(replay, [100_000, 100_001, 100_002], terminated=True)
    assert replay.steps == before + 2
    assert (99_999 in {n for t in drawn(replay) for n in t.frames}) is False


def test_reader_never_sees_a_torn_row_while_a_fast_writer_laps_it(tmp_path: Path) -> None:
    directory = tmp_path / "replay"
    writer = subprocess.Popen([sys.executable, "-c", WRITER, str(directory)], stdout=subprocess.DEVNULL)
    try:
        until(lambda: (directory / "replay.json").exists() and Replay.open(directory).steps >= 400)
        reader = Replay.open(directory)
        for _ in range(20):
            drawn(reader, 128)  # compares every pixel with what its row says it is
    finally:
        writer.kill()
        writer.wait()


@pytest.mark.parametrize("held_up_in", ["head", "oldest_whole", "_draw", "gather"])
@pytest.mark.parametrize("call", [1, 2, 3])
def test_reader_held_up_for_a_whole_turn_of_the_ring_draws_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, held_up_in: str, call: int
) -> None:
    """The writer comes round while the reader stands still, before the call and after it."""
    writer = Replay.create(tmp_path / "replay", 300)
    drive(writer, list(range(200)), terminated=True)
    reader = Replay.open(tmp_path / "replay")
    method, calls = getattr(reader, held_up_in), []

    def held_up(*arguments: Any) -> Any:
        calls.append(arguments)
        if len(calls) == call:
            drive(writer, list(range(1_000, 1_340)), terminated=True)
        result = method(*arguments)
        if len(calls) == call:
            drive(writer, list(range(2_000, 2_340)), terminated=True)
        return result

    monkeypatch.setattr(reader, held_up_in, held_up)
    assert min(min(transition.frames) for transition in drawn(reader)) < 2_340  # and its pixels are whole
