"""Actors, their attachments, and vehicles with a body.

Owns identity, attributes and the composition of poses. Never advances time (``world`` does) and knows no RPC method.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar

from carla_lite.actors import physics_control
from carla_lite.actors.surroundings import Surroundings
from carla_lite.blueprints.blueprint import Blueprint
from carla_lite.blueprints.catalogue import CATALOGUE, ids_of
from carla_lite.blueprints.vehicles import VehicleBlueprint
from carla_lite.motion.ackermann import Ackermann, AckermannController
from carla_lite.motion.physics import Body, Control
from carla_lite.protocol import wire
from carla_lite.scenery.camera import BoxActor, Pose
from carla_lite.scenery.vehicle_meshes import BLINKERS, Lights
from carla_lite.support import WORKS, Support, approximated

# States of a vehicle that is at no light, as in CARLA; at a stop or yield sign it may have to wait.
_RED, _GREEN = 0, 2
_BLINK_S = 0.8
_DEGREES = 180.0 / math.pi  # a product is faster than math.degrees
# Plain numbers: enum flags are slow, and each tick reads these.
_SEEN_LIGHTS, _BLINKERS = int(~Lights(0)), int(BLINKERS)
_UNPAINTED = "128,128,128"
MOST = 1e18
"""Size of an attribute's number: whole ones are stored in 64 bits."""


@dataclass(frozen=True)
class Identity:
    """The constant properties of an actor."""

    id: int
    blueprint: Blueprint
    attributes: dict[str, str]
    parent: Actor | None = None


class Actor:
    """Anything with an id. It has a place in the world, or is fixed to a parent at a relative pose."""

    attaches: ClassVar[bool] = True
    """Whether it stays fixed to the parent that it is spawned with; if not, it only starts there."""
    support: ClassVar[Support] = WORKS
    """How far it matches what CARLA spawns."""

    def __init__(self, identity: Identity, place: Pose) -> None:
        self.id = identity.id
        self.blueprint = identity.blueprint
        self.attributes = identity.attributes
        self.parent = identity.parent
        self._composed_of: tuple[Pose, Pose] | None = None
        self._arm_up_m: float | None = None
        self._composed = place
        self._place = place
        self.place = place

    @property
    def place(self) -> Pose:
        """Its pose, relative to the parent if it has one, as in CARLA's ``set_transform``."""
        return self._place

    @place.setter
    def place(self, place: Pose) -> None:
        self._place = place

    @property
    def pose(self) -> Pose:
        """Its pose in the world."""
        if self.parent is None:
            return self.place
        # Read more than once per tick, and the parent may not move for long.
        seen = self.parent.pose, self.place
        if seen != self._composed_of:
            parent, place = seen
            if self._arm_up_m is not None:
                parent = Pose(parent.x, parent.y, parent.z + self._arm_up_m, 0.0, parent.yaw, 0.0)
            self._composed_of, self._composed = seen, compose(parent, place)
        return self._composed

    def swing(self, up_m: float) -> None:
        """Hang at the end of a spring arm that begins ``up_m`` above the parent's origin and stays level.

        As in CARLA (ActorAttacher.cpp), it looks along the arm to the origin, plus its own rotation.
        Lag and collisions of the arm aren't modelled.
        """
        at = self.place
        arm = Pose(at.x, at.y, at.z, math.atan2(-at.z, math.hypot(at.x, at.y)), math.atan2(-at.y, -at.x))
        if at.x == at.y == at.z == 0.0:
            arm = Pose(0.0, 0.0, 0.0)
        self.place = compose(arm, Pose(0.0, 0.0, 0.0, at.pitch, at.yaw, at.roll))
        self._arm_up_m = up_m

    def detach(self) -> None:
        """Stay where it is in the world, without the parent."""
        self.place, self.parent = self.pose, None

    def hangs_on(self, other: Actor) -> bool:
        """Return whether it is fixed to the other actor, directly or through a third."""
        return self.parent is not None and (self.parent is other or self.parent.hangs_on(other))

    def entered(self, world: Surroundings) -> None:
        """Join a world, which then adds it to its actors.

        Raises:
            RpcError: there is no room for it.
        """

    def left(self, world: Surroundings) -> None:
        """Leave the world, which has removed it from its actors."""

    def token(self) -> bytes:
        """Return the stream token: empty, except for sensors with a stream."""
        return b""

    def number(self, attribute: str, low: float, high: float = math.inf) -> float:
        """Return an attribute's value; 0 for an actor without that attribute.

        Raises:
            RpcError: it isn't a number within the limits, or not finite.
        """
        text = self.attributes.get(attribute, "0")
        try:
            value = float(text)
        except ValueError:
            value = math.nan
        low, high = max(low, -MOST), min(high, MOST)
        if not low <= value <= high:
            raise wire.RpcError(f"{self.blueprint.id}: {attribute} is {text}, expected a number from {low} to {high}")
        return value

    def box(self) -> list[Any]:
        """Return the BoundingBox struct, relative to the actor."""
        return wire.EMPTY_BOX

    def describe(self) -> list[Any]:
        """Return the Actor struct (protocol, section 2.3)."""
        values = [[a.id, int(a.type), self.attributes[a.id]] for a in self.blueprint.attributes]
        description = [self.blueprint.uid, self.blueprint.id, values]
        parent = self.parent.id if self.parent else 0
        return [self.id, parent, description, self.box(), bytes(self.blueprint.semantic_tags), self.token()]

    def record(self, into: bytearray, offset: int) -> None:
        """Write this actor's record into the world message."""
        p = self.pose
        angles = math.degrees(p.pitch), math.degrees(p.yaw), math.degrees(p.roll)
        wire.PLAIN_RECORD.pack_into(into, offset, self.id, wire.ACTIVE, p.x, p.y, p.z, *angles)


class Vehicle(Actor):
    """An actor with a body that the physics moves; it is never attached to another actor."""

    attaches: ClassVar[bool] = False
    support: ClassVar[Support] = approximated(
        "moves by a single-track model that doesn't roll over, looks like its class, and has the class's usual figures"
    )

    def __init__(self, identity: Identity, place: Pose) -> None:
        blueprint = identity.blueprint
        assert isinstance(blueprint, VehicleBlueprint)
        self.body = Body(blueprint.model)
        self._velocity = self._acceleration = (0.0, 0.0, 0.0)
        super().__init__(identity, place)
        self.light_state = 0
        self._blinking_since_s = 0.0
        self.speed_limit_kmh = 30.0
        self.collides = True
        self.light: tuple[int, int] | None = None
        """Id and state of the traffic light that controls it now."""
        self.gives_way = False
        """Whether a stop or yield sign tells it to wait."""
        self.ackermann = AckermannController()
        self.constant_velocity: wire.Vector | None = None
        self.posed_wheels: dict[int, tuple[float, float]] = {}
        """Steering and pitch (degrees) that a client set for wheels while no physics moves them."""
        self.open_doors: frozenset[int] = frozenset()
        self._built = model = blueprint.model
        self._box = wire.bounding_box((0.0, 0.0, model.box_centre_z_m), model.extent)
        if blueprint.reported_m is not None:
            length_m, width_m, height_m = blueprint.reported_m
            self._box = wire.bounding_box((0.0, 0.0, 0.5 * height_m), (0.5 * length_m, 0.5 * width_m, 0.5 * height_m))
        self._figures: list[Any] | None = None
        self._sticky = self.attributes.get("sticky_control", "true").lower() not in ("false", "0")
        self._driven = False
        self._color = _bgr(self.attributes.get("color", _UNPAINTED))
        self._shape = blueprint.shape

    def entered(self, world: Surroundings) -> None:
        """Join the world's vehicles.

        Raises:
            RpcError: something is in its place.
        """
        if world.is_blocked(self.body):
            raise wire.RpcError(wire.NO_ROOM)
        place = self.body
        self.speed_limit_kmh = world.limits.at(place.x, place.y, place.z)  # clients may read it before the first tick
        world.vehicles.append(self)

    def left(self, world: Surroundings) -> None:
        """Leave the world's vehicles."""
        world.vehicles.remove(self)

    @property
    def place(self) -> Pose:
        """Pose of the body; setting it teleports, and the velocity in the world's frame stays, as in CARLA."""
        body = self.body
        return Pose(body.x, body.y, body.z, body.pitch, body.yaw, body.roll)

    @place.setter
    def place(self, place: Pose) -> None:
        body = self.body
        velocity = body.world_velocity()
        body.x, body.y, body.z, body.placed = place.x, place.y, place.z, True
        body.pitch, body.yaw, body.roll = place.pitch, place.yaw, place.roll
        body.set_world_velocity(*velocity)

    def drive(self, control: Control) -> None:
        """Hold this control until the next one, or for one tick if the blueprint's ``sticky_control`` is false."""
        self.ackermann.reset()
        self.body.control, self._driven = control, True

    def steer_to(self, target: Ackermann) -> None:
        """Hold this speed and wheel angle until the next control of either kind."""
        self.ackermann.target = target

    @property
    def simulate_physics(self) -> bool:
        """Whether the motion model moves it. Switching it on ends wheel poses set by a client."""
        return self.body.simulate_physics

    @simulate_physics.setter
    def simulate_physics(self, enabled: bool) -> None:
        body = self.body
        body.simulate_physics = enabled
        self.posed_wheels.clear()
        if not enabled:  # Unreal tells no velocity then: a Traffic Manager counts it from places (ALSM.cpp)
            body.vx = body.vy = body.vz = body.yaw_rate = body.ax = body.ay = 0.0

    def switch_lights(self, flags: int, elapsed_s: float) -> None:
        """Set the flags of VehicleLightState; indicators that were off begin to blink now."""
        if flags & ~self.light_state & _BLINKERS:
            self._blinking_since_s = elapsed_s
        self.light_state = flags

    def prepare(self, delta_s: float) -> None:
        """Apply a client's requests before the motion model moves it by a tick."""
        target = self.ackermann.target
        if target is not None:
            self.body.control = self.ackermann.control(self.body, target, delta_s)
        elif not (self._sticky or self._driven):
            self.body.control = Control()
        self._driven = False
        if self.constant_velocity is not None and self.body.simulate_physics:
            self.body.vx, self.body.vy, up = self.constant_velocity
            if up:
                self.body.vz = up

    def measure(self, delta_s: float) -> None:
        """Take the acceleration of this tick: the change of its velocity, whatever changed it, as CARLA tells it."""
        x, y, z = self._velocity
        self._velocity = vx, vy, vz = self.body.world_velocity()
        self._acceleration = (vx - x) / delta_s, (vy - y) / delta_s, (vz - z) / delta_s

    def box(self) -> list[Any]:
        """Return the BoundingBox struct. Its centre is above the origin, which is on the ground."""
        return self._box

    @property
    def figures(self) -> list[Any]:
        """The VehiclePhysicsControl that was last applied, or the model's; setting it changes the model."""
        if self._figures is None:
            return physics_control.report(self.body, self._built)
        return physics_control.with_places(self._figures, self.body)

    @figures.setter
    def figures(self, figures: list[Any]) -> None:
        self.body.model = physics_control.applied(self._built, figures)
        self._figures = figures

    @property
    def wheel_friction(self) -> list[float]:
        """The friction of each tyre, in CARLA's scale."""
        return physics_control.friction(self.figures)

    @wheel_friction.setter
    def wheel_friction(self, values: list[float]) -> None:
        self.figures = physics_control.with_friction(self.figures, values)

    @property
    def at(self) -> Body:
        """The object with its x, y and z (m)."""
        return self.body

    def drawn(self, elapsed_s: float) -> BoxActor:
        """Return its shape for cameras; indicators are on for the first half of each blink."""
        model, body = self.body.model, self.body
        centre = Pose(body.x, body.y, body.z + model.box_centre_z_m, body.pitch, body.yaw, body.roll)
        lights = self.light_state & _SEEN_LIGHTS
        if lights & _BLINKERS and (elapsed_s - self._blinking_since_s + 1e-6) % _BLINK_S >= 0.5 * _BLINK_S:
            lights &= ~_BLINKERS
        tag = self.blueprint.semantic_tags[0]
        return BoxActor(centre, model.extent, self._color, tag, self._shape, lights, self.id)

    def surrounds(self, x: float, y: float, z: float) -> bool:
        """Return whether a point is in the vehicle, or so close above it that a camera there is on its roof."""
        body, model = self.body, self.body.model
        c, s = math.cos(body.yaw), math.sin(body.yaw)
        forward, right = c * (x - body.x) + s * (y - body.y), c * (y - body.y) - s * (x - body.x)
        inside = abs(forward) < model.half_length_m and abs(right) < model.half_width_m
        return inside and z - body.z < 2.0 * model.half_height_m + 1.0

    def record(self, into: bytearray, offset: int) -> None:
        """Write this vehicle's record into the world message."""
        body, asked = self.body, self.body.control
        light, state = self.light or (0, _RED if self.gives_way else _GREEN)
        wire.VEHICLE_RECORD.pack_into(
            into,
            offset,
            self.id,
            wire.ACTIVE,
            body.x,
            body.y,
            body.z,
            body.pitch * _DEGREES,
            body.yaw * _DEGREES,
            body.roll * _DEGREES,
            *body.world_velocity(),
            0.0,
            0.0,
            body.yaw_rate * _DEGREES,
            *self._acceleration,
            asked.throttle,
            asked.steer,
            asked.brake,
            asked.hand_brake,
            asked.reverse,
            asked.manual_gear_shift,
            body.gear,
            self.speed_limit_kmh,
            state,
            self.light is not None,
            light,
            0,
        )


KINDS: dict[str, type[Actor]] = {}
"""Class of the actors that a blueprint spawns, by its id."""


def register(kind: type[Actor], *ids: str) -> None:
    """Register a class for its blueprints.

    Raises:
        ValueError: a blueprint isn't in the catalogue, or already has a class.
    """
    for name in ids:
        if name not in CATALOGUE:
            raise ValueError(f"blueprint {name} of {kind.__name__} isn't in the catalogue: give it a row there.")
        if name in KINDS:
            raise ValueError(f"blueprint {name} is a {KINDS[name].__name__} already, and can't be a {kind.__name__}.")
        KINDS[name] = kind


register(Vehicle, *ids_of(VehicleBlueprint))


def compose(parent: Pose, relative: Pose) -> Pose:
    """Return the world pose of ``relative`` to ``parent`` (radians; Unreal's left-handed rotations)."""
    (a, b, c), (d, e, f), (g, h, i) = parent.axes()
    x, y, z = relative.x, relative.y, relative.z
    place = (parent.x + a * x + d * y + g * z, parent.y + b * x + e * y + h * z, parent.z + c * x + f * y + i * z)
    if relative.pitch == relative.yaw == relative.roll == 0.0:
        return Pose(*place, parent.pitch, parent.yaw, parent.roll)
    (fx, fy, fz), (_, _, rz), (_, _, uz) = (
        (a * vx + d * vy + g * vz, b * vx + e * vy + h * vz, c * vx + f * vy + i * vz) for vx, vy, vz in relative.axes()
    )
    pitch = math.atan2(fz, math.hypot(fx, fy))
    return Pose(*place, pitch, math.atan2(fy, fx), math.atan2(-rz, uz))


def _bgr(color: str) -> tuple[int, int, int]:
    """Read "r,g,b".

    Raises:
        RpcError: it isn't three whole numbers from 0 to 255.
    """
    try:
        red, green, blue = (int(part) for part in color.split(","))
    except ValueError:
        raise wire.RpcError(f'color is "{color}", expected "red,green,blue" with numbers from 0 to 255') from None
    return blue & 255, green & 255, red & 255
