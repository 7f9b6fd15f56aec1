"""Figures of benchmarks/encoder.py, against their definitions."""

from __future__ import annotations

import math

import encoder
import numpy as np
import pytest

from carla_td3.env import privileged
from carla_td3.td3.replay.frames import LISTED


def test_the_coefficient_of_determination_is_one_of_the_truth_and_none_of_its_mean() -> None:
    known = np.array([0.0, 1.0, 3.0], np.float32)
    assert encoder.determination(known, known) == 1.0
    assert encoder.determination(np.full(3, known.mean()), known) == pytest.approx(0.0, abs=1e-6)
    assert encoder.determination(-known, known) < 0.0
    assert math.isnan(encoder.determination(known, np.ones(3, np.float32)))


def test_the_area_is_the_chance_that_one_is_above_the_other_ties_counted_half() -> None:
    rng = np.random.default_rng(0)
    more, less = rng.integers(0, 6, 40).astype(np.float32), rng.integers(0, 5, 30).astype(np.float32)
    pairs = [1.0 if a > b else 0.5 if a == b else 0.0 for a in more for b in less]
    assert encoder.area(more, less) == pytest.approx(np.mean(pairs))
    assert math.isnan(encoder.area(more, less[:0]))


def test_braking_for_a_person_is_told_from_a_free_road_and_from_other_reasons_to_brake() -> None:
    plain = dict.fromkeys(privileged.NAMES, 0.0) | {"speed": 0.5}
    braking, driving = {"expert_pedal": -0.5}, {"expert_pedal": 0.3}
    near = {"walker_near": 1.0}
    rows = [
        near | braking,
        driving,
        near | driving,
        braking,
        *(near | braking | other for other in ({"speed": 0.0}, {"light_red": 0.75}, {"lead_near": 0.7})),
        *(near | braking | other for other in ({"sign_near": 0.6}, {"crossing_near": 0.1}, {"light_yellow": 1.0})),
    ]
    known = np.array([list((plain | row).values()) for row in rows], np.float32)
    for_person, free = encoder.before_person(dict(zip(privileged.NAMES, known.T, strict=True)))
    assert [*np.flatnonzero(for_person), *np.flatnonzero(free)] == [0, 1]
    found = encoder.figures(encoder.Seen(None, known, np.stack((known[:, 0], known[:, -1]), axis=1)))
    assert (found["person"], found["person_braked"]) == (1.0, 1.0)


def test_what_an_encoder_predicts_is_compared_without_the_list_that_only_critics_see() -> None:
    rng = np.random.default_rng(0)
    known = rng.uniform(-1, 1, (50, len(privileged.NAMES))).astype(np.float32)
    found = encoder.figures(encoder.Seen(known[:, LISTED:], known, known[:, :2]))
    assert {found[name] for name in encoder.TOLD} == {1.0}
