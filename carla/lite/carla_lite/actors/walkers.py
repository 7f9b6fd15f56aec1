"""Walkers: actors that move as a control or a client's crowd says, and fall when a car hits them.

Owns the motion of one walker, and the pose that a client gives it. It plans no paths: the client does, on the
navigation mesh, and sends each tick's state. ``actors.walker_hits`` finds hits by vehicles.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar

from carla_lite.actors.actor import Actor, Identity, compose, register
from carla_lite.actors.surroundings import Surroundings
from carla_lite.blueprints.catalogue import ids_of
from carla_lite.blueprints.walkers import AI_CONTROLLER, WalkerBlueprint
from carla_lite.motion.physics import Ground
from carla_lite.motion.vehicles import GRAVITY_MPS2
from carla_lite.protocol import wire
from carla_lite.protocol.wire import Vector
from carla_lite.scenery import skeleton
from carla_lite.scenery.camera import Pose
from carla_lite.scenery.people import Person
from carla_lite.scenery.statics import StaticIndex
from carla_lite.support import Support, approximated

# Of Unreal's characters, as CARLA's are: the largest speed, and the impulse of a jump.
TOP_SPEED_MPS = 40.96
JUMP_MPS = 4.2
ACCELERATION_MPS2 = 10.0
TURN_RADPS = 2.0 * math.pi
LIES_S = 10.0
# Deceleration of a fallen walker that slides on asphalt.
SLIDING_MPS2 = 6.0
STRIDE_M = 1.5  # length of two steps of an adult
_FLAT = math.pi / 2


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
        self.x, self.y, self.z, self.yaw = place.x, place.y, place.z, place.yaw
        self.vx = self.vy = self.vz = 0.0
        self.radius_m, self.half_height_m = blueprint.radius_m, blueprint.half_height_m
        self.mass_kg = blueprint.mass_kg
        self._lies_s, self._dead = 0.0, False
        super().__init__(identity, place)
        self.control = WalkerControl()
        self.collides = self.gravity = self.simulate_physics = True
        self.yaw_rate = 0.0
        self._invincible = self.attributes["is_invincible"].lower() not in ("false", "0")
        wheelchair = self.attributes["use_wheelchair"].lower() == "true"
        self._look = blueprint.look(wheelchair)
        self._sent = False
        self._strides = 0.0
        self._pose: skeleton.Posture | None = None
        self._blend = 0.0
        self._acceleration = 0.0, 0.0

    def entered(self, world: Surroundings) -> None:
        """Join the world's walkers.

        Raises:
            RpcError: a walker or a vehicle is in its place.
        """
        # As in CARLA's spawner, a walker that would be partly in the ground is lifted. One that is completely below it,
        # where scenario runners keep walkers for later, touches nothing.
        stands = world.network.height(self.x, self.y) + self.half_height_m
        if self.z > stands - 2.0 * self.half_height_m:
            self.z = max(self.z, stands)
        if not world.has_room(self):
            raise wire.RpcError(wire.NO_ROOM)
        world.walkers.append(self)

    def left(self, world: Surroundings) -> None:
        """Leave the world's walkers."""
        world.walkers.remove(self)

    @property
    def place(self) -> Pose:
        """Pose of the centre of the body; setting it teleports, and stands a fallen walker up."""
        return Pose(self.x, self.y, self.z, -_FLAT if self._lies_s > 0.0 else 0.0, self.yaw, 0.0)

    @place.setter
    def place(self, place: Pose) -> None:
        self.x, self.y, self.z, self.yaw = place.x, place.y, place.z, place.yaw
        if not self._dead:
            self._lies_s = 0.0

    @property
    def lies(self) -> bool:
        """Whether a car has knocked it over."""
        return self._lies_s > 0.0

    @property
    def is_gone(self) -> bool:
        """Whether it has been dead for long enough to be removed."""
        return self._dead and self._lies_s == 0.0

    def die(self) -> None:
        """Fall, and be removed 10 s later, as in CARLA: a client's crowd asks for it after a car hit a walker."""
        self._dead, self._lies_s = True, LIES_S

    def follow(self, place: Pose, speed: float, ground: float) -> None:
        """Take the state that a crowd computed: a place on the ground (m) and a speed along its yaw (m/s)."""
        if self._lies_s > 0.0:
            return
        self.x, self.y, self.z, self.yaw = place.x, place.y, ground + self.half_height_m, place.yaw
        c, s = math.cos(place.yaw), math.sin(place.yaw)
        self.control = WalkerControl((c, s, 0.0), speed)
        self.vx, self.vy, self.vz = c * speed, s * speed, 0.0
        self._sent = True

    def set_world_velocity(self, vx: float, vy: float, vz: float) -> None:
        """Set the velocity (m/s); a control then returns it to the control's velocity."""
        top = TOP_SPEED_MPS
        self.vx, self.vy, self.vz = (max(-top, min(top, v)) for v in (vx, vy, vz))

    def push(self, impulse: Vector) -> None:
        """Add an impulse (N s)."""
        x, y, z = (part / self.mass_kg for part in impulse)
        self.set_world_velocity(self.vx + x, self.vy + y, self.vz + z)

    def hit(self, vx: float, vy: float) -> None:
        """Take a car's impact: a velocity, and a fall unless it is invincible."""
        self.set_world_velocity(vx, vy, self.vz)
        if not self._invincible:
            self._lies_s = LIES_S

    def step(self, dt: float, ground: Ground, statics: StaticIndex) -> None:
        """Move by ``dt`` seconds, unless a crowd has sent this tick's place."""
        self._lies_s = max(0.0, self._lies_s - dt)
        if self._sent or not self.simulate_physics:
            self._sent = False
            self._strides += math.hypot(self.vx, self.vy) * dt
            return
        before = self.vx, self.vy
        self._accelerate(dt)
        self._acceleration = (self.vx - before[0]) / dt, (self.vy - before[1]) / dt
        if self.vx or self.vy:
            self.x += self.vx * dt
            self.y += self.vy * dt
            self._strides += math.hypot(self.vx, self.vy) * dt
            self._keep_out(statics)
        self._stand(dt, ground)

    def _accelerate(self, dt: float) -> None:
        """Change the velocity towards the control's, and the yaw towards its direction."""
        lying = self._lies_s > 0.0
        x, y = (0.0, 0.0) if lying else self._wanted()
        dx, dy = x - self.vx, y - self.vy
        if dx or dy:
            most = (SLIDING_MPS2 if lying else ACCELERATION_MPS2) * dt
            change = math.hypot(dx, dy)
            self.vx, self.vy = (
                (x, y) if change <= most else (self.vx + dx / change * most, self.vy + dy / change * most)
            )
        if x or y:
            turn = math.remainder(math.atan2(y, x) - self.yaw, math.tau)
            self.yaw += max(-TURN_RADPS * dt, min(TURN_RADPS * dt, turn))
        elif self.yaw_rate and not lying:
            self.yaw += self.yaw_rate * dt

    def _wanted(self) -> tuple[float, float]:
        x, y, _ = self.control.direction
        length = math.hypot(x, y)
        if not length or not self.control.speed:
            return 0.0, 0.0
        # Unreal clips a direction longer than 1, and takes a shorter one as a share of the speed.
        speed = min(self.control.speed, TOP_SPEED_MPS) * min(1.0, length) / length
        return x * speed, y * speed

    def _keep_out(self, statics: StaticIndex) -> None:
        """Slide along obstacles."""
        r = self.radius_m
        for i in statics.at(self.x, self.y):
            box = statics.boxes[i]
            if not box.solid or self.z + self.half_height_m < box.z - box.half_height_m:
                continue
            dx, dy = self.x - box.x, self.y - box.y
            along, across = dx * box.cos + dy * box.sin, dy * box.cos - dx * box.sin
            over_x, over_y = box.half_length_m + r - abs(along), box.half_width_m + r - abs(across)
            if over_x <= 0.0 or over_y <= 0.0:
                continue
            if over_x < over_y:
                along += math.copysign(over_x, along)
            else:
                across += math.copysign(over_y, across)
            self.x = box.x + along * box.cos - across * box.sin
            self.y = box.y + along * box.sin + across * box.cos

    def _stand(self, dt: float, ground: Ground) -> None:
        """Follow the ground, jump, or fall to it."""
        height = ground(self.x, self.y) + (self.radius_m if self._lies_s > 0.0 else self.half_height_m)
        on_ground = self.z <= height + 1e-3
        if on_ground and self.control.jump and self._lies_s == 0.0:
            self.vz, self.control.jump, on_ground = JUMP_MPS, False, False
        if not self.gravity:
            self.z += self.vz * dt
            return
        if not on_ground or self.vz > 0.0:
            self.vz -= GRAVITY_MPS2 * dt
            self.z += self.vz * dt
        # Kerbs and slopes are walked down, without falling.
        if self.z < height or (on_ground and self.vz <= 0.0):
            self.z, self.vz = height, 0.0

    def box(self) -> list[Any]:
        """Return the BoundingBox struct."""
        return wire.bounding_box((0.0, 0.0, 0.0), (self.radius_m, self.radius_m, self.half_height_m))

    @property
    def at(self) -> Walker:
        """The object with its x, y and z (m)."""
        return self

    def drawn(self, _elapsed_s: float = 0.0) -> Person:
        """Return its shape for cameras."""
        lying = self._lies_s > 0.0
        walks = not lying and self.vx * self.vx + self.vy * self.vy > 0.01
        phase = self._strides / (STRIDE_M * self.half_height_m / 0.93) if walks else None
        size = self.radius_m, self.radius_m, self.half_height_m
        person = Person(self.place, size, self._look, phase, actor=self.id)
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

    def record(self, into: bytearray, offset: int) -> None:
        """Write this walker's record into the world message."""
        pitch = -90.0 if self._lies_s > 0.0 else 0.0
        control = self.control
        wire.WALKER_RECORD.pack_into(
            into,
            offset,
            self.id,
            wire.ACTIVE,
            self.x,
            self.y,
            self.z,
            pitch,
            math.degrees(self.yaw),
            0.0,
            self.vx,
            self.vy,
            self.vz,
            0.0,
            0.0,
            0.0,
            *self._acceleration,
            0.0,
            *control.direction,
            control.speed,
            control.jump,
        )


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
