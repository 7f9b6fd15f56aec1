"""The interface through which recording and replaying use a world; ``world`` implements it.

It is separate from ``world``, which has a ``studio``.
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
"""Collisions of a tick: a vehicle, the other actor or None, and more."""


class Stage(Protocol):
    """A world that can be recorded, and that a replay can change."""

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
        """Add an actor, with its wanted id if that is free."""

    def destroy(self, number: int) -> bool:
        """Remove an actor; what is attached to it stays."""
