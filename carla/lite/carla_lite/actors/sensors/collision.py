"""The collision sensor."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

import msgpack

from carla_lite.actors.actor import register
from carla_lite.actors.sensor import Message, Sensor, TickSnapshot
from carla_lite.protocol import wire


class CollisionSensor(Sensor):
    """Reports every contact of its parent, in each tick of the contact."""

    kind: ClassVar[int] = 0

    def messages(self, snapshot: TickSnapshot) -> Iterator[Message]:
        """Yield one event per contact: the two actors and the impulse on the parent (N s)."""
        for vehicle, other, contact in snapshot.collided:
            x, y, z = contact.impulse
            if vehicle is self.parent:
                against = other.describe() if other else stand_in(contact.static_tag)
                yield self._event(snapshot, against, [x, y, z])
            elif other is not None and other is self.parent:
                yield self._event(snapshot, vehicle.describe(), [-x, -y, -z])

    def _event(self, snapshot: TickSnapshot, against: list[object], impulse: list[float]) -> Message:
        assert self.parent is not None
        payload: bytes = msgpack.packb([self.parent.describe(), against, impulse])
        return self.header(snapshot, self.pose), payload


def stand_in(tag: int) -> list[object]:
    """Return CARLA's stand-in for things that aren't actors: id 0, ``static.`` and the label's name in the singular."""
    name = f"static.{wire.LABELS.get(tag, 'unknown').removesuffix('s')}"  # as in ActorRegistry.cpp
    return [0, 0, [0, name, []], wire.EMPTY_BOX, bytes((tag,)), b""]


register(CollisionSensor, "sensor.other.collision")
