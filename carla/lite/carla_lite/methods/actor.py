"""RPC methods of actors of any kind: spawning, placing, pushing, destroying."""

from __future__ import annotations

import math
import time
from typing import Any

from carla_lite.actors.actor import Actor, Vehicle, compose
from carla_lite.actors.sensor import Sensor
from carla_lite.methods.arguments import Description, Direction, Location, Movable, Place, Solid
from carla_lite.methods.components import socket
from carla_lite.methods.table import method
from carla_lite.motion.physics import MAX_SPEED_MPS, MAX_YAW_RATE_RADPS, Body
from carla_lite.protocol import wire
from carla_lite.protocol.wire import Vector
from carla_lite.scenery.camera import Pose
from carla_lite.support import approximated
from carla_lite.world import World

_CLOSING_DELAY_S = 0.01
# Height of CARLA's spring arms above their parent's origin, by the type of attachment (ActorAttacher.cpp).
_ARMS_UP_M = {1: 0.3, 2: 0.0}
_KGCM2 = 1e-4  # kg m²


@method
def get_spectator(world: World) -> list[Any]:
    """Return the spectator."""
    return world.spectator.describe()


@method
def get_actors_by_id(world: World, numbers: list[int]) -> list[Any]:
    """Return the actors among these ids that exist."""
    return [world.actors[number].describe() for number in numbers if number in world.actors]


@method
def spawn_actor(world: World, description: Description, place: Place, parent_id: int = 0) -> list[Any]:
    """Spawn an actor by ActorDescription at a Transform and return it."""
    _uid, name, values = description
    given = {attribute: value for attribute, _type, value in values}
    return world.spawn(name, given, place, parent_id).describe()


@method(approximated("spring arms have no lag and go through walls"))
def spawn_actor_with_parent(
    world: World, description: Description, place: Place, parent_id: int, attachment: int = 0, bone: str = ""
) -> list[Any]:
    """Spawn at a Transform relative to a parent or one of its bones, fixed to it or on a spring arm."""
    if bone:
        place = compose(socket(world.actor(parent_id, Actor), bone), place)
    _uid, name, values = description
    given = {attribute: value for attribute, _type, value in values}
    actor = world.spawn(name, given, place, parent_id)
    if attachment in _ARMS_UP_M and actor.parent is not None:
        actor.swing(_ARMS_UP_M[attachment])
    return actor.describe()


@method
def destroy_actor(world: World, number: int) -> bool:
    """Destroy an actor and what is attached to it; False if there is none.

    A client that destroys a sensor first closes its stream. If the client's process ends before its streaming thread
    has released the listener, it aborts (protocol, section 5.5), so this call is answered a little later.
    """
    actor = world.actors.get(number)
    if not world.destroy(number):
        return False
    if isinstance(actor, Sensor) and actor.heard:
        time.sleep(_CLOSING_DELAY_S)
    return True


@method
def get_actor_bounding_box(world: World, number: int) -> list[Any]:
    """Return the BoundingBox relative to the actor; an empty one if the actor is gone.

    A client's Traffic Manager and lane invasion sensor call this from their own threads, for actors that another client
    may have destroyed. An error there would end the client's process; CARLA raises none either (CarlaServer.cpp).
    """
    actor = world.actors.get(number)
    return wire.EMPTY_BOX if actor is None else actor.box()


@method
def set_actor_transform(_world: World, actor: Actor, place: Place) -> None:
    """Teleport."""
    actor.place = place


@method
def set_actor_location(_world: World, actor: Actor, location: Location) -> None:
    """Teleport, keeping the rotation."""
    before = actor.place
    actor.place = Pose(*location, before.pitch, before.yaw, before.roll)


@method(approximated("no effect on props, which only vehicles push"))
def set_actor_target_velocity(_world: World, body: Movable, velocity: Direction) -> None:
    """Set a vehicle's velocity in the world's frame (m/s)."""
    if body:
        body.set_world_velocity(*velocity)


@method(approximated("only about a vehicle's vertical axis: it pitches and rolls with the ground"))
def set_actor_target_angular_velocity(_world: World, body: Movable, velocity: Direction) -> None:
    """Set a vehicle's yaw rate (degrees/s); it only pitches and rolls with the ground."""
    if body:
        body.yaw_rate = _yaw_rate(math.radians(velocity[2]))


@method
def enable_actor_constant_velocity(_world: World, vehicle: Vehicle, velocity: Direction) -> None:
    """Hold a velocity in the vehicle's own frame (m/s)."""
    forward, right, up = (max(-MAX_SPEED_MPS, min(MAX_SPEED_MPS, speed)) for speed in velocity)
    vehicle.constant_velocity = forward, right, up


@method
def disable_actor_constant_velocity(_world: World, vehicle: Vehicle) -> None:
    """Return the vehicle to the motion model."""
    vehicle.constant_velocity = None


@method(approximated("no effect on props, which only vehicles push"))
def add_actor_impulse(_world: World, body: Movable, impulse: Direction) -> None:
    """Push a vehicle at its centre of mass (N s)."""
    if body:
        body.push(impulse)


@method(approximated("no effect on props, which only vehicles push"))
def add_actor_force(world: World, body: Movable, force: Direction) -> None:
    """Push a vehicle with a force (N) for one tick."""
    if body:
        body.push(_of_a_tick(world, force))


@method(approximated("only about a vehicle's vertical axis: it pitches and rolls with the ground"))
def add_actor_angular_impulse(_world: World, body: Movable, impulse: Direction) -> None:
    """Turn a vehicle about its vertical axis (degrees kg cm² / s).

    The client's ``add_angular_impulse`` documents degrees s. CARLA passes the value to Unreal's
    AddAngularImpulseInDegrees (CarlaActor.cpp), which uses kilograms and centimetres.
    """
    if isinstance(body, Body):
        turned = math.radians(impulse[2]) * _KGCM2
        body.yaw_rate = _yaw_rate(body.yaw_rate + turned / body.model.yaw_inertia_kgm2)


@method(approximated("only about a vehicle's vertical axis: it pitches and rolls with the ground"))
def add_actor_torque(world: World, body: Movable, torque: Direction) -> None:
    """Turn a vehicle about its vertical axis with a torque (degrees kg cm² / s²) for one tick."""
    add_actor_angular_impulse(world, body, _of_a_tick(world, torque))


@method(approximated("the centre of mass is taken to be at the vehicle's origin, as seen from above"))
def add_actor_impulse_at_location(_world: World, body: Movable, impulse: Direction, location: Location) -> None:
    """Push a vehicle at a place in the world (N s, m).

    Only LibCarla has this call; Python's client always pushes the centre.
    """
    if body:
        body.push(impulse)
    if isinstance(body, Body):
        turned = (location[0] - body.x) * impulse[1] - (location[1] - body.y) * impulse[0]
        body.yaw_rate = _yaw_rate(body.yaw_rate + turned / body.model.yaw_inertia_kgm2)


@method(approximated("the centre of mass is taken to be at the vehicle's origin, as seen from above"))
def add_actor_force_at_location(world: World, body: Movable, force: Direction, location: Location) -> None:
    """Push a vehicle at a place in the world with a force (N) for one tick. Only LibCarla has this call."""
    add_actor_impulse_at_location(world, body, _of_a_tick(world, force), location)


def _of_a_tick(world: World, force: Vector) -> Vector:
    """Return the impulse of a force that acts for one tick."""
    x, y, z = (part * world.settings.physics_s for part in force)
    return x, y, z


def _yaw_rate(wanted_radps: float) -> float:
    return max(-MAX_YAW_RATE_RADPS, min(MAX_YAW_RATE_RADPS, wanted_radps))


@method
def set_actor_simulate_physics(_world: World, solid: Solid, enabled: bool) -> None:
    """Freeze a vehicle, a walker or a prop where it is, or let it move again."""
    if solid:
        solid.simulate_physics = enabled


@method
def set_actor_collisions(_world: World, solid: Solid, enabled: bool) -> None:
    """Let a vehicle, a walker or a prop collide with others, or pass through them."""
    if solid:
        solid.collides = enabled


@method(approximated("no effect on props, which only vehicles push"))
def set_actor_enable_gravity(_world: World, body: Movable, enabled: bool) -> None:
    """Let gravity act on a vehicle, or let it float where it is."""
    if body:
        body.gravity = enabled


@method
def set_actor_autopilot(_world: World, _actor: Actor, _enabled: bool) -> None:
    """Accept the call without effect: the client's Traffic Manager does the driving."""
