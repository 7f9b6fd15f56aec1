"""The agent's car: one vehicle that is teleported to each route's start and never replaced while the simulator lives.

Owns the vehicle and, through ``SensorRig``, its sensors. Reusing them leaks less than respawning: CARLA keeps memory
of destroyed sensors (facts, section 4). Knows nothing of rewards and observations.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import carla

from agent.config import CameraConfig
from agent.env.route_line import Route
from agent.env.sensors import SensorRig
from agent.env.session import ROLE_PREFIX, Session, SimulatorLost

ROLE = f"{ROLE_PREFIX}ego"
BLUEPRINT = "vehicle.tesla.model3"
# A car put on the road's surface itself would touch it; it is dropped from here and braked until it lies still.
DROP_M = 0.3
SETTLE_TICKS = 6


@dataclass(frozen=True)
class Motion:
    """The car in one frame: metres, radians, metres a second, in the world's frame."""

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
        SimulatorLost: the simulator would not spawn it.
    """

    def __init__(self, session: Session, camera: CameraConfig, route: Route) -> None:
        self._session = session
        self._control = carla.VehicleControl()
        blueprint = session.world.get_blueprint_library().find(BLUEPRINT)
        blueprint.set_attribute("role_name", ROLE)
        try:
            self.actor: Any = session.world.spawn_actor(blueprint, start_of(route))
            session.tick()
            self.sensors = SensorRig(session, self.actor, camera)
        except RuntimeError as error:
            raise SimulatorLost(f"The simulator at {session.address} gave no car: {error}.") from None

    def place(self, route: Route) -> Motion:
        """Put the car at rest on the route's start and return its motion in the frame that shows it there."""
        still = carla.Vector3D()
        self.actor.set_transform(start_of(route))
        self.actor.set_target_velocity(still)
        self.actor.set_target_angular_velocity(still)
        self.actor.apply_control(carla.VehicleControl(brake=1.0, hand_brake=True))
        for _ in range(SETTLE_TICKS):
            frame = self._session.tick()
        return self.motion(frame)

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
        """Return the motion in the newest frame, which must be ``frame``."""
        seen = self._session.world.get_snapshot().find(self.actor.id)
        if seen is None:
            raise SimulatorLost("The car is gone from the simulator: somebody else destroyed it.")
        pose, velocity = seen.get_transform(), seen.get_velocity()
        return Motion(frame, pose.location.x, pose.location.y, math.radians(pose.rotation.yaw), velocity.x, velocity.y)

    def abandon(self) -> None:
        """Stop listening to a simulator that is gone."""
        self.sensors.stop()

    def destroy(self) -> None:
        """Destroy the sensors, then the vehicle."""
        self.sensors.destroy()
        self._session.destroy([self.actor])


def start_of(route: Route) -> carla.Transform:
    """Return the pose of a car that is about to drive ``route``."""
    x, y = (float(value) for value in route.points[0])
    yaw_deg = math.degrees(float(route.yaw[0]))
    return carla.Transform(carla.Location(x, y, route.start_z_m + DROP_M), carla.Rotation(yaw=yaw_deg))
