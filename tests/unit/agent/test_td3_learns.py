"""TD3 solves small tasks: one told by the vector, one that only the image tells, one that needs the future.

So does an algorithm that stands in one file of the tests, by the same executor, learner and checkpoint.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
import torch

from carla_run.paths import RunPaths
from carla_td3 import config
from carla_td3.config import NetworkConfig, TD3Config
from carla_td3.run_directory import prepare
from carla_td3.td3.algorithm import Algorithm
from carla_td3.td3.networks import Policy
from carla_td3.td3.replay.frames import space_to_depth
from carla_td3.td3.replay.replay import Batch
from carla_td3.td3.td3 import TD3
from carla_td3.trainer.checkpoint import CheckpointError
from carla_td3.trainer.learner import Learner
from tests.unit.agent.batches import CPU, MadeUp, bits
from tests.unit.agent.sac import SAC, SoftNetworks

Seen = Callable[[np.ndarray], tuple[np.ndarray, np.ndarray]]
"""Images and vectors that tell hidden targets (n,)."""

CONFIG = TD3Config(
    network=NetworkConfig(channels=(8, 8, 8), features=32, hidden=(64, 64)),
    batch_size=32,
    gamma=0.9,
    tau=0.02,
    smoothness=0.0,
    actor_learning_rate=1e-3,
    critic_learning_rate=1e-3,
)


@pytest.fixture(autouse=True)
def _one_thread() -> Iterator[None]:
    """On a busy machine several threads wait for each other far longer than these small networks compute."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


def _images(angle: np.ndarray) -> np.ndarray:
    """Return images (n, 5, 84, 84) with a bright bar at x = angle in [-1, 1]."""
    columns = np.linspace(-1, 1, 84)
    bar = (np.abs(columns - angle[:, None]) < 0.15) * 200 + 20
    return np.broadcast_to(bar[:, None, None, :], (len(angle), 5, 84, 84)).astype(np.uint8)


def _bandit(rng: np.random.Generator, seen: Seen, size: int) -> Batch:
    """One-step episodes: the reward is highest where the steering is the hidden target and the throttle 0.3."""
    target = rng.uniform(-0.8, 0.8, size).astype(np.float32)
    action = rng.uniform(-1, 1, (size, 2)).astype(np.float32)
    reward = 1 - (action[:, 0] - target) ** 2 - (action[:, 1] - 0.3) ** 2
    images, vector = seen(target)
    frames = torch.from_numpy(space_to_depth(images))
    vectors = torch.from_numpy(vector)
    given, none = (torch.from_numpy(action), torch.from_numpy(reward)), torch.empty(size, 0)
    return Batch(frames, vectors, vectors, *given, torch.ones(size), none, none, torch.ones(size))


def _error(algorithm: Algorithm, seen: Seen) -> float:
    policy = Policy(CONFIG.network)
    policy.load_state_dict(algorithm.policy_state())
    targets = np.linspace(-0.7, 0.7, 21).astype(np.float32)
    images, vectors = seen(targets)
    actions = np.array([policy.act(image[:4], vector) for image, vector in zip(images, vectors, strict=True)])
    return float(np.abs(actions - np.stack([targets, np.full(21, 0.3)], axis=1)).mean())


def _learn(seen: Seen, updates: int, precision: str = "float32") -> tuple[float, float]:
    td3 = TD3(CONFIG.model_copy(update={"precision": precision}), CPU, seed=0)
    rng = np.random.default_rng(0)
    before = _error(td3, seen)
    for _ in range(updates):
        td3.update(_bandit(rng, seen, CONFIG.batch_size))
    return before, _error(td3, seen)


def _told(target: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    vector = np.random.default_rng(1).normal(size=(len(target), 53)).astype(np.float32) * 0.03
    vector[:, 0] = target
    return _images(np.zeros_like(target)), vector


def test_learns_what_the_vector_tells() -> None:
    before, after = _learn(_told, updates=500)
    assert before > 0.3
    assert after < 0.12


def test_another_algorithm_learns_and_resumes_likewise(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(config.ALGORITHMS, "sac", "tests.unit.agent.sac:SAC")
    td3 = CONFIG.model_dump() | {"micro_batch": 20}
    values = {"algorithm": "sac", "device": "cpu", "td3": td3, "replay": {"capacity": 1000}}
    settings, run = config.validate(values, "test"), RunPaths(tmp_path)
    with prepare(run, resume=False):
        learner = Learner(settings, run)
        sac = learner._algorithm
        assert isinstance(sac, SAC)
        untrained, before = bits(sac), _error(sac, _told)
        learner.dry_run()
        assert bits(sac) == untrained
        monkeypatch.setattr(learner, "_replay", MadeUp(lambda size, rng: _bandit(rng, _told, size)))
        for _ in range(300):
            learner.update()
        assert before > 0.3
        assert _error(sac, _told) < 0.12
        assert learner.losses().keys() == {"critic_loss", "actor_loss"}
        assert isinstance(sac.online, SoftNetworks)
        assert sac.online.temperature.item() < -2.0
        learner.save(learner.counters(), score=None)
        assert bits(Learner(settings, run)._algorithm) == bits(sac)
        with pytest.raises(CheckpointError, match="trained with algorithm = sac, the configuration says td3: set"):
            Learner(config.validate(values | {"algorithm": "td3"}, "test"), run)


@pytest.mark.parametrize(
    "precision", ["bfloat16", *(pytest.param(name, marks=pytest.mark.long) for name in ("float32", "float16"))]
)
def test_learns_what_only_the_image_tells(precision: str) -> None:
    def seen(target: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        return _images(target), np.zeros((len(target), 53), dtype=np.float32)

    before, after = _learn(seen, updates=500, precision=precision)
    assert before > 0.3
    assert after < 0.12


def test_learns_to_reach_a_target_that_pays_only_later() -> None:
    """A point on a line, moved by 0.2 · action; being near 0 pays: the way there pays nothing by itself."""
    rng = np.random.default_rng(0)
    td3 = TD3(CONFIG, CPU, seed=0)
    blank = torch.zeros(CONFIG.batch_size, 5, 21, 21, 16, dtype=torch.uint8)

    def vectors(position: np.ndarray) -> torch.Tensor:
        vector = np.zeros((len(position), 53), dtype=np.float32)
        vector[:, 0] = position
        return torch.from_numpy(vector)

    for _ in range(600):
        position = rng.uniform(-1, 1, CONFIG.batch_size).astype(np.float32)
        action = rng.uniform(-1, 1, (CONFIG.batch_size, 2)).astype(np.float32)
        arrived = np.clip(position + 0.2 * action[:, 0], -1, 1)
        reward = torch.from_numpy((np.abs(arrived) < 0.2).astype(np.float32))
        told = torch.from_numpy(action), reward, torch.zeros(CONFIG.batch_size)
        none, once = torch.empty(CONFIG.batch_size, 0), torch.ones(CONFIG.batch_size)
        td3.update(Batch(blank, vectors(position), vectors(arrived), *told, none, none, once))
    policy = Policy(CONFIG.network)
    policy.load_state_dict(td3.policy_state())
    position = np.array([-0.9, -0.5, 0.5, 0.9], dtype=np.float32)
    for _ in range(8):
        images = np.zeros((4, 84, 84), dtype=np.uint8)
        steering = np.array([policy.act(images, vector)[0] for vector in vectors(position).numpy()])
        position = np.clip(position + 0.2 * steering, -1, 1)
    assert np.abs(position).max() < 0.25
