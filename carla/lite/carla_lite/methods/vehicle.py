"""RPC methods of vehicles: controls, physics figures, lights."""

from __future__ import annotations

import time
from typing import Any

from carla_lite.actors.actor import Vehicle
from carla_lite.methods.table import method
from carla_lite.motion.ackermann import Ackermann
from carla_lite.motion.physics import Control
from carla_lite.world import World


@method
def apply_control_to_vehicle(_world: World, vehicle: Vehicle, control: list[Any]) -> None:
    """Hold this control until the next one; the physics reads what is out of range as the nearest."""
    vehicle.drive(Control(*control))


@method
def apply_ackermann_control_to_vehicle(_world: World, vehicle: Vehicle, target: list[float]) -> None:
    """Hold this speed and wheel angle until the next control of either kind."""
    vehicle.ackermann = Ackermann(*target)


@method
def get_physics_control(_world: World, vehicle: Vehicle) -> list[Any]:
    """Return the model's figures as a VehiclePhysicsControl, or what was last applied."""
    return vehicle.figures


@method
def apply_physics_control(_world: World, vehicle: Vehicle, figures: list[Any]) -> None:
    """Adopt what the motion model has of these figures; the others are kept and given back."""
    vehicle.figures = figures


@method
def get_vehicle_light_state(_world: World, vehicle: Vehicle) -> list[int]:
    """Return the lights' flags."""
    return [vehicle.light_state]


@method
def set_vehicle_light_state(world: World, vehicle: Vehicle, flags: list[int]) -> None:
    """Set the lights' flags, all of them: as in CARLA braking alone lights no lamp."""
    vehicle.switch_lights(flags[0], world.elapsed_s)


@method
def get_vehicle_light_states(world: World) -> list[Any]:
    """Return every vehicle's id and flags; Traffic Managers ask at each step."""
    world.traffic_asked_s = time.monotonic()
    return [[vehicle.id, vehicle.light_state] for vehicle in world.vehicles]
