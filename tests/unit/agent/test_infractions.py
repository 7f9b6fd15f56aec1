"""Each infraction of a drive is listed once, with its place, as by the Leaderboard's criteria."""

from __future__ import annotations

import math

import pytest

from carla_td3.config import EnvironmentConfig, RewardConfig, TimeLimitConfig, TrafficConfig
from carla_td3.env.car import Motion
from carla_td3.env.episode import Episode, Events, Rules
from carla_td3.env.hazards import Light
from carla_td3.env.infractions import Record
from carla_td3.env.sensors import Collision
from carla_td3.env.stop_signs import StopBox, StopSignWatch
from tests.unit.agent.roads import STRAIGHT

SECONDS = 0.1
LONG = TimeLimitConfig(constant_s=1000.0)
GOES_ON = Rules(continue_after_infractions=True)
NONE, OPEN, RED = Light.NONE, Light.GREEN, Light.RED


def begun(config: EnvironmentConfig | None = None, rules: Rules | None = None) -> Episode:
    return Episode(STRAIGHT, config or EnvironmentConfig(time_limit=LONG), SECONDS, at(0.0, 0.0), rules)


def stood(episode: Episode) -> Episode:
    """Let the car stand until the drive ends."""
    while episode.end is None:
        episode.advance(at(0.0, 0.0), (0.0, -1.0), Events())
    return episode


def at(x_m: float, speed_mps: float = 5.0, y_m: float = 0.0) -> Motion:
    return Motion(0, x_m, y_m, 0.0, speed_mps, 0.0)


def drive(episode: Episode, events: list[Events], speed_mps: float = 5.0, y_m: float = 0.0) -> None:
    for each in events:
        if episode.end is not None:
            return
        episode.advance(at(episode.state.x_m + speed_mps * SECONDS, speed_mps, y_m), (0.0, 0.0), each)


def hit(other_id: int = 1, impulse_ns: float = 100.0, kind: str = "vehicle") -> Events:
    return Events((Collision(1, kind, other_id, impulse_ns),))


def test_contacts_with_one_actor_are_one_collision() -> None:
    episode = begun(rules=GOES_ON)
    drive(episode, [Events(), hit(impulse_ns=50.0), hit(impulse_ns=80.0), hit(2, 10.0, "pedestrian"), hit()])
    assert [(each.kind, each.other, each.impulse_ns) for each in episode.record.infractions] == [
        ("collision", "vehicle", 100.0),
        ("collision", "pedestrian", 10.0),
    ]
    assert episode.record.infractions[0].s_m == pytest.approx(1.0)
    assert episode.record.infractions[0].time_s == pytest.approx(0.2)


def test_the_same_actor_hit_again_later_is_another_collision() -> None:
    episode = begun(rules=GOES_ON)
    drive(episode, [hit(), *[Events()] * 51, hit()])
    assert episode.record.count("collision") == 2
    assert episode.end is None


def test_a_drive_that_goes_on_ends_at_its_routes_end() -> None:
    on, off = begun(rules=GOES_ON), begun()
    drive(on, [hit(), *[Events()] * 900])
    drive(off, [hit()])
    assert (on.end, off.end) == ("finished", "collision")
    assert on.info()["collision"]


def test_red_lights_are_met_run_and_listed() -> None:
    episode = begun()
    waits = Events(light=RED, faced=RED)
    goes = Events(light=OPEN, faced=OPEN)
    comes = Events(faced=RED)
    drive(episode, [Events(), comes, waits, goes, Events(), Events(faced=OPEN), goes, Events(), comes, waits, Events()])
    assert (episode.red_lights_met, episode.record.count("red_light")) == (2, 1)
    assert episode.end is None


PRODUCT = EnvironmentConfig(time_limit=LONG, reward=RewardConfig(form="product"))


def faced(light: Light, *gaps_m: float) -> list[Events]:
    return [Events(faced=light, line_gap_m=gap) for gap in gaps_m]


@pytest.mark.parametrize(("form", "end"), [("sum", None), ("product", "red_light")])
def test_a_red_light_ends_a_drive_of_the_product(form: str, end: str | None):
    episode = begun(EnvironmentConfig(time_limit=LONG, reward=RewardConfig.model_validate({"form": form})))
    drive(episode, faced(RED, 1.0, 0.2, -0.4))
    assert episode.end is None
    drive(episode, faced(RED, -0.9))
    assert (episode.end, episode.terminated) == (end, end is not None)
    assert episode.terms["red_light"] == -RewardConfig().red_light
    assert episode.record.count("red_light") == (end is not None)


@pytest.mark.parametrize(
    "drives",
    [
        [*faced(OPEN, 0.3, -0.9), *faced(RED, -1.4, -2.0)],  # turned red behind the front
        [*faced(RED, 0.3, -0.3), *faced(OPEN, -0.9), Events()],
        [*faced(RED, 0.3), Events()],  # turned off
    ],
)
def test_a_light_not_red_as_the_front_passes_ends_none(drives: list[Events]) -> None:
    episode = begun(PRODUCT)
    drive(episode, drives)
    assert episode.end is None
    assert episode.record.count("red_light") == 0


def test_metres_beside_the_lane_are_counted_by_share() -> None:
    episode = begun(rules=GOES_ON)
    drive(episode, [Events()] * 30)
    drive(episode, [Events()] * 10, y_m=3.0)
    assert episode.record.off_lane_share == pytest.approx(8.0 / 23.0, abs=0.05)  # 3 m are the swerve itself
    assert episode.end is None
    drive(episode, [Events()], y_m=31.0)
    assert episode.end == "off_road"


def test_pace_is_compared_in_quarters_of_the_route() -> None:
    record = Record()
    for step in range(1, 401):
        record.keep_pace(4.0 if step <= 100 else 9.0, 8.0, step / 400)
    assert record.minimum_speed_share == pytest.approx((0.5 + 1.0 + 1.0 + 1.0) / 4.0, abs=0.01)
    assert Record().minimum_speed_share == 1.0


def test_waiting_blocks_later_where_somebody_may_hold_the_car() -> None:
    for traffic, seconds in ((TrafficConfig(lights=True), 180.0), (TrafficConfig(), 15.0)):
        episode = stood(begun(EnvironmentConfig(time_limit=LONG, traffic=traffic)))
        assert episode.end == "blocked"
        assert episode.time_s == pytest.approx(seconds)
        assert [each.kind for each in episode.record.infractions] == ["blocked"]
        assert not episode.terminated


def test_who_creeps_in_a_queue_is_not_blocked() -> None:
    episode = begun(EnvironmentConfig(time_limit=LONG, blocked_s=5.0, traffic=TrafficConfig(vehicles=1)))
    for step in range(100):
        episode.advance(at(0.0, 0.2 if step % 40 == 39 else 0.0), (0.0, 0.0), Events())
    assert episode.end is None


def test_the_time_limit_grows_with_the_route() -> None:
    config = EnvironmentConfig(time_limit=TimeLimitConfig(constant_s=2.0, s_per_m=0.01), blocked_s=900.0)
    for rules, seconds in ((None, 6.0), (Rules(limit_s=3.0), 3.0)):
        episode = stood(begun(config, rules))
        assert episode.end == "time"
        assert episode.time_s == pytest.approx(seconds)


SIGN = StopBox(x_m=10.0, y_m=0.0, yaw=math.pi / 2.0, half_x_m=2.0, half_y_m=1.5, travel=0.0)


def ran(speeds_mps: list[float], yaw: float = 0.0) -> int:
    watch, x, count = StopSignWatch([SIGN]), 5.0, 0
    for speed in speeds_mps:
        x += speed * SECONDS
        count += watch.look(Motion(0, x, 0.0, yaw, speed, 0.0))
    return count


def test_a_stop_sign_is_run_by_who_never_stands_in_its_box() -> None:
    assert ran([5.0] * 20) == 1
    assert ran([5.0] * 10 + [0.0] + [5.0] * 20) == 0
    assert ran([5.0] * 2 + [0.0] + [5.0] * 20) == 1, "stood before the box"
    assert ran([5.0] * 20, yaw=math.pi) == 0, "goes the other way"
