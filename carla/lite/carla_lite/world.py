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
from itertools import islice
from typing import TypeVar

from carla_lite import heap
from carla_lite.actors import navigation_sensors, props, walker_hits  # noqa: F401 (enters its sensors in SENSORS)
from carla_lite.actors.actor import Actor, Identity, Vehicle, compose
from carla_lite.actors.props import Prop
from carla_lite.actors.sensors import SENSORS, Message, Sensor, TickSnapshot
from carla_lite.actors.signage import Signage
from carla_lite.actors.traffic_lights import TrafficSign
from carla_lite.actors.triggers import FRICTION_TRIGGER, FrictionTrigger
from carla_lite.actors.walkers import AiController, Walker
from carla_lite.blueprints.catalogue import SPECTATOR, VehicleBlueprint, find
from carla_lite.blueprints.listed import LISTED_ONLY
from carla_lite.blueprints.props import MESH, PropBlueprint
from carla_lite.blueprints.walkers import AI_CONTROLLER, WalkerBlueprint
from carla_lite.maps import Maps
from carla_lite.motion import collisions, physics
from carla_lite.protocol import wire
from carla_lite.protocol.channel import Buffer
from carla_lite.protocol.streams import Streams
from carla_lite.protocol.wire import RpcError
from carla_lite.roads.network import RoadNetwork
from carla_lite.roads.speed_limits import SpeedLimits
from carla_lite.scenery.camera import Conditions, Pose
from carla_lite.scenery.daylight import CLEAR_NOON, Daylight
from carla_lite.scenery.drawings import Drawing
from carla_lite.scenery.scene import Scene

A = TypeVar("A", bound=Actor)

_RECORD_BYTES = wire.VEHICLE_RECORD.size
_HEAD_BYTES = wire.HEADER.size + wire.WORLD_HEAD.size

_ABOVE = Pose(0.0, 0.0, 10.0, 0.0, 0.0, 0.0)


class World:
    """Everything that a tick moves.

    Frames and actor ids go on over episodes, and episodes are numbered from a random start: clients cache by them.
    """

    def __init__(self, streams: Streams, maps: Maps, seed: int) -> None:
        self.streams = streams
        self.maps = maps
        self.traffic_managers: dict[int, str] = {}
        self.batch_answered_s = 0.0
        """When the last batch was done, by the monotonic clock."""
        self.tick_s = 0.0
        """How long a tick takes at least, for whoever waits for one."""
        self.stream = streams.open(self._message)
        self.settings = wire.default_settings()
        self.hooked: Callable[[Sensor, TickSnapshot], Iterable[Message]] | None = None
        """What leaves a sensor, as a ``server.FaultHook`` leaves it; None: its own messages."""
        self.unsupported: Counter[str] = Counter()
        """How often clients called what has no effect here, by name."""
        self.frame = 0
        self.episode = secrets.randbelow(1 << 31)
        self._seed = seed
        self._next_id = self._unseen = 1
        self._buffer = bytearray()
        self.load(maps.first)

    def load(self, network: RoadNetwork) -> None:
        """Begin a new episode on this map, with only its signs and the spectator in it."""
        self.network, self.scene = network, Scene.build(network, self._seed)
        self.episode += 1
        self.elapsed_s = 0.0
        self.weather = list(CLEAR_NOON)
        self.drawings: list[Drawing] = []
        self.signage = Signage(network, self._new_id)
        self.actors: dict[int, Actor] = {sign.id: sign for sign in self.signage.signs}
        self.vehicles: list[Vehicle] = []
        self.walkers: list[Walker] = []
        self.props: list[Prop] = []
        self.sensors: list[Sensor] = []
        self._triggers: list[FrictionTrigger] = []
        self._limits = SpeedLimits(network)
        self.spectator = self._add(Actor(Identity(self._new_id(), SPECTATOR, {}), _ABOVE))
        heap.give_back()

    @property
    def weather(self) -> list[float]:
        """The WeatherParameters struct."""
        return self._weather

    @weather.setter
    def weather(self, weather: list[float]) -> None:
        self._weather, self._daylight = weather, Daylight.of(weather)

    def report_unsupported(self, name: str) -> None:
        """Count a call that changes nothing here, and log the first of its name: one that is asynchronous has no reply
        in which its caller could read it."""
        self.unsupported[name] += 1
        if self.unsupported[name] == 1:
            print(
                f"carla-lite: {name} is not supported: calls of it change nothing that is simulated or shown",
                flush=True,
            )

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

    def spawn(self, name: str, given: dict[str, str], place: Pose, parent_id: int = 0) -> Actor:
        """Add an actor; with a parent, ``place`` is relative to it.

        Raises:
            RpcError: unknown blueprint or parent, an attribute out of range, or no room for a vehicle.
        """
        blueprint = find(name)
        attributes = blueprint.values(given)
        if name in LISTED_ONLY:
            self.report_unsupported(name)
            raise RpcError(f"carla-lite has no {name}: programs find it in the library, but it can't be spawned")
        parent = self.actor(parent_id, Actor) if parent_id else None
        if isinstance(blueprint, VehicleBlueprint):
            where = compose(parent.pose, place) if parent else place
            return self._spawn_vehicle(Vehicle(Identity(self._new_id(), blueprint, attributes), blueprint, where))
        if isinstance(blueprint, WalkerBlueprint):
            where = compose(parent.pose, place) if parent else place
            return self._spawn_walker(Walker(Identity(self._new_id(), blueprint, attributes), blueprint, where))
        if name == AI_CONTROLLER and parent_id >= self._unseen and not self.settings.synchronous:
            # A client takes a walker that no world message has shown for one at (0, 0, 0), and may crash as it sends it
            # on its way. CARLA's answers come a frame apart.
            self.tick()
        identity = Identity(self._new_id(), blueprint, attributes, parent)
        if name in SENSORS:
            return self._spawn_sensor(SENSORS[name](identity, place, self.streams.open(), self.streams.port))
        if name == MESH:
            self.report_unsupported(name)
        return self._add(self._thing(identity, place))

    def destroy(self, number: int) -> bool:
        """Remove an actor and all that hangs on it; return whether it was there. Signs and the spectator stay."""
        gone = self.actors.get(number)
        if gone is None or gone is self.spectator or isinstance(gone, TrafficSign):
            return False
        for actor in [gone, *(other for other in self.actors.values() if other.hangs_on(gone))]:
            del self.actors[actor.id]
            if isinstance(actor, Vehicle):
                self.vehicles.remove(actor)
            if isinstance(actor, Walker):
                self.walkers.remove(actor)
            if isinstance(actor, Prop):
                self.props.remove(actor)
            if isinstance(actor, Sensor):
                self.sensors.remove(actor)
            if isinstance(actor, FrictionTrigger):
                self._triggers.remove(actor)
                actor.release(self.vehicles)
        return True

    def tick(self) -> int:
        """Move the world by one step, publish it, and return the frame's number."""
        delta_s = self.settings.delta_s
        self.frame += 1
        self.elapsed_s += delta_s
        self.signage.advance(delta_s)
        if self.drawings:
            self.drawings = [shape for shape in self.drawings if self.elapsed_s < shape.until_s + 1e-6]
        physics_s = self.settings.physics_s
        for trigger in self._triggers:
            trigger.act(self.vehicles)
        for vehicle in self.vehicles:
            vehicle.prepare()
            physics.advance(vehicle.body, physics_s, self.network.ground)
            vehicle.speed_limit_kmh = self._limits.at(vehicle.body.x, vehicle.body.y)
        self.signage.tell(self.vehicles, self.elapsed_s)
        for walker in self.walkers:
            walker.step(physics_s, self.network.ground, self.scene.statics)
        for gone in [walker.id for walker in self.walkers if walker.is_gone]:
            self.destroy(gone)
        collided = self._collide()
        moving: list[Vehicle | Walker | Prop] = [*self.vehicles, *self.walkers, *self.props]
        snapshot = TickSnapshot(
            self.frame,
            self.elapsed_s,
            self.scene,
            self.network.geo_reference,
            Conditions(self._daylight, self.drawings),
            moving,
            collided,
            self.signage,
        )
        # The world's message before all others, as CARLA's, but not until the first of them is made: a client that is
        # woken once for both takes a fifth less processor time than for each by itself.
        published = False
        for sensor in self.sensors:
            if sensor.is_due(self.elapsed_s) and self.streams.has_subscribers(sensor.stream):
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
        self._unseen = self._next_id

    def _spawn_vehicle(self, vehicle: Vehicle) -> Vehicle:
        if self._is_blocked(vehicle):
            # CARLA's own words: scripts look for them.
            raise RpcError("Spawn failed because of collision at spawn position")
        vehicle.speed_limit_kmh = self._limits.at(vehicle.body.x, vehicle.body.y)  # to be read before the first tick
        self.vehicles.append(vehicle)
        return self._add(vehicle)

    def _spawn_walker(self, walker: Walker) -> Walker:
        # As CARLA's spawner, which lifts who would stand in the ground; who is all below it, as scenario runners keep
        # walkers for later, touches nothing.
        stands = self.network.height(walker.x, walker.y) + walker.half_height_m
        if walker.z > stands - 2.0 * walker.half_height_m:
            walker.z = max(walker.z, stands)
        if walker_hits.is_blocked(walker, [vehicle.body for vehicle in self.vehicles], self.walkers):
            raise RpcError("Spawn failed because of collision at spawn position")
        self.walkers.append(walker)
        return self._add(walker)

    def _spawn_sensor(self, sensor: Sensor) -> Sensor:
        sensor.prepare(self.scene)
        self.sensors.append(sensor)
        return self._add(sensor)

    def _thing(self, identity: Identity, place: Pose) -> Actor:
        """Return an actor that neither drives nor walks nor senses."""
        if isinstance(identity.blueprint, PropBlueprint):
            self.props.append(Prop(identity, identity.blueprint, place))
            return self.props[-1]
        if identity.blueprint.id == FRICTION_TRIGGER:
            self._triggers.append(FrictionTrigger(identity, place))
            return self._triggers[-1]
        return AiController(identity, place) if identity.blueprint.id == AI_CONTROLLER else Actor(identity, place)

    def _is_blocked(self, vehicle: Vehicle) -> bool:
        if vehicle.body.is_in(self.network.ground):
            return True
        body, reach_m = vehicle.body, vehicle.body.model.reach_m
        near = [
            other.body
            for other in self.vehicles
            if math.dist((body.x, body.y), (other.body.x, other.body.y)) <= reach_m + other.body.model.reach_m
        ]
        # `resolve` moves what it finds overlapping: give it copies.
        bodies = [copy.copy(one) for one in (body, *near)]
        if any(walker_hits.touches(vehicle.body, walker) for walker in self.walkers):
            return True
        if props.is_blocked(vehicle.body, self.props):
            return True
        return any(contact.index_a == 0 for contact in collisions.resolve(bodies, self.scene))

    def _collide(self) -> list[tuple[Vehicle, Vehicle | Walker | Prop | None, collisions.Contact]]:
        solid = [vehicle for vehicle in self.vehicles if vehicle.collides]
        contacts = collisions.resolve([vehicle.body for vehicle in solid], self.scene)
        # Without an impulse they touch but already part: no event, as in CARLA.
        hits = [contact for contact in contacts if any(contact.impulse)]
        people = [walker for walker in self.walkers if walker.collides]
        met = walker_hits.resolve([vehicle.body for vehicle in solid], people)
        struck = props.resolve([vehicle.body for vehicle in solid], [prop for prop in self.props if prop.collides])
        return [
            *((solid[c.index_a], None if c.index_b is None else solid[c.index_b], c) for c in hits),
            *((solid[hit.vehicle], people[hit.walker], hit.contact) for hit in met),
            *((solid[i], prop, contact) for i, prop, contact in struck),
        ]

    def _message(self) -> Sequence[Buffer]:
        """Return the world message of the present frame (protocol, section 3.4); valid until the next call."""
        size = _HEAD_BYTES + _RECORD_BYTES * len(self.actors)
        if len(self._buffer) < size:
            self._buffer = bytearray(2 * size)
        into = self._buffer
        wire.HEADER.pack_into(into, 0, wire.WORLD, self.frame, self.elapsed_s, *(0.0,) * 6)
        now_s, delta_s = time.time(), self.settings.delta_s
        wire.WORLD_HEAD.pack_into(into, wire.HEADER.size, self.episode, now_s, delta_s, 0, 0, 0, 0)
        signs = self.signage.records
        first = _HEAD_BYTES + len(signs)
        into[_HEAD_BYTES:first] = signs
        others = islice(self.actors.values(), len(self.signage.signs), None)
        for offset, actor in zip(range(first, size, _RECORD_BYTES), others, strict=True):
            actor.record(into, offset)
        return (memoryview(into)[:size],)

    def _new_id(self) -> int:
        self._next_id += 1
        return self._next_id - 1

    def _add(self, actor: A) -> A:
        self.actors[actor.id] = actor
        return actor
