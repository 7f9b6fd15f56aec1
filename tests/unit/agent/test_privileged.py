"""Privileged numbers: stored in the replay, read by critic and auxiliary head, never by a driver."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from carla_run.paths import RunPaths
from carla_td3 import config
from carla_td3.config import AgentConfig, ConfigError, Offload, TD3Config
from carla_td3.env import privileged
from carla_td3.evaluation.drivers import PolicyDriver
from carla_td3.run_directory import prepare
from carla_td3.td3.networks import Policy
from carla_td3.td3.replay import index
from carla_td3.td3.replay.frames import DEFAULT, PRIVILEGED
from carla_td3.td3.replay.layout import ROW, privileged_numbers, row_type
from carla_td3.td3.replay.replay import MIN_CAPACITY, Batch, Replay, ReplayError
from carla_td3.td3.replay.resize_replay import resize
from carla_td3.td3.td3 import TD3, auxiliary_loss
from carla_td3.trainer.checkpoint import CheckpointError
from carla_td3.trainer.learner import Learner
from carla_td3.trainer.pacing import Counters
from tests.unit.agent.batches import CPU, NARROW, random_batch

PLAIN = TD3Config(network=NARROW, batch_size=8)
WAYS: dict[str, dict[str, Any]] = {
    "auxiliary": {"auxiliary": 0.5},
    "critic": {"critic_sees": "privileged"},
    "both": {"auxiliary": 0.5, "critic_sees": "privileged"},
    "apart": {"auxiliary": 0.5, "encoder_learns_from": "auxiliary"},
    "imitation": {"imitation": 2.0},
}
KNOWN = PRIVILEGED


@pytest.fixture(params=list(WAYS.values()), ids=list(WAYS))
def learned_with(request: pytest.FixtureRequest) -> TD3Config:
    return PLAIN.model_copy(update=request.param)


def batch(seed: int, size: int = 8) -> Batch:
    return random_batch(size, seed, KNOWN)


def made(settings: TD3Config, seed: int = 0, offload: tuple[Offload, ...] = ()) -> TD3:
    return TD3(settings, CPU, seed, offload, privileged=KNOWN)


def test_a_row_has_room_for_what_the_environment_tells() -> None:
    assert privileged.SIZE == PRIVILEGED
    assert privileged_numbers(config.validate({}, "test").environment) == 0
    assert privileged_numbers(config.validate({"environment": {"privileged": True}}, "test").environment) == PRIVILEGED


def test_what_drives_acts_alike_whatever_the_simulator_knows(learned_with: TD3Config) -> None:
    td3 = made(learned_with)
    for seed in range(4):
        td3.update(batch(seed))
    policy = Policy(NARROW)
    policy.load_state_dict(td3.policy_state())  # strict: encoder and actor, no head, no other width
    rng = np.random.default_rng(0)
    image, vector = rng.integers(0, 256, (4, 84, 84), dtype=np.uint8), rng.normal(size=53).astype(np.float32)
    driver = PolicyDriver(policy)
    state: Any = None  # of which a network takes no notice
    seen = [{"image": image, "vector": vector, "privileged": np.full(KNOWN, x, np.float32)} for x in (0, 1)]
    assert driver.act(seen[0], state).tobytes() == driver.act(seen[1], state).tobytes()


def test_the_critics_read_it_only_where_they_shall() -> None:
    for settings, reads in ((PLAIN, False), (PLAIN.model_copy(update=WAYS["critic"]), True)):
        critic = made(settings).online.critic
        f, vector, action = torch.rand(5, 32), torch.rand(5, 53), torch.rand(5, 2)
        q = [critic(f, vector, action, torch.full((5, KNOWN), x))[0] for x in (0.0, 1.0)]
        assert torch.equal(q[0], q[1]) is not reads


def test_the_target_reads_what_is_known_of_the_next_state() -> None:
    td3, other = (made(PLAIN.model_copy(update=WAYS["critic"])) for _ in range(2))
    given = batch(0)
    given.terminated.zero_()
    first = td3.update(given)["q_target"]
    given.next_privileged.add_(1)
    assert not torch.equal(other.update(given)["q_target"], first)


def test_the_first_weights_are_those_without_a_head() -> None:
    plain, with_head = made(PLAIN).state(), made(PLAIN.model_copy(update=WAYS["auxiliary"])).state()
    assert all(torch.equal(with_head[name], value) for name, value in plain.items())
    assert {name.split(".")[0] for name in with_head.keys() - plain.keys()} == {"online", "adam"}, "it has no target"


def test_the_loss_is_each_row_s_mean_square() -> None:
    f, known = torch.rand(3, 4), torch.rand(3, 4)
    torch.testing.assert_close(auxiliary_loss(f, known), ((f - known) ** 2).mean(dim=1).sum())


def test_features_learn_to_tell_what_is_known() -> None:
    """From frames whose brightness is the number: the head on its own, on features of an untrained encoder, learns
    less.
    """
    rng = torch.Generator().manual_seed(0)

    def lit(size: int = 16) -> Batch:
        level = torch.rand(size, generator=rng)
        given = random_batch(size, privileged=KNOWN)
        given.frames[:] = (level * 255).to(torch.uint8)[:, None, None, None, None]
        given.privileged[:] = level[:, None]
        return given

    settings = PLAIN.model_copy(update={"auxiliary": 1.0, "critic_learning_rate": 1e-3})
    td3 = made(settings)
    losses = [float(td3.update(lit())["auxiliary_loss"]) for _ in range(80)]
    assert sum(losses[-10:]) < 0.2 * sum(losses[:10])


@pytest.mark.parametrize(("learns_from", "moved"), [("all", True), ("auxiliary", False)])
def test_rewards_move_the_encoder_unless_they_shall_not(learns_from: str, moved: bool) -> None:
    settings = PLAIN.model_copy(update={"auxiliary": 0.5, "encoder_learns_from": learns_from})
    left = []
    for reward in (0.0, 5.0):
        td3, batch = made(settings), random_batch(8, privileged=KNOWN)
        batch.reward.fill_(reward)
        td3.update(batch)
        left.append(td3.state())
    differs = {name.split(".")[1] for name, value in left[0].items() if not torch.equal(value, left[1][name])}
    assert ("encoder" in differs) is moved
    assert "critic" in differs


def test_an_encoder_that_would_learn_from_nothing_is_refused() -> None:
    with pytest.raises(ConfigError, match="so it would learn from nothing"):
        config.validate({"td3": {"encoder_learns_from": "auxiliary"}}, "test")


def settings_of(**td3: Any) -> AgentConfig:
    network = NARROW.model_dump()
    return config.validate({"td3": {"network": network, **td3}, "environment": {"privileged": True}}, "test")


@pytest.mark.parametrize(
    ("before", "after", "sentence"),
    [
        ({}, {"auxiliary": 0.5}, "with td3.auxiliary = 0.0, the configuration says 0.5: set td3.auxiliary to 0.0,"),
        ({"auxiliary": 0.5}, {}, "with td3.auxiliary = 0.5, the configuration says 0.0: set td3.auxiliary to 0.5,"),
        ({}, {"critic_sees": "privileged"}, "with td3.critic_sees = observation, the configuration says privileged"),
        ({"critic_sees": "privileged"}, {}, "set td3.critic_sees to privileged, or start another run directory"),
    ],
)
def test_a_checkpoint_of_another_shape_is_refused(
    tmp_path: Path, before: dict[str, Any], after: dict[str, Any], sentence: str
) -> None:
    run = RunPaths(tmp_path)
    with prepare(run, resume=False):
        Learner(settings_of(**before), run).save(Counters(steps=5, updates=0), score=None)
        with pytest.raises(CheckpointError, match=sentence):
            Learner(settings_of(**after), run)


@pytest.mark.parametrize("way", ["auxiliary", "critic", "both"])
def test_learning_from_what_nobody_tells_is_refused(way: str) -> None:
    with pytest.raises(ConfigError, match=r"learn from what the simulator knows: set environment\.privileged to true"):
        config.validate({"td3": WAYS[way]}, "test")


def drive(replay: Replay, steps: int, first: int = 0) -> None:
    """Append one episode whose privileged numbers count on from ``first``."""

    def observed(number: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        frame = np.full((84, 84), number % 251, np.uint8)
        return frame, np.full(53, number, np.float32), number + np.arange(KNOWN, dtype=np.float32) / 16

    replay.start_episode(*observed(first))
    for step in range(1, steps + 1):
        replay.append(np.zeros(2, np.float32), float(step), step == steps, False, *observed(first + step))


def assert_whole(replay: Replay) -> None:
    found = replay.sample(64, np.random.default_rng(0))
    offsets = torch.arange(KNOWN) / 16
    assert torch.equal(found.privileged, found.vector[:, :1] + offsets)
    assert torch.equal(found.next_privileged, found.next_vector[:, :1] + offsets)
    assert found.privileged.dtype == torch.float32


def test_the_numbers_come_back_also_after_a_turn_of_the_ring(tmp_path: Path) -> None:
    replay = Replay.create(tmp_path / "replay", MIN_CAPACITY + 3, privileged=KNOWN)
    for first in range(0, 130, 13):
        drive(replay, 12, first)
        assert_whole(replay)
    assert_whole(Replay.open(tmp_path / "replay"))


def test_a_resized_ring_keeps_them(tmp_path: Path) -> None:
    replay = Replay.create(tmp_path / "replay", 200, privileged=KNOWN)
    drive(replay, 60)
    replay.close()
    assert resize(tmp_path / "replay", 100, DEFAULT, privileged=KNOWN) is not None
    assert_whole(Replay.open(tmp_path / "replay"))


def test_without_them_a_row_is_as_it_was_and_the_batch_has_none(tmp_path: Path) -> None:
    assert row_type(0) is ROW
    assert ROW.itemsize == 240
    assert [row_type(size).itemsize % 8 for size in (1, 2, 15, 16)] == [0, 0, 0, 0]
    replay = Replay.create(tmp_path / "replay", 100)
    assert json.loads((tmp_path / "replay" / "replay.json").read_text())["version"] == 1
    frame, vector = np.zeros((84, 84), np.uint8), np.zeros(53, np.float32)
    replay.start_episode(frame, vector)
    replay.append(np.zeros(2, np.float32), 0.0, False, False, frame, vector)
    found = replay.sample(4, np.random.default_rng(0))
    assert found.privileged.shape == found.next_privileged.shape == (4, 0)
    with pytest.raises(ValueError, match=f"{KNOWN} privileged numbers for a replay of 0"):
        replay.append(np.zeros(2, np.float32), 0.0, False, False, frame, vector, np.zeros(KNOWN, np.float32))


@pytest.mark.parametrize(
    ("held", "asked", "way"),
    [
        (0, KNOWN, "set environment.privileged to false, or choose"),
        (KNOWN, 0, "set environment.privileged to true, or choose"),
        (KNOWN - 2, KNOWN, "choose another directory (demonstrations: record them again)."),
    ],
)
def test_a_ring_of_other_rows_is_refused_in_one_sentence(tmp_path: Path, held: int, asked: int, way: str) -> None:
    directory = tmp_path / "replay"
    Replay.create(directory, 100, privileged=held).close()
    sentence = re.escape(f"{held} privileged numbers, the configuration asks for {asked}: {way}")
    for capacity in (100, 200):
        with pytest.raises(ReplayError, match=sentence):
            resize(directory, capacity, DEFAULT, privileged=asked)
        with pytest.raises(ReplayError, match=sentence):
            Replay.create(directory, capacity, privileged=asked)
    assert index.read(directory).privileged == held
