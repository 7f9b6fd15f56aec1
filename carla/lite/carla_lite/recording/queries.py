"""The content of a recording, in the words of CARLA's queries (CarlaRecorderQuery.cpp), which programs parse.

Owns the texts. Numbers are written as C++ streams do: six digits, unless CARLA uses whole ones.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from carla_lite.recording.layout import Packet, RecordingError
from carla_lite.recording.reading import Frame, Recording
from carla_lite.recording.records import (
    ActorKind,
    Added,
    Bones,
    Box,
    Collided,
    Door,
    LightState,
    LightTimes,
    Motion,
    Physics,
    Position,
    SceneLight,
    VehicleControl,
    WalkerSpeed,
    Weather,
)

_MOST_CHARACTERS = 1 << 26
_MOST_ACTORS = 100_000
_LAMPS = (
    *((1, "Position"), (2, "LowBeam"), (4, "HighBeam"), (8, "Brake"), (16, "RightBlinker"), (32, "LeftBlinker")),
    *((64, "Reverse"), (256, "Interior"), (128, "Fog"), (512, "Special1"), (1024, "Special2")),
)
_DOORS = ("Front Left", "Front Right", "Rear Left", "Rear Right", "Hood", "Trunk", "All")
_CATEGORIES: dict[int, str] = {ActorKind.VEHICLE: "v", ActorKind.WALKER: "w", ActorKind.TRAFFIC_LIGHT: "t"}


class _Text:
    """Lines of text, up to a size limit."""

    def __init__(self, recording: Recording) -> None:
        self._parts: list[str] = []
        self._size = 0
        try:
            date = time.strftime("%m/%d/%y %H:%M:%S", time.localtime(recording.date))
        except (OverflowError, ValueError, OSError):
            date = "unknown"
        self.add(f"Version: {recording.version}\nMap: {recording.map}\nDate: {date}\n\n")

    def add(self, text: str) -> None:
        self._size += len(text)
        if self._size > _MOST_CHARACTERS:
            raise RecordingError(
                f"it would take more than {_MOST_CHARACTERS >> 20} MiB to tell all of it: ask for less"
            )
        self._parts.append(text)

    def end(self, recording: Recording, last: Frame | None, duration: str) -> str:
        frames = 0 if last is None else last.number
        self.add(f"\nFrames: {frames}\nDuration: {duration} seconds\n")
        if recording.torn_in:
            self.add(f"The file ends within frame {recording.torn_in}, which is left out.\n")
        return "".join(self._parts)


def file_info(recording: Recording, show_all: bool) -> str:
    """Return which actors entered, left and collided in each frame; with ``show_all`` everything else, too."""
    text, frame = _Text(recording), None
    for frame in recording.frames(frozenset(_TELLERS) if show_all else _TOLD_ALWAYS):
        head = f"Frame {frame.number} at {frame.elapsed_s:g} seconds\n"
        if show_all:
            text.add(head)
        for packet, _ in frame.packets:
            if packet not in _TELLERS:
                continue
            teller = _TELLERS[packet]
            records = frame.records(packet)
            if records and not show_all:
                text.add(head)
                head = ""
            if teller.title:
                text.add(f" {teller.title}: {len(records) if teller.counted else f'{records[0].value:g}'}\n")
            for record in records if teller.counted else ():
                text.add(teller.tell(record))
            text.add(teller.after)
    return text.end(recording, frame, f"{_elapsed_s(frame):g}")


def collisions(recording: Recording, first: str, second: str) -> str:
    """Return the collisions between two categories of actors; one over several frames is listed once.

    Categories are h (hero), v (vehicle), w (walker), t (traffic light), o (all others) and a (any).
    """
    text, frame = _Text(recording), None
    text.add(f"{'Time':>8} {'Types':>6} {'Id':>6} {'Actor 1':<35} {'Id':>6} {'Actor 2':<35}\n")
    actors: dict[int, Added] = {}
    before: set[tuple[int, int]] = set()
    told = False
    for frame in recording.frames((Packet.EVENT_ADD, Packet.COLLISION)):
        _enter(actors, frame)
        present: set[tuple[int, int]] = set()
        for hit in frame.records(Packet.COLLISION):
            kinds = [_category(actors.get(number)) for number in (hit.first, hit.second)]
            heroes = hit.first_is_hero, hit.second_is_hero
            matches = (
                asked in ("a", kind) or (asked == "h" and hero)
                for asked, kind, hero in zip((first, second), kinds, heroes, strict=True)
            )
            if not all(matches):
                continue
            pair = hit.first, hit.second
            if pair not in before | present:
                names = [actors[number].blueprint if number in actors else "" for number in pair]
                both = " ".join(f"{number:>6} {name:<35}" for number, name in zip(pair, names, strict=True))
                text.add(f"{frame.elapsed_s:8.0f}   {kinds[0]} {kinds[1]}  {both}\n")
                told = True
            present.add(pair)
        before = present
    return text.end(recording, frame, f"{_elapsed_s(frame):.0f}" if told else f"{_elapsed_s(frame):g}")


@dataclass
class _Stand:
    """Where an actor was when it last moved (cm), since when it has stood there (s), and for how long."""

    name: str
    x: float = 0.0
    y: float = 0.0
    z: float = 0.0
    since_s: float = 0.0
    lasts_s: float = 0.0


def actors_blocked(recording: Recording, min_time_s: float, min_distance_cm: float) -> str:
    """Return the actors that moved less than a distance for at least a time, longest first."""
    text, frame = _Text(recording), None
    text.add(f"{'Time':>8} {'Id':>6} {'Actor':<35} {'Duration':>10}\n")
    stands: dict[int, _Stand] = {}
    rows: list[tuple[float, str]] = []

    def tell(number: int, stand: _Stand) -> None:
        if stand.lasts_s >= min_time_s:
            rows.append((stand.lasts_s, f"{stand.since_s:8.0f} {number:>6} {stand.name:<35} {stand.lasts_s:10.0f}\n"))

    actors: dict[int, Added] = {}
    for frame in recording.frames((Packet.EVENT_ADD, Packet.POSITION)):
        for number in _enter(actors, frame):
            stands[number] = _Stand(actors[number].blueprint)
        for at in frame.records(Packet.POSITION):
            stand = stands.setdefault(at.id, _Stand(""))
            if math.dist((stand.x, stand.y, stand.z), (at.x, at.y, at.z)) < min_distance_cm:
                if stand.lasts_s == 0.0:
                    stand.since_s = frame.elapsed_s
                stand.lasts_s += max(0.0, frame.duration_s)
            else:
                tell(at.id, stand)
                stand.lasts_s, stand.x, stand.y, stand.z = 0.0, at.x, at.y, at.z
        if len(stands) > _MOST_ACTORS or len(rows) > _MOST_ACTORS:
            raise RecordingError(f"frame {frame.number} has more than {_MOST_ACTORS} actors")
    for number, stand in stands.items():
        tell(number, stand)
    for _, row in sorted(rows, key=lambda each: -each[0]):
        text.add(row)
    return text.end(recording, frame, f"{_elapsed_s(frame):g}")


def _enter(actors: dict[int, Added], frame: Frame) -> list[int]:
    """Add entering actors, and return their ids. Actors that left stay known: CARLA lists them, too."""
    entering = {
        added.id: added._replace(attributes=(), blueprint=added.blueprint[:100])
        for added in frame.records(Packet.EVENT_ADD)
    }
    actors.update(entering)
    if len(actors) > _MOST_ACTORS:
        raise RecordingError(f"frame {frame.number} has more than {_MOST_ACTORS} actors")
    return list(entering)


def _category(actor: Added | None) -> str:
    return "o" if actor is None else _CATEGORIES.get(actor.kind, "o")


def _elapsed_s(frame: Frame | None) -> float:
    return 0.0 if frame is None else frame.elapsed_s


def _place(*numbers: float) -> str:
    return f"({', '.join(f'{number:g}' for number in numbers)})"


def _tell_added(added: Added) -> str:
    lines = [f" Create {added.id}: {added.blueprint} ({added.kind}) at {_place(*added[2:5])}\n"]
    return "".join([*lines, *(f"  {each.id} = {each.value}\n" for each in added.attributes)])


def _tell_collided(hit: Collided) -> str:
    first, second = (" (hero) " if hero else "" for hero in (hit.first_is_hero, hit.second_is_hero))
    return f" Collision id {hit.number} between {hit.first}{first} with {hit.second}{second}\n"


def _tell_position(at: Position) -> str:
    return f"  Id: {at.id} Location: {_place(*at[1:4])} Rotation: {_place(*at[4:])}\n"


def _tell_state(light: LightState) -> str:
    state = chr((0x30 + light.state) & 0x7F)
    return f"  Id: {light.id} state: {state} frozen: {light.frozen:d} elapsedTime: {light.elapsed_s:g}\n"


def _tell_control(asked: VehicleControl) -> str:
    pedals = f"Steering: {asked.steer:g} Throttle: {asked.throttle:g} Brake: {asked.brake:g}"
    return f"  Id: {asked.id} {pedals} Handbrake: {asked.hand_brake:d} Gear: {asked.gear}\n"


def _tell_speed(walker: WalkerSpeed) -> str:
    return f"  Id: {walker.id} speed: {walker.speed:g}\n"


def _tell_doors(door: Door) -> str:
    which = f" {_DOORS[door.doors]} \n" if door.doors < len(_DOORS) else ""
    return f"  Id: {door.id}\n  Doors opened: {which}"


def _tell_lamps(lamps: Any) -> str:
    return f"  Id: {lamps.id} {' '.join(name for flag, name in _LAMPS if lamps.flags & flag) or 'None'}\n"


def _tell_scene_light(light: SceneLight) -> str:
    colour = _place(light.red, light.green, light.blue)
    return f"  Id: {light.id} enabled: {light.on} intensity: {light.intensity:g} RGB_color: {colour}\n"


def _tell_motion(motion: Motion) -> str:
    return f"  Id: {motion.id} linear_velocity: {_place(*motion[1:4])} angular_velocity: {_place(*motion[4:])}\n"


def _tell_box(box: Box) -> str:
    return f"  Id: {box.id} origin: {_place(*box[1:4])} extension: {_place(*box[4:])}\n"


def _tell_physics(physics: Physics) -> str:
    figures = (
        *(("max_rpm", physics.max_rpm), ("MOI", physics.moi), ("damping_rate_full_throttle", physics.damping_full)),
        ("damping_rate_zero_throttle_clutch_engaged", physics.damping_engaged),
        ("damping_rate_zero_throttle_clutch_disengaged", physics.damping_disengaged),
        ("use_gear_auto_box", str(physics.autobox).lower()),
        ("gear_switch_time", 0.0),  # not in the file
        *(("clutch_strength", physics.clutch_strength), ("final_ratio", physics.final_ratio), ("mass", physics.mass)),
        ("drag_coefficient", physics.drag),
        ("center_of_mass", _place(physics.centre_x, physics.centre_y, physics.centre_z)),
    )
    lines = [f"  Id: {physics.id}\n"]
    lines += (f"   {name} = {value if isinstance(value, str) else f'{value:g}'}\n" for name, value in figures)
    for name, curve in (("torque_curve", physics.torque_curve), ("steering_curve", physics.steering_curve)):
        lines.append(f"   {name} ={''.join(f' {_place(*point)}' for point in curve)}\n")
    lines.append("   forward_gears:\n")
    for count, (ratio, down, up) in enumerate(physics.gears):
        lines.append(f"    gear {count}: ratio {ratio:g} down_ratio {down:g} up_ratio {up:g}\n")
    lines.append("   wheels:\n")
    for count, (friction, damping, steer, radius, brake, hand, *_stiffness, x, y, z) in enumerate(physics.wheels):
        torques = f"max_brake_torque {brake:g} max_handbrake_torque {hand:g} position {_place(x, y, z)}"
        tyre = f"tire_friction {friction:g} damping_rate {damping:g} max_steer_angle {steer:g} radius {radius:g}"
        lines.append(f"    wheel {count}: {tyre} {torques}\n")
    return "".join(lines)


def _tell_times(light: LightTimes) -> str:
    times = f"green_time: {light.green:g} yellow_time: {light.yellow:g} red_time: {light.red:g}"
    return f"  Id: {light.id} {times}\n"


def _tell_bones(walker: Bones) -> str:
    bones = (
        f'     Bone: "{bone.name}" relative: Loc{_place(*bone[1:4])} Rot{_place(*bone[4:])}\n' for bone in walker.bones
    )
    return f"  Id: {walker.id}\n{''.join(bones)}"


def _tell_weather(weather: Weather) -> str:
    names = ("".join(part.capitalize() for part in name.split("_")) for name in Weather._fields)
    return f"  {' '.join(f'{name}: {value:g}' for name, value in zip(names, weather, strict=True))}\n"


@dataclass(frozen=True)
class _Teller:
    """How a packet is described: a title with the number of its records, or its only number, and each record."""

    title: str
    tell: Callable[[Any], str]
    counted: bool = True
    after: str = ""


_TELLERS = {
    Packet.EVENT_ADD: _Teller("", _tell_added),
    Packet.EVENT_DEL: _Teller("", lambda removed: f" Destroy {removed.id}\n"),
    Packet.EVENT_PARENT: _Teller("", lambda both: f" Parenting {both.id} with {both.parent} (parent)\n"),
    Packet.COLLISION: _Teller("", _tell_collided),
    Packet.WEATHER: _Teller("Weathers", _tell_weather),
    Packet.POSITION: _Teller("Positions", _tell_position),
    Packet.STATE: _Teller("State traffic lights", _tell_state),
    Packet.ANIM_VEHICLE: _Teller("Vehicle animations", _tell_control),
    Packet.ANIM_WALKER: _Teller("Walker animations", _tell_speed),
    Packet.DOOR: _Teller("Vehicle door animations", _tell_doors),
    Packet.VEHICLE_LIGHT: _Teller("Vehicle light animations", _tell_lamps),
    Packet.SCENE_LIGHT: _Teller("Scene light changes", _tell_scene_light),
    Packet.KINEMATICS: _Teller("Dynamic actors", _tell_motion),
    Packet.BOUNDING_BOX: _Teller("Actor bounding boxes", _tell_box),
    Packet.TRIGGER_VOLUME: _Teller("Actor trigger volumes", _tell_box),
    Packet.PLATFORM_TIME: _Teller("Current platform time", lambda _: "", counted=False),
    Packet.PHYSICS_CONTROL: _Teller("Physics Control events", _tell_physics),
    Packet.TRAFFIC_LIGHT_TIME: _Teller("Traffic Light time events", _tell_times),
    Packet.WALKER_BONES: _Teller("Walkers Bones", _tell_bones, after="\n"),
}
_TOLD_ALWAYS = frozenset((Packet.EVENT_ADD, Packet.EVENT_DEL, Packet.EVENT_PARENT, Packet.COLLISION, Packet.WEATHER))
