"""The agent's car: one vehicle, teleported to each route's start and kept while the simulator lives.

Owns the vehicle and, through ``SensorRig``, its sensors. Reusing them leaks less than respawning: CARLA keeps memory of
destroyed sensors (facts, section 4). Knows nothing of rewards and observations.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import carla

from carla_td3.config import CameraConfig
from carla_td3.env.route_line import Route
from carla_td3.env.sensors import FrameCamera, SensorRig
from carla_td3.env.session import ROLE_PREFIX, BlockedStart, Session, SimulatorLost

ROLE = f"{ROLE_PREFIX}ego"
BLUEPRINT = "vehicle.tesla.model3"
# A car that is put down level on a slope would stick in the road (half its length times the gradient: 0.48 m at 20 %),
# and a simulator refuses that (facts, section 5). So it is dropped from this height, and braked until it has fallen
# (0.32 s) and its springs are at rest.
DROP_M = 0.5
SETTLE_S = 1.0
SOLID = ("vehicle.", "walker.pedestrian.")
# Cars overlap if their centres are nearer than all three: lengths (of a lorry, too), widths, and levels of a road.
AHEAD_M, BESIDE_M, ABOVE_M = 6.0, 2.3, 3.0
# A car that is farther from the start than it rolls while it settles was pushed off something that stands there.
STRAY_M = 0.5


@dataclass(frozen=True)
class Motion:
    """Motion of the car in one frame, in the world frame: metres, radians, metres per second."""

    frame: int
    x_m: float
    y_m: float
    yaw: float
    vx_mps: float
    vy_mps: float

    @property
    def speed_mps(self) -> float:
        """Speed over ground."""
        return math.hypot(self.vx_mps, self.vy_mps)


class Car:
    """The vehicle and its sensors.

    Args:
        session: connected and synchronous.
        route: where the car appears.

    Raises:
        BlockedStart: something stands where the car is to appear.
        SimulatorLost: the simulator gave no car, or no sensor.
    """

    def __init__(self, session: Session, camera: CameraConfig, route: Route) -> None:
        self._session = session
        self._control = carla.VehicleControl()
        with session.answered():
            blueprint = session.world.get_blueprint_library().find(BLUEPRINT)
            blueprint.set_attribute("role_name", ROLE)
            self.actor: Any = session.spawn_car(blueprint, start_of(route))
            session.tick()
            self.sensors = SensorRig(session, self.actor, camera)

    def place(self, route: Route) -> Motion:
        """Put the car at rest on the route's start and return its motion in the frame that shows it there.

        Raises:
            BlockedStart: another vehicle or a pedestrian is there, or the car ended up elsewhere.
            SimulatorLost: see ``Session.tick``.
        """
        still, start = carla.Vector3D(), start_of(route)
        # Check first, in a new frame: a car that is moved into another one throws it aside, and is thrown aside itself.
        self._session.tick()
        if self._is_taken(start):
            raise BlockedStart(start.location)
        self.actor.set_transform(start)
        self.actor.set_target_velocity(still)
        self.actor.set_target_angular_velocity(still)
        self.actor.apply_control(carla.VehicleControl(brake=1.0, hand_brake=True))
        for _ in range(math.ceil(SETTLE_S / self._session.config.fixed_delta_s)):
            frame = self._session.tick()
        motion = self.motion(frame)
        if math.hypot(motion.x_m - start.location.x, motion.y_m - start.location.y) > STRAY_M:
            raise BlockedStart(start.location)
        return motion

    def _is_taken(self, start: carla.Transform) -> bool:
        """Return whether another actor stands at the start in the newest frame."""
        axes = (
            (start.get_forward_vector(), AHEAD_M),
            (start.get_right_vector(), BESIDE_M),
            (carla.Vector3D(z=1.0), ABOVE_M),
        )
        with self._session.answered():
            others = [other for other in self._session.world.get_actors() if other.id != self.actor.id]
        gaps = [other.get_location() - start.location for other in others if other.type_id.startswith(SOLID)]
        return any(all(abs(gap.dot(axis)) < reach_m for axis, reach_m in axes) for gap in gaps)

    def add_view(self, pixels: int) -> FrameCamera:
        """Add another camera to the car, see ``SensorRig.add_view``."""
        return self.sensors.add_view(self.actor, pixels)

    def drive(self, steer: float, pedal: float) -> Motion:
        """Apply a control, advance one step and return the motion after it.

        Args:
            steer: -1 (left) to 1 (right).
            pedal: throttle where positive, brake where negative, -1 to 1.
        """
        control = self._control
        control.steer = steer
        control.throttle, control.brake = max(pedal, 0.0), max(-pedal, 0.0)
        self.actor.apply_control(control)
        return self.motion(self._session.tick())

    def motion(self, frame: int) -> Motion:
        """Return the motion in the newest frame, which must be ``frame``.

        Raises:
            SimulatorLost: the car or one of its sensors isn't in it.
        """
        snapshot = self._session.world.get_snapshot()
        seen = snapshot.find(self.actor.id)
        if seen is None or not self.sensors.are_in(snapshot):
            what = "The car" if seen is None else "A sensor of the car"
            raise SimulatorLost(f"{what} is gone from the simulator: another client destroyed it.")
        pose, velocity = seen.get_transform(), seen.get_velocity()
        return Motion(frame, pose.location.x, pose.location.y, math.radians(pose.rotation.yaw), velocity.x, velocity.y)

    def abandon(self) -> None:
        """Stop listening to a lost simulator: its streams must not reconnect to the next one."""
        self.sensors.stop()
        del self.sensors, self.actor

    def destroy(self) -> None:
        """Destroy the sensors, then the vehicle."""
        self.sensors.destroy()
        self._session.destroy([self.actor])
        del self.sensors, self.actor


def start_of(route: Route) -> carla.Transform:
    """Return the pose of a car that is about to drive ``route``."""
    x, y = (float(value) for value in route.points[0])
    yaw_deg = math.degrees(float(route.yaw[0]))
    return carla.Transform(carla.Location(x, y, route.start_z_m + DROP_M), carla.Rotation(yaw=yaw_deg))
