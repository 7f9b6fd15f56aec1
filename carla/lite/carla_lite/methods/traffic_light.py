"""RPC methods of traffic lights: their states, times, frozen junctions, groups and bounding boxes."""

from __future__ import annotations

from typing import Any

from carla_lite.actors.traffic_lights import LightState, TrafficLight
from carla_lite.methods.table import method
from carla_lite.protocol import wire
from carla_lite.protocol.wire import RpcError
from carla_lite.world import World


@method
def set_traffic_light_state(world: World, light: TrafficLight, state: int) -> None:
    """Set a light's state until the next change of its cycle; a frozen light keeps it."""
    try:
        light.state = LightState(state)
    except ValueError:
        raise RpcError(f"{state} is no traffic light state, expected 0 (red) to 4 (unknown)") from None
    world.signage.publish(light.controller.group)


@method
def set_traffic_light_green_time(world: World, light: TrafficLight, seconds: float) -> None:
    """Set how long the lights of this light's controller are green."""
    _set_time(world, light, LightState.GREEN, seconds)


@method
def set_traffic_light_yellow_time(world: World, light: TrafficLight, seconds: float) -> None:
    """Set how long the lights of this light's controller are yellow."""
    _set_time(world, light, LightState.YELLOW, seconds)


@method
def set_traffic_light_red_time(world: World, light: TrafficLight, seconds: float) -> None:
    """Set how long all lights of the junction are red after this controller's turn."""
    _set_time(world, light, LightState.RED, seconds)


def _set_time(world: World, light: TrafficLight, state: LightState, seconds: float) -> None:
    light.controller.times_s[state] = wire.single(seconds)
    world.signage.publish(light.controller.group)


@method
def freeze_traffic_light(world: World, light: TrafficLight, frozen: bool) -> None:
    """Freeze the cycle of the light's junction, or let it continue."""
    group = light.controller.group
    group.frozen = frozen
    world.signage.publish(group)


@method
def freeze_all_traffic_lights(world: World, frozen: bool) -> None:
    """Freeze all cycles, or let them continue."""
    for group in world.signage.groups:
        group.frozen = frozen
        world.signage.publish(group)


@method
def reset_traffic_light_group(world: World, light: TrafficLight) -> None:
    """Restart the cycle of the light's junction."""
    group = light.controller.group
    group.reset()
    world.signage.publish(group)


@method
def reset_all_traffic_lights(world: World) -> None:
    """Restart all cycles; a Traffic Manager does this when it starts."""
    for group in world.signage.groups:
        group.reset()
        world.signage.publish(group)


@method
def get_group_traffic_lights(_world: World, light: TrafficLight) -> list[int]:
    """Return the ids of all lights of the light's junction, with its own."""
    return [light.id for light in light.controller.group.lights]


@method
def get_light_boxes(_world: World, light: TrafficLight) -> list[Any]:
    """Return the BoundingBox of the light's head, in world coordinates."""
    face = light.face
    return [wire.bounding_box((face.pose.x, face.pose.y, face.pose.z), face.extent, face.pose.yaw)]
