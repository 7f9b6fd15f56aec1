"""Driving by target speed and wheel angle instead of pedals (``apply_ackermann_control``).

Owns CARLA's controller (AckermannController.cpp): speed → acceleration → pedal, each by a PID controller whose output
is summed tick by tick. Never touches the body.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from carla_lite.motion.physics import Body, Control

# Speeds below which the controller stops the car, and allows a change of direction (m/s).
_STANDING_MPS = 0.1
# Limits for a target acceleration of 0, which asks for the greatest possible one.
_MOST_ACCELERATION_MPS2, _MOST_DECELERATION_MPS2 = 3.0, 8.0
_LEAST_STEER_SPEED, _LEAST_ACCELERATION = 1e-3, 1e-4
DEFAULT_SETTINGS = (0.15, 0.0, 0.25, 0.01, 0.0, 0.01)
"""AckermannControllerSettings in wire order: the gains of the speed's PID controller, then those of the acceleration's.
"""


@dataclass(frozen=True)
class Ackermann:
    """VehicleAckermannControl in wire order: radians, m/s, m/s². As in CARLA, jerk is ignored."""

    steer_rad: float
    steer_speed_radps: float
    speed_mps: float
    acceleration_mps2: float
    jerk_mps3: float


class Pid:
    """A PID controller whose output is limited to ±1."""

    def __init__(self, kp: float, ki: float, kd: float) -> None:
        self.kp, self.ki, self.kd = kp, ki, kd
        self.reset()

    def reset(self) -> None:
        """Forget all measurements."""
        self._integral = self._last = 0.0

    def step(self, wanted: float, measured: float, dt: float) -> float:
        """Return the output for a wanted and a measured value."""
        error = wanted - measured
        self._integral = _cut(self._integral + self.ki * error * dt, 1.0)
        out = self.kp * error + self._integral - self.kd * (measured - self._last) / dt
        self._last = measured
        return _cut(out, 1.0)


class AckermannController:
    """The controller of one vehicle."""

    def __init__(self) -> None:
        self._speed, self._acceleration = Pid(*DEFAULT_SETTINGS[:3]), Pid(*DEFAULT_SETTINGS[3:])
        self.target: Ackermann | None = None
        """The present target; None if it isn't active."""
        self.reset()

    @property
    def settings(self) -> tuple[float, float, float, float, float, float]:
        """The gains, in the order of ``DEFAULT_SETTINGS``; setting them keeps the target."""
        speed, acceleration = self._speed, self._acceleration
        return speed.kp, speed.ki, speed.kd, acceleration.kp, acceleration.ki, acceleration.kd

    @settings.setter
    def settings(self, gains: tuple[float, float, float, float, float, float]) -> None:
        for pid, (kp, ki, kd) in ((self._speed, gains[:3]), (self._acceleration, gains[3:])):
            pid.kp, pid.ki, pid.kd = kp, ki, kd

    def reset(self) -> None:
        """Forget target and state: pedals drive the vehicle again."""
        self.target = None
        self._speed.reset()
        self._acceleration.reset()
        self._reverse = False
        self._wanted_mps2 = self._pedal = self._last_mps = self._felt_mps2 = 0.0

    def control(self, body: Body, target: Ackermann, dt: float) -> Control:
        """Return the pedals, gear and steering of this tick."""
        speed = body.vx
        self._felt_mps2 = (4.0 * self._felt_mps2 + (speed - self._last_mps) / dt) / 5.0
        self._last_mps = speed
        control = Control(steer=_steer(body, target, dt), reverse=self._reverse)
        if abs(speed) < _STANDING_MPS and abs(target.speed_mps) < _STANDING_MPS:
            control.brake = 1.0
            return control
        wanted_mps = target.speed_mps
        if abs(speed) < _STANDING_MPS:
            self._reverse = wanted_mps < 0.0
        elif speed * wanted_mps < 0.0:
            wanted_mps = 0.0  # it stops before it reverses
        self._wanted_mps2 += self._speed.step(wanted_mps, speed, dt)
        limit = abs(target.acceleration_mps2)
        unlimited = limit < _LEAST_ACCELERATION
        low, high = (_MOST_DECELERATION_MPS2, _MOST_ACCELERATION_MPS2) if unlimited else (limit, limit)
        self._wanted_mps2 = max(-low, min(high, self._wanted_mps2))
        self._pedal = _cut(self._pedal + self._acceleration.step(self._wanted_mps2, self._felt_mps2, dt), 1.0)
        control.reverse = self._reverse
        if (self._pedal < 0.0) == self._reverse:
            control.throttle = abs(self._pedal)
        else:
            control.brake = abs(self._pedal)
        return control


def _steer(body: Body, target: Ackermann, dt: float) -> float:
    """Return the steering from -1 to 1, which approaches the target by ``steer_speed`` per second."""
    most = body.model.max_steer_rad
    wanted, now = _cut(target.steer_rad, most), body.control.steer * most
    reach = abs(target.steer_speed_radps) * dt
    if abs(target.steer_speed_radps) >= _LEAST_STEER_SPEED and abs(wanted - now) >= reach:
        wanted = now + math.copysign(reach, wanted - now)
    return wanted / most


def _cut(value: float, most: float) -> float:
    return max(-most, min(most, value))
