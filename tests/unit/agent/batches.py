"""Made-up transitions for the tests of updates, and what these compare."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from carla_td3.config import NetworkConfig
from carla_td3.td3.algorithm import Algorithm
from carla_td3.td3.replay.frames import DEFAULT, FrameStack
from carla_td3.td3.replay.replay import Batch

CPU = torch.device("cpu")
NARROW = NetworkConfig(channels=(8, 8, 8), features=32, hidden=(32,))


def random_batch(size: int, seed: int = 0, privileged: int = 0, stack: FrameStack = DEFAULT) -> Batch:
    """Return ``size`` transitions that are a function of the seed."""
    shape = size, stack.frames + stack.new(1), *stack.frame_shape
    rng = torch.Generator().manual_seed(seed)
    return Batch(
        frames=torch.randint(0, 256, shape, generator=rng, dtype=torch.uint8),
        vector=torch.randn(size, 53, generator=rng),
        next_vector=torch.randn(size, 53, generator=rng),
        action=torch.rand(size, 2, generator=rng) * 2 - 1,
        reward=torch.randn(size, generator=rng),
        terminated=(torch.rand(size, generator=rng) < 0.3).float(),
        privileged=torch.rand(size, privileged, generator=rng) * 2 - 1,
        next_privileged=torch.rand(size, privileged, generator=rng) * 2 - 1,
        discount=torch.ones(size),
    )


class MadeUp:
    """A replay whose batches a function of their size and a generator makes."""

    steps = 0

    def __init__(self, make: Callable[[int, np.random.Generator], Batch]) -> None:
        self._make = make

    def sample(self, size: int, rng: np.random.Generator, *given: Any) -> None:
        made, into = self._make(size, rng), given[-1]
        for name in made.__dataclass_fields__:
            getattr(into, name).copy_(getattr(made, name))

    def fetch(self, *_: object) -> None:
        """Nothing is on a disk."""


def bits(algorithm: Algorithm) -> dict[str, bytes]:
    """Return everything that learning depends on, as bytes: 0.0 and -0.0 differ."""
    return {name: value.numpy().tobytes() for name, value in algorithm.state().items()}


def in_parts(micro_batch: int) -> Callable[..., Any]:
    """Return an attempt that computes so many rows at once."""

    def attempt(phase: str, run: Callable[[int], Any], rows: int) -> Any:
        return run(min(micro_batch, rows))

    return attempt
