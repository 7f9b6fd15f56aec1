"""Records a world: the state of its actors at the end of each tick, as packets of CARLA's recorder.

Owns which packets a frame has, and in which order: CARLA's (``Write`` in CarlaRecorder.cpp). A frame is the state that
the tick publishes. Never changes the world.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterator
from functools import lru_cache
from typing import Any

from carla_lite.actors.actor import Actor, Vehicle, compose
from carla_lite.actors.sensors.collision import CollisionSensor
from carla_lite.actors.traffic_lights import LightState as LampState
from carla_lite.actors.traffic_lights import TrafficLight, TrafficSign
from carla_lite.actors.walkers import Walker
from carla_lite.recording.layout import Packet
from carla_lite.recording.records import (
    NO_ACTOR,
    ActorKind,
    Added,
    Attribute,
    Biker,
    Bone,
    Bones,
    Box,
    Collided,
    Lamps,
    LightState,
    LightTimes,
    Motion,
    Parented,
    Physics,
    Position,
    Removed,
    Time,
    VehicleControl,
    WalkerSpeed,
    Wheel,
    Wheels,
)
from carla_lite.recording.stage import Hits, Stage
from carla_lite.recording.writing import Writer
from carla_lite.scenery import skeleton
from carla_lite.scenery.projection import Pose

_CM, _LARGEST = 100.0, 3.4e38
_FAMILIES = (
    (ActorKind.VEHICLE, Vehicle),
    (ActorKind.WALKER, Walker),
    (ActorKind.TRAFFIC_LIGHT, TrafficLight),
    (ActorKind.TRAFFIC_SIGN, TrafficSign),
)
_PLACED = (ActorKind.OTHER, ActorKind.VEHICLE, ActorKind.WALKER)


class Recorder:
    """A recording in progress. Actors that already exist enter in its first frame."""

    def __init__(self, stage: Stage, writer: Writer, additional: bool) -> None:
        self._stage, self._writer, self._additional = stage, writer, additional
        self._kinds: dict[int, ActorKind] = {}
        self._turned_deg: dict[int, float] = {}
        self._collisions = 0
        self._begun_s = time.monotonic()

    def tick(self, delta_s: float, hits: Hits) -> None:
        """Add the frame of a tick.

        Raises:
            OSError: the disk refuses it.
            RecordingError: the recording has reached its size limit.
        """
        self._writer.add(delta_s, self._frame(delta_s, hits))

    def close(self) -> None:
        """End the recording; OSError or RecordingError if its last frame can't be written."""
        self._writer.close()

    def abandon(self) -> None:
        """Close it as it is, after the disk or the limit has ended it."""
        self._writer.abandon()

    def _frame(self, delta_s: float, hits: Hits) -> dict[Packet, list[Any]]:
        actors = self._stage.actors
        gone = [number for number in self._kinds if number not in actors]
        new = [actor for number, actor in actors.items() if number not in self._kinds]
        for number in gone:
            del self._kinds[number]
            self._turned_deg.pop(number, None)
        self._kinds.update((actor.id, _kind(actor)) for actor in new)
        vehicles = [actor for actor in actors.values() if isinstance(actor, Vehicle)]
        walkers = [actor for actor in actors.values() if isinstance(actor, Walker)]
        packets: dict[Packet, list[Any]] = {
            Packet.VISUAL_TIME: [Time(self._stage.elapsed_s)],
            Packet.EVENT_ADD: [self._added(actor) for actor in new],
            Packet.EVENT_DEL: [Removed(number) for number in gone],
            Packet.EVENT_PARENT: [Parented(actor.id, actor.parent.id) for actor in new if actor.parent is not None],
            Packet.COLLISION: list(self._collided(hits)),
            Packet.POSITION: [_position(actor) for actor in actors.values() if self._kinds[actor.id] in _PLACED],
            Packet.STATE: [_state(actor) for actor in actors.values() if isinstance(actor, TrafficLight)],
            Packet.ANIM_VEHICLE: [_control(vehicle) for vehicle in vehicles],
            Packet.ANIM_WALKER: [WalkerSpeed(walker.id, _single(walker.control.speed)) for walker in walkers],
            Packet.VEHICLE_LIGHT: [Lamps(vehicle.id, vehicle.light_state) for vehicle in vehicles],
            Packet.WHEELS: [self._wheels(vehicle, delta_s) for vehicle in vehicles],
            Packet.BIKER: [_biker(each) for each in vehicles if each.attributes.get("number_of_wheels") == "2"],
        }
        return packets | self._more(new, vehicles, walkers) if self._additional else packets

    def _more(self, new: list[Actor], vehicles: list[Vehicle], walkers: list[Walker]) -> dict[Packet, list[Any]]:
        """Return the optional further records; a replay needs none of them."""
        physics = [_physics(actor) for actor in new if isinstance(actor, Vehicle)]
        lights = [_times(actor) for actor in new if isinstance(actor, TrafficLight)]
        triggers = [_trigger(actor) for actor in new if isinstance(actor, TrafficSign) and any(actor.box()[1])]
        packets: dict[Packet, list[Any]] = {
            Packet.KINEMATICS: [*map(_vehicle_motion, vehicles), *map(_walker_motion, walkers)],
            Packet.BOUNDING_BOX: [_box(actor) for actor in new if not isinstance(actor, TrafficSign)],
            Packet.TRIGGER_VOLUME: triggers,
            Packet.PLATFORM_TIME: [Time(time.monotonic() - self._begun_s)],
            Packet.PHYSICS_CONTROL: physics,
            Packet.TRAFFIC_LIGHT_TIME: lights,
            Packet.WALKER_BONES: [_bones(walker) for walker in walkers],
        }
        # As CARLA's recorder, which writes these only if there are any.
        absent = (Packet.TRIGGER_VOLUME, Packet.PHYSICS_CONTROL, Packet.TRAFFIC_LIGHT_TIME)
        return {packet: records for packet, records in packets.items() if records or packet not in absent}

    def _added(self, actor: Actor) -> Added:
        values = tuple(
            Attribute(int(each.type) - 1, each.id, actor.attributes[each.id]) for each in actor.blueprint.attributes
        )
        blueprint, kind = actor.blueprint, self._kinds[actor.id]
        return Added(actor.id, kind, *_placed(actor.place), blueprint.uid, blueprint.id, values)

    def _collided(self, hits: Hits) -> Iterator[Collided]:
        """Yield the collisions of actors with a collision sensor; CARLA records no others."""
        watched = {sensor.parent for sensor in self._stage.sensors if isinstance(sensor, CollisionSensor)}
        pairs = [pair for vehicle, other, *_ in hits for pair in ((vehicle, other), (other, vehicle))]
        for first, second in dict.fromkeys(pair for pair in pairs if pair[0] is not None and pair[0] in watched):
            number = NO_ACTOR if second is None else second.id
            yield Collided(self._collisions, first.id, number, _is_hero(first), _is_hero(second))
            self._collisions += 1

    def _wheels(self, vehicle: Vehicle, delta_s: float) -> Wheels:
        body = vehicle.body
        rolled = math.degrees(body.vx * delta_s / body.model.wheel_radius_m)
        # Unreal counts down for a wheel that rolls forward.
        turned = self._turned_deg[vehicle.id] = (self._turned_deg.get(vehicle.id, 0.0) - rolled) % 360.0
        steer = math.degrees(body.steer_angle)
        return Wheels(vehicle.id, tuple(Wheel(place, steer if place < 2 else 0.0, turned) for place in range(4)))


def _kind(actor: Actor) -> ActorKind:
    found = (kind for kind, family in _FAMILIES if isinstance(actor, family))
    return next(found, ActorKind.SENSOR if actor.blueprint.id.startswith("sensor.") else ActorKind.OTHER)


def _is_hero(actor: Actor | None) -> bool:
    return actor is not None and actor.attributes.get("role_name") == "hero"


def _placed(pose: Pose) -> tuple[float, float, float, float, float, float]:
    """Return x, y, z in centimetres, and roll, pitch and yaw in degrees."""
    angles = math.degrees(pose.roll), math.degrees(pose.pitch), math.degrees(pose.yaw)
    return _CM * pose.x, _CM * pose.y, _CM * pose.z, *angles


def _position(actor: Actor) -> Position:
    return Position(actor.id, *_placed(actor.pose))


def _state(light: TrafficLight) -> LightState:
    controller = light.controller
    return LightState(light.id, controller.group.frozen, controller.elapsed_s, int(light.state))


def _control(vehicle: Vehicle) -> VehicleControl:
    asked = vehicle.body.control
    steer, throttle, brake = (_single(each) for each in (asked.steer, asked.throttle, asked.brake))
    return VehicleControl(vehicle.id, steer, throttle, brake, bool(asked.hand_brake), vehicle.body.gear)


def _biker(vehicle: Vehicle) -> Biker:
    body = vehicle.body
    return Biker(vehicle.id, _CM * body.vx, body.rpm / body.model.max_rpm)


def _vehicle_motion(vehicle: Vehicle) -> Motion:
    return Motion(vehicle.id, *vehicle.body.world_velocity(), 0.0, 0.0, math.degrees(vehicle.body.yaw_rate))


def _walker_motion(walker: Walker) -> Motion:
    return Motion(walker.id, walker.vx, walker.vy, walker.vz, 0.0, 0.0, 0.0)


def _box(actor: Actor) -> Box:
    centre, extent, *_ = actor.box()
    return Box(actor.id, *(_CM * each for each in centre), *(_CM * each for each in extent))


def _trigger(sign: TrafficSign) -> Box:
    """Return a sign's trigger volume; its centre is in the world's frame."""
    centre, extent, *_ = sign.box()
    at = compose(sign.pose, Pose(*centre))
    return Box(sign.id, _CM * at.x, _CM * at.y, _CM * at.z, *(_CM * each for each in extent))


def _times(light: TrafficLight) -> LightTimes:
    times_s = light.controller.times_s
    return LightTimes(
        light.id, *(_single(times_s[each]) for each in (LampState.GREEN, LampState.YELLOW, LampState.RED))
    )


def _physics(vehicle: Vehicle) -> Physics:
    """Return the figures of ``get_physics_control`` in the file's order."""
    torque, max_rpm, moi, *damping = vehicle.figures[:6]
    autobox, _switch_s, clutch, final, gears, mass, drag, centre, steering, wheels, *_ = vehicle.figures[6:]
    before, after = (map(_single, each) for each in ((max_rpm, moi, *damping), (clutch, final, mass, drag, *centre)))
    tyres = [(*wheel[:9], *wheel[9]) for wheel in wheels]
    lists = ([tuple(map(_single, row)) for row in rows] for rows in (torque, gears, steering, tyres))
    return Physics._make((vehicle.id, *before, bool(autobox), *after, *lists))


def _single(value: float) -> float:
    """Return a number that a client may have set, in single precision; 0 for NaN."""
    return max(-_LARGEST, min(_LARGEST, value)) if not math.isnan(value) else 0.0


def _bones(walker: Walker) -> Bones:
    posture, height_m = walker.drawn().posture, 2.0 * walker.half_height_m
    places = (_bone_place(local, height_m) for local in posture)
    return Bones(walker.id, tuple(Bone(name, *place) for name, place in zip(skeleton.BONES, places, strict=True)))


@lru_cache(maxsize=4096)  # most bones, such as all fingers, are as in the frame before
def _bone_place(local: skeleton.Joint, height_m: float) -> tuple[float, float, float, float, float, float]:
    return _placed(skeleton.pose(local, height_m))
