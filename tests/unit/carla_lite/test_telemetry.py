"""Telemetry of a vehicle's wheels, compared with Newton's laws and geometry."""

from __future__ import annotations

import math

import pytest

from carla_lite.motion import telemetry
from carla_lite.motion.physics import MODEL3, Body, Control, advance
from carla_lite.motion.vehicles import GRAVITY_MPS2
from tests.unit.carla_lite.places import flat

FRICTION, LAT_SLIP, LONG_SLIP, OMEGA, LOAD, NORMAL_LOAD, TORQUE, ALONG, ACROSS = range(9)


def driven(seconds: float = 2.0, **body: object) -> Body:
    made = Body(**body)  # type: ignore[arg-type]
    for _ in range(round(seconds / 0.05)):
        advance(made, 0.05, flat)
    return made


def wheels(body: Body) -> list[list[float]]:
    return telemetry.telemetry(body)[7]  # type: ignore[return-value]


def total(body: Body, index: int) -> float:
    return sum(wheel[index] for wheel in wheels(body))


@pytest.mark.parametrize("control", [Control(throttle=0.6), Control(brake=0.4), Control(steer=0.1), Control()])
def test_the_wheels_forces_are_what_accelerates_the_car(control: Control):
    body = driven(1.0, vx=12.0, control=control)
    drag = MODEL3.drag_n_per_mps2 * body.vx**2
    assert total(body, ALONG) == pytest.approx(MODEL3.mass_kg * body.ax + drag, abs=1e-6)
    assert total(body, ACROSS) == pytest.approx(MODEL3.mass_kg * body.ay, abs=1e-6)
    assert total(body, LOAD) == pytest.approx(MODEL3.mass_kg * GRAVITY_MPS2)
    assert total(body, TORQUE) == pytest.approx(total(body, ALONG) * MODEL3.wheel_radius_m, abs=1e-6)


def test_brakes_load_the_front_and_throttle_the_rear():
    rest = wheels(driven())
    braked = wheels(driven(0.5, vx=15.0, control=Control(brake=0.5)))
    launched = wheels(driven(0.5, control=Control(1.0)))
    assert braked[0][LOAD] > rest[0][LOAD] > launched[0][LOAD]
    assert braked[3][LOAD] < rest[3][LOAD] < launched[3][LOAD]
    assert [wheel[NORMAL_LOAD] for wheel in rest] == pytest.approx([1.0] * 4)


def test_wheels_roll_with_the_speed():
    body = driven(1.0, vx=10.0)
    for wheel in wheels(body):
        assert wheel[OMEGA] * MODEL3.wheel_radius_m == pytest.approx(body.vx, rel=0.02)
    assert telemetry.wheel_pitch_rad(body) == pytest.approx(-math.fmod(body.x / MODEL3.wheel_radius_m, 10 * math.pi))


@pytest.mark.parametrize("steer", [0.2, -0.2, 0.5])
def test_front_wheels_roll_about_one_centre(steer: float):
    body = driven(1.0, vx=2.0, control=Control(steer=steer))
    left, right = (telemetry.wheel_steer_rad(body, wheel) for wheel in (0, 1))
    inner, outer = (right, left) if steer > 0.0 else (left, right)
    assert inner == body.steer_angle
    # cot(outer) - cot(inner) = track / wheelbase.
    track = telemetry.track_m(body) / MODEL3.wheelbase_m
    assert 1.0 / math.tan(abs(outer)) - 1.0 / math.tan(abs(inner)) == pytest.approx(track)
    assert (telemetry.wheel_steer_rad(body, 2), telemetry.wheel_steer_rad(body, 3)) == (0.0, 0.0)


def test_a_curve_pushes_the_tyres_to_its_middle():
    body = driven(1.0, vx=10.0, control=Control(steer=0.15))
    assert all(wheel[ACROSS] > 0.0 and wheel[LAT_SLIP] < 0.0 for wheel in wheels(body))


def test_nothing_acts_on_a_vehicle_without_physics():
    body = driven(0.5, vx=10.0, control=Control(brake=1.0))
    body.simulate_physics = False
    assert (total(body, ALONG), total(body, ACROSS)) == (0.0, 0.0)
