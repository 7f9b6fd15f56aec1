"""RPC methods of walkers: controls, bones, and the states that a client's crowd sends."""

from __future__ import annotations

from typing import Any

from carla_lite.actors.walkers import Walker, WalkerControl
from carla_lite.methods.arguments import Finite, Place, Transform
from carla_lite.methods.components import transform
from carla_lite.methods.table import method
from carla_lite.protocol import wire
from carla_lite.protocol.wire import Vector
from carla_lite.scenery.camera import Pose
from carla_lite.support import approximated
from carla_lite.world import World


@method
def apply_control_to_walker(_world: World, walker: Walker, control: tuple[Vector, float, bool]) -> None:
    """Hold this control until the next one."""
    direction, speed, jump = control
    walker.control = WalkerControl(wire.vector(direction), wire.finite(speed), bool(jump))


@method
def set_walker_state(world: World, walker: Walker, place: Place, speed: Finite) -> None:
    """Place a walker as a crowd says: a place on the ground, whatever its height, and a speed along its yaw."""
    walker.follow(place, speed, world.network.height(place.x, place.y, place.z))


@method
def set_actor_dead(_world: World, walker: Walker) -> None:
    """Let a walker fall and be removed some seconds later."""
    walker.die()


@method(approximated("at rest all bones lie along the walker's axes: how CARLA's are turned isn't published"))
def get_bones_transform(_world: World, walker: Walker) -> list[Any]:
    """Return each bone's name and Transform in the world, in the walker's frame and in its parent's."""
    return [[[bone, *map(transform, poses)] for bone, *poses in walker.bones()]]


@method
def set_bones_transform(_world: World, walker: Walker, bones: tuple[list[tuple[str, Transform]]]) -> None:
    """Place bones of the walker's own pose at Transforms relative to their parents; ``blend_pose`` shows it."""
    walker.set_bones({name: Pose(*wire.place(place)) for name, place in bones[0]})


@method
def blend_pose(_world: World, walker: Walker, blend: Finite) -> None:
    """Show the walker's own pose (1), the gait (0) or a mixture."""
    walker.blend_pose(blend)


@method
def get_pose_from_animation(_world: World, walker: Walker) -> None:
    """Make the walker's present gait its own pose."""
    walker.keep_pose()
