"""The drivers, on a kinematic bicycle of this test's own: no simulator."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from carla_td3.collector.warm_up import warmup_action
from carla_td3.config import ActionRateConfig, AgentConfig, EnvironmentConfig, NetworkConfig
from carla_td3.env import observation
from carla_td3.env.actuators import Actuators
from carla_td3.env.expert import MAX_STEER_RAD, WHEELBASE_M, Expert, PidPurePursuit
from carla_td3.env.hazards import NOTHING, Hazards, Light
from carla_td3.env.observation import DriverState
from carla_td3.env.route import Route
from carla_td3.evaluation.drivers import Driver, PolicyDriver, RandomDriver, ShovedDriver, StopDriver, driver, evaluated
from carla_td3.exits import AgentError
from carla_td3.td3.networks import Policy
from tests.unit.agent.roads import road

STEP_S = 0.1


class Bicycle:
    """A car without slip: throttle and brake give 4 and 8 m/s²; wheel and pedals follow as ``actuators`` say."""

    def __init__(self, route: Route, actuators: ActionRateConfig | None = None) -> None:
        self.actuators = Actuators(actuators or ActionRateConfig(), STEP_S)
        self.state = DriverState(route, route.project(0.0, 0.0), 0.0, 0.0, float(route.yaw[0]), 0.0)

    @property
    def s_m(self) -> float:
        return self.state.place.s_m

    def move(self, action: np.ndarray) -> None:
        now = self.state
        wheel, pedal = self.actuators.follow(*(float(value) for value in action))
        speed = max(0.0, now.speed_mps + STEP_S * (4.0 * pedal if pedal > 0 else 8.0 * pedal))
        yaw = now.yaw + STEP_S * speed * math.tan(wheel * MAX_STEER_RAD) / WHEELBASE_M
        x, y = now.x_m + STEP_S * speed * math.cos(yaw), now.y_m + STEP_S * speed * math.sin(yaw)
        self.state = DriverState(now.route, now.route.project(x, y, self.s_m), x, y, yaw, speed, wheel)


BENDS = road((60, 0.0), (13, 1 / 8), (40, 0.0), (13, -1 / 8), (50, 0.0))
"""Straight, a right angle of 8 m radius to the right, straight, another to the left, straight."""


def sight(state: DriverState) -> observation.Observation:
    return {"vector": observation.vector(state, 2.0)}


def drive(driver: Driver, car: Bicycle, steps: int) -> list[DriverState]:
    states = []
    for _ in range(steps):
        car.move(driver.act(sight(car.state), car.state))
        states.append(car.state)
        if car.s_m > car.state.route.length_m - 2.0:
            break
    return states


def test_pid_follows_tight_bends_slowly_and_is_fast_elsewhere() -> None:
    states = drive(PidPurePursuit(), Bicycle(BENDS), 400)
    assert max(abs(state.place.lateral_m) for state in states) < 1.0
    assert states[-1].place.s_m > BENDS.length_m - 2.0
    assert max(state.speed_mps for state in states if 62.0 < state.place.s_m < 71.0) < 5.5
    assert max(state.speed_mps for state in states) > 7.0


@pytest.mark.parametrize("radius_m", [10.0, 15.0, 20.0])
def test_a_wheel_that_lags_is_turned_earlier(radius_m: float) -> None:
    winding = road((30, 0.0), (25, 1 / radius_m), (25, -1 / radius_m), (25, 1 / radius_m), (30, 0.0))

    def apart(lag_s: float, known_s: float) -> float:
        states = drive(
            PidPurePursuit(actuators=ActionRateConfig(lag_s=known_s)),
            Bicycle(winding, ActionRateConfig(lag_s=lag_s)),
            500,
        )
        assert states[-1].place.s_m > winding.length_m - 2.0
        return max(abs(state.place.lateral_m) for state in states)

    assert apart(0.4, 0.4) < apart(0.0, 0.0)
    assert apart(0.4, 0.0) > apart(0.4, 0.4) + 0.07


def expert(car: Bicycle, ahead: Callable[[Bicycle], Hazards]) -> Expert:
    return Expert(8.0, STEP_S, lambda: ahead(car))


def test_the_expert_drives_an_empty_road_smoothly() -> None:
    car = Bicycle(BENDS)
    states = drive(expert(car, lambda _: NOTHING), car, 500)
    assert max(abs(state.place.lateral_m) for state in states) < 1.0
    assert states[-1].place.s_m > states[-1].route.length_m - 2.0
    pid = drive(PidPurePursuit(), Bicycle(BENDS), 500)
    jerks = [np.abs(np.diff([s.speed_mps for s in each], 2)).mean() for each in (states, pid)]
    assert jerks[0] < jerks[1]


@pytest.mark.parametrize(
    ("hazard", "before_m"),
    [
        (lambda gap: Hazards(lead_gap_m=gap), (1.5, 4.5)),
        (lambda gap: Hazards(light=Light.RED, light_gap_m=gap), (1.5, 4.5)),
        (lambda gap: Hazards(light=Light.YELLOW, light_gap_m=gap), (1.5, 4.5)),
        (lambda gap: Hazards(light=Light.GREEN, light_gap_m=gap, lead_gap_m=gap + 6.0), (1.5, 4.5)),
        (lambda gap: Hazards(sign_gap_m=gap), (1.5, 4.5)),
        (lambda gap: Hazards(walker_gap_m=gap), (2.5, 5.5)),
        (lambda gap: Hazards(crossing_gap_m=gap, crossing_s=1.0), (1.5, 4.5)),
    ],
    ids=["car", "red", "yellow", "no room behind the light", "stop sign", "walker", "crossing"],
)
def test_the_expert_comes_to_stand_before_what_is_ahead(hazard, before_m: tuple[float, float]) -> None:
    car = Bicycle(BENDS)
    states = drive(expert(car, lambda car: hazard(55.0 - car.s_m)), car, 300)
    assert states[-1].speed_mps < 0.1
    assert before_m[0] < 55.0 - states[-1].place.s_m < before_m[1]
    assert np.diff([state.speed_mps for state in states]).min() > -3.0 * STEP_S


def test_the_expert_holds_its_brake_for_as_long_as_it_waits() -> None:
    car = Bicycle(BENDS)
    driver = expert(car, lambda car: Hazards(light=Light.RED, light_gap_m=55.0 - car.s_m))
    stood = len(drive(driver, car, 300))
    pedals = [driver.act(sight(car.state), car.state)[1] for _ in range(stood)]
    assert set(pedals) == {-0.5}


@pytest.mark.parametrize(
    ("seen", "starts"),
    [
        (Hazards(light=Light.RED, light_gap_m=7.0), False),
        (Hazards(light=Light.RED, light_gap_m=12.0), True),
        (Hazards(light=Light.GREEN, light_gap_m=7.0), True),
        (Hazards(lead_gap_m=7.0), False),
        (Hazards(lead_gap_m=12.0), True),
        (Hazards(lead_gap_m=7.0, lead_speed_mps=3.0), True),
        (Hazards(sign_gap_m=7.0), True),
    ],
    ids=["near a red", "far from a red", "green", "near a car", "far from a car", "the car leaves", "stop sign"],
)
def test_a_standing_expert_starts_where_it_gains(seen: Hazards, starts: bool) -> None:
    car = Bicycle(BENDS)
    driver = expert(car, lambda _: seen)
    state = car.state
    assert state.speed_mps == 0.0
    pedals = [driver.act(sight(state), state)[1] for _ in range(10)]
    assert bool(pedals[-1] > 0.0) is starts


def test_the_expert_stops_hard_for_who_steps_out() -> None:
    car = Bicycle(BENDS)
    steps_out = lambda car: Hazards(walker_gap_m=45.0 - car.s_m) if 30.0 < car.s_m < 44.0 else NOTHING  # noqa: E731
    states = drive(expert(car, steps_out), car, 200)
    assert states[-1].speed_mps < 0.1
    assert states[-1].place.s_m < 44.0
    assert drive(expert(car, lambda _: NOTHING), car, 100)[-1].speed_mps > 5.0


def test_a_shoved_expert_shows_the_way_back() -> None:
    """In ten minutes of straight road: aside often enough, to both sides, and never off the road; slow and fast."""
    car = Bicycle(road((5_999, 0.0)))
    expert = Expert(8.0, STEP_S, lambda: NOTHING)
    states = drive(ShovedDriver(expert, PidPurePursuit(8.0), STEP_S, np.random.default_rng(0)), car, 6_000)
    lateral = np.array([state.place.lateral_m for state in states])
    assert np.abs(lateral).max() < 2.4
    assert (lateral > 0.4).mean() > 0.02
    assert (lateral < -0.4).mean() > 0.02
    assert (np.abs(lateral) < 0.2).mean() > 0.5
    speed = np.array([state.speed_mps for state in states[200:]])
    assert (speed < 6.5).mean() > 0.02
    assert (speed > 9.0).mean() > 0.02
    assert (np.abs(speed - 8.0) < 1.0).mean() > 0.5


def test_a_shoved_expert_comes_to_a_red_light_at_every_speed() -> None:
    """Out of sixty red lights it runs some and stops at some, and approaches them slowly and fast."""
    ran, closest_mps = 0, []
    for seed in range(60):
        car = Bicycle(BENDS)
        red = expert(car, lambda car: Hazards(light=Light.RED, light_gap_m=55.0 - car.s_m))
        blind = PidPurePursuit(8.0)
        states = drive(ShovedDriver(red, blind, STEP_S, np.random.default_rng(seed)), car, 150)
        ran += states[-1].place.s_m > 55.0
        closest_mps += [state.speed_mps for state in states if 45.0 < state.place.s_m < 50.0][:1]
    assert 3 < ran < 57
    assert np.ptp(closest_mps) > 3.0


def test_a_shoved_expert_who_waits_waits() -> None:
    car = Bicycle(BENDS)
    red = expert(car, lambda _: Hazards(light=Light.RED, light_gap_m=3.5))
    states = drive(ShovedDriver(red, PidPurePursuit(8.0), STEP_S, np.random.default_rng(0)), car, 600)
    assert {state.speed_mps for state in states} == {0.0}


def test_the_expert_passes_a_late_yellow() -> None:
    car = Bicycle(BENDS)
    yellow = lambda car: Hazards(light=Light.YELLOW, light_gap_m=45.0 - car.s_m) if car.s_m > 40.0 else NOTHING  # noqa: E731
    states = drive(expert(car, lambda car: yellow(car) if car.s_m < 47.0 else NOTHING), car, 100)
    assert min(state.speed_mps for state in states if state.place.s_m > 38.0) > 4.0


@pytest.mark.parametrize(
    ("lateral_m", "across_mps", "stops"),
    [(4.0, -2.0, True), (6.0, -0.5, False), (-1.0, -1.5, False), (0.0, 0.0, True)],
    ids=["into the path", "later than the car", "out of the path", "on it"],
)
def test_the_expert_waits_only_for_who_it_would_meet(lateral_m: float, across_mps: float, stops: bool) -> None:
    car = Bicycle(BENDS)
    drive(expert(car, lambda _: NOTHING), car, 60)
    walker = Hazards(walker_gap_m=15.0, walker_lateral_m=lateral_m, walker_lateral_mps=across_mps)
    brakes = expert(car, lambda _: walker).act({}, car.state)[1] < expert(car, lambda _: NOTHING).act({}, car.state)[1]
    assert bool(brakes) is stops


@pytest.mark.parametrize("driver", [StopDriver(), RandomDriver(np.random.default_rng(0)), PidPurePursuit()])
def test_actions_fit_the_action_space(driver: Driver) -> None:
    state = Bicycle(BENDS).state
    action = driver.act({}, state)
    assert action.shape == (2,)
    assert action.dtype == np.float32
    assert np.abs(action).max() <= 1.0


@pytest.mark.parametrize("seed", range(5))
def test_warmup_really_moves_the_car(seed: int) -> None:
    rng, car, action = np.random.default_rng(seed), Bicycle(BENDS), np.zeros(2, np.float32)
    environment = EnvironmentConfig(action_rate=ActionRateConfig(steer_range=1.0))  # the bicycle's
    actions = []
    for _ in range(100):
        action = warmup_action(rng, action, sight(car.state)["vector"], environment)
        car.move(action)
        actions.append(action)
    assert car.s_m > 20.0
    spread = np.std(actions, axis=0)
    assert spread[0] > 0.1  # it must still explore
    assert spread[1] > 0.15


@pytest.mark.parametrize(
    ("driver", "most_m"), [(StopDriver(), 0.0), (RandomDriver(np.random.default_rng(0)), 20.0)], ids=["stop", "random"]
)
def test_who_hardly_moves_and_why_warmup_is_biased(driver: Driver, most_m: float) -> None:
    assert drive(driver, Bicycle(BENDS), 100)[-1].place.s_m <= most_m


def test_a_policy_without_its_picture_acts_on_the_vector_alone() -> None:
    rng, state = np.random.default_rng(0), Bicycle(BENDS).state
    policy = Policy(NetworkConfig(channels=(8, 8, 8), features=32, hidden=(32,)))
    pictures = rng.integers(0, 256, (30, 4, 84, 84), np.uint8)
    seen = [{"image": picture, "vector": observation.vector(state, 2.0)} for picture in pictures]
    greyed, shuffled = (driver(name, policy, AgentConfig(), lambda: NOTHING) for name in ("td3-greyed", "td3-shuffled"))
    own = [PolicyDriver(policy).act(each, state).tobytes() for each in seen]
    assert len(set(own)) == len(own)
    assert len({greyed.act(each, state).tobytes() for each in seen}) == 1
    shown = [shuffled.act(each, state).tobytes() for each in seen]
    assert set(shown) <= set(own)
    assert sum(a == b for a, b in zip(shown, own, strict=True)) < 10


@pytest.mark.parametrize("name", ["random", "expert-shoved", "td3-shuffled"])
def test_a_drive_does_not_depend_on_drives_before_it(name: str) -> None:
    policy = Policy(NetworkConfig(channels=(8, 8, 8), features=32, hidden=(32,)))
    pictures = np.random.default_rng(0).integers(0, 256, (200, 4, 84, 84), np.uint8)

    def drives(*names: str) -> list[bytes]:
        chosen, found = evaluated(name, policy, AgentConfig(), lambda: NOTHING), []
        for each in names:
            state = Bicycle(replace(BENDS, name=each)).state
            seen = [{"image": picture, "vector": observation.vector(state, 2.0)} for picture in pictures]
            found.append(b"".join(chosen.act(each, state).tobytes() for each in seen))
        return found

    first, second = drives("a", "b")
    assert drives("b") == [second]
    assert first != second


def test_a_driver_that_cannot_be_is_refused() -> None:
    for name, words in (("td3-greyed", "needs --checkpoint"), ("pilot", "expected one of td3, .*expert")):
        with pytest.raises(AgentError, match=words):
            driver(name, None, AgentConfig(), lambda: NOTHING)
