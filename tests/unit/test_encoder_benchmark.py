"""Figures of benchmarks/encoder.py, against their definitions."""

from __future__ import annotations

import math

import encoder
import numpy as np
import pytest

from carla_td3.config import NetworkConfig, TD3Config
from carla_td3.env import privileged
from carla_td3.td3.replay.frames import LISTED, PRIVILEGED, VECTOR
from carla_td3.td3.td3 import TD3
from tests.unit.agent.batches import CPU, random_batch


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


def told() -> TD3:
    network = NetworkConfig(sees="privileged", hidden=(32,))
    config = TD3Config(network=network, batch_size=8, policy_delay=1, imitation=3.0)
    return TD3(config, CPU, 0, privileged=PRIVILEGED)


@pytest.mark.parametrize(("hidden", "changes"), [(["light_near", "target_speed"], False), (["light_near"], True)])
def test_a_hidden_number_changes_no_action_after_training_either(hidden: list[str], changes: bool) -> None:
    learner, nothing = told(), np.zeros(0, np.uint8)
    encoder.hide_from(learner, hidden)
    for number in range(4):
        learner.update(random_batch(8, number, PRIVILEGED))
    rng = np.random.default_rng(0)
    vector, known = rng.random(VECTOR, np.float32), rng.random(PRIVILEGED, np.float32)
    more = known.copy()
    more[privileged.NAMES.index("target_speed")] += 1.0
    for policy in (learner.online, learner.target):
        assert (policy.act(nothing, vector, known) != policy.act(nothing, vector, more)).any() == changes


def test_only_what_a_learner_is_told_can_be_hidden() -> None:
    with pytest.raises(SystemExit, match="--hide light: the learner only sees lead_near, lead_speed, "):
        encoder.hide_from(told(), ["light"])
    with pytest.raises(SystemExit, match=r"--hide speed: the learner sees none; set td3\.network\.sees=privileged"):
        encoder.hide_from(TD3(TD3Config(), CPU, 0), ["speed"])
