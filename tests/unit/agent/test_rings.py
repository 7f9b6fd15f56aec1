"""Batches of several rings: uniform over all transitions, whichever collector wrote them and however it ended."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import numpy as np
import pytest
import torch

from carla_run.paths import RunPaths
from carla_td3.run_directory import prepare
from carla_td3.td3.replay.frames import DEFAULT
from carla_td3.td3.replay.replay import MIN_CAPACITY, Replay, ReplayError
from carla_td3.td3.replay.resize_replay import resize_rings
from carla_td3.td3.replay.ring import Ring
from carla_td3.td3.replay.sampling import Rings, Source
from carla_td3.trainer.learner import Learner
from carla_td3.trainer.pacing import Counters
from tests.unit.agent.test_batches import driven, recorded, settings_of
from tests.unit.agent.test_replay import drive, fill

RNG = np.random.default_rng


def rewards(source: Source, count: int, seed: int = 0) -> Counter[float]:
    """Return how often each transition was drawn, by the number that it bears."""
    return Counter(source.sample(count, RNG(seed)).reward.tolist())


@pytest.fixture
def two(tmp_path: Path) -> list[Replay]:
    """One ring of 60 steps in episodes of one, and one of 30 in a single episode."""
    rings = [Replay.create(tmp_path / str(number), 1_000) for number in range(2)]
    fill(rings[0], [(1, True)] * 60)
    fill(rings[1], [(30, True)], start=1_000)
    return rings


def test_one_ring_gives_what_it_gives_alone(two: list[Replay]) -> None:
    for seed in range(5):
        alone, together = two[0].sample(64, RNG(seed)), Rings(two[:1]).sample(64, RNG(seed))
        assert all(torch.equal(getattr(alone, name), getattr(together, name)) for name in alone.__dataclass_fields__)


def test_every_transition_is_as_likely_in_whatever_ring(two: list[Replay]) -> None:
    """Though half of one ring's rows are first observations, and one in thirty of the other's."""
    drawn = rewards(Rings(two), 90_000)
    assert len(drawn) == 90
    assert max(abs(count - 1_000) for count in drawn.values()) < 150  # 5 σ
    of_first = sum(count for reward, count in drawn.items() if reward < 1_000)
    assert abs(of_first - 60_000) < 800


def test_each_transition_comes_with_its_own_numbers(two: list[Replay]) -> None:
    names = ("frames", "vector", "next_vector", "reward", "terminated", "discount")

    def rows(source: Source, count: int, seed: int) -> dict[int, list[torch.Tensor]]:
        batch = source.sample(count, RNG(seed), None, 3, 0.9)
        return {
            int(batch.vector[row, 0]): [getattr(batch, name)[row].clone() for name in names] for row in range(count)
        }

    known = rows(two[0], 400, 1) | rows(two[1], 400, 1)
    for number, found in rows(Rings(two), 200, 0).items():
        assert all(torch.equal(ours, theirs) for ours, theirs in zip(found, known[number], strict=True))


def test_a_batch_depends_only_on_the_generator(two: list[Replay]) -> None:
    rings, same = Rings(two), Rings(two)
    for seed in range(30):
        rings.sample(64, RNG(seed))
    first, second = rings.sample(64, RNG(7)), same.sample(64, RNG(7))
    assert torch.equal(first.frames, second.frames)
    assert torch.equal(first.reward, second.reward)


def test_a_batch_is_written_over_another_one(two: list[Replay]) -> None:
    rings = Rings(two)
    expected, earlier = rings.sample(64, RNG(7), n_step=2, gamma=0.9), rings.sample(64, RNG(8), n_step=2, gamma=0.9)
    for name in earlier.__dataclass_fields__:
        getattr(earlier, name).fill_(77)
    found = rings.sample(64, RNG(7), n_step=2, gamma=0.9, into=earlier)
    assert found is earlier
    assert all(torch.equal(getattr(found, name), getattr(expected, name)) for name in found.__dataclass_fields__)


def test_an_empty_ring_gives_nothing_and_only_empty_ones_raise(two: list[Replay], tmp_path: Path) -> None:
    empty = Replay.create(tmp_path / "empty", 100)
    assert len(rewards(Rings([empty, *two]), 5_000)) == 90
    with pytest.raises(ReplayError, match="no transition to sample"):
        Rings([empty]).sample(4, RNG(0))


def test_what_is_fetched_ahead_is_what_is_drawn(two: list[Replay], monkeypatch: pytest.MonkeyPatch) -> None:
    fetched: list[tuple[Ring, np.ndarray]] = []
    rings = Rings(two)
    rings._to_fetch = 1
    monkeypatch.setattr(Ring, "fetch", lambda ring, slots, _: fetched.append((ring, slots)))
    rings.fetch(64, RNG(3))
    drawn = rings.sample(64, RNG(3)).vector[:, 0]  # of the row before the one that is drawn
    slots = np.concatenate([(slots + DEFAULT.reach) % ring.layout.capacity for ring, slots in fetched])
    before = [ring.rows["vector"][(slots + DEFAULT.reach - 1) % 1_000, 0] for ring, slots in fetched]
    assert len(slots) == 64
    assert sorted(np.concatenate(before).tolist()) == sorted(drawn.tolist())


def test_a_ring_without_a_collector_shrinks_from_its_old_end(tmp_path: Path) -> None:
    written, gone = (Replay.create(tmp_path / name, 200) for name in ("written", "gone"))
    fill(gone, [(99, True)], start=0)
    rings = Rings([written], [gone], capacity=200)
    fill(written, [(49, True)], start=1_000)
    assert rings.held() == [100]
    assert min(rewards(rings, 5_000)) == 1
    fill(written, [(89, True)], start=2_000)
    assert rings.held() == [60]
    assert min(rewards(rings, 5_000)) == 40
    fill(written, [(89, True)], start=3_000)
    assert rings.held() == [0]
    assert min(rewards(rings, 5_000)) >= 1_000
    assert rings.steps == 99 + 49 + 89 + 89, "its steps count on"


def stocked(run: RunPaths, steps: list[int], capacity: int) -> None:
    """Give each collector's ring an episode of so many steps."""
    for number, count in enumerate(steps):
        ring = Replay.create(run.ring(number), capacity)
        drive(ring, list(range(1_000 * number, 1_000 * number + count + 1)), terminated=True)
        ring.close()


def capacities(run: RunPaths) -> dict[int, int]:
    return {number: Replay.open(folder).capacity for number, folder in run.rings().items()}


def resized(run: RunPaths, collectors: int, capacity: int) -> dict[int, int]:
    resize_rings(run.rings(), collectors, capacity, DEFAULT, 0.0, lambda *_, **__: None)
    return capacities(run)


def test_rings_are_resized_to_their_parts(tmp_path: Path) -> None:
    run = RunPaths(tmp_path)
    stocked(run, [150, 150, 150], 200)
    assert resized(run, 3, 600) == {0: 200, 1: 200, 2: 200}
    assert resized(run, 1, 600) == {0: 600, 1: 200, 2: 200}
    assert resized(run, 1, 302) == {0: 302, 1: 75, 2: 75}  # 151 rows are the writer's
    assert resized(run, 1, 151) == {0: 151, 1: MIN_CAPACITY, 2: MIN_CAPACITY}
    assert Replay.open(run.ring(2)).steps == 150
    assert resized(run, 3, 900) == {0: 300, 1: 300, 2: 300}


def test_a_run_goes_on_with_more_collectors_and_with_fewer(tmp_path: Path) -> None:
    run = RunPaths(tmp_path)
    with prepare(run, resume=False):
        stocked(run, [40, 30], 2_000)
        two, one, three = (
            settings_of(training={"collectors": count}, replay={"capacity": 4000}) for count in (2, 1, 3)
        )
        learner = Learner(two, run)
        assert (learner.steps, learner.collector_steps, learner.steps_of_others) == (70, [40, 30], 0)
        learner.update()
        learner.save(Counters(steps=70, updates=1), score=None)
        fewer, more = Learner(one, run), Learner(three, run)
        assert (fewer.steps, fewer.collector_steps, fewer.steps_of_others) == (70, [40], 30)
        assert (more.steps, more.collector_steps, more.updates) == (70, [40, 30, 0], 1)
        assert (more.episodes_of(1), more.episodes_of(2)) == (1, 0)
        fewer.update()
        more.update()


def test_all_rings_of_a_run_are_demonstrations(tmp_path: Path) -> None:
    from carla_td3.trainer.batches import Batches

    folder = recorded(tmp_path / "shown", start=500)
    driven(Replay.create(RunPaths(folder).ring(1), 200), 40, start=700)
    own = Replay.create(tmp_path / "own", 1_000)
    driven(own, 60)
    found = Batches(settings_of(folder, td3={"batch_size": 400})).draw(own, 0).reward
    assert {int(reward) // 100 for reward in found.tolist()} == {0, 5, 7}
