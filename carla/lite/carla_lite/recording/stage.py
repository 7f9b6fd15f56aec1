"""What recording and replaying use of a world; ``world`` has it.

Apart from ``world``, which holds a ``studio``.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

from carla_lite.actors.actor import Actor
from carla_lite.actors.signage import Signage
from carla_lite.maps import Maps
from carla_lite.protocol.wire import Settings
from carla_lite.roads.network import RoadNetwork
from carla_lite.scenery.projection import Pose

Hits = Sequence[tuple[Any, ...]]
"""Who met whom in a tick: a vehicle, the other actor or None, and more."""


class Stage(Protocol):
    """A world as it is recorded, and as a replay moves it."""

    network: RoadNetwork
    maps: Maps
    signage: Signage
    settings: Settings
    actors: dict[int, Actor]
    sensors: list[Any]
    spectator: Actor
    elapsed_s: float

    def load(self, network: RoadNetwork) -> None:
        """Begin a new episode on a map."""

    def spawn(self, name: str, given: dict[str, str], place: Pose, parent_id: int = 0, wanted_id: int = 0) -> Actor:
        """Add an actor, by its wanted id if that is free."""

    def destroy(self, number: int) -> bool:
        """Remove an actor and what hangs on it."""
