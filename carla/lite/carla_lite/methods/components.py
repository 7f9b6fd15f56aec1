"""RPC methods of an actor's parts: its components, and the bones of its skeleton.

CARLA's components come from its assets, which it doesn't publish: here an actor has a root, and a mesh if it has a
skeleton. A vehicle's bones are its base and its wheels, a walker's are those of ``get_bones``. A mesh's sockets are its
bones, which Unreal's ``GetAllSocketNames`` lists, too.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

from carla_lite.actors.actor import Actor, Vehicle, compose
from carla_lite.actors.walkers import Walker
from carla_lite.methods.table import method
from carla_lite.motion import telemetry
from carla_lite.protocol.wire import RpcError
from carla_lite.scenery.projection import Pose
from carla_lite.support import approximated
from carla_lite.world import World

_ROOT, _VEHICLE_MESH, _WALKER_MESH = "RootComponent", "VehicleMesh", "CharacterMesh0"
_BASE = "Vehicle_Base"
_WHEELS = ("Wheel_Front_Left", "Wheel_Front_Right", "Wheel_Rear_Left", "Wheel_Rear_Right")
_NOWHERE = Pose(0.0, 0.0, 0.0, 0.0, 0.0, 0.0)


@method(approximated("an actor has a root and, with a skeleton, a mesh; CARLA's have the parts of their assets"))
def get_actor_component_names(_world: World, actor: Actor) -> list[str]:
    """Return the names of its components."""
    return _components(actor)


@method(approximated("an actor has a root and, with a skeleton, a mesh; CARLA's have the parts of their assets"))
def get_actor_component_world_transform(_world: World, actor: Actor, name: str) -> list[Any]:
    """Return a component's Transform in the world."""
    _known(actor, name)
    return transform(actor.pose)


@method(approximated("an actor has a root and, with a skeleton, a mesh; CARLA's have the parts of their assets"))
def get_actor_component_relative_transform(_world: World, actor: Actor, name: str) -> list[Any]:
    """Return a component's Transform relative to its parent; the root's is the actor's own, as in CARLA."""
    _known(actor, name)
    return transform(actor.pose if name == _ROOT else _NOWHERE)


@method(
    approximated(
        "a vehicle's bones are its base and wheels; a walker's are those of get_bones, and lie along its axes at rest"
    )
)
def get_actor_bone_names(_world: World, actor: Actor) -> list[str]:
    """Return the names of its bones."""
    return [name for name, _ in _bones(actor)]


@method(
    approximated(
        "a vehicle's bones are its base and wheels; a walker's are those of get_bones, and lie along its axes at rest"
    )
)
def get_actor_bone_world_transforms(_world: World, actor: Actor) -> list[Any]:
    """Return its bones' Transforms in the world, in the order of their names."""
    return [transform(compose(actor.pose, pose)) for _, pose in _bones(actor)]


@method(
    approximated(
        "a vehicle's bones are its base and wheels; a walker's are those of get_bones, and lie along its axes at rest"
    )
)
def get_vehicle_bone_world_transforms(world: World, vehicle: Vehicle) -> list[Any]:
    """Return a vehicle's bones' Transforms in the world."""
    return get_actor_bone_world_transforms(world, vehicle)


@method(
    approximated(
        "a vehicle's bones are its base and wheels; a walker's are those of get_bones, and lie along its axes at rest"
    )
)
def get_actor_bone_relative_transforms(_world: World, actor: Actor) -> list[Any]:
    """Return its bones' Transforms in the actor's frame."""
    return [transform(pose) for _, pose in _bones(actor)]


@method(approximated("sockets are the bones"))
def get_actor_socket_names(_world: World, actor: Actor) -> list[str]:
    """Return the names of its sockets; none without a skeleton."""
    return [name for name, _ in _sockets(actor)]


@method(approximated("sockets are the bones"))
def get_actor_socket_world_transforms(_world: World, actor: Actor) -> list[Any]:
    """Return its sockets' Transforms in the world."""
    return [transform(compose(actor.pose, pose)) for _, pose in _sockets(actor)]


@method(approximated("sockets are the bones"))
def get_actor_socket_relative_transforms(_world: World, actor: Actor) -> list[Any]:
    """Return its sockets' Transforms in the actor's frame."""
    return [transform(pose) for _, pose in _sockets(actor)]


def socket(actor: Actor, name: str) -> Pose:
    """Return where a bone is in the actor's frame.

    Raises:
        RpcError: there is no such bone.
    """
    found = dict(_sockets(actor)).get(name)
    if found is None:
        raise RpcError(f"actor {actor.id} has no bone {name}; get_bone_names() lists those of vehicles and walkers")
    return found


def transform(pose: Pose) -> list[list[float]]:
    """Return a Transform."""
    return [[pose.x, pose.y, pose.z], [math.degrees(angle) for angle in (pose.pitch, pose.yaw, pose.roll)]]


def _components(actor: Actor) -> list[str]:
    mesh = {Vehicle: _VEHICLE_MESH, Walker: _WALKER_MESH}.get(type(actor))
    return [_ROOT] if mesh is None else [_ROOT, mesh]


def _known(actor: Actor, name: str) -> None:
    if name not in _components(actor):
        known = ", ".join(_components(actor))
        raise RpcError(f"Component could not be found in this actor: it has no {name}, expected one of {known}")


def _sockets(actor: Actor) -> list[tuple[str, Pose]]:
    return list(_bones(actor)) if isinstance(actor, Vehicle | Walker) else []


def _bones(actor: Actor) -> Iterator[tuple[str, Pose]]:
    """Yield its bones with their places in the actor's frame."""
    if isinstance(actor, Walker):
        for name, _, of_body, _ in actor.bones():
            yield name, of_body
    elif isinstance(actor, Vehicle):
        yield _BASE, _NOWHERE
        yield from zip(_WHEELS, map(_wheel, [actor] * len(_WHEELS), telemetry.WHEELS), strict=True)
    else:
        raise RpcError(f"Component could not be found in this actor: {actor.blueprint.id} has no bones")


def _wheel(vehicle: Vehicle, wheel: int) -> Pose:
    body, model = vehicle.body, vehicle.body.model
    front, right = wheel < telemetry.REAR_LEFT, wheel % 2
    forward = model.front_axle_m if front else -model.rear_axle_m
    aside = (0.5 if right else -0.5) * telemetry.track_m(body)
    pitch, yaw = telemetry.wheel_pitch_rad(body), telemetry.wheel_steer_rad(body, wheel)
    return Pose(forward, aside, model.wheel_radius_m, pitch, yaw, 0.0)
