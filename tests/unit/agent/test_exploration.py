"""Exploration noise and halts have their own numbers."""

from __future__ import annotations

import numpy as np

from carla_td3.td3.exploration import GaussianNoise, Halts


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


def halted(every_s: float, seed: int, steps: int = 40_000) -> tuple[list[float], list[int]]:
    """Drive at full throttle with 4 m/s² either way; return the pedals, and how many steps each stand took."""
    halts, speed_mps, stood = Halts(every_s, 0.1, seed), 0.0, 0
    pedals: list[float] = []
    stands: list[int] = []
    for _ in range(steps):
        pedal = float(halts(np.ones(2, np.float32), speed_mps)[1])
        speed_mps = min(8.0, max(0.0, speed_mps + 0.4 * (1 if pedal > 0 else -1)))
        pedals.append(pedal)
        stood = stood + 1 if speed_mps == 0.0 else 0
        if stood and pedal < 0:
            stands = [*stands, 1] if stood == 1 else [*stands[:-1], stood]
    return pedals, stands


def test_halts_come_as_often_as_asked_and_are_over_soon() -> None:
    pedals, stands = halted(12.0, seed=0)
    driven_s = 0.1 * sum(pedal > 0 for pedal in pedals)
    assert 0.8 < driven_s / len(stands) / 12.0 < 1.3, "starting up to 2 m/s takes half a second of it"
    assert min(stands) >= 3
    assert max(stands) <= 22
    assert {pedal for pedal in pedals if pedal > 0} == {1.0}
    assert all(-1.0 <= pedal <= -0.3 for pedal in pedals if pedal < 0)


def test_halts_are_asked_for_and_follow_the_seed() -> None:
    assert set(halted(0.0, seed=0)[0]) == {1.0}
    assert halted(12.0, seed=1) == halted(12.0, seed=1) != halted(12.0, seed=2)


def test_a_halt_leaves_the_wheel_alone() -> None:
    halts = Halts(1e-3, 0.1, seed=0)
    action = halts(np.array((0.25, 1.0), np.float32), 8.0)
    assert action[0] == 0.25
    assert action[1] < 0
    assert action.dtype == np.float32
