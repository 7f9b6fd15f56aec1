"""RPC methods of vehicles: controls, physics figures, lights."""

from __future__ import annotations

from typing import Any

from carla_lite.actors.actor import Vehicle
from carla_lite.methods.table import method
from carla_lite.motion.ackermann import Ackermann
from carla_lite.motion.physics import Control
from carla_lite.world import World


@method
def apply_control_to_vehicle(world: World, number: int, control: list[Any]) -> None:
    """Hold this control until the next one; the physics reads what is out of range as the nearest."""
    world.actor(number, Vehicle).drive(Control(*control))


@method
def apply_ackermann_control_to_vehicle(world: World, number: int, target: list[float]) -> None:
    """Hold this speed and wheel angle until the next control of either kind."""
    world.actor(number, Vehicle).ackermann = Ackermann(*target)


@method
def get_physics_control(world: World, number: int) -> list[Any]:
    """Return the model's figures as a VehiclePhysicsControl, or what was last applied."""
    return world.actor(number, Vehicle).figures


@method
def apply_physics_control(world: World, number: int, figures: list[Any]) -> None:
    """Adopt what the motion model has of these figures; the others are kept and given back."""
    world.actor(number, Vehicle).figures = figures


@method
def get_vehicle_light_state(world: World, number: int) -> list[int]:
    """Return the lights' flags."""
    return [world.actor(number, Vehicle).light_state]


@method
def set_vehicle_light_state(world: World, number: int, flags: list[int]) -> None:
    """Set the lights' flags, all of them: as in CARLA braking alone lights no lamp."""
    world.actor(number, Vehicle).switch_lights(flags[0], world.elapsed_s)


@method
def get_vehicle_light_states(world: World) -> list[Any]:
    """Return every vehicle's id and flags."""
    return [[vehicle.id, vehicle.light_state] for vehicle in world.vehicles]
