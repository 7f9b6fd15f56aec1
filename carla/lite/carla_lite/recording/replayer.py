"""Replays a recording: its actors enter, move and leave as recorded.

Owns the time of a replay, the mapping of recorded actors to actors here, and the effect of a frame on them. It follows
CARLA's replayer (CarlaReplayer.cpp, CarlaReplayerHelper.cpp): between two frames an actor is on its way from the place
in the frame before the last to the place in the last one. So each tick of the recording's step shows one frame,
beginning with the first. There are five differences. Controls and lights are those of the nearer frame (CARLA: of the
last one). A frame that a fast replay skips still counts as the one before. The recording's last frame is shown. Actors
have the speed at which they are moved (CARLA: none). At the end only replayed actors are stopped.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

from carla_lite.actors.actor import Actor, Vehicle, compose
from carla_lite.actors.crowd import TOP_SPEED_MPS
from carla_lite.actors.traffic_lights import Group, LightState, TrafficLight, TrafficSign
from carla_lite.actors.walkers import Walker, WalkerControl
from carla_lite.motion.physics import Control
from carla_lite.protocol.wire import RpcError
from carla_lite.recording.layout import Packet, RecordingError
from carla_lite.recording.reading import Frame, Recording
from carla_lite.recording.records import Added, Position
from carla_lite.recording.stage import Stage
from carla_lite.scenery.projection import Pose

_CM = 0.01
# Largest coordinates (cm) and angles (degrees) in a world.
_FARTHEST_CM, _LARGEST_DEG = 1e8, 1e5
# From this share of the way on, an actor is nearer to its next place.
_NEARER = 0.5
# From this time factor on, CARLA moves actors from frame to frame.
_LEAPS = 2.0
# The sums of a tick's and of a recording's steps differ by less than this.
_SLACK_S = 1e-6
# Where CARLA's replayer spawns actors, out of the way.
_SPAWN_Z_M = 1000.0
_SAME_SIGN_M = 1.0
# Walkers that a car has knocked over have a pitch of -90 degrees.
_LIES_RAD = -0.25 * math.pi
_MOST_ACTORS = 5000
# Number of unknown blueprints that the log names, one actor each.
_MOST_MISSING = 20
_EVENTS = (Packet.EVENT_ADD, Packet.EVENT_DEL, Packet.EVENT_PARENT)
_SHOWN = (Packet.POSITION, Packet.STATE, Packet.ANIM_VEHICLE, Packet.ANIM_WALKER, Packet.VEHICLE_LIGHT, Packet.WHEELS)
REPLAYED = frozenset((*_EVENTS, *_SHOWN))
"""Packets that a replay needs. Bones aren't replayed: at rest, those of CARLA's walkers are turned differently."""


@dataclass
class ReplayOptions:
    """A client's settings for the present and later replays."""

    time_factor: float = 1.0
    ignore_hero: bool = False
    ignore_spectator: bool = False


@dataclass(frozen=True)
class Part:
    """The part of a recording to replay: start and end (s), duration of its last frame (s), the actor that the
    spectator follows (0: none) and from where, and whether sensors are spawned.
    """

    start_s: float
    stop_s: float
    last_step_s: float
    follow_id: int
    offset: Pose
    sensors: bool


@dataclass(frozen=True)
class Length:
    """Length of a recording, and its last step (s)."""

    total_s: float
    last_step_s: float


def check(recording: Recording) -> Length:
    """Read everything that a replay will need, and return its length.

    Raises:
        RecordingError: part of it is broken, or there is no complete frame.
    """
    total_s = last_step_s = 0.0
    frame = None
    for frame in recording.frames(REPLAYED):
        last_step_s, total_s = frame.elapsed_s - total_s, frame.elapsed_s
        for packet in REPLAYED - {Packet.EVENT_ADD, Packet.POSITION}:
            frame.records(packet)
        _places(frame)
        _entering(frame)
    if frame is None:
        raise RecordingError("it has no whole frame")
    return Length(total_s, last_step_s)


class Replayer:
    """A replay that continues with each tick, until it has ``ended``."""

    def __init__(
        self, stage: Stage, recording: Recording, part: Part, options: ReplayOptions, known: dict[int, int]
    ) -> None:
        """Apply everything that happened before the start.

        Args:
            stage: the world.
            recording: what is replayed.
            part: the part of it.
            options: a client's settings.
            known: ids here of recorded ones, of all replays of the episode; what enters is added to it.

        Raises:
            RecordingError: there are too many actors.
        """
        self._stage, self._recording, self._part, self._manner = stage, recording, part, options
        self._known = known
        self._frames: Iterator[Frame] = recording.frames(REPLAYED)
        self._earlier: Frame | None = None
        self._present: Frame | None = None
        self._next = next(self._frames, None)
        self._before: dict[int, Position] = {}
        self._places: dict[int, Position] = {}
        self._actors: dict[int, Actor] = {}
        self._heroes: set[int] = set()
        self._moved: set[int] = set()
        self._missing: set[str] = set()
        self._now_s = part.start_s
        self.ended = False
        self._reach(self._now_s)

    def tick(self, delta_s: float) -> None:
        """Advance by a tick and show the state; RecordingError if the file has changed."""
        self._now_s += delta_s * self._manner.time_factor
        self._reach(self._now_s)
        self._show(delta_s)
        if self._now_s >= self._part.stop_s - _SLACK_S:
            self.stop(keep_actors=True)

    def stop(self, keep_actors: bool) -> None:
        """End the replay: vehicles and walkers stop and get their physics back.

        Unless actors are kept, the recording's remaining events are applied first, in which most actors leave.
        """
        try:
            if not keep_actors:
                self._reach(math.inf)
        finally:
            self.abandon()
            self._release()

    def _release(self) -> None:
        for number in self._actors:
            actor = self._actor(number)
            if isinstance(actor, Vehicle):
                _hold(actor, False)
                actor.drive(Control(gear=1))
            elif isinstance(actor, Walker):
                _hold(actor, False)
                actor.control = WalkerControl()

    def abandon(self) -> None:
        """End the replay and leave everything as it is."""
        self.ended = True
        self._recording.close()

    def _reach(self, time_s: float) -> None:
        """Apply the events of all frames up to a time. An actor that enters and leaves in between isn't spawned."""
        entering: dict[int, Added] = {}
        leaving: list[int] = []
        parents: dict[int, int] = {}
        steps = 0
        while self._next is not None and self._next.elapsed_s <= time_s + _SLACK_S:
            self._earlier, self._present = self._present, self._next
            steps += 1
            entering.update((added.id, added) for added in _entering(self._present))
            if len(entering) + len(self._actors) > _MOST_ACTORS:
                raise RecordingError(f"frame {self._present.number} has more than {_MOST_ACTORS} actors")
            for (number,) in self._present.records(Packet.EVENT_DEL):
                if entering.pop(number, None) is None and number in self._actors:
                    leaving.append(number)
            for child, parent in self._present.records(Packet.EVENT_PARENT):
                if child in entering or child in self._actors:
                    parents[child] = parent
            self._next = next(self._frames, None)
        if steps:
            self._before = self._places if steps == 1 else _places(self._earlier)
            self._places = _places(self._present)
        for number in leaving:
            if (actor := self._actor(number)) is not None:
                self._stage.destroy(actor.id)
            self._actors.pop(number, None)
        for added in entering.values():
            self._enter(added)
        for child, parent in parents.items():
            self._attach(self._actor(child), self._actor(parent))

    def _enter(self, added: Added) -> None:
        """Find or spawn an actor, as CARLA does: signs by place, others by id and blueprint."""
        name, here = added.blueprint, self._stage.actors.get(self._known.get(added.id, added.id))
        if (self._manner.ignore_hero and added.is_hero) or (self._manner.ignore_spectator and name == "spectator"):
            return
        actor: Actor | None
        if name.startswith("traffic."):
            actor = self._sign_at(_pose(added))
        elif name == "spectator":
            actor = self._stage.spectator
        elif name.startswith("sensor.") and not self._part.sensors:
            actor = None
        elif here is not None and here.blueprint.id == name:
            actor = here
        else:  # clients know the stream of a sensor by its id
            actor = self._spawn(added, 0 if name.startswith("sensor.") else added.id)
        if actor is None:
            return
        self._actors[added.id] = actor
        self._known[added.id] = actor.id
        if added.is_hero:
            self._heroes.add(added.id)
        if isinstance(actor, Vehicle | Walker):
            _hold(actor, True)

    def _spawn(self, added: Added, wanted_id: int) -> Actor | None:
        """Return a new actor at its place; None if this server has no such actor."""
        place = _pose(added)
        high = Pose(place.x, place.y, _SPAWN_Z_M, place.pitch, place.yaw, place.roll)
        attributes = {each.id: each.value for each in added.attributes}
        try:
            actor = self._stage.spawn(added.blueprint, attributes, high, 0, wanted_id)
        except RpcError as error:
            if added.blueprint not in self._missing and len(self._missing) < _MOST_MISSING:
                self._missing.add(added.blueprint)
                why = "".join(each if each.isprintable() else "?" for each in str(error))
                print(f"carla-lite: actor {added.id} of a recording doesn't enter: {why}", flush=True)
            return None
        actor.place = place
        return actor

    def _sign_at(self, place: Pose) -> TrafficSign | None:
        near = [(math.hypot(sign.pose.x - place.x, sign.pose.y - place.y), sign) for sign in self._stage.signage.signs]
        distance_m, sign = min(near, key=lambda each: each[0], default=(math.inf, None))
        return sign if distance_m <= _SAME_SIGN_M else None

    def _attach(self, child: Actor | None, parent: Actor | None) -> None:
        if child is None or parent is None or not child.attaches or isinstance(child, TrafficSign):
            return
        if child is not parent and child is not self._stage.spectator and not parent.hangs_on(child):
            child.parent = parent

    def _actor(self, number: int) -> Actor | None:
        """Return the actor here for a recorded one, if it still exists."""
        actor = self._actors.get(number)
        return actor if actor is not None and self._stage.actors.get(actor.id) is actor else None

    def _shown(self, number: int) -> Actor | None:
        """Return an actor to move: not the hero or the spectator if these are ignored."""
        actor = self._actor(number)
        if actor is self._stage.spectator and self._manner.ignore_spectator:
            return None
        return None if self._manner.ignore_hero and number in self._heroes else actor

    def _show(self, delta_s: float) -> None:
        if self._present is None:
            return
        end_s = self._present.elapsed_s + self._part.last_step_s if self._next is None else self._next.elapsed_s
        step_s = end_s - self._present.elapsed_s
        share = min(1.0, max(0.0, (self._now_s - self._present.elapsed_s) / step_s)) if step_s > 0.0 else 0.0
        share = 0.0 if share * step_s < _SLACK_S or self._manner.time_factor >= _LEAPS else share
        for number, last in self._places.items():
            actor = self._shown(number)
            if actor is not None and actor.parent is None:
                self._move(actor, _between(self._before.get(number, last), last, share), delta_s)
        self._animate(self._earlier if self._earlier is not None and share < _NEARER else self._present)
        followed = self._actor(self._part.follow_id)
        if followed is not None and followed is not self._stage.spectator:
            self._stage.spectator.place = compose(followed.pose, self._part.offset)

    def _move(self, actor: Actor, place: Pose, delta_s: float) -> None:
        before, actor.place = actor.place, place
        if isinstance(actor, Walker) and place.pitch < _LIES_RAD:
            actor.hit(0.0, 0.0)
        if isinstance(actor, Vehicle) and actor.id in self._moved:
            way = place.x - before.x, place.y - before.y, place.z - before.z
            actor.body.set_world_velocity(*(part / delta_s for part in way))
        self._moved.add(actor.id)

    def _animate(self, frame: Frame) -> None:
        """Apply a frame's controls and states to actors."""
        for control in frame.records(Packet.ANIM_VEHICLE):
            vehicle = self._shown(control.id)
            if isinstance(vehicle, Vehicle):
                _, steer, throttle, brake, hand_brake, gear = control
                vehicle.drive(Control(throttle, steer, brake, hand_brake, gear < 0, False, gear))
                vehicle.body.gear = gear
        for lamps in frame.records(Packet.VEHICLE_LIGHT):
            vehicle = self._shown(lamps.id)
            if isinstance(vehicle, Vehicle):
                vehicle.switch_lights(lamps.flags, self._stage.elapsed_s)
        for wheels in frame.records(Packet.WHEELS):
            vehicle = self._shown(wheels.id)
            if isinstance(vehicle, Vehicle) and wheels.wheels:
                vehicle.body.steer_angle = math.radians(max(-90.0, min(90.0, wheels.wheels[0].steer)))
        for pace in frame.records(Packet.ANIM_WALKER):
            walker = self._shown(pace.id)
            if isinstance(walker, Walker):
                _walk(walker, max(0.0, min(TOP_SPEED_MPS, pace.speed)))
        self._switch(frame)

    def _switch(self, frame: Frame) -> None:
        """Set traffic lights as recorded."""
        groups: dict[Group, None] = {}
        for state in frame.records(Packet.STATE):
            light = self._actor(state.id)
            if isinstance(light, TrafficLight) and LightState.RED <= state.state <= LightState.UNKNOWN:
                light.state = LightState(state.state)
                controller = light.controller
                controller.elapsed_s, controller.group.frozen = max(0.0, state.elapsed_s), state.frozen
                groups[controller.group] = None
        for group in groups:
            self._stage.signage.publish(group)


def _entering(frame: Frame) -> list[Added]:
    """Return the actors that enter in a frame; RecordingError if one is off every map."""
    entering = frame.records(Packet.EVENT_ADD)
    _check_places(frame, entering)
    return entering


def _places(frame: Frame | None) -> dict[int, Position]:
    """Return the actors' places in a frame; RecordingError if one is off every map."""
    places = [] if frame is None else frame.records(Packet.POSITION)
    if frame is not None:
        _check_places(frame, places)
    return {place.id: place for place in places}


def _check_places(frame: Frame, records: list[Added] | list[Position]) -> None:
    for each in records:
        far_cm = max(abs(each.x), abs(each.y), abs(each.z))
        if far_cm > _FARTHEST_CM or max(abs(each.roll), abs(each.pitch), abs(each.yaw)) > _LARGEST_DEG:
            raise RecordingError(f"frame {frame.number}: actor {each.id} is {far_cm * _CM:g} m from any map's middle")


def _pose(record: Added | Position) -> Pose:
    angles = math.radians(record.pitch), math.radians(record.yaw), math.radians(record.roll)
    return Pose(_CM * record.x, _CM * record.y, _CM * record.z, *angles)


def _between(a: Position, b: Position, share: float) -> Pose:
    """Return the pose between two poses, with angles by the shorter way (FMath::Lerp of an FRotator)."""
    if share == 0.0:
        return _pose(a)
    x, y, z = (p + share * (q - p) for p, q in zip(a[1:4], b[1:4], strict=True))
    turn = (p + share * math.remainder(q - p, 360.0) for p, q in zip(a[4:], b[4:], strict=True))
    return _pose(Position(a.id, x, y, z, *turn))


def _hold(actor: Vehicle | Walker, held: bool) -> None:
    """Switch off an actor's physics and collisions, or back on; it stops in both cases."""
    actor.collides = not held
    if isinstance(actor, Vehicle):
        actor.ackermann.reset()
        actor.constant_velocity = None
        actor.simulate_physics = not held
        actor.body.set_world_velocity(0.0, 0.0)
        actor.body.yaw_rate = 0.0
    else:
        actor.simulate_physics = not held
        actor.set_world_velocity(0.0, 0.0, 0.0)


def _walk(walker: Walker, speed: float) -> None:
    direction = math.cos(walker.yaw), math.sin(walker.yaw), 0.0
    walker.control = WalkerControl(direction, speed)
    walker.set_world_velocity(speed * direction[0], speed * direction[1], 0.0)
