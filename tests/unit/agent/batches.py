"""Made-up transitions for the tests of updates."""

from __future__ import annotations

import torch

from agent.td3.replay.frames import DEFAULT, FrameStack
from agent.td3.replay.replay import Batch


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
