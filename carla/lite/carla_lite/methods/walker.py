"""RPC methods of walkers: controls, and the states that a client's crowd sends. Bones are refused: there are none."""

from __future__ import annotations

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
