"""The visual test's verdict: each thing that can be wrong is a sentence, and a healthy drive has none."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from carla_td3.evaluation.health import Health

STEPS = 5


def picture(step: int) -> np.ndarray:
    return np.random.default_rng(step).integers(0, 255, (84, 84, 3), np.uint8)


def driven(change: Callable[[int], np.ndarray] = picture, steps: int = STEPS, held_mib: float = 100.0) -> Health:
    health = Health(STEPS, limit_mib=200.0)
    for step in range(steps):
        health.see(change(step), 0.5, {"agent": held_mib})
    return health


def test_a_healthy_drive_has_no_problem() -> None:
    found = driven().plain()
    assert found["healthy"]
    assert found["problems"] == []
    assert (found["steps"], found["peak_mib"]) == (STEPS, {"agent": 100})


@pytest.mark.parametrize(
    ("health", "says"),
    [
        (driven(steps=3), "3 of 5 steps"),
        (driven(lambda step: picture(step) * (step != 2)), "showed nothing at step 3."),
        (driven(lambda _: np.full((84, 84, 3), 90, np.uint8)), "showed nothing 5 times, first at step 1."),
        (driven(lambda _: picture(0)), "did not change 4 times, first at step 2."),
        (driven(held_mib=300.0), "The agent held 300 MiB, more than the limit of 200 MiB."),
    ],
    ids=["too few steps", "a black picture", "flat pictures", "a frozen picture", "too much memory"],
)
def test_what_is_wrong_is_one_sentence(health: Health, says: str) -> None:
    (problem,) = health.problems()
    assert says in problem
    assert not health.plain()["healthy"]


def test_a_car_that_stands_may_see_the_same_picture() -> None:
    health = Health(2, limit_mib=200.0)
    for _ in range(2):
        health.see(picture(0), 0.0, {})
    assert health.problems() == []


def test_a_lost_simulator_is_said_beside_what_it_left_undone() -> None:
    health = driven(steps=2)
    health.lost = "The simulator is silent."
    assert health.problems() == ["The simulator is silent.", "2 of 5 steps were driven."]
