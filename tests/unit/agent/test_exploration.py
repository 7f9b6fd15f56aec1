"""Exploration noise has its own numbers."""

from __future__ import annotations

import numpy as np

from agent.td3.exploration import GaussianNoise


def test_noise_has_the_asked_deviation_and_stays_in_range() -> None:
    noise = GaussianNoise(0.1, seed=0)
    actions = np.array([noise(np.zeros(2, np.float32)) for _ in range(5_000)])
    assert abs(actions.std() - 0.1) < 0.005
    edge = np.array([noise(np.ones(2, np.float32)) for _ in range(100)])
    assert edge.max() == 1.0
    assert edge.dtype == np.float32


def test_same_seed_draws_the_same_noise_and_another_seed_another() -> None:
    one, same, other = (GaussianNoise(0.1, seed)(np.zeros(2, np.float32)) for seed in (1, 1, 2))
    np.testing.assert_array_equal(one, same)
    assert not np.array_equal(one, other)
