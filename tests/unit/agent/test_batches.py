"""The rows of an update: own steps, demonstrations, n-step returns and erased rectangles, by seed and number only."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from carla_run.paths import RunPaths
from carla_td3 import config
from carla_td3.config import AgentConfig, ConfigError, NetworkConfig, TD3Config
from carla_td3.memory import estimate, sizes
from carla_td3.run_directory import prepare, save_config
from carla_td3.seeding import Purpose, generator
from carla_td3.td3.dry_run import zero_batch
from carla_td3.td3.replay.frames import PRIVILEGED, FrameStack, erase
from carla_td3.td3.replay.replay import MIN_CAPACITY, Batch, Replay, ReplayError
from carla_td3.td3.td3 import TD3
from carla_td3.trainer.batches import Batches
from carla_td3.trainer.learner import Learner
from tests.unit.agent.batches import random_batch

NETWORK = {"channels": [4, 4, 4], "features": 16, "hidden": [16]}
GAMMA = 0.9


def settings_of(folder: Path | None = None, **values: Any) -> AgentConfig:
    replay = {"capacity": 1000} if folder is None else {"capacity": 1000, "demonstrations": str(folder)}
    td3 = {"network": NETWORK, "batch_size": 8, "gamma": GAMMA, **values.pop("td3", {})}
    return config.validate({"td3": td3, "replay": {**replay, **values.pop("replay", {})}, **values}, "test")


def driven(replay: Replay, steps: int, start: int = 0, terminated: bool = True) -> None:
    """Append one episode; each number of it is the one before plus 1."""

    def observed(number: int) -> tuple[np.ndarray, np.ndarray]:
        return np.full((84, 84), number % 251, np.uint8), np.full(53, number, np.float32)

    replay.start_episode(*observed(start))
    for step in range(1, steps + 1):
        ends = step == steps, terminated
        replay.append(np.zeros(2, np.float32), float(start + step), all(ends), ends[0], *observed(start + step))


def recorded(folder: Path, start: int = 500, **values: Any) -> Path:
    run = RunPaths(folder)
    replay = Replay.create(run.replay, MIN_CAPACITY + 100)
    driven(replay, 40, start)
    replay.close()
    save_config(run, settings_of(**values))
    return folder


@pytest.fixture
def own(tmp_path: Path) -> Replay:
    replay = Replay.create(tmp_path / "own", 1000)
    driven(replay, 60)
    return replay


def same(ours: Batch, theirs: Batch) -> bool:
    return all(torch.equal(getattr(ours, name), getattr(theirs, name)) for name in ours.__dataclass_fields__)


def test_without_anything_a_batch_is_the_replay_s_own(own: Replay) -> None:
    found = Batches(settings_of()).draw(own, 7)
    assert same(own.sample(8, generator(0, Purpose.SAMPLING, 7)), found)


@pytest.mark.parametrize(("share", "shown"), [(0.5, 4), (0.25, 2), (0.01, 0), (0.99, 8)])
def test_a_share_of_each_batch_is_demonstrated(tmp_path: Path, own: Replay, share: float, shown: int) -> None:
    for _ in range(12):
        driven(own, 60)
    batches = Batches(settings_of(recorded(tmp_path / "shown"), replay={"demonstration_share": share}))
    found = batches.draw(own, 3)
    assert len(found) == 8
    assert int((found.reward > 500).sum()) == shown
    assert (found.next_vector[:, 0] == found.reward).all()
    assert (found.frames[:, -1, 0, 0, 0] == found.reward.to(torch.int64) % 251).all()  # each beside its own frames


@pytest.mark.parametrize(("steps", "shown"), [(10, 32), (60, 16), (160, 8), (400, 8)])
def test_while_own_steps_are_few_they_are_drawn_like_the_40_shown_ones(tmp_path: Path, steps: int, shown: int) -> None:
    own = Replay.create(tmp_path / "few", 1000)
    driven(own, steps)
    values = settings_of(recorded(tmp_path / "shown"), td3={"batch_size": 40}, replay={"demonstration_share": 0.2})
    assert int((Batches(values).draw(own, 3).reward > 500).sum()) == shown


def test_a_batch_depends_on_seed_and_number_alone(tmp_path: Path, own: Replay) -> None:
    values = settings_of(recorded(tmp_path / "shown"), td3={"n_step": 3, "random_erasing": 3})
    straight, resumed = Batches(values), Batches(values)
    for update in range(5):
        straight.draw(own, update)
    expected = straight.draw(own, 5)
    resumed.fetch(own, 5)
    assert same(resumed.draw(own, 5), expected)
    assert not same(resumed.draw(own, 6), expected)


def test_the_next_batch_takes_the_memory_of_the_last(tmp_path: Path, own: Replay) -> None:
    batches = Batches(settings_of(recorded(tmp_path / "shown")))
    first, second = batches.draw(own, 0), batches.draw(own, 1)
    assert all(getattr(first, name).data_ptr() == getattr(second, name).data_ptr() for name in ("frames", "vector"))


def test_a_demonstrated_batch_is_counted_to_the_byte(tmp_path: Path, own: Replay) -> None:
    values = settings_of(recorded(tmp_path / "shown"), td3={"n_step": 3})
    found = Batches(values).draw(own, 0)
    size = sum(getattr(found, name).nbytes for name in found.__dataclass_fields__)
    assert sizes.batch_bytes(8, n_step=3) == size
    (item,) = (each for each in estimate.estimate(values, cuda=False).items if each.name == "sampled batch")
    assert item.host == size


def test_a_learner_goes_on_bit_for_bit_with_all_of_it(tmp_path: Path) -> None:
    td3 = {"n_step": 3, "random_erasing": 3}
    training = {"warmup_steps": 0, "total_steps": 4, "annealing": 0.5, "final_updates": 4}
    values = settings_of(recorded(tmp_path / "shown"), td3=td3, training=training, device="cpu")
    run = RunPaths(tmp_path / "run")
    with prepare(run, resume=False):
        driven(Replay.create(run.replay, 1000), 60)
        straight = Learner(values, run)
        for _ in range(3):
            straight.update(rate=0.5)
        straight.save(straight.counters(), score=None)
        resumed = Learner(values, run)
        for learner in (straight, resumed):
            learner.update(rate=0.5)
            learner.reset()
            learner.update(rate=0.5)
            learner.update(rate=0.5)
    ours, theirs = straight._algorithm.state(), resumed._algorithm.state()
    assert all(torch.equal(ours[name], theirs[name]) for name in ours)
    assert [json.loads(line)["event"] for line in run.agent_events.read_text().splitlines()].count("reset") == 2


def test_demonstrations_that_are_not_there_or_empty_are_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(ReplayError, match="holds no replay"):
        Batches(settings_of(tmp_path / "absent"))
    Replay.create(tmp_path / "empty" / "replay", MIN_CAPACITY).close()
    with pytest.raises(ReplayError, match="no transition to sample"):
        Batches(settings_of(tmp_path / "empty"))


@pytest.mark.parametrize(
    ("changed", "sentence"),
    [
        (
            {"reward": {"progress": 2.0}},
            r"environment\.reward\.progress = 1\.0, the configuration says 2\.0: record it",
        ),
        ({"camera": {"width": 64, "height": 64}}, r"environment\.camera\.width = 84, the configuration says 64"),
        ({"route": {"point_spacing_m": 3.0}}, r"set environment\.route\.point_spacing_m to 2\.0\."),
    ],
)
def test_demonstrations_of_another_environment_are_refused(
    tmp_path: Path, changed: dict[str, Any], sentence: str
) -> None:
    with pytest.raises(ConfigError, match=sentence):
        Batches(settings_of(recorded(tmp_path / "shown"), environment=changed))


def test_other_traffic_is_no_other_environment(tmp_path: Path) -> None:
    Batches(settings_of(recorded(tmp_path / "shown"), environment={"traffic": {"vehicles": 30}}))


def test_demonstrations_without_privileged_numbers_are_refused_where_these_are_asked_for(tmp_path: Path) -> None:
    with pytest.raises(ReplayError, match=f"holds 0 privileged numbers, the configuration asks for {PRIVILEGED}: set"):
        Batches(settings_of(recorded(tmp_path / "shown"), environment={"privileged": True}))


class Step(NamedTuple):
    """A transition of n steps, as plain loops make it."""

    before: int
    after: int
    reward: float
    terminated: bool
    discount: float
    stacks: tuple[int, ...]


class Told:
    """Episodes as lists of numbers, the newest perhaps still open."""

    def __init__(self) -> None:
        self.steps: dict[int, Step] = {}  # by the number that the first step arrives at

    def add(self, first: int, steps: int, terminated: bool, n_step: int) -> None:
        for begin in range(steps):
            end = min(begin + n_step, steps)
            total = sum(GAMMA**k * (first + begin + 1 + k) for k in range(end - begin))
            stacks = [max(first, first + at + lag) for at in (begin, end) for lag in range(-3, 1)]
            last = terminated and end == steps
            step = Step(first + begin, first + end, total, last, GAMMA ** (end - begin - 1), tuple(stacks))
            self.steps[first + begin + 1] = step


ENDS = st.sampled_from(["terminated", "truncated", "broken off"])


@settings(max_examples=25)
@given(
    lengths=st.lists(st.tuples(st.integers(1, 12), ENDS), min_size=1, max_size=20),
    n_step=st.integers(1, 5),
    extra=st.integers(0, 20),
)
def test_n_step_returns_are_those_of_plain_loops(
    tmp_path_factory: pytest.TempPathFactory, lengths: list[tuple[int, str]], n_step: int, extra: int
) -> None:
    """Also after turns of the ring, past episodes that were broken off, and at the end of one that goes on."""
    replay, told, number = Replay.create(tmp_path_factory.mktemp("n") / "replay", MIN_CAPACITY + extra), Told(), 0
    for steps, end in lengths:
        replay.start_episode(np.full((84, 84), number, np.uint8), np.full(53, number, np.float32))
        for step in range(1, steps + 1):
            arrived = number + step
            terminated, truncated = (step == steps and end == word for word in ("terminated", "truncated"))
            seen = np.full((84, 84), arrived, np.uint8), np.full(53, arrived, np.float32)
            replay.append(np.full(2, arrived / 1000, np.float32), float(arrived), terminated, truncated, *seen)
        told.add(number, steps, end == "terminated", n_step)
        number += steps + 1
    found = replay.sample(200, np.random.default_rng(0), None, n_step, GAMMA)
    assert found.frames.shape[1] == (5 if n_step == 1 else 8)
    for row in range(200):
        expected = told.steps[round(float(found.action[row, 0]) * 1000)]
        stack = [int(found.frames[row, at, 0, 0, 0]) for at in (0, 1, 2, 3, -4, -3, -2, -1)]
        assert tuple(stack) == expected.stacks
        assert (int(found.vector[row, 0]), int(found.next_vector[row, 0])) == (expected.before, expected.after)
        assert bool(found.terminated[row]) is expected.terminated
        np.testing.assert_allclose(float(found.reward[row]), expected.reward, rtol=1e-6)
        np.testing.assert_allclose(float(found.discount[row]), expected.discount, rtol=1e-6)


def test_until_bounds_a_return_too(tmp_path: Path) -> None:
    replay = Replay.create(tmp_path / "replay", 1000)
    driven(replay, 20)
    found = replay.sample(200, np.random.default_rng(0), 7, 3, GAMMA)
    assert found.next_vector.max() == 7


def test_the_target_asks_the_critics_after_n_steps() -> None:
    td3 = TD3(TD3Config(network=NetworkConfig(**NETWORK), gamma=GAMMA), torch.device("cpu"), 0)
    given = random_batch(8)
    given.terminated.zero_()
    once = td3.bellman_target(given, torch.zeros(8, 2)) - given.reward
    given.discount[:] = GAMMA**2
    thrice = td3.bellman_target(given, torch.zeros(8, 2)) - given.reward
    torch.testing.assert_close(thrice, GAMMA**2 * once)


def test_a_dry_run_takes_the_frames_of_n_steps() -> None:
    td3 = TD3(TD3Config(network=NetworkConfig(**NETWORK), n_step=3), torch.device("cpu"), 0)
    assert zero_batch(td3, 4).frames.shape[:2] == (4, 8)


@pytest.mark.parametrize("side", [84, 64])
@pytest.mark.parametrize("planes", [1, 3])
def test_what_is_erased_is_grey_in_all_frames_and_planes_of_a_row(side: int, planes: int) -> None:
    stack = FrameStack(side, planes)
    pixels = np.random.default_rng(0).integers(0, 256, (200, 5 * planes, side, side), dtype=np.uint8)
    frames = np.stack([stack.cells(row) for row in pixels])
    before = frames.copy()
    erase(frames, 1, np.random.default_rng(1))
    same_cells = (frames == before).all((1, 4))
    for row, kept in enumerate(same_cells):
        high, wide = (int((~kept).any(axis).sum()) for axis in (1, 0))
        assert high * wide == (~kept).sum()  # one rectangle, or none
        if high:
            assert 2 <= high <= 7
            assert 2 <= wide <= 7
            assert len(np.unique(frames[row, :, ~kept])) == 1
    assert 60 < same_cells.all((1, 2)).sum() < 140


def test_every_place_is_erased() -> None:
    frames = np.zeros((3000, 1, 21, 21, 16), np.uint8)
    erase(frames, 3, np.random.default_rng(2))
    share = (frames[:, 0, :, :, 0] > 0).mean(0)
    assert share.min() > 0.003
    assert 0.04 < share.mean() < 0.12
