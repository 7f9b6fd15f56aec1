"""Gaussian action noise with its own random numbers.

Owns the noise and its generator. Never touches the policy: it is given an action and returns one. There is no state to
save: the collector seeds the noise anew for each episode.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray


class GaussianNoise:
    """a ← clip(a + N(0, σ), -1, 1), the paper's exploration, from a generator of its own."""

    def __init__(self, sigma: float, seed: int) -> None:
        self.sigma = sigma
        self._rng = np.random.default_rng(seed)

    def __call__(self, action: NDArray[np.float32]) -> NDArray[np.float32]:
        """Return the action (2,) with noise, still within [-1, 1]."""
        noise = self._rng.normal(0.0, self.sigma, action.shape).astype(np.float32)
        noisy: NDArray[np.float32] = (action + noise).clip(-1.0, 1.0)
        return noisy
