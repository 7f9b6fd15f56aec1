"""RPC methods of actors of any kind: spawning, placing, pushing, destroying."""

from __future__ import annotations

import math
from typing import Any

from carla_lite.actors.actor import Actor, Vehicle
from carla_lite.actors.props import Prop
from carla_lite.actors.walkers import Walker
from carla_lite.methods.table import method
from carla_lite.motion.physics import MAX_SPEED_MPS, MAX_YAW_RATE_RADPS, Body
from carla_lite.protocol import wire
from carla_lite.scenery.camera import Pose
from carla_lite.world import World


@method
def get_spectator(world: World) -> list[Any]:
    """Return the spectator."""
    return world.spectator.describe()


@method
def get_actors_by_id(world: World, numbers: list[int]) -> list[Any]:
    """Return those of the actors that exist."""
    return [world.actors[number].describe() for number in numbers if number in world.actors]


@method
def spawn_actor(world: World, description: list[Any], place: list[Any]) -> list[Any]:
    """Spawn by ActorDescription at a Transform and return the Actor."""
    return _spawn(world, description, place, parent_id=0)


@method
def spawn_actor_with_parent(
    world: World, description: list[Any], place: list[Any], parent: int, _attachment: int = 0, _socket: str = ""
) -> list[Any]:
    """Spawn at a Transform relative to a parent; every attachment is rigid here."""
    return _spawn(world, description, place, parent)


def _spawn(world: World, description: list[Any], place: list[Any], parent_id: int) -> list[Any]:
    _uid, name, values = description
    given = {attribute: value for attribute, _type, value in values}
    return world.spawn(name, given, Pose(*wire.place(place)), parent_id).describe()


@method
def destroy_actor(world: World, number: int) -> bool:
    """Destroy an actor and what hangs on it; False if there is none."""
    return world.destroy(number)


@method
def get_actor_bounding_box(world: World, number: int) -> list[Any]:
    """Return the BoundingBox relative to the actor, an empty one if it is gone.

    A client's Traffic Manager and lane invasion sensor ask from threads of their own, for actors that another client
    may just have destroyed: there an error ends the process, and CARLA answers none (CarlaServer.cpp).
    """
    actor = world.actors.get(number)
    return wire.EMPTY_BOX if actor is None else actor.box()


@method
def set_actor_transform(world: World, number: int, place: list[Any]) -> None:
    """Teleport."""
    world.actor(number, Actor).place = Pose(*wire.place(place))


@method
def set_actor_location(world: World, number: int, location: list[float]) -> None:
    """Teleport, keeping the rotation."""
    actor = world.actor(number, Actor)
    before = actor.place
    actor.place = Pose(*wire.location(location), before.pitch, before.yaw, before.roll)


@method
def set_actor_target_velocity(world: World, number: int, velocity: list[float]) -> None:
    """Set a vehicle's velocity in the world's frame (m/s)."""
    if body := _body(world, number):
        body.set_world_velocity(*wire.vector(velocity))


@method
def set_actor_target_angular_velocity(world: World, number: int, velocity: list[float]) -> None:
    """Set a vehicle's yaw rate (degrees/s); it only pitches and rolls with the ground."""
    if body := _body(world, number):
        body.yaw_rate = _yaw_rate(math.radians(wire.vector(velocity)[2]))


@method
def enable_actor_constant_velocity(world: World, number: int, velocity: list[float]) -> None:
    """Hold a velocity in the vehicle's own frame (m/s)."""
    forward, right, _ = (max(-MAX_SPEED_MPS, min(MAX_SPEED_MPS, speed)) for speed in wire.vector(velocity))
    world.actor(number, Vehicle).constant_velocity = forward, right


@method
def disable_actor_constant_velocity(world: World, number: int) -> None:
    """Let the motion model have the vehicle again."""
    world.actor(number, Vehicle).constant_velocity = None


@method
def add_actor_impulse(world: World, number: int, impulse: list[float]) -> None:
    """Push a vehicle at its centre of mass (N s)."""
    if body := _body(world, number):
        body.push(wire.vector(impulse))


@method
def add_actor_force(world: World, number: int, force: list[float]) -> None:
    """Push a vehicle with a force (N) for one tick."""
    x, y, z = wire.vector(force)
    physics_s = world.settings.physics_s
    if body := _body(world, number):
        body.push((x * physics_s, y * physics_s, z * physics_s))


@method
def add_actor_angular_impulse(world: World, number: int, impulse: list[float]) -> None:
    """Turn a vehicle about its vertical axis (N m s)."""
    if isinstance(body := _body(world, number), Body):
        body.yaw_rate = _yaw_rate(body.yaw_rate + wire.vector(impulse)[2] / body.model.yaw_inertia_kgm2)


@method
def add_actor_torque(world: World, number: int, torque: list[float]) -> None:
    """Turn a vehicle about its vertical axis with a torque (N m) for one tick."""
    physics_s = world.settings.physics_s
    add_actor_angular_impulse(world, number, [part * physics_s for part in wire.vector(torque)])


def _body(world: World, number: int) -> Body | Walker | None:
    """Return what forces act on; None for sensors and the spectator, on which they have no effect."""
    actor = world.actor(number, Actor)
    return actor.body if isinstance(actor, Vehicle) else actor if isinstance(actor, Walker) else None


def _yaw_rate(wanted_radps: float) -> float:
    return max(-MAX_YAW_RATE_RADPS, min(MAX_YAW_RATE_RADPS, wanted_radps))


@method
def set_actor_simulate_physics(world: World, number: int, enabled: bool) -> None:
    """Freeze a vehicle, a walker or a prop where it is, or let it move again."""
    actor = world.actor(number, Actor)
    if body := actor if isinstance(actor, Prop) else _body(world, number):
        body.simulate_physics = enabled


@method
def set_actor_collisions(world: World, number: int, enabled: bool) -> None:
    """Let a vehicle, a walker or a prop pass through others, or not."""
    actor = world.actor(number, Actor)
    if isinstance(actor, Vehicle | Walker | Prop):
        actor.collides = enabled


@method
def set_actor_enable_gravity(world: World, number: int, enabled: bool) -> None:
    """Let a vehicle fall and press on its wheels, or float where it is."""
    if body := _body(world, number):
        body.gravity = enabled


@method
def set_actor_autopilot(world: World, number: int, _enabled: bool) -> None:
    """Accept the wish; the client's Traffic Manager does the driving."""
    world.actor(number, Actor)
