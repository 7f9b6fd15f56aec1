"""A world for one test, which is left as it was found."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from typing import Any

DELTA_S = 0.05
# If a sensor is stopped while an image arrives, the client aborts (carla issue 5651 and others).
_RECEIVED_S = 0.05
_MAPS_OWN = ("traffic.", "spectator")


@contextlib.contextmanager
def synchronous(client: Any, delta_s: float = DELTA_S, town: str | None = None) -> Iterator[Any]:
    """Yield the client's ``carla.World`` in synchronous mode; afterwards all actors are removed and settings restored.

    Args:
        client: a ``carla.Client``, of carla-lite or of CARLA.
        delta_s: the length of a tick, in seconds.
        town: map of a new episode; the empty name means the present map, None the present episode. A new episode begins
            in synchronous mode: the client has ticked once when loading it.
    """
    world = client.get_world()
    before = world.get_settings()
    settings = world.get_settings()
    settings.synchronous_mode, settings.fixed_delta_seconds = True, delta_s
    world.apply_settings(settings)
    try:
        if town is not None:
            world = client.load_world(town, False) if town else client.reload_world(False)
        yield world
    finally:
        world = client.get_world()  # the block may have loaded another map
        _destroy_all(client, world)
        world.apply_settings(before)


def _destroy_all(client: Any, world: Any) -> None:
    from carla import command

    left = [actor for actor in world.get_actors() if not actor.type_id.startswith(_MAPS_OWN)]
    if any(actor.type_id.startswith("sensor.") for actor in left):
        time.sleep(_RECEIVED_S)
    # Sensors and controllers first: they are attached to other actors.
    left.sort(key=lambda actor: not actor.type_id.startswith(("sensor.", "controller.")))
    client.apply_batch_sync([command.DestroyActor(actor.id) for actor in left], False)
