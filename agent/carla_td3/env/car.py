"""The agent's car: one vehicle, which is teleported to the start of each route.

Owns the vehicle, and its sensors through ``SensorRig``. Both are kept as long as the simulator runs, because CARLA does
not free all memory of destroyed sensors (facts, section 4). Knows nothing of rewards and observations.
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
# Height above the road at which the car is placed. It is placed level: on a slope of 20 % one end would otherwise be
# 0.48 m below the road (half the length times the gradient), and a simulator refuses that (facts, section 5).
DROP_M = 0.5
# Time that the car then brakes. It falls for 0.32 s, and its springs come to rest.
SETTLE_S = 1.0
# Types of actors that can block the start.
BLOCKING_TYPES = ("vehicle.", "walker.pedestrian.")
# An actor blocks the start if its centre is nearer than all three: along the car (enough for a lorry), across it, and
# in height (less than between two levels of road).
CLEAR_AHEAD_M, CLEAR_BESIDE_M, CLEAR_ABOVE_M = 6.0, 2.3, 3.0
# Largest distance from the start after SETTLE_S. A car that is farther away was pushed aside by an obstacle.
MAX_SHIFT_M = 0.5


@dataclass(frozen=True)
class Motion:
    """Position, heading and velocity of the car in one tick, in world coordinates: m, rad, m/s."""

    frame: int
    x_m: float
    y_m: float
    yaw: float
    vx_mps: float
    vy_mps: float

    @property
    def speed_mps(self) -> float:
        """Horizontal speed."""
        return math.hypot(self.vx_mps, self.vy_mps)


class Car:
    """The vehicle and its sensors.

    Args:
        session: connected session in synchronous mode.
        camera: settings of the front camera.
        route: the car is spawned at its start.

    Raises:
        BlockedStart: another actor stands at the start.
        SimulatorLost: the simulator spawned no car or no sensor.
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
        """Move the car to the start of a route, wait until it is at rest, and return its motion there.

        Raises:
            BlockedStart: another vehicle or a pedestrian is at the start, or something pushed the car away from it.
            SimulatorLost: see ``Session.tick``.
        """
        zero, start = carla.Vector3D(), start_of(route)
        # Check before the move, in a new frame: a car that is moved into another car throws both aside.
        self._session.tick()
        if self._is_blocked(start):
            raise BlockedStart(start.location)
        self.actor.set_transform(start)
        self.actor.set_target_velocity(zero)
        self.actor.set_target_angular_velocity(zero)
        self.actor.apply_control(carla.VehicleControl(brake=1.0, hand_brake=True))
        for _ in range(math.ceil(SETTLE_S / self._session.config.fixed_delta_s)):
            frame = self._session.tick()
        motion = self.motion(frame)
        if math.hypot(motion.x_m - start.location.x, motion.y_m - start.location.y) > MAX_SHIFT_M:
            raise BlockedStart(start.location)
        return motion

    def _is_blocked(self, start: carla.Transform) -> bool:
        """Return whether another actor stands at the start in the newest frame."""
        axes = (
            (start.get_forward_vector(), CLEAR_AHEAD_M),
            (start.get_right_vector(), CLEAR_BESIDE_M),
            (carla.Vector3D(z=1.0), CLEAR_ABOVE_M),
        )
        with self._session.answered():
            others = [other for other in self._session.world.get_actors() if other.id != self.actor.id]
        gaps = [other.get_location() - start.location for other in others if other.type_id.startswith(BLOCKING_TYPES)]
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
        """Return the motion in the newest frame, whose number is ``frame``.

        Raises:
            SimulatorLost: the car or one of its sensors isn't in that frame.
        """
        snapshot = self._session.world.get_snapshot()
        car = snapshot.find(self.actor.id)
        if car is None or not self.sensors.are_in(snapshot):
            missing = "The car" if car is None else "A sensor of the car"
            raise SimulatorLost(f"{missing} is gone from the simulator: another client destroyed it.")
        pose, velocity = car.get_transform(), car.get_velocity()
        return Motion(frame, pose.location.x, pose.location.y, math.radians(pose.rotation.yaw), velocity.x, velocity.y)

    def abandon(self) -> None:
        """Stop the sensor streams of a lost simulator, so that they don't reconnect to the next simulator."""
        self.sensors.stop()
        del self.sensors, self.actor

    def destroy(self) -> None:
        """Destroy the sensors, then the vehicle."""
        self.sensors.destroy()
        self._session.destroy([self.actor])
        del self.sensors, self.actor


def start_of(route: Route) -> carla.Transform:
    """Return the pose at the start of ``route`` in which the car is placed: level, ``DROP_M`` above the road."""
    x, y = (float(value) for value in route.points[0])
    yaw_deg = math.degrees(float(route.yaw[0]))
    return carla.Transform(carla.Location(x, y, route.start_z_m + DROP_M), carla.Rotation(yaw=yaw_deg))
