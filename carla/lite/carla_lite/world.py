"""The world: its map, its actors, and one tick.

Owns the episode, the actors and the order inside a tick: controls → motion → contacts → world message → sensors
(protocol, section 4). Knows no RPC method and no socket: messages go to ``streams``.
"""

from __future__ import annotations

import copy
import math
import secrets
import time
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from itertools import islice
from typing import TYPE_CHECKING, TypeVar

import numpy as np
from numpy.typing import NDArray

from carla_lite import heap
from carla_lite.actors import crowd, doors, props, sensors, walker_hits  # noqa: F401 (enters the sensors' classes)
from carla_lite.actors.actor import KINDS, Actor, Identity, Vehicle, compose
from carla_lite.actors.crowd import Crowd
from carla_lite.actors.environment import ALL_LAYERS, Environment
from carla_lite.actors.props import Prop
from carla_lite.actors.sensor import Message, Sensor, TickSnapshot
from carla_lite.actors.signage import Signage
from carla_lite.actors.traffic_lights import TrafficSign
from carla_lite.actors.triggers import FrictionTrigger
from carla_lite.actors.walkers import Walker
from carla_lite.blueprints.catalogue import CATALOGUE, SPECTATOR, find
from carla_lite.blueprints.sensors import REFUSED
from carla_lite.maps import LAYERED_SUFFIX, Maps
from carla_lite.motion import collisions, physics
from carla_lite.motion.physics import AIRBORNE_M, Body
from carla_lite.motion.vehicles import GRAVITY_MPS2
from carla_lite.options import DEFAULTS, WorldOptions
from carla_lite.protocol import wire
from carla_lite.protocol.channel import Buffer
from carla_lite.protocol.streams import Streams
from carla_lite.protocol.wire import RpcError
from carla_lite.rays.field import Field, StillField
from carla_lite.roads.network import RoadNetwork
from carla_lite.roads.speed_limits import SpeedLimits
from carla_lite.scenery.camera import Conditions, Pose
from carla_lite.scenery.daylight import CLEAR_NOON, Daylight
from carla_lite.scenery.drawings import Drawing
from carla_lite.scenery.scene import Scene

if TYPE_CHECKING:
    from carla_lite.recording.studio import Studio

A = TypeVar("A", bound=Actor)

_RECORD_BYTES = wire.VEHICLE_RECORD.size
_HEAD_BYTES = wire.HEADER.size + wire.WORLD_HEAD.size

LISTED_ONLY = frozenset(CATALOGUE) - frozenset(KINDS)
"""Ids of blueprints that programs find in the library but can't spawn."""

# CARLA's spawner refuses a vehicle that touches the road (carla #4006, #2323): its spawn points are above it.
_ABOVE_ROAD_M = -0.02
# Number of removed actors that are remembered, and how far ahead of all others an id may be.
_REMEMBERED, _FARTHEST_ID = 4096, 1_000_000
# A Traffic Manager asks for all vehicles' lights in each of its steps; on a busy machine steps are seconds apart.
_TRAFFIC_S = 5.0
_ABOVE = Pose(0.0, 0.0, 10.0, 0.0, 0.0, 0.0)


class World:
    """The world that a tick advances.

    Frames and actor ids continue over episodes, and episodes are numbered from a random start: clients cache by them.
    """

    def __init__(
        self,
        streams: Streams,
        maps: Maps,
        options: WorldOptions = DEFAULTS,
    ) -> None:
        self.streams = streams
        self.dialect = options.dialect
        self.maps = maps
        self._recordings = options.recordings
        self._studio: Studio | None = None
        self.strict = options.strict
        self.traffic_managers: dict[int, str] = {}
        self.batch_answered_s = 0.0
        """When the last batch was finished, by the monotonic clock."""
        self.traffic_asked_s = 0.0
        """When a Traffic Manager last took a step, by the same clock."""
        self.tick_s = options.tick_s
        self.stream = streams.open(self._message)
        self.settings = wire.default_settings()
        self.hooked: Callable[[Sensor, TickSnapshot], Iterable[Message]] | None = None
        """Returns a sensor's messages as a ``server.FaultHook`` changes them; None leaves them unchanged."""
        self.imu_gravity_mps2 = GRAVITY_MPS2
        """The gravity of inertial sensors, as set by a client."""
        self.unsupported: Counter[str] = Counter()
        """How often clients called something without effect here, by name."""
        self.frame = 0
        self.episode = secrets.randbelow(1 << 31)
        self._seed = options.seed
        self._next_id = self.unseen = 1
        """The first id that no world message has contained."""
        self._gone: dict[int, str] = {}
        """Descriptions of the last removed actors, by id."""
        self._buffer = bytearray()
        self._still: StillField | None = None
        self.load(maps.first)

    def load(self, network: RoadNetwork, layers: int = ALL_LAYERS) -> None:
        """Begin a new episode on this map, with only its signs and the spectator."""
        self.end_recordings()
        self.network = network
        self.episode += 1
        self._first_id = self._next_id
        self.elapsed_s = 0.0
        self.drawings: list[Drawing] = []
        self.signage = Signage(network, self._new_id)
        loaded = layers if self.has_layers else ALL_LAYERS
        self.environment = Environment(Scene.build(network, self._seed), self.signage, loaded)
        self.weather = list(CLEAR_NOON)
        self.actors: dict[int, Actor] = {}
        self._order: tuple[list[tuple[int, Actor]], NDArray[np.intp]] | None = None
        """Who is where in the world message; None after a change."""
        for sign in self.signage.signs:
            self._add(sign)
        self.vehicles: list[Vehicle] = []
        self.walkers: list[Walker] = []
        self._crowd = Crowd()
        self.props: list[Prop] = []
        self.sensors: list[Sensor] = []
        self.triggers: list[FrictionTrigger] = []
        self._gone.clear()
        self.limits = SpeedLimits(network)
        self.geo_reference = replace(network.geo_reference, mercator=self.dialect.mercator)
        self.spectator = self._add(Actor(Identity(self._new_id(), SPECTATOR, {}), _ABOVE))
        heap.give_back()

    @property
    def weather(self) -> list[float]:
        """The WeatherParameters struct."""
        return self._weather

    @weather.setter
    def weather(self, weather: list[float]) -> None:
        self._weather, self._daylight = weather, Daylight.of(weather)
        self.environment.set_night(self._daylight.lamps > 0.0)

    @property
    def recorder(self) -> Studio:
        """The recorder; it is imported for the first call that needs it."""
        if self._studio is None:
            from carla_lite.recording.studio import Studio

            self._studio = Studio(self, self._recordings)
        return self._studio

    def end_recordings(self) -> None:
        """End recording and replay, if there are any."""
        if self._studio is not None:
            self._studio.leave_episode()

    @property
    def scene(self) -> Scene:
        """The static things that are present."""
        return self.environment.scene

    @property
    def has_layers(self) -> bool:
        """Whether layers of the map can be unloaded: CARLA's maps have layers only if their name says so."""
        return not self.strict or self.network.name.endswith(LAYERED_SUFFIX)

    def warn_of_traffic(self) -> None:
        """Warn if a map is loaded beside an active, asynchronous Traffic Manager.

        The client's process may then end by SIGSEGV (wire protocol, section 5, no. 8).
        """
        at_work = time.monotonic() - self.traffic_asked_s < _TRAFFIC_S
        beside = self.traffic_managers and at_work and not self.settings.synchronous
        if beside and self.dialect.ends_beside_traffic:
            print(
                "carla-lite: a map is loaded beside a Traffic Manager in asynchronous mode: the process that has it "
                "may end by SIGSEGV, which no server can prevent; call its shut_down() first, stay in synchronous "
                "mode (load_world(name, False)), or use the client of 0.9.15",
                flush=True,
            )

    def report_unsupported(self, name: str, why: str) -> None:
        """Count a call without effect here, and log the first of its name: an asynchronous call has no reply to its
        caller.
        """
        self.unsupported[name] += 1
        if self.unsupported[name] == 1:
            print(f"carla-lite: {name} has no effect: {why}", flush=True)

    def actor(self, number: int, kind: type[A]) -> A:
        """Return the actor of this id.

        Raises:
            RpcError: there is none, or it is of another kind.
        """
        found = self.actors.get(number)
        if found is None:
            raise RpcError(f"actor {number} does not exist: it was never spawned here, or is destroyed")
        if not isinstance(found, kind):
            raise RpcError(f"actor {number} is a {found.blueprint.id}, expected a {kind.__name__.lower()}")
        return found

    def forgives(self, number: int) -> bool:
        """Return whether a Traffic Manager's call for this actor is accepted without effect: the actor is destroyed.

        A Traffic Manager that takes cars over while its program destroys them calls for cars that are gone. CARLA's
        error ends the whole program then, since no one catches it in the manager's thread.
        """
        return number in self._gone and number not in self.actors and not self.strict

    def spawn(self, name: str, given: dict[str, str], place: Pose, parent_id: int = 0, wanted_id: int = 0) -> Actor:
        """Add an actor; with a parent, ``place`` is relative to it. It gets ``wanted_id`` if that is free.

        Raises:
            RpcError: unknown blueprint or parent, an attribute out of range, or no room for a vehicle.
        """
        blueprint = find(name)
        attributes = blueprint.values(given)
        if name in self.dialect.lacks:
            raise RpcError(f"CARLA {self.dialect.version} has no {name}: it came later")
        if name not in KINDS:
            self.report_unsupported(name, REFUSED[name])
            raise RpcError(f"carla-lite has no {name}: {REFUSED[name]}")
        kind = KINDS[name]
        parent = self.actor(parent_id, Actor) if parent_id else None
        if parent is not None and not kind.attaches:
            place, parent = compose(parent.pose, place), None
        actor = kind(Identity(self._free_id(wanted_id, name), blueprint, attributes, parent), place)
        actor.entered(self)
        return self._add(actor)

    def destroy(self, number: int) -> bool:
        """Remove an actor and return whether it existed. Signs and the spectator stay.

        What is attached to it stays where it is, as in CARLA: a program destroys its sensors itself.
        """
        gone = self.actors.get(number)
        if gone is None or gone is self.spectator or isinstance(gone, TrafficSign):
            return False
        for actor in self.actors.values():
            if actor.parent is gone:
                actor.detach()
        del self.actors[number]
        self._order = None
        gone.left(self)
        self._gone[number] = gone.blueprint.id
        if len(self._gone) > _REMEMBERED:
            del self._gone[next(iter(self._gone))]
        return True

    def tick(self) -> int:
        """Advance the world by one step, publish it, and return the frame's number."""
        delta_s = self.settings.delta_s
        self.frame += 1
        self.elapsed_s += delta_s
        self.signage.advance(delta_s)
        if self.drawings:
            self.drawings = [shape for shape in self.drawings if self.elapsed_s < shape.until_s + 1e-6]
        physics_s = self.settings.physics_s
        for trigger in self.triggers:
            trigger.act(self.vehicles)
        for vehicle in self.vehicles:
            vehicle.prepare(delta_s)
            body = vehicle.body
            physics.advance(body, physics_s, self.network.ground)
            vehicle.speed_limit_kmh = self.limits.at(body.x, body.y, body.z)
        self.signage.tell(self.vehicles, self.elapsed_s)
        if self.walkers:
            people, network = self._crowd.hold(self.walkers), self.network
            crowd.step(people, physics_s, network.ground, self.scene.statics, network.level)
            for gone in [walker.id for walker in self.walkers if walker.is_gone]:
                self.destroy(gone)
        collided = self._collide()
        if self._studio is not None and self._studio.active:
            self._studio.tick(delta_s, collided)
            self._crowd.hold(self.walkers)  # a replay adds and removes some
        for vehicle in self.vehicles:
            vehicle.measure(delta_s)
        crowd.measure(self._crowd.columns, delta_s)
        snapshot = TickSnapshot(
            self.frame,
            self.elapsed_s,
            self.scene,
            self.geo_reference,
            Conditions(self._daylight, self.drawings),
            self.vehicles,
            self.walkers,
            self._crowd,
            self.props,
            collided,
            self.signage,
            delta_s,
            self.rays,
            self.imu_gravity_mps2,
        )
        # The world's message is sent before all others, as in CARLA, but only when the first of them is ready: a client
        # that is woken once for both needs a fifth less processor time than if it is woken twice.
        published = False
        for sensor in self.sensors:
            if sensor.is_due(self.elapsed_s) and self.streams.has_subscribers(sensor.stream):
                sensor.heard = True
                for message in sensor.messages(snapshot) if self.hooked is None else self.hooked(sensor, snapshot):
                    if not published:
                        self._publish()
                        published = True
                    self.streams.publish(sensor.stream, message)
        if not published:
            self._publish()
        return self.frame

    def _publish(self) -> None:
        self.streams.publish(self.stream, self._message())
        self.unseen = self._next_id

    def moving(self) -> list[Vehicle | Walker | Prop]:
        """Return all that may move."""
        return [*self.vehicles, *self.walkers, *self.props]

    def rays(self) -> Field:
        """Return the field that rays can hit now."""
        if self._still is None or self._still.scene is not self.scene:  # another map, or an object was switched
            self._still = StillField(self.network, self.scene, [sign.face for sign in self.signage.shown])
        movers = [actor.drawn(self.elapsed_s) for actor in self.moving()]
        return Field(self._still, movers, [sign.id for sign in self.signage.shown])

    def has_room(self, walker: Walker) -> bool:
        """Return whether neither a vehicle nor another walker stands where a walker wants to."""
        return not walker_hits.is_blocked(walker, [vehicle.body for vehicle in self.vehicles], self.walkers)

    def is_blocked(self, body: Body) -> bool:
        """Return whether something stands where a vehicle wants to."""
        if body.is_in(self.network.ground, _ABOVE_ROAD_M if self.strict else AIRBORNE_M):
            return True
        reach_m = body.model.reach_m
        near = [
            other.body
            for other in self.vehicles
            if math.dist((body.x, body.y), (other.body.x, other.body.y)) <= reach_m + other.body.model.reach_m
        ]
        # `resolve` moves what it finds overlapping: give it copies.
        bodies = [copy.copy(one) for one in (body, *near)]
        if any(walker_hits.touches(body, walker) for walker in self.walkers) or props.is_blocked(body, self.props):
            return True
        return any(contact.index_a == 0 for contact in collisions.resolve(bodies, self.scene, self.environment.signs))

    def _collide(self) -> list[tuple[Vehicle, Vehicle | Walker | Prop | None, collisions.Contact]]:
        solid = [vehicle for vehicle in self.vehicles if vehicle.collides]
        contacts = collisions.resolve([vehicle.body for vehicle in solid], self.scene, self.environment.signs)
        # Without an impulse they touch but already part: no event, as in CARLA.
        hits = [contact for contact in contacts if any(contact.impulse)]
        people = [walker for walker in self.walkers if walker.collides]
        states = self._crowd.hold(self.walkers)
        if len(people) < len(self.walkers):
            states = states[:, [walker.collides for walker in self.walkers]]
        met = walker_hits.resolve([vehicle.body for vehicle in solid], people, states)
        struck = props.resolve(solid, [prop for prop in self.props if prop.collides])
        for vehicle in self.vehicles:
            vehicle.body.placed = False
        return [
            *((solid[c.index_a], None if c.index_b is None else solid[c.index_b], c) for c in hits),
            *((solid[hit.vehicle], people[hit.walker], hit.contact) for hit in met),
            *struck,
            *doors.resolve(solid),
        ]

    def _message(self) -> Sequence[Buffer]:
        """Return the world message of the present frame (protocol, section 3.4); valid until the next call."""
        size = _HEAD_BYTES + _RECORD_BYTES * len(self.actors)
        if len(self._buffer) < size:
            self._buffer = bytearray(2 * size)
        into = self._buffer
        wire.HEADER.pack_into(into, 0, self.dialect.world, self.frame, self.elapsed_s, *(0.0,) * 6)
        now_s, delta_s = time.time(), self.settings.delta_s
        wire.WORLD_HEAD.pack_into(into, wire.HEADER.size, self.episode, now_s, delta_s, 0, 0, 0, 0)
        signs = self.signage.records
        first = _HEAD_BYTES + len(signs)
        into[_HEAD_BYTES:first] = signs
        if self._order is None:
            self._order = self._ordered()
        others, people = self._order
        for row, actor in others:
            actor.record(into, first + row * _RECORD_BYTES)
        if self.walkers:
            self._crowd.hold(self.walkers)
            rows = np.frombuffer(into, np.uint8)[first:size].reshape(-1, _RECORD_BYTES)
            rows[people] = self._crowd.records()
        return (memoryview(into)[:size],)

    def _ordered(self) -> tuple[list[tuple[int, Actor]], NDArray[np.intp]]:
        """Return all actors but signs and walkers with their positions in the world message, and the walkers' ones."""
        listed = list(islice(self.actors.values(), len(self.signage.signs), None))
        rows = {actor.id: row for row, actor in enumerate(listed)}
        others = [(row, actor) for row, actor in enumerate(listed) if not isinstance(actor, Walker)]
        return others, np.array([rows[walker.id] for walker in self.walkers], np.intp)

    def _new_id(self) -> int:
        self._next_id += 1
        return self._next_id - 1

    def _free_id(self, wanted: int, name: str) -> int:
        """Return the wanted id if clients can't take it for another actor's.

        They keep descriptions of an episode's actors: an id of an earlier episode is free.
        """
        if self._next_id <= wanted < self._next_id + _FARTHEST_ID:
            self._next_id = wanted + 1
            return wanted
        unused = name if 0 < wanted < self._first_id else None
        if wanted not in self.actors and self._gone.get(wanted, unused) == name:
            return wanted
        return self._new_id()

    def _add(self, actor: A) -> A:
        actor.blueprint = actor.blueprint.numbered(self.dialect.first_type)
        self.actors[actor.id] = actor
        self._order = None
        return actor
