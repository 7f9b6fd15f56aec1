"""A world that a test has for itself, and leaves as it found it."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from typing import Any

DELTA_S = 0.05
# An image that is being received as its sensor is stopped aborts the client (carla issue 5651 and others).
_RECEIVED_S = 0.05
_MAPS_OWN = ("traffic.", "spectator")


@contextlib.contextmanager
def synchronous(client: Any, delta_s: float = DELTA_S, town: str | None = None) -> Iterator[Any]:
    """Give the client's ``carla.World`` in synchronous mode; afterwards no actor is left, settings are as before.

    Args:
        client: a ``carla.Client``, of carla-lite or of CARLA.
        delta_s: the length of a tick, in seconds.
        town: a map on which a new episode begins, the empty name for the present one; None goes on with the present
            episode. It begins in synchronous mode: the client has ticked once as it loaded it.
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
    # Sensors and controllers first: they are attached to the others.
    left.sort(key=lambda actor: not actor.type_id.startswith(("sensor.", "controller.")))
    client.apply_batch_sync([command.DestroyActor(actor.id) for actor in left], False)
