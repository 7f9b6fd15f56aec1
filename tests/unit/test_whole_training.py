"""When a training reaches a return for good, the ratio of two such times where one never did, and the peer's values."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest

from carla_td3 import config as configuration
from carla_td3.env import observation

pytest.importorskip("stable_baselines3")
from whole_training import CLOCKS, Bound, Goal, Ratio, Reached, compared, median, peer_model, ratio, shown, time_to

GOAL = Goal(reward=100.0, route_completion=0.9)
END = 12.0
EXACT, AT_MOST, AT_LEAST = Bound.EXACT, Bound.AT_MOST, Bound.AT_LEAST


def curve(*returns: float, completion: float = 1.0) -> list[dict[str, float]]:
    """Return an evaluation a minute, each with twice the processor minutes."""
    return [
        {"minutes": minute, "processor_minutes": 2.0 * minute, "reward": each, "route_completion": completion}
        for minute, each in enumerate(returns, 1)
    ]


@pytest.mark.parametrize(
    ("returns", "minutes"),
    [
        ((100, 100, 100, 0), 1.0),
        ((0, 120, 100, 110), 2.0),
        ((0, 120, 0, 110, 110, 110), 4.0),
        ((0, 0, 120, 110), 3.0),
        ((0, 0, 0, 100), 4.0),
    ],
)
def test_the_goal_is_reached_once_three_evaluations_in_a_row_do_or_all_that_are_left(
    returns: tuple[float, ...], minutes: float
) -> None:
    assert time_to(GOAL, curve(*returns), END, "minutes") == Reached(minutes)


@pytest.mark.parametrize("never", [curve(), curve(99, 0, 99), curve(100, 100, 0), curve(200, 200, 200, completion=0.8)])
def test_a_training_that_does_not_stay_at_the_goal_has_its_whole_time(never: list[dict[str, float]]) -> None:
    assert time_to(GOAL, never, END, "minutes") == Reached(END, reached=False)


def test_the_time_is_that_of_the_clock() -> None:
    assert [time_to(GOAL, curve(0, 100, 100), END, clock).minutes for clock in CLOCKS] == [2.0, 4.0]


@pytest.mark.parametrize(
    ("ours", "theirs", "expected"),
    [
        (Reached(2), Reached(8), Ratio(0.25, EXACT)),
        (Reached(2), Reached(10, reached=False), Ratio(0.2, AT_MOST)),
        (Reached(3, reached=False), Reached(6), Ratio(0.5, AT_LEAST)),
        (Reached(3, reached=False), Reached(10, reached=False), None),
    ],
)
def test_a_side_that_never_arrives_leaves_a_bound(ours: Reached, theirs: Reached, expected: Ratio | None) -> None:
    assert ratio(ours, theirs) == expected


@pytest.mark.parametrize(
    ("ratios", "expected"),
    [
        ([Ratio(0.2), Ratio(0.5), Ratio(0.3)], Ratio(0.3, EXACT)),
        ([Ratio(0.2, AT_MOST), Ratio(0.5), Ratio(0.3)], Ratio(0.3, AT_MOST)),
        ([Ratio(0.2), Ratio(0.4, AT_LEAST)], Ratio(0.3, AT_LEAST)),
        ([Ratio(0.2, AT_MOST), Ratio(0.5, AT_LEAST), Ratio(0.3)], None),
        ([Ratio(0.2), None, Ratio(0.3)], None),
        ([], None),
    ],
)
def test_the_median_of_bounds_is_a_bound_or_unknown(ratios: list[Ratio | None], expected: Ratio | None) -> None:
    found = median(ratios)
    assert (found is None) == (expected is None)
    if found is not None and expected is not None:
        assert found.bound is expected.bound
        assert math.isclose(found.value, expected.value)


def test_sides_are_compared_by_the_seeds_that_both_have() -> None:
    def times(**minutes: float) -> dict[str, dict[str, Reached]]:
        return {seed: {"minutes": Reached(each)} for seed, each in minutes.items()}

    found = compared(times(a=1, b=4, c=9), times(a=2, b=4), "minutes")
    assert found == {"median": "0.75", "seeds": {"a": "0.50", "b": "1.00"}}


def test_a_bound_is_named() -> None:
    assert [shown(each) for each in (Ratio(0.2), Ratio(0.2, AT_MOST), None)] == ["0.20", "at most 0.20", "unknown"]


CONFIG = configuration.load(Path("quick"))


class Spaces(gymnasium.Env[Any, Any]):
    """Only its spaces are asked for."""

    observation_space = observation.space(CONFIG.environment.camera)
    action_space = gymnasium.spaces.Box(-1, 1, (2,), np.float32)


def test_the_peer_has_the_widths_and_the_pace_of_the_configuration() -> None:
    model, network = peer_model(CONFIG, Spaces(), warmed=False), CONFIG.td3.network
    wanted = [network.features + observation.VECTOR_SIZE, *network.hidden]
    for part, more in ((model.actor.mu, 0), (model.critic.qf0, 2)):
        widths = [layer.in_features for layer in part if hasattr(layer, "in_features")]
        assert widths == [wanted[0] + more, *wanted[1:]]
    convolutions = model.actor.features_extractor.extractors["image"].cnn
    assert tuple(each.out_channels for each in convolutions if hasattr(each, "out_channels")) == network.channels
    assert model.gradient_steps / model.train_freq.frequency == CONFIG.training.updates_per_step


@pytest.mark.parametrize(("warmed", "pedal"), [(True, 0.5), (False, 0.0)])
def test_only_our_warm_up_moves_the_peers_car(warmed: bool, pedal: float) -> None:
    model = peer_model(CONFIG, Spaces(), warmed)
    model._last_obs = {"vector": np.zeros((1, observation.VECTOR_SIZE), np.float32)}
    model.action_space.seed(0)
    drawn = []
    for model.num_timesteps in range(400):
        drawn.append(model._sample_action(400)[0][0, 1])
    assert np.mean(drawn) == pytest.approx(pedal, abs=0.15)
