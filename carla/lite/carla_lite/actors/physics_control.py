"""CARLA's VehiclePhysicsControl: conversion from and to the motion model.

Owns the order of the figures (protocol, section 2.3) and their scales. ``report`` gives what the model does: applying
its result changes nothing. A vehicle with another engine or gearbox than its own is driven by ``motion.drivetrain``.
Figures without effect are stored and returned.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from carla_lite.motion.drivetrain import RPM, Drivetrain, Gear
from carla_lite.motion.physics import Body
from carla_lite.motion.telemetry import track_m
from carla_lite.motion.vehicles import TYRE_SCALE, VehicleModel
from carla_lite.protocol import wire
from carla_lite.protocol.wire import RpcError

(_TORQUE, _MAX_RPM, _INERTIA, _FULL_THROTTLE, _ENGAGED, _NEUTRAL, _AUTOMATIC, _SHIFT_S) = range(8)
(_CLUTCH, _FINAL_RATIO, _GEARS, _MASS, _DRAG, _CENTRE, _STEERING, _WHEELS) = range(8, 16)
_ENGINE = slice(_TORQUE, _MASS)
_WHEEL_COUNT = 4
(_FRICTION, _, _MAX_STEER, _RADIUS, _BRAKE, _HAND_BRAKE, _, _LATERAL, _LONGITUDINAL, _PLACE) = range(10)

_KEPT = "stored and returned; the model has no such figure"
FIGURES = {
    "torque_curve": "",
    "max_rpm": "",
    "moi": "",
    "damping_rate_full_throttle": "",
    "damping_rate_zero_throttle_clutch_engaged": "",
    "damping_rate_zero_throttle_clutch_disengaged": "",
    "use_gear_autobox": "",
    "gear_switch_time": "",
    "clutch_strength": "",
    "final_ratio": "",
    "forward_gears": "",
    "mass": "",
    "drag_coefficient": "",
    "center_of_mass": "",
    "steering_curve": "",
    "wheels": "",
    "use_sweep_wheel_collision": _KEPT,
}
"""Fields of VehiclePhysicsControl in wire order, and why a field has no effect, if it has none."""
WHEEL_FIGURES = {
    "tire_friction": "",
    "damping_rate": _KEPT,
    "max_steer_angle": "",
    "radius": "",
    "max_brake_torque": "",
    "max_handbrake_torque": "",
    "lat_stiff_max_load": _KEPT,
    "lat_stiff_value": "",
    "long_stiff_value": "",
    "position": "wheels stay where the vehicle's class has them",
}
"""Fields of WheelPhysicsControl in wire order, and why a field has no effect, if it has none."""

# Values that CARLA's vehicles report, standing in for the model's drag and stiffness.
_DRAG_COEFFICIENT, _LATERAL_STIFFNESS, _LONGITUDINAL_STIFFNESS = 0.3, 17.0, 1000.0
# An electric motor's resistance, as a share of the vehicle's mass; and how firmly it turns the wheels.
_MOTOR_MASS_SHARE, _MOTOR_CLUTCH = 0.02, 10.0
# Number of points that report its constant power.
_POWER_STEPS = 8
# The client uses single precision.
_SAME = 1e-5


def report(body: Body, built: VehicleModel) -> list[Any]:
    """Return the figures of a body with its original model; only the tyres' friction may differ."""
    model = body.model
    centre = [model.mass_forward_m, 0.0, model.mass_height_m]
    steering = [list(point) for point in model.steering_curve]
    return [*_engine(built), model.mass_kg, _DRAG_COEFFICIENT, centre, steering, _wheels(body), False]


def applied(built: VehicleModel, figures: list[Any]) -> VehicleModel:
    """Return the model for these figures; ``built`` is the vehicle's original model.

    Raises:
        RpcError: a figure isn't finite, or there aren't four wheels, or there is no torque or gear.
    """
    wheels = figures[_WHEELS]
    if len(wheels) != _WHEEL_COUNT:
        raise RpcError(f"the physics control has {len(wheels)} wheels, expected the 4 that get_physics_control() gave")
    steer_deg = max(wheel[_MAX_STEER] for wheel in wheels)
    mass, drag, steer_deg = wire.vector((figures[_MASS], figures[_DRAG], steer_deg))
    mass = max(mass, 1.0)
    radius_m = max(0.01 * _mean(wheels, _RADIUS), 0.01)
    lateral = max(_mean(wheels, _LATERAL), 0.0) / _LATERAL_STIFFNESS
    front_brake, rear_brake = (_sum(pair, _BRAKE) for pair in (wheels[:2], wheels[2:]))
    brakes = front_brake + rear_brake
    forward, _, height = wire.vector(figures[_CENTRE])
    geared = not _same(figures[_ENGINE], _engine(built))
    return replace(
        built,
        mass_kg=mass,
        yaw_inertia_kgm2=built.yaw_inertia_kgm2 * mass / built.mass_kg,
        mass_forward_m=max(-0.9 * built.rear_axle_m, min(0.9 * built.front_axle_m, forward)),
        mass_height_m=max(height, 0.0),
        front_tyre_friction=max(_mean(wheels[:2], _FRICTION), 0.0) / TYRE_SCALE,
        rear_tyre_friction=max(_mean(wheels[2:], _FRICTION), 0.0) / TYRE_SCALE,
        max_steer_rad=math.radians(min(max(steer_deg, 1.0), 89.0)),
        steering_curve=_steering_curve(figures[_STEERING], built),
        wheel_radius_m=radius_m,
        brake_force_n=brakes / radius_m,
        brake_front_share=front_brake / brakes if brakes else built.brake_front_share,
        hand_brake_force_n=_sum(wheels, _HAND_BRAKE) / radius_m,
        drag_n_per_mps2=built.drag_n_per_mps2 * max(drag, 0.0) / _DRAG_COEFFICIENT,
        front_stiffness_n_per_rad=built.front_stiffness_n_per_rad * lateral,
        rear_stiffness_n_per_rad=built.rear_stiffness_n_per_rad * lateral,
        slip_force_n=built.slip_force_n * max(_mean(wheels, _LONGITUDINAL), 0.0) / _LONGITUDINAL_STIFFNESS,
        motor_drag_n_per_mps=0.0 if geared else built.motor_drag_n_per_mps,
        drive=_drivetrain(figures) if geared else None,
    )


def friction(figures: list[Any]) -> list[float]:
    """Return the friction of each wheel."""
    return [wheel[_FRICTION] for wheel in figures[_WHEELS]]


def with_friction(figures: list[Any], values: Sequence[float]) -> list[Any]:
    """Return the figures with these frictions of the wheels."""
    wheels = [[value, *wheel[1:]] for value, wheel in zip(values, figures[_WHEELS], strict=True)]
    return [*figures[:_WHEELS], wheels, *figures[_WHEELS + 1 :]]


def with_places(figures: list[Any], body: Body) -> list[Any]:
    """Return the figures with the present places of the wheels."""
    places = [wheel[_PLACE] for wheel in _wheels(body)]
    wheels = [[*wheel[:_PLACE], place] for wheel, place in zip(figures[_WHEELS], places, strict=True)]
    return [*figures[:_WHEELS], wheels, *figures[_WHEELS + 1 :]]


def _engine(model: VehicleModel) -> list[Any]:
    """Return the figures of a vehicle's original, electric drivetrain: one gear."""
    reduction = model.gear_ratio / model.wheel_radius_m
    closed = model.motor_drag_n_per_mps / reduction**2
    inertia = _MOTOR_MASS_SHARE * model.mass_kg / reduction**2
    gears = [[1.0, 0.5, 0.65]]
    torque = [list(point) for point in _torque_curve(model)]
    damping = [0.0, closed, closed]
    return [torque, model.max_rpm, inertia, *damping, True, 0.0, _MOTOR_CLUTCH, model.gear_ratio, gears]


def _torque_curve(model: VehicleModel) -> list[tuple[float, float]]:
    """Return the model's torque curve: constant torque, then constant power, then nothing at the highest speed."""
    corner = min(model.peak_power_w / model.peak_torque_nm / RPM, 0.95 * model.max_rpm)
    last = 0.95 * model.max_rpm
    speeds = [corner * (last / corner) ** (step / _POWER_STEPS) for step in range(_POWER_STEPS + 1)]
    powered = [(rpm, min(model.peak_torque_nm, model.peak_power_w / (rpm * RPM))) for rpm in speeds]
    return [(0.0, model.peak_torque_nm), *powered, (model.max_rpm, 0.0)]


def _drivetrain(figures: list[Any]) -> Drivetrain:
    torque = tuple(sorted((float(rpm), float(nm)) for rpm, nm in figures[_TORQUE]))
    gears = tuple(Gear(*map(float, gear)) for gear in figures[_GEARS])
    if not torque or not gears:
        missing = "point of torque_curve" if not torque else "forward gear"
        raise RpcError(f"the physics control has no {missing}, expected one at least")
    numbers = [figures[at] for at in (_MAX_RPM, _INERTIA, _FULL_THROTTLE, _ENGAGED, _NEUTRAL, _CLUTCH, _FINAL_RATIO)]
    numbers += [figures[_SHIFT_S], *(part for point in torque for part in point), *(gear.ratio for gear in gears)]
    if not all(math.isfinite(number) and number >= 0.0 for number in numbers):
        raise RpcError("a figure of the physics control's engine or gearbox is negative or no finite number")
    max_rpm, inertia, full, engaged, neutral, clutch, final_ratio, shift_s, *_ = map(float, numbers)
    damping = full, engaged, neutral
    inertia = max(inertia, 1e-3)
    automatic = bool(figures[_AUTOMATIC])
    return Drivetrain(torque, max_rpm, inertia, *damping, clutch, gears, final_ratio, automatic, shift_s)


def _steering_curve(points: list[Any], built: VehicleModel) -> tuple[tuple[float, float], ...]:
    curve = sorted((float(kmh), float(share)) for kmh, share in points) or list(built.steering_curve)
    if not all(math.isfinite(number) for point in curve for number in point):
        raise RpcError(f"steering_curve is {points}, expected finite numbers")
    begins = [] if curve[0][0] <= 0.0 else [(0.0, curve[0][1])]
    return (*begins, *curve)


def _same(figures: Any, others: Any) -> bool:
    """Return whether figures are equal in single precision."""
    if isinstance(figures, (list, tuple)):
        return len(figures) == len(others) and all(map(_same, figures, others))
    return math.isclose(figures, others, rel_tol=_SAME, abs_tol=1e-9)


def _sum(wheels: list[list[float]], index: int) -> float:
    """Return the sum of a figure over the wheels; values below 0 count as 0."""
    return sum(max(wire.finite(wheel[index]), 0.0) for wheel in wheels)


def _mean(wheels: list[list[float]], index: int) -> float:
    return sum(wire.finite(wheel[index]) for wheel in wheels) / len(wheels)


def _wheels(body: Body) -> list[Any]:
    """Return front left, front right, rear left, rear right; radius and world position in centimetres, as CARLA.

    There are four, because CARLA reports four for two-wheelers, too.
    """
    model = body.model
    c, s = math.cos(body.yaw), math.sin(body.yaw)
    half_nm = 0.5 * model.brake_force_n * model.wheel_radius_m
    hand = 0.5 * model.hand_brake_force_n * model.wheel_radius_m
    tyre = [2.0, _LATERAL_STIFFNESS, _LONGITUDINAL_STIFFNESS]
    wheels = []
    for forward, front in ((model.front_axle_m, True), (-model.rear_axle_m, False)):
        for right in (-0.5 * track_m(body), 0.5 * track_m(body)):
            place = body.x + c * forward - s * right, body.y + s * forward + c * right, body.z + model.wheel_radius_m
            steer, hold = (math.degrees(model.max_steer_rad), 0.0) if front else (0.0, hand)
            brake = half_nm * (model.brake_front_share if front else 1.0 - model.brake_front_share)
            grip = TYRE_SCALE * (model.front_tyre_friction if front else model.rear_tyre_friction)
            figures = [grip, 0.25, steer, 100.0 * model.wheel_radius_m, brake, hold]
            wheels.append([*figures, *tyre, [100.0 * value for value in place]])
    return wheels
