"""The base of all sensors that the server computes; each sensor is a class in ``sensors``.

Owns when a sensor is due and what it may read of the world. Never sends (``world`` does) and changes nothing that it
reads.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np

from carla_lite.actors.actor import Actor, Identity, Vehicle
from carla_lite.actors.crowd import Crowd
from carla_lite.actors.props import Prop
from carla_lite.actors.signage import Signage
from carla_lite.actors.surroundings import Surroundings
from carla_lite.actors.walkers import Walker
from carla_lite.motion.collisions import Contact
from carla_lite.motion.vehicles import GRAVITY_MPS2
from carla_lite.protocol import wire
from carla_lite.protocol.channel import Buffer
from carla_lite.rays.field import Field
from carla_lite.rays.solids import Integers
from carla_lite.roads.geo_reference import GeoReference
from carla_lite.roads.reference_line import FloatArray
from carla_lite.scenery.camera import Conditions, Drawn, Look, Pose
from carla_lite.scenery.people import People
from carla_lite.scenery.projection import Lens, View
from carla_lite.scenery.scene import Scene
from carla_lite.scenery.strokes import LARGEST_M
from carla_lite.scenery.surfaces import Surfaces

Message = Sequence[Buffer]
_LARGEST_SEED = 2.0**63


@dataclass
class TickSnapshot:
    """The world after one tick, as sensors may read it."""

    frame: int
    elapsed_s: float
    scene: Scene
    geo_reference: GeoReference
    conditions: Conditions
    vehicles: Sequence[Vehicle]
    walkers: Sequence[Walker]
    crowd: Crowd
    """The walkers as arrays."""
    props: Sequence[Prop]
    collided: Sequence[tuple[Vehicle, Vehicle | Walker | Prop | None, Contact]]
    signage: Signage
    delta_s: float = 0.0
    """The world's step (s)."""
    solid: Callable[[], Field] | None = None
    """Returns the field that rays can hit now; None if no ray is ever cast."""
    gravity_mps2: float = GRAVITY_MPS2
    """The gravity that inertial sensors measure (``set_imui_sensor_gravity``)."""

    _rays: Field | None = None
    looks: dict[tuple[Pose, Lens, int], tuple[Look, Sequence[Drawn]]] = field(default_factory=dict)
    """Shared camera views, by pose, lens and parent, with the vehicles whose lamps may light them."""
    surfaces: dict[tuple[Pose, Lens, int], Surfaces] = field(default_factory=dict)
    _drawn: dict[int, Drawn] = field(default_factory=dict)

    @property
    def moving(self) -> Sequence[Vehicle | Walker | Prop]:
        """All that may move."""
        return [*self.vehicles, *self.walkers, *self.props]

    @property
    def rays(self) -> Field:
        """The field that rays can hit; built for the first sensor that asks."""
        if self._rays is None:
            assert self.solid is not None
            self._rays = self.solid()
        return self._rays

    def velocities_of(self, things: Integers) -> FloatArray:
        """Return the velocities (3, n) of things that rays hit, in the world's frame (m/s)."""
        velocities = [
            actor.body.world_velocity()
            if isinstance(actor, Vehicle)
            else (actor.vx, actor.vy, actor.vz)
            if isinstance(actor, Walker)
            else (0.0, 0.0, 0.0)
            for actor in self.moving
        ]
        found: FloatArray = np.array([*velocities, (0.0, 0.0, 0.0)]).T[:, self.rays.numbers(things)]
        return found

    def drawn(
        self, view: View, reach_m: float, all_around: bool = False
    ) -> tuple[list[tuple[Vehicle | Walker | Prop, Drawn]], People | None]:
        """Return the moving actors in a square around a view's place with their shapes for cameras, and the distant
        people.

        Left out are those that can't be in the image; with ``all_around`` only walkers.

        The shapes are made once for all cameras.
        """
        x, y, z = view.pose.x, view.pose.y, view.pose.z
        (ahead_x, ahead_y, ahead_z), (right_x, right_y, right_z), _ = view.axes
        wide_m = LARGEST_M * view.slack
        near: list[tuple[Vehicle | Walker | Prop, Drawn]] = []
        beside, people = self.crowd.seen(view, reach_m) if self.walkers else ([], None)
        for group in (self.vehicles, [self.walkers[index] for index in beside], self.props):
            for actor in group:
                at = actor.at
                dx, dy, dz = at.x - x, at.y - y, at.z - z
                if not (-reach_m < dx < reach_m and -reach_m < dy < reach_m):
                    continue
                if not all_around:
                    depth = ahead_x * dx + ahead_y * dy + ahead_z * dz
                    aside = right_x * dx + right_y * dy + right_z * dz
                    if depth < -LARGEST_M or abs(aside) > depth * view.tangent + wide_m:
                        continue
                figure = self._drawn.get(actor.id)
                if figure is None:
                    figure = self._drawn[actor.id] = actor.drawn(self.elapsed_s)
                near.append((actor, figure))
        return near, people


class Sensor(Actor, ABC):
    """An actor with a stream. Subclasses yield the messages of one snapshot."""

    kind: ClassVar[int]
    """Type of its messages (protocol, section 3.3)."""

    def __init__(self, identity: Identity, place: Pose) -> None:
        super().__init__(identity, place)
        self.stream = self._port = 0
        self.heard = False
        """Whether any client has ever listened."""
        self._interval_s = self.number("sensor_tick", 0.0)
        self._due_s = -math.inf

    def entered(self, world: Surroundings) -> None:
        """Open its stream."""
        self.stream, self._port = world.streams.open(), world.streams.port
        self.prepare(world.scene)
        world.sensors.append(self)

    def left(self, world: Surroundings) -> None:
        """Close its stream."""
        world.sensors.remove(self)

    def token(self) -> bytes:
        """Return the token by which clients subscribe."""
        return wire.token(self.stream, self._port)

    def is_due(self, elapsed_s: float) -> bool:
        """Return whether ``sensor_tick`` has passed since the last reading; called once per tick."""
        if self._interval_s == 0.0:
            return True
        if elapsed_s < self._due_s - 1e-6:
            return False
        # Late by a whole interval or more (the first time, or after longer ticks): count from here.
        late = elapsed_s - self._due_s >= self._interval_s
        self._due_s = (elapsed_s if late else self._due_s) + self._interval_s
        return True

    def generator(self) -> np.random.Generator:
        """Return a random number generator seeded by ``noise_seed``."""
        return np.random.default_rng(int(self.number("noise_seed", -_LARGEST_SEED, _LARGEST_SEED)) & 0xFFFFFFFF)

    def prepare(self, scene: Scene) -> None:
        """Do slow preparations before the first tick."""

    @abstractmethod
    def messages(self, snapshot: TickSnapshot) -> Iterator[Message]:
        """Yield this snapshot's messages, each as flat buffers."""

    def header(self, snapshot: TickSnapshot, where: Pose) -> bytes:
        """Return the 48 bytes at the start of each message."""
        degrees = math.degrees(where.pitch), math.degrees(where.yaw), math.degrees(where.roll)
        place = where.x, where.y, where.z
        return wire.HEADER.pack(self.kind, snapshot.frame, snapshot.elapsed_s, *place, *degrees)
