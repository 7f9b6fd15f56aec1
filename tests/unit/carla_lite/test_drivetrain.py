"""Engines, gears and the figures that clients apply: against closed forms, and that nothing applied changes nothing."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from carla_lite.actors import physics_control
from carla_lite.blueprints.vehicles import VEHICLES
from carla_lite.motion.drivetrain import RPM, Drivetrain, Gear
from carla_lite.motion.physics import MODEL3, Body, Control, advance
from carla_lite.motion.vehicles import VehicleModel
from carla_lite.protocol.wire import RpcError
from tests.unit.carla_lite.places import flat

RADIUS_M, MASS_KG = 0.3, 1500.0
ENGINE = Drivetrain(
    torque=((0.0, 300.0), (2000.0, 400.0), (5000.0, 100.0)),
    max_rpm=5000.0,
    inertia_kgm2=0.1,
    damping_full_throttle=0.0,
    damping_engaged=0.5,
    damping_neutral=0.2,
    clutch_strength=10.0,
    gears=(Gear(4.0, 0.4, 0.8), Gear(2.0, 0.4, 0.8)),
    final_ratio=3.0,
    automatic=True,
    shift_s=0.5,
)
TORQUE, MAX_RPM, SHIFT_S, FINAL, GEARS, MASS, DRAG, CENTRE, STEERING, WHEELS = 0, 1, 7, 9, 10, 11, 12, 13, 14, 15


@pytest.mark.parametrize(
    ("rpm", "torque_nm"),
    [(0.0, 300.0), (1000.0, 350.0), (2000.0, 400.0), (3500.0, 250.0), (5000.0, 100.0), (9e9, 100.0)],
)
def test_torque_is_linear_between_the_points(rpm: float, torque_nm: float):
    assert ENGINE.full_torque_nm(rpm) == pytest.approx(torque_nm)


@pytest.mark.parametrize(("gear", "ratio"), [(1, 12.0), (2, 6.0), (0, 0.0), (-1, -12.0)])
def test_a_gears_ratio_is_its_own_times_the_final_one(gear: int, ratio: float):
    assert ENGINE.ratio(gear) == ratio


@pytest.mark.parametrize(
    ("gear", "rpm", "better"), [(1, 4100, 2), (1, 1000, 1), (2, 4900, 2), (2, 1900, 1), (2, 3000, 2)]
)
def test_an_automatic_gearbox_shifts_by_the_shares_of_max_rpm(gear: int, rpm: float, better: int):
    assert ENGINE.better_gear(gear, rpm) == better


def settled(engine: Drivetrain, ratio: float, speed_mps: float, dt: float, throttle: float = 1.0):
    """Return force and engine speed at a held speed, once the engine is where it stays."""
    force, rpm = 0.0, 0.0
    for _ in range(4000):
        force, rpm = engine.drive(ratio, throttle, rpm, speed_mps, RADIUS_M, math.inf, dt)
    return force, rpm


@pytest.mark.parametrize("dt", [0.005, 0.05])
@pytest.mark.parametrize("ratio", [12.0, 6.0, -12.0])
def test_the_force_at_a_held_speed_is_torque_by_ratio_by_radius(ratio: float, dt: float):
    speed = math.copysign(5.0, ratio)
    force, rpm = settled(ENGINE, ratio, speed, dt)
    assert force == pytest.approx(ENGINE.full_torque_nm(rpm) * ratio / RADIUS_M, rel=1e-6)
    slip_radps = rpm * RPM - speed * ratio / RADIUS_M
    assert slip_radps == pytest.approx(ENGINE.full_torque_nm(rpm) / ENGINE.clutch_strength, rel=1e-6)


def test_a_closed_throttle_brakes_by_the_engines_damping():
    force, rpm = settled(ENGINE, 6.0, 10.0, 0.05, throttle=0.0)
    assert force == pytest.approx(-ENGINE.damping_engaged * rpm * RPM * 6.0 / RADIUS_M, rel=1e-6)


def test_nothing_engaged_drives_nothing_and_revs_to_the_limiter():
    assert settled(ENGINE, 0.0, 3.0, 0.05) == (0.0, pytest.approx(ENGINE.max_rpm))


@pytest.mark.parametrize("clutch", [1e-3, 10.0, 1e9])
@pytest.mark.parametrize("dt", [0.001, 0.05])
def test_a_launch_keeps_energy_whatever_the_clutch(clutch: float, dt: float):
    engine, speed, rpm, work = replace(ENGINE, clutch_strength=clutch), 0.0, 0.0, 0.0
    for _ in range(int(2.0 / dt)):
        force, rpm = engine.drive(12.0, 1.0, rpm, speed, RADIUS_M, MASS_KG, dt)
        speed += dt * force / MASS_KG
        work += dt * engine.full_torque_nm(rpm) * rpm * RPM
        assert 0.0 <= rpm <= engine.max_rpm
    assert 0.5 * MASS_KG * speed**2 + 0.5 * engine.inertia_kgm2 * (rpm * RPM) ** 2 <= 1.1 * work


def launched(model: VehicleModel, control: Control, seconds: float = 1.0) -> Body:
    body = Body(model, control=control)
    for _ in range(round(seconds / 0.05)):
        advance(body, 0.05, flat)
    return body


def geared(**changes: Any) -> VehicleModel:
    return replace(MODEL3, drive=replace(ENGINE, **changes), motor_drag_n_per_mps=0.0)


def test_a_manual_gear_holds_and_a_high_one_launches_slower():
    first, second = (launched(geared(), Control(1.0, manual_gear_shift=True, gear=gear)) for gear in (1, 2))
    assert (first.gear, second.gear) == (1, 2)
    assert first.vx > 1.5 * second.vx


def test_an_automatic_gearbox_drives_nothing_while_it_shifts():
    body = Body(geared(), control=Control(1.0))
    shifting: list[float] = []
    for _ in range(200):
        before = body.gear
        advance(body, 0.05, flat)
        shifting += [body.ax] if body.gear == 2 and len(shifting) < 10 else []
        assert body.gear >= before
    assert body.gear == 2
    assert max(shifting) <= 0.0


def test_reverse_drives_back_and_neutral_not_at_all():
    assert launched(geared(), Control(1.0, reverse=True)).vx < -1.0
    assert launched(geared(), Control(1.0, manual_gear_shift=True, gear=0)).vx == 0.0


def test_the_engine_limits_the_speed():
    body = launched(geared(gears=(Gear(4.0, 0.0, 1.0),), torque=((0.0, 400.0),)), Control(1.0), 60.0)
    assert body.vx == pytest.approx(ENGINE.max_rpm * RPM / 12.0 * RADIUS_M * MODEL3.wheel_radius_m / RADIUS_M, rel=0.01)


def figures() -> list[Any]:
    return physics_control.report(Body(MODEL3), MODEL3)


def changed(index: int, value: object) -> VehicleModel:
    """Return the Model 3 with another figure, as the client sends it: in single precision."""
    given = _single(figures())
    given[index] = value
    return physics_control.applied(MODEL3, given)


def _single(value):
    if isinstance(value, list):
        return [_single(part) for part in value]
    return value if isinstance(value, bool) else float(np.float32(value))


def test_what_is_reported_changes_nothing_when_applied():
    same = physics_control.applied(MODEL3, _single(figures()))
    assert same.drive is None
    for name in VehicleModel.__dataclass_fields__:
        was, now = getattr(MODEL3, name), getattr(same, name)
        if isinstance(was, float):
            assert now == pytest.approx(was, rel=1e-6), name


def wheels(**values: float) -> list[Any]:
    """Return the wheels with figures multiplied, by their index."""
    return [[part * values.get(f"_{i}", 1.0) if i < 9 else part for i, part in enumerate(w)] for w in figures()[WHEELS]]


@pytest.mark.parametrize(
    ("index", "value", "field", "factor"),
    [
        (MASS, 2 * MODEL3.mass_kg, "mass_kg", 2.0),
        (MASS, 2 * MODEL3.mass_kg, "yaw_inertia_kgm2", 2.0),
        (DRAG, 0.6, "drag_n_per_mps2", 2.0),
        (CENTRE, [0.0, 0.0, 0.92], "mass_height_m", 2.0),
        (WHEELS, wheels(_0=0.5), "front_tyre_friction", 0.5),
        (WHEELS, wheels(_0=0.5), "rear_tyre_friction", 0.5),
        (WHEELS, wheels(_2=0.5), "max_steer_rad", 0.5),
        (WHEELS, wheels(_3=2.0), "top_speed_mps", 2.0),
        (WHEELS, wheels(_3=2.0), "brake_force_n", 0.5),
        (WHEELS, wheels(_3=2.0), "peak_force_n", 0.5),
        (WHEELS, wheels(_4=0.5), "brake_force_n", 0.5),
        (WHEELS, wheels(_5=0.5), "hand_brake_force_n", 0.5),
        (WHEELS, wheels(_7=2.0), "front_stiffness_n_per_rad", 2.0),
        (WHEELS, wheels(_8=0.5), "slip_force_n", 0.5),
    ],
)
def test_each_figure_changes_the_model(index: int, value: object, field: str, factor: float):
    assert getattr(changed(index, value), field) == pytest.approx(factor * getattr(MODEL3, field), rel=1e-5)


def test_the_centre_of_mass_loads_the_axles():
    model = changed(CENTRE, [0.3, 0.0, MODEL3.mass_height_m])
    moved_n = MODEL3.weight_n * 0.3 / MODEL3.wheelbase_m
    assert model.load_front_n == pytest.approx(MODEL3.load_front_n + moved_n)
    assert model.load_front_n + model.load_rear_n == pytest.approx(MODEL3.weight_n)


def test_the_steering_curve_limits_the_wheel_by_speed():
    model = changed(STEERING, [[10.0, 1.0], [40.0, 0.25]])
    for kmh, share in ((0.0, 1.0), (25.0, 0.625), (90.0, 0.25)):
        body = Body(model, vx=kmh / 3.6, control=Control(steer=1.0), gravity=False, z=9.0)
        for _ in range(40):
            body.vx = kmh / 3.6
            advance(body, 0.05, flat)
        assert body.steer_angle == pytest.approx(share * model.max_steer_rad, rel=1e-3)


@pytest.mark.parametrize(
    ("index", "value", "factor"), [(FINAL, 2 * MODEL3.gear_ratio, 2.0), (GEARS, [[0.5, 0.0, 1.0]], 0.5)]
)
def test_ratios_multiply_the_launch(index: int, value: object, factor: float):
    electric, other = launched(MODEL3, Control(0.3), 0.5), launched(changed(index, value), Control(0.3), 0.5)
    assert other.ax == pytest.approx(factor * electric.ax, rel=0.15)


@pytest.mark.parametrize("name", ["tesla.model3", "carlamotors.firetruck", "vespa.zx125", "gazelle.omafiets"])
def test_the_reported_engine_drives_as_the_electric_one_does(name: str):
    (built,) = (one.model for one in VEHICLES if one.id == f"vehicle.{name}")
    given = physics_control.report(Body(built), built)
    given[SHIFT_S] = 0.1  # any change of the engine has it driven by its figures: this one changes nothing
    model = physics_control.applied(built, given)
    assert model.drive is not None
    for seconds in (3.0, 15.0):
        electric = launched(built, Control(1.0), seconds)
        assert launched(model, Control(1.0), seconds).vx == pytest.approx(electric.vx, rel=0.07)


@pytest.mark.parametrize(
    ("index", "value", "message"),
    [
        (WHEELS, [], "0 wheels, expected the 4"),
        (GEARS, [], "no forward gear"),
        (TORQUE, [], "no point of torque_curve"),
        (MAX_RPM, math.nan, "no finite number"),
        (FINAL, -1.0, "negative"),
        (MASS, math.inf, "finite"),
        (STEERING, [[0.0, math.nan]], "steering_curve"),
    ],
)
def test_figures_that_make_no_sense_are_refused(index: int, value: object, message: str):
    with pytest.raises(RpcError, match=message):
        changed(index, value)
