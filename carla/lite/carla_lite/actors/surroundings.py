"""What an actor uses of the world that it enters or leaves; ``world`` has it.

Apart from ``world``, which imports all kinds of actors.
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
    """A world as its actors see it. An actor is in the list of its kind as long as it is there."""

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
        """What stands still."""

    def is_blocked(self, body: Body) -> bool:
        """Return whether something stands where a vehicle wants to."""

    def has_room(self, walker: Any) -> bool:
        """Return whether nothing stands where a walker wants to."""

    def report_unsupported(self, name: str, why: str) -> None:
        """Say what is not simulated, and why."""

    def tick(self) -> int:
        """Move the world by one step."""
