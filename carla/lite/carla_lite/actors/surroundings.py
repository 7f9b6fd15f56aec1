"""The interface through which an actor uses its world; ``world`` implements it.

It is separate from ``world``, which imports all classes of actors.
"""

from __future__ import annotations

from typing import Any, Protocol

from carla_lite.motion.physics import Body
from carla_lite.protocol.streams import Streams
from carla_lite.protocol.wire import Settings
from carla_lite.roads.network import RoadNetwork
from carla_lite.roads.speed_limits import SpeedLimits
from carla_lite.scenery.scene import Scene


class Surroundings(Protocol):
    """A world as its actors see it. Each actor is in the list of its class while it exists."""

    network: RoadNetwork
    limits: SpeedLimits
    streams: Streams
    settings: Settings
    unseen: int
    vehicles: list[Any]
    walkers: list[Any]
    props: list[Any]
    sensors: list[Any]
    triggers: list[Any]

    @property
    def scene(self) -> Scene:
        """The static scene."""

    def is_blocked(self, body: Body) -> bool:
        """Return whether something is in a vehicle's place."""

    def has_room(self, walker: Any) -> bool:
        """Return whether a walker's place is free."""

    def report_unsupported(self, name: str, why: str) -> None:
        """Report that something isn't simulated, and why."""

    def tick(self) -> int:
        """Advance the world by one step."""
