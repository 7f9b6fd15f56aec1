"""RPC methods of vehicles: controls, physics figures, wheels, doors, lights."""

from __future__ import annotations

import math
import time
from typing import Any, TypeAlias

from carla_lite.actors.actor import Vehicle
from carla_lite.methods.arguments import Finite
from carla_lite.methods.table import method
from carla_lite.motion import telemetry
from carla_lite.motion.ackermann import Ackermann
from carla_lite.motion.physics import Control
from carla_lite.protocol import wire
from carla_lite.protocol.wire import RpcError, Vector
from carla_lite.support import approximated, without_effect
from carla_lite.world import World

# VehicleDoor: front left, front right, rear left, rear right, hood, trunk; 6 means all of them.
_DOORS, _ALL_DOORS = range(4), 6
_TWO_WHEELS = "2"

# As the wire sends them (protocol, section 2.3).
VehicleControl: TypeAlias = tuple[float, float, float, bool, bool, bool, int]
AckermannControl: TypeAlias = tuple[float, float, float, float, float]
Gains: TypeAlias = tuple[float, float, float, float, float, float]
_Curve: TypeAlias = list[tuple[float, float]]
_Wheel: TypeAlias = tuple[float, float, float, float, float, float, float, float, float, Vector]
PhysicsControl: TypeAlias = tuple[
    _Curve,
    float,
    float,
    float,
    float,
    float,
    bool,
    float,
    float,
    float,
    list[Vector],
    float,
    float,
    Vector,
    _Curve,
    list[_Wheel],
    bool,
]


@method
def apply_control_to_vehicle(_world: World, vehicle: Vehicle, control: VehicleControl) -> None:
    """Hold this control until the next one; out-of-range values are clipped."""
    vehicle.drive(Control(*control))


@method
def apply_ackermann_control_to_vehicle(_world: World, vehicle: Vehicle, target: AckermannControl) -> None:
    """Hold this speed and wheel angle until the next control of either kind."""
    vehicle.steer_to(Ackermann(*map(wire.finite, target)))


@method
def get_ackermann_controller_settings(_world: World, vehicle: Vehicle) -> list[float]:
    """Return the gains of the speed and acceleration controllers."""
    return list(vehicle.ackermann.settings)


@method
def apply_ackermann_controller_settings(_world: World, vehicle: Vehicle, gains: Gains) -> None:
    """Set the gains of the speed and acceleration controllers."""
    speed_kp, speed_ki, speed_kd, kp, ki, kd = map(wire.finite, gains)
    vehicle.ackermann.settings = speed_kp, speed_ki, speed_kd, kp, ki, kd


@method
def get_physics_control(_world: World, vehicle: Vehicle) -> list[Any]:
    """Return the model's figures as a VehiclePhysicsControl, or the ones that were last applied."""
    return vehicle.figures


@method(approximated("a single-track model takes most figures (see the fields of VehiclePhysicsControl)"))
def apply_physics_control(_world: World, vehicle: Vehicle, figures: PhysicsControl) -> None:
    """Apply the figures that the motion model has; the others are stored and returned."""
    vehicle.figures = [*figures]


@method(approximated("the model knows axles: each wheel has half of its axle's forces"))
def get_telemetry_data(_world: World, vehicle: Vehicle) -> list[object]:
    """Return the VehicleTelemetryData of the last tick."""
    return telemetry.telemetry(vehicle.body)


@method
def get_wheel_steer_angle(_world: World, vehicle: Vehicle, wheel: int) -> float:
    """Return a wheel's angle (degrees, positive to the right)."""
    at = _wheel(vehicle, wheel)
    if not vehicle.simulate_physics:
        return vehicle.posed_wheels.get(at, (0.0, 0.0))[0]
    return math.degrees(telemetry.wheel_steer_rad(vehicle.body, at))


@method
def set_wheel_steer_direction(world: World, vehicle: Vehicle, wheel: int, angle_deg: Finite) -> None:
    """Pose a wheel of a vehicle without physics; with physics nothing changes and the log says so, as in CARLA."""
    _pose(world, vehicle, "set_wheel_steer_direction", (_wheel(vehicle, wheel), angle_deg, None))


@method
def get_wheel_pitch_angle(_world: World, vehicle: Vehicle, wheel: int) -> float:
    """Return how far a wheel has rolled (degrees, negative ahead), within ten half turns of 0."""
    at = _wheel(vehicle, wheel)
    if not vehicle.simulate_physics:
        return vehicle.posed_wheels.get(at, (0.0, 0.0))[1]
    return math.degrees(telemetry.wheel_pitch_rad(vehicle.body))


@method
def set_wheel_pitch_angle(world: World, vehicle: Vehicle, wheel: int, angle_deg: Finite) -> None:
    """Pose a wheel of a vehicle without physics; with physics nothing changes and the log says so, as in CARLA."""
    _pose(world, vehicle, "set_wheel_pitch_angle", (_wheel(vehicle, wheel), None, angle_deg))


def _wheel(vehicle: Vehicle, wheel: int) -> int:
    """Return the wheel with CARLA's number: two-wheelers have one in front (0) and one behind (1)."""
    if wheel not in telemetry.WHEELS:
        raise RpcError(f"wheel {wheel} of {vehicle.blueprint.id} doesn't exist, expected 0 to 3")
    if vehicle.attributes.get("number_of_wheels") == _TWO_WHEELS and wheel == telemetry.FRONT_RIGHT:
        return telemetry.REAR_RIGHT
    return wheel


def _pose(world: World, vehicle: Vehicle, name: str, pose: tuple[int, float | None, float | None]) -> None:
    at, steer_deg, pitch_deg = pose
    if vehicle.simulate_physics:
        world.report_unsupported(
            name, "physics turns the vehicle's wheels; switch it off by set_simulate_physics(False)"
        )
        return
    steer, pitch = vehicle.posed_wheels.get(at, (0.0, 0.0))
    vehicle.posed_wheels[at] = steer if steer_deg is None else steer_deg, pitch if pitch_deg is None else pitch_deg


@method(approximated("vehicles can hit the open leaf; no picture shows it"))
def open_vehicle_door(world: World, vehicle: Vehicle, door: int) -> None:
    """Open a door, or all doors: other vehicles can hit the open leaf. No picture shows it."""
    if doors := _doors(world, vehicle, door):
        vehicle.open_doors |= doors


@method
def close_vehicle_door(world: World, vehicle: Vehicle, door: int) -> None:
    """Close a door, or all doors."""
    vehicle.open_doors -= _doors(world, vehicle, door)


def _doors(world: World, vehicle: Vehicle, door: int) -> frozenset[int]:
    """Return the doors for a number; none if the vehicle's doors don't open, which is logged, as in CARLA."""
    if door not in (*_DOORS, _ALL_DOORS):
        raise RpcError(f"door {door} doesn't exist, expected 0 to 3, or {_ALL_DOORS} for all")
    if vehicle.attributes.get("has_dynamic_doors") != "true":
        world.report_unsupported("open_vehicle_door", f"{vehicle.blueprint.id} has no doors that open, as in CARLA")
        return frozenset()
    return frozenset(_DOORS) if door == _ALL_DOORS else frozenset((door,))


@method
def restore_physx_physics(_world: World, _vehicle: Vehicle) -> None:
    """Do nothing: there is no CarSim or Chrono to leave."""


@method(without_effect("CARLA draws telemetry on its window, and there is none here: get_telemetry_data returns it"))
def show_vehicle_debug_telemetry(_world: World, _vehicle: Vehicle, _enabled: bool) -> None:
    """Do nothing: there is no window."""


@method
def get_vehicle_light_state(_world: World, vehicle: Vehicle) -> list[int]:
    """Return the lights' flags."""
    return [vehicle.light_state]


@method
def set_vehicle_light_state(world: World, vehicle: Vehicle, flags: tuple[int]) -> None:
    """Set all flags of the lights: as in CARLA, braking alone switches no lamp on."""
    vehicle.switch_lights(flags[0] & 0xFFFF_FFFF, world.elapsed_s)  # CARLA's have 32 bits


@method
def get_vehicle_light_states(world: World) -> list[Any]:
    """Return every vehicle's id and flags; Traffic Managers call this at each step."""
    world.traffic_asked_s = time.monotonic()
    return [[vehicle.id, vehicle.light_state] for vehicle in world.vehicles]
