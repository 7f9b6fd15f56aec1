"""RPC methods of the episode: connection, settings, ticks, maps, weather, register of Traffic Managers."""

from __future__ import annotations

import math
import time
from typing import Any, TypeAlias

from carla_lite.blueprints.catalogue import CATALOGUE
from carla_lite.methods.shapes import Maybe
from carla_lite.methods.table import method
from carla_lite.navigation import mesh as navigation_mesh
from carla_lite.protocol import wire
from carla_lite.protocol.wire import RpcError
from carla_lite.support import approximated
from carla_lite.world import World

# A client that asked for a token subscribes within a millisecond; one that never does must not stop the world.
_SUBSCRIPTION_S = 0.2
# The client's Traffic Manager waits for the next tick with a condition variable that is notified without its mutex
# (TrafficManagerLocal.cpp). If the notification comes before the wait, it sleeps for ever, and so does the client.
# CARLA's ticks are too long for that; here the Traffic Manager gets this long after the answer to its controls.
_TRAFFIC_MANAGER_S = 0.5e-3

# As the wire sends them (protocol, section 2.3).
EpisodeSettings: TypeAlias = tuple[bool, bool, Maybe[float], bool, float, int, float, bool, float, float, bool]
Weather: TypeAlias = tuple[
    float, float, float, float, float, float, float, float, float, float, float, float, float, float
]


@method
def version(world: World) -> str:
    """Return the protocol's version; a client of another version warns on standard error."""
    return world.dialect.version


@method
def get_episode_info(world: World) -> list[Any]:
    """Return the episode's number and the world stream's token."""
    return [world.episode, [wire.token(world.stream, world.streams.port)]]


@method
def get_sensor_token(world: World, stream: int) -> list[bytes]:
    """Return a stream's token; the next tick waits for the subscription that follows.

    Raises:
        RpcError: no stream has such a number.
    """
    if not 0 <= stream < 1 << 32:
        raise RpcError(f"stream {stream} does not exist: expected a sensor's own number")
    world.streams.announce(stream)
    return [wire.token(stream, world.streams.port)]


@method
def get_episode_settings(world: World) -> list[Any]:
    """Return the settings as they were set."""
    return world.settings.raw


@method(approximated("some settings have no effect (see the fields of WorldSettings)"))
def set_episode_settings(world: World, settings: EpisodeSettings) -> int:
    """Apply the settings and return the number of the last published frame."""
    world.settings = wire.settings([*settings])
    return world.frame


@method
def tick_cue(world: World) -> int:
    """Tick and return the frame's number, once every announced subscriber has connected.

    An asynchronous world isn't hurried: as in CARLA (CarlaServer.cpp), this returns the number of its next frame.
    """
    if not world.settings.synchronous:
        return world.frame + 1
    world.streams.wait_for_announced(_SUBSCRIPTION_S)
    over_s = time.monotonic() + world.tick_s
    frame = world.tick()
    if world.traffic_managers:
        over_s = max(over_s, world.batch_answered_s + _TRAFFIC_MANAGER_S)
    if (left_s := over_s - time.monotonic()) > 0:
        time.sleep(left_s)
    return frame


@method
def get_available_maps(world: World) -> list[str]:
    """Return the names that ``load_new_episode`` takes."""
    return [wire.OFFERED_PREFIX + name for name in world.maps.names]


@method(approximated("spawn points are computed from the roads; in CARLA they are placed by hand"))
def get_map_info(world: World) -> list[Any]:
    """Return the map's name and its spawn points."""
    points = [wire.transform(p.x, p.y, p.z, pitch=p.pitch, yaw=p.yaw) for p in world.network.spawn_points()]
    return [wire.MAP_PREFIX + world.network.name, points]


@method
def get_map_data(world: World) -> str:
    """Return the map's OpenDRIVE text."""
    return world.network.xodr


@method
def get_required_files(world: World, folder: str) -> list[str]:
    """Return the files that a client keeps in its cache; of those it asks for, it uses only the navigation mesh.

    Every client asks when it connects, so this returns only the name; the client requests the mesh if its cache lacks
    it.
    """
    return [_mesh_name(world)] if folder == "Nav" else []


@method(approximated("made of the roads' sidewalks and crossings; CARLA's meshes are made of its maps' assets"))
def request_file(world: World, name: str) -> bytes:
    """Return the content of a file that ``get_required_files`` named.

    Raises:
        RpcError: it is another file, such as the mesh of an earlier map.
    """
    if name != _mesh_name(world):
        raise RpcError(f"file {name} does not exist here, expected {_mesh_name(world)}")
    return _mesh(world)


@method(approximated("made of the roads' sidewalks and crossings; CARLA's meshes are made of its maps' assets"))
def get_navigation_mesh(world: World) -> bytes:
    """Return the same mesh to a client that doesn't request files."""
    return _mesh(world)


def _mesh_name(world: World) -> str:
    return navigation_mesh.file_name(world.network, verges=not world.strict)


def _mesh(world: World) -> bytes:
    """Return the navigation mesh of the present map; empty if there is nowhere to walk, which is logged once."""
    try:
        return navigation_mesh.build(world.network, verges=not world.strict)
    except ValueError as error:
        world.report_unsupported(f"controller.ai.walker on {world.network.name}", f"{error}")
        return b""


@method(approximated("OpendriveGenerationParameters, which shape CARLA's mesh of the roads, have no effect"))
def copy_opendrive_to_file(world: World, xodr: str, _parameters: list[Any]) -> None:
    """Store an OpenDRIVE text; the client then loads it as the map OpenDriveMap."""
    world.maps.add_opendrive(xodr)


@method
def load_new_episode(world: World, name: str, reset_settings: bool, layers: int) -> None:
    """Begin a new episode on a map with these layers; an empty name means the present map."""
    network = world.maps.load(name) if name else world.network
    if reset_settings:
        world.settings = wire.default_settings()
    world.warn_of_traffic()
    world.load(network, layers)


@method
def get_actor_definitions(world: World) -> list[Any]:
    """Return the blueprint library."""
    spoken = world.dialect
    return [one.numbered(spoken.first_type).describe() for one in CATALOGUE.values() if one.id not in spoken.lacks]


@method
def get_weather_parameters(world: World) -> list[float]:
    """Return the weather."""
    return world.weather


@method(approximated("pictures show most of its fields (see the fields of WeatherParameters)"))
def set_weather_parameters(world: World, weather: Weather) -> None:
    """Set the weather; cameras show it from the next tick on.

    Raises:
        RpcError: a field is not a finite number.
    """
    if not all(map(math.isfinite, weather)):
        raise wire.RpcError(f"weather is {weather}, expected finite numbers")
    world.weather = [*weather]


@method
def is_traffic_manager_running(world: World, port: int) -> bool:
    """Return whether a Traffic Manager registered this port."""
    return port in world.traffic_managers


@method
def get_traffic_manager_running(world: World, port: int) -> list[Any]:
    """Return the registered host and port; as in CARLA, an empty host and port 0 if there is none."""
    return [world.traffic_managers[port], port] if port in world.traffic_managers else ["", 0]


@method
def add_traffic_manager_running(world: World, address: tuple[str, int]) -> bool:
    """Register a Traffic Manager; False if the port is taken."""
    host, port = address
    return world.traffic_managers.setdefault(port, host) == host


@method
def destroy_traffic_manager(world: World, port: int) -> bool:
    """Remove a Traffic Manager from the register; return whether it was there."""
    return world.traffic_managers.pop(port, None) is not None
