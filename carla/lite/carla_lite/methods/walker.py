"""RPC methods of walkers: controls, bones, and the states that a client's crowd sends."""

from __future__ import annotations

import math
from typing import Any

from carla_lite.actors.walkers import Walker, WalkerControl
from carla_lite.methods.table import method
from carla_lite.protocol import wire
from carla_lite.scenery.camera import Pose
from carla_lite.world import World


@method
def apply_control_to_walker(world: World, number: int, control: list[Any]) -> None:
    """Hold this control until the next one."""
    direction, speed, jump = control
    world.actor(number, Walker).control = WalkerControl(wire.vector(direction), wire.finite(speed), bool(jump))


@method
def set_walker_state(world: World, number: int, place: list[Any], speed: float) -> None:
    """Put a walker where a crowd has it: a place on the ground, whatever its height, and a speed along its yaw."""
    pose = Pose(*wire.place(place))
    world.actor(number, Walker).follow(pose, wire.finite(speed), world.network.height(pose.x, pose.y))


@method
def set_actor_dead(world: World, number: int) -> None:
    """Let a walker fall and, some seconds later, be gone."""
    world.actor(number, Walker).die()


@method
def get_bones_transform(world: World, number: int) -> list[Any]:
    """Return each bone's name and Transform in the world, in the walker's frame and in its parent's."""
    return [[[bone, *map(_transform, poses)] for bone, *poses in world.actor(number, Walker).bones()]]


@method
def set_bones_transform(world: World, number: int, bones: list[Any]) -> None:
    """Put bones of the walker's own pose at Transforms relative to their parents; ``blend_pose`` shows it."""
    world.actor(number, Walker).set_bones({name: Pose(*wire.place(place)) for name, place in bones[0]})


@method
def blend_pose(world: World, number: int, blend: float) -> None:
    """Show the walker's own pose (1), the gait (0) or what is between."""
    world.actor(number, Walker).blend_pose(wire.finite(blend))


@method
def get_pose_from_animation(world: World, number: int) -> None:
    """Make how the walker moves now its own pose."""
    world.actor(number, Walker).keep_pose()


def _transform(pose: Pose) -> list[list[float]]:
    return [[pose.x, pose.y, pose.z], [math.degrees(angle) for angle in (pose.pitch, pose.yaw, pose.roll)]]
