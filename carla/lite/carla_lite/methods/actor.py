"""RPC methods of actors of any kind: spawning, placing, pushing, destroying."""

from __future__ import annotations

import math
import time
from typing import Any

from carla_lite.actors.actor import Actor, Vehicle, compose
from carla_lite.actors.sensor import Sensor
from carla_lite.methods.arguments import (
    Description,
    Direction,
    Location,
    Movable,
    MovableOrGone,
    Place,
    Solid,
    SolidOrGone,
)
from carla_lite.methods.components import socket
from carla_lite.methods.table import method
from carla_lite.motion.physics import MAX_SPEED_MPS, MAX_YAW_RATE_RADPS, Body
from carla_lite.protocol import wire
from carla_lite.protocol.wire import Vector
from carla_lite.scenery.camera import Pose
from carla_lite.support import approximated
from carla_lite.world import World

_CLOSING_DELAY_S = 0.01
# Height of a spring arm above its parent's origin, by AttachmentType: SpringArm, SpringArmGhost (ActorAttacher.cpp).
_ARM_HEIGHT_M = {1: 0.3, 2: 0.0}
_KGCM2 = 1e-4  # 1 kg cm² in kg m²


@method
def get_spectator(world: World) -> list[Any]:
    """Return the spectator."""
    return world.spectator.describe()


@method
def get_actors_by_id(world: World, numbers: list[int]) -> list[Any]:
    """Return the actors with these ids. Ids without an actor are left out."""
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
    """Spawn an actor that is attached to a parent, or to one of its bones: rigidly or by a spring arm.

    The Transform is relative to the parent or the bone.
    """
    parent = world.actor(parent_id, Actor)
    if bone:
        place = compose(socket(parent, bone), place)
    _uid, name, values = description
    given = {attribute: value for attribute, _type, value in values}
    actor = world.spawn(name, given, place, parent_id)
    if attachment in _ARM_HEIGHT_M and actor.parent is not None:
        actor.swing(_ARM_HEIGHT_M[attachment])
    return actor.describe()


@method
def destroy_actor(world: World, number: int) -> bool:
    """Destroy an actor; what is attached to it stays, without a parent. Return False if the actor doesn't exist.

    A client closes a sensor's stream before it destroys the sensor. If the client's process ends before its streaming
    thread has released the listener, the process aborts (protocol, section 5.5). So the answer is delayed a little.
    """
    actor = world.actors.get(number)
    if not world.destroy(number):
        return False
    if isinstance(actor, Sensor) and actor.heard:
        time.sleep(_CLOSING_DELAY_S)
    return True


@method
def get_actor_bounding_box(world: World, number: int) -> list[Any]:
    """Return the BoundingBox relative to the actor; an empty box if the actor is gone.

    A client's Traffic Manager and lane invasion sensor call this from their own threads. Another client may have
    destroyed the actor. An error would end the client's process, so there is none, as in CARLA (CarlaServer.cpp).
    """
    actor = world.actors.get(number)
    return wire.EMPTY_BOX if actor is None else actor.box()


@method
def set_actor_transform(_world: World, actor: Actor, place: Place) -> None:
    """Teleport an actor to a Transform."""
    actor.place = place


@method
def set_actor_location(_world: World, actor: Actor, location: Location) -> None:
    """Teleport an actor to a Location. Its rotation stays."""
    before = actor.place
    actor.place = Pose(*location, before.pitch, before.yaw, before.roll)


@method(approximated("no effect on props, which only vehicles push, nor on destroyed actors unless --strict"))
def set_actor_target_velocity(_world: World, body: MovableOrGone, velocity: Direction) -> None:
    """Set a vehicle's velocity in the world's frame (m/s); one without physics has none."""
    if body and body.simulate_physics:
        body.set_world_velocity(*velocity)


@method(approximated("only about a vehicle's vertical axis: it pitches and rolls with the ground"))
def set_actor_target_angular_velocity(_world: World, body: Movable, velocity: Direction) -> None:
    """Set a vehicle's yaw rate (degrees/s). Pitch and roll follow the ground, so their rates are ignored."""
    if body:
        body.yaw_rate = _yaw_rate(math.radians(velocity[2]))


@method
def enable_actor_constant_velocity(_world: World, vehicle: Vehicle, velocity: Direction) -> None:
    """Keep a vehicle at a constant velocity (m/s) in the vehicle's frame."""
    forward, right, up = (max(-MAX_SPEED_MPS, min(MAX_SPEED_MPS, speed)) for speed in velocity)
    vehicle.constant_velocity = forward, right, up


@method
def disable_actor_constant_velocity(_world: World, vehicle: Vehicle) -> None:
    """End the constant velocity: controls drive the vehicle again."""
    vehicle.constant_velocity = None


@method(approximated("no effect on props, which only vehicles push"))
def add_actor_impulse(_world: World, body: Movable, impulse: Direction) -> None:
    """Apply an impulse (N s) at a vehicle's centre of mass."""
    if body:
        body.push(impulse)


@method(approximated("no effect on props, which only vehicles push"))
def add_actor_force(world: World, body: Movable, force: Direction) -> None:
    """Apply a force (N) at a vehicle's centre of mass for one tick."""
    if body:
        body.push(_impulse_of_tick(world, force))


@method(approximated("only about a vehicle's vertical axis: it pitches and rolls with the ground"))
def add_actor_angular_impulse(_world: World, body: Movable, impulse: Direction) -> None:
    """Apply an angular impulse (degrees kg cm² / s) about a vehicle's vertical axis.

    The client's ``add_angular_impulse`` documents degrees s. CARLA passes the value to Unreal's
    AddAngularImpulseInDegrees (CarlaActor.cpp), which uses kilograms and centimetres.
    """
    if isinstance(body, Body):
        turned = math.radians(impulse[2]) * _KGCM2
        body.yaw_rate = _yaw_rate(body.yaw_rate + turned / body.model.yaw_inertia_kgm2)


@method(approximated("only about a vehicle's vertical axis: it pitches and rolls with the ground"))
def add_actor_torque(world: World, body: Movable, torque: Direction) -> None:
    """Apply a torque (degrees kg cm² / s²) about a vehicle's vertical axis for one tick."""
    add_actor_angular_impulse(world, body, _impulse_of_tick(world, torque))


@method(approximated("the centre of mass is taken to be at the vehicle's origin, as seen from above"))
def add_actor_impulse_at_location(_world: World, body: Movable, impulse: Direction, location: Location) -> None:
    """Apply an impulse (N s) to a vehicle at a place in the world (m).

    Only LibCarla's C++ client has this call. The Python client can only push the centre of mass.
    """
    if body:
        body.push(impulse)
    if isinstance(body, Body):
        turned = (location[0] - body.x) * impulse[1] - (location[1] - body.y) * impulse[0]
        body.yaw_rate = _yaw_rate(body.yaw_rate + turned / body.model.yaw_inertia_kgm2)


@method(approximated("the centre of mass is taken to be at the vehicle's origin, as seen from above"))
def add_actor_force_at_location(world: World, body: Movable, force: Direction, location: Location) -> None:
    """Apply a force (N) to a vehicle at a place in the world (m) for one tick. Only the C++ client has this call."""
    add_actor_impulse_at_location(world, body, _impulse_of_tick(world, force), location)


def _impulse_of_tick(world: World, force: Vector) -> Vector:
    """Return the impulse (N s) of a force (N) that acts for one tick."""
    x, y, z = (part * world.settings.physics_s for part in force)
    return x, y, z


def _yaw_rate(wanted_radps: float) -> float:
    return max(-MAX_YAW_RATE_RADPS, min(MAX_YAW_RATE_RADPS, wanted_radps))


@method(approximated("no effect on destroyed actors, where CARLA and --strict refuse it"))
def set_actor_simulate_physics(_world: World, solid: SolidOrGone, enabled: bool) -> None:
    """Freeze a vehicle, a prop, or a walker without a control where it is, or let it move again."""
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
