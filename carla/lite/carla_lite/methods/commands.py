"""Batches: the commands of ``apply_batch``, each of which is an RPC method in another form.

Owns the numbering of commands (protocol, section 2.5) and the substitution of ids in ``do_after``.
"""

from __future__ import annotations

import time
from typing import Any, TypeAlias

from carla_lite.methods.arguments import Description, Transform
from carla_lite.methods.shapes import Maybe, require, shape
from carla_lite.methods.table import Bare, broken, call, failure, method
from carla_lite.protocol import wire
from carla_lite.protocol.wire import RpcError
from carla_lite.world import World

_SPAWN, _LIGHT_STATE, _CONSOLE = 0, 18, 20
_RIGID = 0

Command: TypeAlias = tuple[tuple[int, list[Any]]]
"""A command's number and its struct, as the wire sends them."""
_SPAWNS = shape(
    tuple[Description, Transform, Maybe[int], int, str, list[Command]]
    | tuple[Description, Transform, Maybe[int], list[Command]]  # the client of 0.9.15 sends no attachment and no socket
)

_COMMANDS = {
    1: "destroy_actor",
    2: "apply_control_to_vehicle",
    3: "apply_ackermann_control_to_vehicle",
    4: "apply_control_to_walker",
    5: "apply_physics_control",
    6: "set_actor_transform",
    7: "set_walker_state",
    8: "set_actor_target_velocity",
    9: "set_actor_target_angular_velocity",
    10: "add_actor_impulse",
    11: "add_actor_force",
    12: "add_actor_angular_impulse",
    13: "add_actor_torque",
    14: "set_actor_simulate_physics",
    15: "set_actor_enable_gravity",
    16: "set_actor_autopilot",
    17: "show_vehicle_debug_telemetry",
    18: "set_vehicle_light_state",
    19: "set_actor_location",
    20: "console_command",
    21: "set_traffic_light_state",
}
"""The RPC method of each command; both take the same arguments."""


@method
def apply_batch(world: World, commands: list[Command], do_tick: bool = False) -> Bare:
    """Run the commands in order; return one reply per command: the actor's id or the error."""
    replies = Bare(_reply(world, command) for command in commands)
    world.batch_answered_s = time.monotonic()
    if do_tick:
        call(world, "tick_cue", [])
    return replies


def _reply(world: World, command: Command) -> Any:
    ((number, args),) = command
    try:
        return [[1, _run(world, number, args)]]
    except RpcError as error:
        return failure(str(error))
    except Exception as error:  # the other commands have their own replies
        return broken(_COMMANDS.get(number, "spawn_actor"), error)


def _run(world: World, number: int, args: list[Any]) -> int:
    if number == _SPAWN:
        return _spawn(world, args)
    if number not in _COMMANDS:
        raise RpcError(f"carla-lite has no command {number}")
    if not args:
        raise RpcError(f"command {number} has no actor's id")
    actor_id, *rest = args
    if number == _LIGHT_STATE:
        rest = [rest]  # bare flags in a command, a 1-array in the RPC call
    if call(world, _COMMANDS[number], [actor_id, *rest]) is False:
        raise RpcError(f"actor {actor_id} does not exist: it was never spawned here, or is destroyed")
    return int(actor_id)


def _spawn(world: World, args: list[Any]) -> int:
    require(_SPAWNS, args, "SpawnActor")
    description, place, parent, *rest, after = args
    parent_id = wire.optional(parent)
    if parent_id is None:
        actor = call(world, "spawn_actor", [description, place])
    else:  # rigidly, whatever attachment is sent, as in CARLA (CarlaServer.cpp)
        actor = call(world, "spawn_actor_with_parent", [description, place, parent_id, _RIGID, *rest[1:]])
    actor_id = int(actor[0])
    for command in after:
        ((number, args),) = command
        # As in CARLA (CarlaServer.cpp, ``do_after``), each acts on the new actor, and the reply is its id in any case.
        given = args if number in (_SPAWN, _CONSOLE) else [actor_id, *args[1:]]
        try:
            _run(world, number, given)
        except RpcError as error:
            world.report_unsupported(f"then({_COMMANDS.get(number, 'spawn_actor')})", str(error))
    return actor_id
