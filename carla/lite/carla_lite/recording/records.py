"""The records of CARLA's recorder as plain data.

Owns names, order and units: centimetres and degrees, as in Unreal, unless a record says otherwise. Source: CARLA's
``Recorder/CarlaRecorder*.h``.
"""

from __future__ import annotations

from enum import IntEnum
from typing import NamedTuple

NO_ACTOR = 0xFFFFFFFF
"""Id in a collision for something that is no actor."""


class ActorKind(IntEnum):
    """CARLA's type of an actor in its registry (FCarlaActor::ActorType)."""

    OTHER = 0
    VEHICLE = 1
    WALKER = 2
    TRAFFIC_LIGHT = 3
    TRAFFIC_SIGN = 4
    SENSOR = 5


class Attribute(NamedTuple):
    """One attribute of an entering actor."""

    type: int
    id: str
    value: str


class Added(NamedTuple):
    """An entering actor; the place of an attached one is relative to its parent."""

    id: int
    kind: int
    x: float
    y: float
    z: float
    roll: float
    pitch: float
    yaw: float
    uid: int
    blueprint: str
    attributes: tuple[Attribute, ...]

    @property
    def is_hero(self) -> bool:
        """Whether its role is ``hero``."""
        return any(each.id == "role_name" and each.value == "hero" for each in self.attributes)


class Removed(NamedTuple):
    """A leaving actor."""

    id: int


class Parented(NamedTuple):
    """An actor that is attached to another."""

    id: int
    parent: int


class Collided(NamedTuple):
    """A collision that a sensor of the first actor reports."""

    number: int
    first: int
    second: int
    first_is_hero: bool
    second_is_hero: bool


class Position(NamedTuple):
    """Place of an actor in the world."""

    id: int
    x: float
    y: float
    z: float
    roll: float
    pitch: float
    yaw: float


class LightState(NamedTuple):
    """A traffic light; the states are numbered as on the wire."""

    id: int
    frozen: bool
    elapsed_s: float
    state: int


class VehicleControl(NamedTuple):
    """A vehicle's control."""

    id: int
    steer: float
    throttle: float
    brake: float
    hand_brake: bool
    gear: int


class WalkerSpeed(NamedTuple):
    """The speed of a walker's control (m/s)."""

    id: int
    speed: float


class Lamps(NamedTuple):
    """The flags of a vehicle's lights, as on the wire."""

    id: int
    flags: int


class SceneLight(NamedTuple):
    """A street light."""

    id: int
    intensity: float
    red: float
    green: float
    blue: float
    alpha: float
    on: bool
    type: int


class Motion(NamedTuple):
    """Velocity (m/s) and angular velocity (degrees/s) of an actor."""

    id: int
    vx: float
    vy: float
    vz: float
    wx: float
    wy: float
    wz: float


class Box(NamedTuple):
    """A box: an actor's, relative to it, or a sign's trigger in the world."""

    id: int
    x: float
    y: float
    z: float
    extent_x: float
    extent_y: float
    extent_z: float


class Time(NamedTuple):
    """A single number: seconds, or a count of frames."""

    value: float


class Physics(NamedTuple):
    """A vehicle's figures. A point of a curve has 2 numbers, a gear 3, a wheel 12."""

    id: int
    max_rpm: float
    moi: float
    damping_full: float
    damping_engaged: float
    damping_disengaged: float
    autobox: bool
    clutch_strength: float
    final_ratio: float
    mass: float
    drag: float
    centre_x: float
    centre_y: float
    centre_z: float
    torque_curve: list[tuple[float, ...]]
    gears: list[tuple[float, ...]]
    steering_curve: list[tuple[float, ...]]
    wheels: list[tuple[float, ...]]


class LightTimes(NamedTuple):
    """Duration of each state of a traffic light (s)."""

    id: int
    green: float
    yellow: float
    red: float


class Bone(NamedTuple):
    """Place of a bone relative to its parent."""

    name: str
    x: float
    y: float
    z: float
    roll: float
    pitch: float
    yaw: float


class Bones(NamedTuple):
    """The bones of a walker."""

    id: int
    bones: tuple[Bone, ...]


class Wheel(NamedTuple):
    """Steering and rolling angle of a wheel (degrees); ``place`` is its VehicleWheelLocation."""

    place: int
    steer: float
    turned: float


class Wheels(NamedTuple):
    """The wheels of a vehicle."""

    id: int
    wheels: tuple[Wheel, ...]


class Biker(NamedTuple):
    """The speed of a two-wheeler (cm/s) and of its engine (share of the fastest)."""

    id: int
    speed: float
    engine: float


class Door(NamedTuple):
    """Doors that open or close."""

    id: int
    doors: int
    is_open: bool


class Weather(NamedTuple):
    """The weather, in the wire's order; CARLA's development version after 0.9.16 records it."""

    cloudiness: float
    precipitation: float
    precipitation_deposits: float
    wind_intensity: float
    sun_azimuth_angle: float
    sun_altitude_angle: float
    fog_density: float
    fog_distance: float
    fog_falloff: float
    wetness: float
    scattering_intensity: float
    mie_scattering_scale: float
    rayleigh_scattering_scale: float
    dust_storm: float
