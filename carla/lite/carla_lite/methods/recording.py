"""RPC methods of the recorder: recordings, replays, and queries of a file."""

from __future__ import annotations

import math

from carla_lite.methods.arguments import Finite, Place
from carla_lite.methods.table import method
from carla_lite.protocol.wire import RpcError
from carla_lite.scenery.projection import Pose
from carla_lite.world import World

_CATEGORIES = "hvwtoa"
# The client's default (Client.cpp of PythonAPI).
_BEHIND = Pose(-10.0, 0.0, 5.0, math.radians(-25.0))


@method
def start_recorder(world: World, name: str, additional_data: bool = False) -> str:
    """Record each tick from now on, and return the path of the file."""
    return world.recorder.start(name, additional_data)


@method
def stop_recorder(world: World) -> None:
    """End the recording."""
    world.recorder.stop()


@method
def replay_file(
    world: World,
    name: str,
    start: Finite,
    duration: Finite,
    follow_id: int,
    replay_sensors: bool = False,
    offset: Place = _BEHIND,
) -> str:
    """Replay a recording and return CARLA's message; without an offset, the spectator follows from behind."""
    return world.recorder.replay(name, start, duration, follow_id, replay_sensors, offset)


@method
def stop_replayer(world: World, keep_actors: bool) -> None:
    """End the replay."""
    world.recorder.stop_replaying(keep_actors)


@method
def set_replayer_time_factor(world: World, factor: float) -> None:
    """Set the speed of replays, also of the present one; 0 halts it.

    Raises:
        RpcError: it is below 0, or not finite. The client doesn't read the answer, so it is logged, too.
    """
    if not 0.0 <= factor < math.inf:
        sentence = f"a replay's time factor of {factor} changes nothing, expected a finite number from 0"
        print(f"carla-lite: {sentence}", flush=True)
        raise RpcError(sentence)
    world.recorder.options.time_factor = factor


@method
def set_replayer_ignore_hero(world: World, ignore: bool) -> None:
    """Leave out actors with the role ``hero``."""
    world.recorder.options.ignore_hero = ignore


@method
def set_replayer_ignore_spectator(world: World, ignore: bool) -> None:
    """Leave the spectator where it is."""
    world.recorder.options.ignore_spectator = ignore


@method
def show_recorder_file_info(world: World, name: str, show_all: bool = False) -> str:
    """Return the content of a recording."""
    from carla_lite.recording import queries

    return world.recorder.tell(name, lambda recording: queries.file_info(recording, show_all))


@method
def show_recorder_collisions(world: World, name: str, first: int | str, second: int | str) -> str:
    """Return the collisions between two categories of actors, given as character codes.

    Raises:
        RpcError: there is no such category.
    """
    letters = [chr(each) if isinstance(each, int) and 0 < each < 128 else str(each) for each in (first, second)]
    for letter in letters:
        if letter not in _CATEGORIES or len(letter) != 1:
            raise RpcError(f"{letter!r} is no category of actors, expected one of {', '.join(_CATEGORIES)}")
    from carla_lite.recording import queries

    return world.recorder.tell(name, lambda recording: queries.collisions(recording, *letters))


@method
def show_recorder_actors_blocked(world: World, name: str, min_time: Finite, min_distance: Finite) -> str:
    """Return the actors that stood for at least a time (s), moving less than a distance (cm)."""
    from carla_lite.recording import queries

    return world.recorder.tell(name, lambda recording: queries.actors_blocked(recording, min_time, min_distance))
