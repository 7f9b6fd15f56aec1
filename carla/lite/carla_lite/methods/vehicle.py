"""RPC methods of vehicles: controls, physics figures, lights."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

from carla_lite.actors import Vehicle
from carla_lite.methods.table import method
from carla_lite.motion.ackermann import Ackermann
from carla_lite.motion.physics import Control
from carla_lite.motion.vehicles import STEERING_CURVE, VehicleModel
from carla_lite.protocol import wire
from carla_lite.protocol.wire import RpcError
from carla_lite.world import World

_MASS, _WHEELS = 11, 15
_FRICTION, _MAX_STEER = 0, 2


@method
def apply_control_to_vehicle(world: World, number: int, control: list[Any]) -> None:
    """Hold this control until the next one; the physics reads what is out of range as the nearest."""
    vehicle = world.actor(number, Vehicle)
    vehicle.ackermann = None
    vehicle.body.control = Control(*control)


@method
def apply_ackermann_control_to_vehicle(world: World, number: int, target: list[float]) -> None:
    """Hold this speed and wheel angle until the next control of either kind."""
    world.actor(number, Vehicle).ackermann = Ackermann(*target)


@method
def get_physics_control(world: World, number: int) -> list[Any]:
    """Return the model's figures as a VehiclePhysicsControl, or what was last applied."""
    vehicle = world.actor(number, Vehicle)
    return vehicle.physics_control or _physics_control(vehicle)


@method
def apply_physics_control(world: World, number: int, figures: list[Any]) -> None:
    """Adopt mass, tyre friction and steering angle; the other figures are kept and given back."""
    vehicle = world.actor(number, Vehicle)
    model, wheels = vehicle.body.model, figures[_WHEELS]
    if not wheels:
        raise RpcError("the physics control has no wheels, expected those that get_physics_control() gave")
    friction = sum(wheel[_FRICTION] for wheel in wheels) / len(wheels)
    steer_deg = max(wheel[_MAX_STEER] for wheel in wheels)
    mass, friction, steer_deg = wire.vector((figures[_MASS], friction, steer_deg))
    mass = max(mass, 1.0)
    vehicle.body.model = dataclasses.replace(
        model,
        mass_kg=mass,
        yaw_inertia_kgm2=model.yaw_inertia_kgm2 * mass / model.mass_kg,
        tyre_friction=max(friction, 0.0) / _TYRE_SCALE,
        max_steer_rad=math.radians(min(max(steer_deg, 1.0), 89.0)),
    )
    vehicle.physics_control = figures


@method
def get_vehicle_light_state(world: World, number: int) -> list[int]:
    """Return the lights' flags."""
    return [world.actor(number, Vehicle).light_state]


@method
def set_vehicle_light_state(world: World, number: int, flags: list[int]) -> None:
    """Keep the lights' flags."""
    world.actor(number, Vehicle).light_state = flags[0]


@method
def get_vehicle_light_states(world: World) -> list[Any]:
    """Return every vehicle's id and flags."""
    return [[vehicle.id, vehicle.light_state] for vehicle in world.vehicles]


# CARLA gives its tyres a friction of 3.5 where the model's, a true coefficient, is about 1.
_TYRE_SCALE = 3.5


def _physics_control(vehicle: Vehicle) -> list[Any]:
    model = vehicle.body.model
    torque = [[0.0, model.peak_torque_nm], [_full_power_rpm(model), model.peak_torque_nm], [model.max_rpm, 0.0]]
    gears = [[1.0, 0.5, 0.65]]
    steering = [list(point) for point in STEERING_CURVE]
    shape = [True, 0.0, 10.0, model.gear_ratio, gears, model.mass_kg, 0.3, [0.0, 0.0, model.mass_height_m]]
    return [torque, model.max_rpm, 1.0, 0.15, 2.0, 0.35, *shape, steering, _wheels(vehicle), False]


def _full_power_rpm(model: VehicleModel) -> float:
    return min(model.peak_power_w / model.peak_torque_nm * 30.0 / math.pi, model.max_rpm)


def _wheels(vehicle: Vehicle) -> list[Any]:
    """Return front left, front right, rear left, rear right; radius and world position in centimetres, as CARLA."""
    body, model = vehicle.body, vehicle.body.model
    c, s = math.cos(body.yaw), math.sin(body.yaw)
    brake, hand = (
        model.brake_force_n * model.wheel_radius_m / 4.0,
        model.hand_brake_force_n * model.wheel_radius_m / 2.0,
    )
    wheels = []
    for forward, front in ((model.front_axle_m, True), (-model.rear_axle_m, False)):
        for right in (-0.8 * model.half_width_m, 0.8 * model.half_width_m):
            place = body.x + c * forward - s * right, body.y + s * forward + c * right, body.z + model.wheel_radius_m
            steer, hold = (math.degrees(model.max_steer_rad), 0.0) if front else (0.0, hand)
            figures = [model.tyre_friction * _TYRE_SCALE, 0.25, steer, 100.0 * model.wheel_radius_m, brake, hold]
            wheels.append([*figures, 2.0, 17.0, 1000.0, [100.0 * value for value in place]])
    return wheels
