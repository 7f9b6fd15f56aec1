"""Walkers: actors that move as a control or a client's crowd says, and fall when a car hits them.

Owns the motion of one walker, and the pose that a client gives it. It plans no paths: the client does, on the
navigation mesh, and sends each tick's state. ``actors.walker_hits`` finds hits by vehicles.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from carla_lite.actors.actor import Actor, Identity, compose, register
from carla_lite.actors.crowd import COLUMNS, LYING_RAD, TOP_SPEED_MPS, WALKS_FROM_M2PS2, Column, strides
from carla_lite.actors.surroundings import Surroundings
from carla_lite.blueprints.catalogue import ids_of
from carla_lite.blueprints.walkers import AI_CONTROLLER, WalkerBlueprint
from carla_lite.protocol import wire
from carla_lite.protocol.wire import Vector
from carla_lite.scenery import skeleton
from carla_lite.scenery.camera import Pose
from carla_lite.scenery.people import Person
from carla_lite.support import Support, approximated

LIES_S = 10.0


@dataclass(slots=True)
class WalkerControl:
    """A direction in the world's frame, of which only the horizontal part counts, and a speed (m/s)."""

    direction: Vector = (1.0, 0.0, 0.0)
    speed: float = 0.0
    jump: bool = False


class Walker(Actor):
    """A walker. Its origin is the centre of the body."""

    attaches: ClassVar[bool] = False
    support: ClassVar[Support] = approximated(
        "a figure of simple shapes; one that a car runs over lies down, without a ragdoll"
    )

    def __init__(self, identity: Identity, place: Pose) -> None:
        blueprint = identity.blueprint
        assert isinstance(blueprint, WalkerBlueprint)
        self.state: NDArray[np.float64] = np.zeros(COLUMNS)
        """By :class:`Column`; the column of its crowd once there is one."""
        self.radius_m, self.half_height_m = blueprint.radius_m, blueprint.half_height_m
        self.state[Column.RADIUS_M], self.state[Column.HALF_HEIGHT_M] = self.radius_m, self.half_height_m
        self.mass_kg = blueprint.mass_kg
        self._dead = False
        super().__init__(identity, place)
        self.control = WalkerControl()
        self.collides = self.gravity = self.simulate_physics = True
        self._invincible = self.attributes["is_invincible"].lower() not in ("false", "0")
        wheelchair = self.attributes["use_wheelchair"].lower() == "true"
        self.look = blueprint.look(wheelchair)
        self._pose: skeleton.Posture | None = None
        self._blend = 0.0

    def entered(self, world: Surroundings) -> None:
        """Join the world's walkers.

        Raises:
            RpcError: a walker or a vehicle is in its place.
        """
        # As in CARLA's spawner, a walker that would be partly in the ground is lifted. One that is completely below it,
        # where scenario runners keep walkers for later, touches nothing.
        stands = world.network.height(self.x, self.y, self.z) + self.half_height_m
        if self.z > stands - 2.0 * self.half_height_m:
            self.state[Column.Z] = max(self.z, stands)
        if not world.has_room(self):
            raise wire.RpcError(wire.NO_ROOM)
        world.walkers.append(self)

    def left(self, world: Surroundings) -> None:
        """Leave the world's walkers."""
        world.walkers.remove(self)

    @property
    def x(self) -> float:
        """Place in the world's frame (m)."""
        return float(self.state.item(Column.X))

    @property
    def y(self) -> float:
        """As x."""
        return float(self.state.item(Column.Y))

    @property
    def z(self) -> float:
        """As x."""
        return float(self.state.item(Column.Z))

    @property
    def yaw(self) -> float:
        """Direction (rad)."""
        return float(self.state.item(Column.YAW))

    @property
    def vx(self) -> float:
        """Velocity in the world's frame (m/s)."""
        return float(self.state.item(Column.VX))

    @property
    def vy(self) -> float:
        """As vx."""
        return float(self.state.item(Column.VY))

    @property
    def vz(self) -> float:
        """As vx."""
        return float(self.state.item(Column.VZ))

    @property
    def yaw_rate(self) -> float:
        """How fast a walker without a direction turns (rad/s)."""
        return float(self.state.item(Column.YAW_RATE))

    @yaw_rate.setter
    def yaw_rate(self, value: float) -> None:
        self.state[Column.YAW_RATE] = value

    @property
    def lies_s(self) -> float:
        """Seconds for which it still lies."""
        return float(self.state.item(Column.LIES_S))

    @lies_s.setter
    def lies_s(self, value: float) -> None:
        self.state[Column.LIES_S] = value

    @property
    def gravity(self) -> bool:
        """Whether it falls."""
        return bool(self.state.item(Column.GRAVITY))

    @gravity.setter
    def gravity(self, value: bool) -> None:
        self.state[Column.GRAVITY] = value

    @property
    def simulate_physics(self) -> bool:
        """Whether the ground moves it; its control does in any case."""
        return bool(self.state.item(Column.PHYSICS))

    @simulate_physics.setter
    def simulate_physics(self, value: bool) -> None:
        self.state[Column.PHYSICS] = value

    @property
    def control(self) -> WalkerControl:
        """A copy of what it was asked for last; setting it asks for more."""
        x, y, z, speed, jump = self.state[Column.DIRECTION_X : Column.WANTED_X].tolist()
        return WalkerControl((x, y, z), speed, bool(jump))

    @control.setter
    def control(self, asked: WalkerControl) -> None:
        x, y, _ = asked.direction
        length, speed = math.hypot(x, y), 0.0
        if length and asked.speed:
            # Unreal clips a direction longer than 1, and takes a shorter one as a share of the speed.
            speed = min(asked.speed, TOP_SPEED_MPS) * min(1.0, length) / length
        wanted = (x * speed, y * speed) if speed else (0.0, 0.0)
        heading = math.atan2(wanted[1], wanted[0])
        self.state[Column.DIRECTION_X : Column.YAW_RATE] = *asked.direction, asked.speed, asked.jump, *wanted, heading

    @property
    def place(self) -> Pose:
        """Pose of the centre of the body; setting it teleports, and stands a fallen walker up."""
        return Pose(self.x, self.y, self.z, LYING_RAD if self.lies_s > 0.0 else 0.0, self.yaw, 0.0)

    @place.setter
    def place(self, place: Pose) -> None:
        self.state[: Column.VX] = place.x, place.y, place.z, place.yaw
        if not self._dead:
            self.lies_s = 0.0

    @property
    def lies(self) -> bool:
        """Whether a car has knocked it over."""
        return self.lies_s > 0.0

    @property
    def is_gone(self) -> bool:
        """Whether it has been dead for long enough to be removed."""
        return self._dead and self.lies_s == 0.0

    def die(self) -> None:
        """Fall, and be removed 10 s later, as in CARLA: a client's crowd asks for it after a car hit a walker."""
        self._dead, self.lies_s = True, LIES_S

    def follow(self, place: Pose, speed: float, ground: float) -> None:
        """Take the state that a crowd computed: a place on the ground (m) and a speed along its yaw (m/s)."""
        if self.lies_s > 0.0:
            return
        c, s = math.cos(place.yaw), math.sin(place.yaw)
        at = place.x, place.y, ground + self.half_height_m, place.yaw
        self.state[: Column.AX] = *at, c * speed, s * speed, 0.0
        self.control = WalkerControl((c, s, 0.0), speed)
        if not self.simulate_physics:  # a client's crowd has switched them off, and leaves it standing
            self.state[Column.WANTED_X : Column.HEADING] = 0.0
        self.state[Column.SENT] = 1.0

    def set_world_velocity(self, vx: float, vy: float, vz: float) -> None:
        """Set the velocity (m/s); a control then returns it to the control's velocity."""
        top = TOP_SPEED_MPS
        self.state[Column.VX : Column.AX] = max(-top, min(top, vx)), max(-top, min(top, vy)), max(-top, min(top, vz))

    def push(self, impulse: Vector) -> None:
        """Add an impulse (N s)."""
        x, y, z = (part / self.mass_kg for part in impulse)
        self.set_world_velocity(self.vx + x, self.vy + y, self.vz + z)

    def hit(self, vx: float, vy: float) -> None:
        """Take a car's impact: a velocity, and a fall unless it is invincible."""
        self.set_world_velocity(vx, vy, self.vz)
        if not self._invincible:
            self.lies_s = LIES_S

    def box(self) -> list[Any]:
        """Return the BoundingBox struct."""
        return wire.bounding_box((0.0, 0.0, 0.0), (self.radius_m, self.radius_m, self.half_height_m))

    @property
    def at(self) -> Walker:
        """The object with its x, y and z (m)."""
        return self

    def drawn(self, _elapsed_s: float = 0.0) -> Person:
        """Return its shape for cameras."""
        state = self.state.tolist()
        x, y, z, yaw, vx, vy, *_ = state
        lying = state[Column.LIES_S] > 0.0
        walks = not lying and vx * vx + vy * vy > WALKS_FROM_M2PS2
        phase = strides(state[Column.STRIDES_M], self.half_height_m) if walks else None
        size = self.radius_m, self.radius_m, self.half_height_m
        place = Pose(x, y, z, LYING_RAD if lying else 0.0, yaw, 0.0)
        person = Person(place, size, self.look, phase, actor=self.id)
        if self._blend > 0.0:
            return replace(
                person, given=skeleton.blended(person.posture, self._pose or skeleton.REFERENCE, self._blend)
            )
        return person

    def keep_pose(self) -> None:
        """Take the present gait as the pose to blend in."""
        self._pose = self.drawn().posture

    def set_bones(self, given: Mapping[str, Pose]) -> None:
        """Place bones of that pose relative to their parents (m); the first call starts from the present gait."""
        height_m = 2.0 * self.half_height_m
        self._pose = skeleton.moved(
            self._pose or self.drawn().posture,
            {bone: replace(at, x=at.x / height_m, y=at.y / height_m, z=at.z / height_m) for bone, at in given.items()},
        )

    def blend_pose(self, share: float) -> None:
        """Show this share of the pose, 0 to 1, and the rest of the gait."""
        self._blend = max(0.0, min(1.0, share))

    def bones(self) -> Iterator[tuple[str, Pose, Pose, Pose]]:
        """Yield each bone's name and its pose in the world, from the body's centre, and from its parent (m)."""
        posture, height_m = self.drawn().posture, 2.0 * self.half_height_m
        for bone, joint, local in zip(skeleton.BONES, skeleton.joints(posture), posture, strict=True):
            of_body = skeleton.pose(joint, height_m)
            yield bone, compose(self.place, of_body), of_body, skeleton.pose(local, height_m)

    def surrounds(self, x: float, y: float, z: float) -> bool:
        """Return whether a point is so near that a camera there would see only the inside of a head."""
        return math.hypot(x - self.x, y - self.y) < 0.4 and abs(z - self.z) < self.half_height_m + 0.3


class AiController(Actor):
    """The client's AI controller of a walker: on the server only an attached actor."""

    def entered(self, world: Surroundings) -> None:
        """Tick until the walker has been in a world message.

        A client believes that a walker without a world message is at (0, 0, 0), and may crash when it starts the
        walker. CARLA's replies are a frame apart.
        """
        if self.parent is not None and self.parent.id >= world.unseen and not world.settings.synchronous:
            world.tick()

    @property
    def pose(self) -> Pose:
        """Pose of its walker."""
        return self.place if self.parent is None else self.parent.pose

    def record(self, into: bytearray, offset: int) -> None:
        """Write this controller's record into the world message."""
        at = self.parent if isinstance(self.parent, Walker) else self.place
        wire.PLAIN_RECORD.pack_into(
            into, offset, self.id, wire.ACTIVE, at.x, at.y, at.z, 0.0, math.degrees(at.yaw), 0.0
        )


register(Walker, *ids_of(WalkerBlueprint))
register(AiController, AI_CONTROLLER)
