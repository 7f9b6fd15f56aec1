"""CARLA's Ackermann controller: what it asks for, and that a car gets there."""

from __future__ import annotations

import math

import pytest

from carla_lite.motion.ackermann import DEFAULT_SETTINGS, Ackermann, AckermannController, Pid
from carla_lite.motion.physics import MODEL3, Body, advance
from tests.unit.carla_lite.places import flat

DT_S = 0.05


def driven(target: Ackermann, seconds: float, body: Body | None = None) -> list[Body]:
    """Return one car after each tick; its speeds and controls are copied."""
    controller, body, shown = AckermannController(), body or Body(), []
    for _ in range(round(seconds / DT_S)):
        body.control = controller.control(body, target, DT_S)
        advance(body, DT_S, flat)
        shown.append(Body(vx=body.vx, ax=body.ax, control=body.control, steer_angle=body.steer_angle))
    return shown


def test_a_pid_controller_adds_its_three_parts():
    pid = Pid(0.5, 0.2, 0.1)
    assert pid.step(1.0, 0.0, 0.1) == pytest.approx(0.5 + 0.02)
    # Error 0.9, integral 0.02 + 0.018, derivative -0.1 · 0.1 / 0.1.
    assert pid.step(1.0, 0.1, 0.1) == pytest.approx(0.45 + 0.038 - 0.1)
    assert pid.step(100.0, 0.1, 0.1) == 1.0


def test_its_first_asks_are_carlas():
    # The first tick: 0.15 · 5 m/s of acceleration, and 0.01 of that as throttle.
    (first,) = driven(Ackermann(0.0, 0.0, 5.0, 0.0, 0.0), DT_S)
    assert first.control.throttle == pytest.approx(0.01 * 0.75)


@pytest.mark.parametrize("speed_mps", [3.0, 5.0, 12.0, -3.0])
def test_the_target_speed_is_reached_and_held(speed_mps: float):
    shown = driven(Ackermann(0.0, 0.0, speed_mps, 0.0, 0.0), 60.0)
    assert shown[-1].vx == pytest.approx(speed_mps, abs=0.3)
    assert shown[-1].control.reverse == (speed_mps < 0.0)


def test_it_stops_and_holds_with_the_brake():
    shown = driven(Ackermann(0.0, 0.0, 0.0, 0.0, 0.0), 20.0, Body(vx=5.0))
    assert abs(shown[-1].vx) < 0.1
    assert shown[-1].control.brake == 1.0


def test_steering_comes_at_the_asked_speed():
    half_a_turn = driven(Ackermann(0.4, 0.5, 3.0, 0.0, 0.0), 0.4)
    asked = [shown.control.steer * MODEL3.max_steer_rad for shown in half_a_turn]
    assert asked == pytest.approx([0.5 * DT_S * (tick + 1) for tick in range(len(asked))])
    at_once = driven(Ackermann(0.4, 0.0, 3.0, 0.0, 0.0), DT_S)
    assert at_once[0].control.steer * MODEL3.max_steer_rad == pytest.approx(0.4)


def test_settings_are_kept_through_a_reset():
    controller = AckermannController()
    assert controller.settings == DEFAULT_SETTINGS
    controller.settings = (1.0, 2.0, 3.0, 4.0, 5.0, 6.0)
    controller.reset()
    assert controller.settings == (1.0, 2.0, 3.0, 4.0, 5.0, 6.0)


def test_higher_gains_are_quicker():
    def reached(gains: tuple[float, ...]) -> float:
        controller, body = AckermannController(), Body()
        controller.settings = gains  # type: ignore[assignment]
        for tick in range(2000):
            body.control = controller.control(body, Ackermann(0.0, 0.0, 5.0, 0.0, 0.0), DT_S)
            advance(body, DT_S, flat)
            if body.vx > 4.0:
                return tick * DT_S
        return math.inf

    assert reached((0.15, 0.0, 0.25, 0.1, 0.0, 0.01)) < reached(DEFAULT_SETTINGS)
