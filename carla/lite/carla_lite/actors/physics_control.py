"""CARLA's VehiclePhysicsControl: what the motion model reports in it, and what it takes from it.

Owns the order of the figures (protocol, section 2.3) and their scales. Mass, drag, steering angle, tyre friction and
tyre stiffness change the model; the other figures are kept and given back.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from carla_lite.motion.physics import Body
from carla_lite.motion.vehicles import STEERING_CURVE, VehicleModel
from carla_lite.protocol import wire
from carla_lite.protocol.wire import RpcError

_MASS, _DRAG, _WHEELS = 11, 12, 15
_FRICTION, _MAX_STEER, _LATERAL, _LONGITUDINAL = 0, 2, 7, 8

# What CARLA's vehicles report, and what stands for the model's own drag and stiffness.
_DRAG_COEFFICIENT, _LATERAL_STIFFNESS, _LONGITUDINAL_STIFFNESS = 0.3, 17.0, 1000.0
# CARLA gives its tyres a friction of 3.5 where the model's, a true coefficient, is about 1.
_TYRE_SCALE = 3.5


def report(body: Body) -> list[Any]:
    """Return the figures of a body's model."""
    model = body.model
    torque = [[0.0, model.peak_torque_nm], [_full_power_rpm(model), model.peak_torque_nm], [model.max_rpm, 0.0]]
    gears = [[1.0, 0.5, 0.65]]
    steering = [list(point) for point in STEERING_CURVE]
    centre = [0.0, 0.0, model.mass_height_m]
    shape = [True, 0.0, 10.0, model.gear_ratio, gears, model.mass_kg, _DRAG_COEFFICIENT, centre]
    return [torque, model.max_rpm, 1.0, 0.15, 2.0, 0.35, *shape, steering, _wheels(body), False]


def applied(model: VehicleModel, built: VehicleModel, figures: list[Any]) -> VehicleModel:
    """Return a model with the figures that it takes; ``built`` is the vehicle as it was spawned.

    Raises:
        RpcError: a figure is no finite number, or there are no wheels.
    """
    wheels = figures[_WHEELS]
    if not wheels:
        raise RpcError("the physics control has no wheels, expected those that get_physics_control() gave")
    steer_deg = max(wheel[_MAX_STEER] for wheel in wheels)
    mass, drag, steer_deg = wire.vector((figures[_MASS], figures[_DRAG], steer_deg))
    friction, lateral, longitudinal = wire.vector([_mean(wheels, i) for i in (_FRICTION, _LATERAL, _LONGITUDINAL)])
    mass, lateral = max(mass, 1.0), max(lateral, 0.0) / _LATERAL_STIFFNESS
    return replace(
        model,
        mass_kg=mass,
        yaw_inertia_kgm2=model.yaw_inertia_kgm2 * mass / model.mass_kg,
        tyre_friction=max(friction, 0.0) / _TYRE_SCALE,
        max_steer_rad=math.radians(min(max(steer_deg, 1.0), 89.0)),
        drag_n_per_mps2=built.drag_n_per_mps2 * max(drag, 0.0) / _DRAG_COEFFICIENT,
        front_stiffness_n_per_rad=built.front_stiffness_n_per_rad * lateral,
        rear_stiffness_n_per_rad=built.rear_stiffness_n_per_rad * lateral,
        slip_force_n=built.slip_force_n * max(longitudinal, 0.0) / _LONGITUDINAL_STIFFNESS,
    )


def friction(figures: list[Any]) -> list[float]:
    """Return the friction of each wheel."""
    return [wheel[_FRICTION] for wheel in figures[_WHEELS]]


def with_friction(figures: list[Any], values: Sequence[float]) -> list[Any]:
    """Return the figures with another friction of each wheel."""
    wheels = [[value, *wheel[1:]] for value, wheel in zip(values, figures[_WHEELS], strict=True)]
    return [*figures[:_WHEELS], wheels, *figures[_WHEELS + 1 :]]


def _mean(wheels: list[list[float]], index: int) -> float:
    return sum(wheel[index] for wheel in wheels) / len(wheels)


def _full_power_rpm(model: VehicleModel) -> float:
    return min(model.peak_power_w / model.peak_torque_nm * 30.0 / math.pi, model.max_rpm)


def _wheels(body: Body) -> list[Any]:
    """Return front left, front right, rear left, rear right; radius and world position in centimetres, as CARLA.

    Four, as CARLA reports for two-wheelers too.
    """
    model = body.model
    c, s = math.cos(body.yaw), math.sin(body.yaw)
    brake, hand = (
        model.brake_force_n * model.wheel_radius_m / 4.0,
        model.hand_brake_force_n * model.wheel_radius_m / 2.0,
    )
    tyre = [2.0, _LATERAL_STIFFNESS, _LONGITUDINAL_STIFFNESS]
    wheels = []
    for forward, front in ((model.front_axle_m, True), (-model.rear_axle_m, False)):
        for right in (-0.8 * model.half_width_m, 0.8 * model.half_width_m):
            place = body.x + c * forward - s * right, body.y + s * forward + c * right, body.z + model.wheel_radius_m
            steer, hold = (math.degrees(model.max_steer_rad), 0.0) if front else (0.0, hand)
            figures = [model.tyre_friction * _TYRE_SCALE, 0.25, steer, 100.0 * model.wheel_radius_m, brake, hold]
            wheels.append([*figures, *tyre, [100.0 * value for value in place]])
    return wheels
