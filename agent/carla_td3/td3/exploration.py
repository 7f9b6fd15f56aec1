"""Gaussian action noise, and halts without a cause, each with its own random numbers.

Owns them and their generators. Never touches the policy: they take an action and return one. There is no state to save:
the collector seeds both at each episode.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray


class GaussianNoise:
    """a ← clip(a + N(0, σ), -1, 1), the paper's exploration, with its own generator."""

    def __init__(self, sigma: float, seed: int) -> None:
        self.sigma = sigma
        self._rng = np.random.default_rng(seed)

    def __call__(self, action: NDArray[np.float32]) -> NDArray[np.float32]:
        """Return the action (2,) with noise, still within [-1, 1]."""
        noise = self._rng.normal(0.0, self.sigma, action.shape).astype(np.float32)
        noisy: NDArray[np.float32] = (action + noise).clip(-1.0, 1.0)
        return noisy


class Halts:
    """Brakes to a standstill now and then, and waits a moment, although nothing is ahead.

    If a car has only ever stood for a cause, a policy learns to stand because it stands, and never starts again (the
    inertia problem, Codevilla et al. 2019; de Haan et al. 2019).

    Args:
        every_s: mean time between two halts while the car moves; 0 for none.
        delta_s: seconds per step.
        seed: for when, how hard and how long.
    """

    FROM_MPS, STANDING_MPS = 2.0, 0.1
    BRAKE, STANDS_S = (0.3, 1.0), (0.3, 2.0)

    def __init__(self, every_s: float, delta_s: float, seed: int) -> None:
        self._share = delta_s / every_s if every_s else 0.0
        self._delta_s = delta_s
        self._rng = np.random.default_rng(seed)
        self._brake = self._left_s = 0.0

    def __call__(self, action: NDArray[np.float32], speed_mps: float) -> NDArray[np.float32]:
        """Return the action (2,), with the brake instead of its pedal during a halt."""
        if self._left_s <= 0.0:
            if speed_mps < self.FROM_MPS or self._rng.random() >= self._share:
                return action
            self._brake, self._left_s = self._rng.uniform(*self.BRAKE), self._rng.uniform(*self.STANDS_S)
        if speed_mps < self.STANDING_MPS:
            self._left_s -= self._delta_s
        return np.array((action[0], -self._brake), np.float32)
