"""Sensors that the server computes: a class a sensor, registered with its blueprint.

Owns when a sensor is due and what its messages hold. Never sends (``world`` does) and changes nothing that it looks
at. A new sensor is one class here or in ``navigation_sensors``; ``sensor.other.lane_invasion`` is only a blueprint,
because the client computes it.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import ClassVar

import msgpack

from carla_lite.actors.actor import Actor, Identity, Vehicle
from carla_lite.actors.props import Prop
from carla_lite.actors.signage import Signage
from carla_lite.actors.walkers import Walker
from carla_lite.blueprints.catalogue import Attribute, Blueprint, register, role
from carla_lite.blueprints.sensor_attributes import FILM, LENS, ROLES, floats, integers
from carla_lite.motion.collisions import Contact
from carla_lite.protocol import wire
from carla_lite.protocol.channel import Buffer
from carla_lite.roads.geo_reference import GeoReference
from carla_lite.scenery.camera import Camera, Conditions, Drawn, Pose
from carla_lite.scenery.scene import Scene
from carla_lite.scenery.strokes import BEAM_SEEN_M, LARGEST_M, sight_m

Message = Sequence[Buffer]

# As far as a car is more than a dot on a small image.
_SIGHT_M = 200.0
# As far as a sign's lamp is a pixel on an image of 800 × 600.
_SIGNS_M = 150.0


@dataclass
class TickSnapshot:
    """The world after one tick, as sensors may see it."""

    frame: int
    elapsed_s: float
    scene: Scene
    geo_reference: GeoReference
    conditions: Conditions
    moving: Sequence[Vehicle | Walker | Prop]
    collided: Sequence[tuple[Vehicle, Vehicle | Walker | Prop | None, Contact]]
    signage: Signage

    _drawn: dict[int, Drawn] = field(default_factory=dict)

    def drawn(self, where: Pose, reach_m: float, behind_m: float) -> list[tuple[Vehicle | Walker | Prop, Drawn]]:
        """Return what moves within a square around a place and at most so far behind it, with what cameras see of it;
        made once for all cameras."""
        x, y, z = where.x, where.y, where.z
        ahead_x, ahead_y, ahead_z = where.axes()[0]
        near = []
        for actor in self.moving:
            at = actor.at
            dx, dy = at.x - x, at.y - y
            if (
                -reach_m < dx < reach_m
                and -reach_m < dy < reach_m
                and ahead_x * dx + ahead_y * dy + ahead_z * (at.z - z) > -behind_m
            ):
                figure = self._drawn.get(actor.id)
                if figure is None:
                    figure = self._drawn[actor.id] = actor.drawn(self.elapsed_s)
                near.append((actor, figure))
        return near


class Sensor(Actor, ABC):
    """An actor with a stream. Subclasses yield the messages of one snapshot."""

    kind: ClassVar[int]

    def __init__(self, identity: Identity, place: Pose, stream: int, port: int) -> None:
        super().__init__(identity, place)
        self.stream, self._port = stream, port
        self._interval_s = self.number("sensor_tick", 0.0)
        self._due_s = -math.inf

    def token(self) -> bytes:
        """Return the token by which clients subscribe."""
        return wire.token(self.stream, self._port)

    def is_due(self, elapsed_s: float) -> bool:
        """Return whether ``sensor_tick`` has passed since the last time; asked once a tick."""
        if self._interval_s == 0.0:
            return True
        if elapsed_s < self._due_s - 1e-6:
            return False
        # Late by a whole interval or more (at first, or after ticks longer than it): count from here.
        late = elapsed_s - self._due_s >= self._interval_s
        self._due_s = (elapsed_s if late else self._due_s) + self._interval_s
        return True

    def prepare(self, scene: Scene) -> None:
        """Have done what takes long, before its first tick."""

    @abstractmethod
    def messages(self, snapshot: TickSnapshot) -> Iterator[Message]:
        """Yield this snapshot's messages, each as flat buffers."""

    def header(self, snapshot: TickSnapshot, where: Pose) -> bytes:
        """Return the 48 bytes that begin each message."""
        degrees = math.degrees(where.pitch), math.degrees(where.yaw), math.degrees(where.roll)
        place = where.x, where.y, where.z
        return wire.HEADER.pack(self.kind, snapshot.frame, snapshot.elapsed_s, *place, *degrees)


SENSORS: dict[str, type[Sensor]] = {}
"""The class of each sensor blueprint."""


def enter(kind: type[Sensor], name: str, *attributes: Attribute) -> None:
    """Register a class and its blueprint."""
    register(Blueprint(name, (*attributes, role(*ROLES))))
    SENSORS[name] = kind


class RgbCamera(Sensor):
    """A colour camera. It does not see the vehicle that it sits in or on; a chase camera does."""

    kind: ClassVar[int] = wire.RGB_CAMERA

    def __init__(self, identity: Identity, place: Pose, stream: int, port: int) -> None:
        super().__init__(identity, place, stream, port)
        width, height = int(self.number("image_size_x", 1, 8192)), int(self.number("image_size_y", 1, 8192))
        fov = self.number("fov", 1.0, 179.0)
        self._camera = Camera(width, height, fov)
        self._image_head = wire.IMAGE.pack(width, height, fov)

    def prepare(self, scene: Scene) -> None:
        """Have the ground painted: it takes about a second once a map."""
        _ = scene.ground

    def messages(self, snapshot: TickSnapshot) -> Iterator[Message]:
        """Yield the image of this snapshot."""
        where = self.pose
        lens = self._camera.lens
        by_night = snapshot.conditions.daylight.lamps > 0.0
        reach_m = min(max(sight_m(lens), BEAM_SEEN_M if by_night else 0.0), _SIGHT_M)
        near = snapshot.drawn(where, reach_m, math.inf if by_night else LARGEST_M)
        seen: list[Drawn] = [
            figure
            for actor, figure in near
            if not (self.hangs_on(actor) and actor.surrounds(where.x, where.y, where.z))
        ]
        seen += snapshot.signage.faces(where.x, where.y, min(lens.focal, _SIGNS_M))
        beaming = [figure for _, figure in near]
        image = self._camera.render(snapshot.scene, where, seen, snapshot.conditions, beaming)
        yield self.header(snapshot, where), self._image_head, image.data.cast("B")


class CollisionSensor(Sensor):
    """Reports every contact of its parent, each tick that the contact lasts."""

    kind: ClassVar[int] = wire.COLLISION

    def messages(self, snapshot: TickSnapshot) -> Iterator[Message]:
        """Yield one event a contact: the two actors and the impulse on the parent (N s)."""
        for vehicle, other, contact in snapshot.collided:
            x, y, z = contact.impulse
            if vehicle is self.parent:
                against = other.describe() if other else _static(contact.static_tag)
                yield self._event(snapshot, against, [x, y, z])
            elif other is not None and other is self.parent:
                yield self._event(snapshot, vehicle.describe(), [-x, -y, -z])

    def _event(self, snapshot: TickSnapshot, against: list[object], impulse: list[float]) -> Message:
        assert self.parent is not None
        payload: bytes = msgpack.packb([self.parent.describe(), against, impulse])
        return self.header(snapshot, self.pose), payload


def _static(tag: int) -> list[object]:
    """Return the stand-in that CARLA gives for things that are no actors: id 0, ``static.`` and the label's name."""
    name = f"static.{wire.LABELS.get(tag, 'unknown')}"
    return [0, 0, [0, name, []], wire.EMPTY_BOX, bytes((tag,)), b""]


enter(
    RgbCamera,
    "sensor.camera.rgb",
    *integers(image_size_x="800", image_size_y="600"),
    *floats(sensor_tick="0.0", fov="90.0"),
    *LENS,
    *FILM,
)
enter(CollisionSensor, "sensor.other.collision")
register(Blueprint("sensor.other.lane_invasion", (role(*ROLES),)))
