"""Drivers without a picture, by the vector or with privileged numbers: trained, saved and sized like others."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from carla_run.paths import RunPaths
from carla_td3 import config
from carla_td3.cli import evaluation
from carla_td3.config import AgentConfig, ConfigError, NetworkConfig, TD3Config
from carla_td3.evaluation.drivers import PolicyDriver, compared
from carla_td3.memory import estimate, sizes
from carla_td3.run_directory import prepare, save_config
from carla_td3.td3.networks import Policy
from carla_td3.td3.replay.frames import DEFAULT, KNOWN_NUMBERS, PRIVILEGED, FrameStack
from carla_td3.td3.replay.replay import MIN_CAPACITY, Batch, Replay
from carla_td3.td3.td3 import TD3
from carla_td3.trainer.batches import Batches
from carla_td3.trainer.checkpoint import CheckpointError
from carla_td3.trainer.learner import Learner
from carla_td3.trainer.pacing import Counters
from tests.unit.agent.batches import CPU, bits, random_batch

EYES = FrameStack(84, planes=4, frames=2, every=4, colour=(0,))
WIDTHS: dict[str, Any] = {"channels": (8, 8, 8), "features": 32, "hidden": (32,)}
WITHOUT = ("vector", "privileged")


def made(sees: str, seed: int = 0, stack: FrameStack = DEFAULT, **values: Any) -> TD3:
    network = NetworkConfig(**WIDTHS, sees=sees)
    return TD3(TD3Config(network=network, batch_size=8, **values), CPU, seed, stack=stack, privileged=PRIVILEGED)


def batch(seed: int, size: int = 8) -> Batch:
    return random_batch(size, seed, PRIVILEGED)


def settings_of(sees: str, **values: Any) -> AgentConfig:
    td3 = {"network": {**WIDTHS, "sees": sees}, "batch_size": 8, **values}
    return config.validate({"td3": td3, "environment": {"privileged": True}}, "test")


@pytest.mark.parametrize(("sees", "known"), [("vector", 0), ("privileged", KNOWN_NUMBERS)])
def test_there_is_no_encoder_and_heads_read_what_is_seen(sees: str, known: int) -> None:
    td3 = made(sees, stack=EYES)
    real = {name: tuple(parameter.shape) for name, parameter in td3.online.named_parameters()}
    assert not any(name.startswith("encoder") for name in real)
    assert real["actor.body.0.weight"] == (32, known + 53)
    assert sizes.Networks(td3.config.network, EYES).shapes == real


@pytest.mark.parametrize("sees", WITHOUT)
def test_no_pixel_changes_what_is_learned(sees: str) -> None:
    one, other = made(sees), made(sees)
    for seed in range(4):
        one.update(batch(seed))
        dark = batch(seed)
        dark.frames.zero_()
        other.update(dark)
    assert bits(one) == bits(other)


@pytest.mark.parametrize(("sees", "reads"), [("vector", False), ("privileged", True)])
def test_only_the_control_acts_by_what_the_simulator_knows(sees: str, reads: bool) -> None:
    td3 = made(sees)
    for seed in range(4):
        td3.update(batch(seed))
    policy = Policy(td3.config.network)
    policy.load_state_dict(td3.policy_state())
    rng = np.random.default_rng(0)
    image, vector = rng.integers(0, 256, (4, 84, 84), dtype=np.uint8), rng.normal(size=53).astype(np.float32)
    told = [np.full(PRIVILEGED, x, np.float32) for x in (0, 1)]
    state: Any = None
    acts = [PolicyDriver(policy).act({"image": image, "vector": vector, "privileged": x}, state) for x in told]
    assert (acts[0].tobytes() != acts[1].tobytes()) is reads
    dark = {"image": np.zeros_like(image), "vector": vector, "privileged": told[0]}
    assert PolicyDriver(policy).act(dark, state).tobytes() == acts[0].tobytes()


def written(directory: Path, steps: int) -> Replay:
    replay = Replay.create(directory, MIN_CAPACITY + 20, privileged=PRIVILEGED)
    frame, told = np.zeros((84, 84), np.uint8), np.zeros(PRIVILEGED, np.float32)
    for first in range(0, steps, 10):
        replay.start_episode(frame, np.full(53, first, np.float32), told)
        for step in range(first + 1, first + 10):
            replay.append(
                np.zeros(2, np.float32), float(step), False, step % 10 == 9, frame, np.full(53, step, np.float32), told
            )
    return replay


def test_a_batch_has_the_rows_and_no_frame(tmp_path: Path) -> None:
    written(tmp_path / "replay", 300)
    settings = settings_of("vector")
    ring = Replay.open(tmp_path / "replay", stack=DEFAULT.seen_by(settings.td3.network))
    batches = Batches(settings)
    for update in range(50):
        found = batches.draw(ring, update)
        assert torch.equal(found.next_vector[:, 0], found.reward)
        assert torch.equal(found.vector[:, 0] + 1, found.reward)
    assert found.frames.shape[:2] == (8, 0)
    found_bytes = sum(getattr(found, name).nbytes for name in found.__dataclass_fields__)
    assert sizes.batch_bytes(8, DEFAULT.seen_by(settings.td3.network), PRIVILEGED) == found_bytes
    assert estimate.estimate(settings, cuda=False).total("host") < estimate.estimate(settings_of("image"), False).total(
        "host"
    )


@pytest.mark.parametrize("sees", WITHOUT)
def test_a_checkpoint_comes_back_for_its_kind_only(tmp_path: Path, sees: str) -> None:
    run, settings = RunPaths(tmp_path), settings_of(sees)
    with prepare(run, resume=False):
        save_config(run, settings)
        Learner(settings, run).save(Counters(steps=5, updates=0), score=None)
        assert Learner(settings, run).checkpoint == "step-000000005"
        with pytest.raises(CheckpointError, match=rf"with td3\.network\.sees = {sees}, the configuration says image"):
            Learner(settings_of("image"), run)
    found = evaluation.trained(run.path)
    assert found.policy is not None
    assert found.policy.sees == sees
    assert "td3-greyed" not in found.drivers
    assert "td3-greyed" in compared(settings_of("image"))


def test_a_checkpoint_with_pictures_leaves_sees_out(tmp_path: Path) -> None:
    run = RunPaths(tmp_path)
    with prepare(run, resume=False):
        Learner(settings_of("image"), run).save(Counters(steps=5, updates=0), score=None)
    assert "sees" not in (run.checkpoints / "step-000000005" / "manifest.json").read_text()


@pytest.mark.parametrize(
    ("td3", "told", "sentence"),
    [
        (
            {"network": {"sees": "privileged"}},
            False,
            "told what the simulator knows: set environment.privileged to true",
        ),
        ({"network": {"sees": "vector"}, "auxiliary": 0.1}, True, "are for pictures, td3.network.sees is vector"),
        (
            {"network": {"sees": "privileged"}, "random_erasing": 4},
            True,
            "are for pictures, td3.network.sees is privileged",
        ),
    ],
)
def test_what_cannot_be_is_refused_in_one_sentence(td3: dict[str, Any], told: bool, sentence: str) -> None:
    with pytest.raises(ConfigError, match=sentence):
        config.validate({"td3": td3, "environment": {"privileged": told}}, "test")
