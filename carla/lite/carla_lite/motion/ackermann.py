"""Driving by target speed and wheel angle instead of pedals (``apply_ackermann_control``).

Owns the way from such a target to a control, once a tick: proportional in speed, with the force that the model needs.
Never touches the body.
"""

from __future__ import annotations

from dataclasses import dataclass

from carla_lite.motion.physics import Body, Control

_SPEED_GAIN = 2.0  # 1/s
_COMFORT_MPS2 = 3.0
_STANDING_MPS = 0.1


@dataclass(frozen=True)
class Ackermann:
    """VehicleAckermannControl, in its order on the wire: radians, m/s, m/s²; acceleration 0 means no limit asked."""

    steer_rad: float
    steer_speed_radps: float
    speed_mps: float
    acceleration_mps2: float
    jerk_mps3: float

    def control(self, body: Body) -> Control:
        """Return the pedals, gear and steering that bring the body nearer to the target."""
        model = body.model
        steer = self.steer_rad / model.max_steer_rad
        if abs(self.speed_mps) < _STANDING_MPS and abs(body.vx) < _STANDING_MPS:
            return Control(steer=steer, brake=1.0)
        limit = abs(self.acceleration_mps2) or _COMFORT_MPS2
        wanted = max(-limit, min(limit, _SPEED_GAIN * (self.speed_mps - body.vx)))
        reverse = self.speed_mps < 0.0
        force = model.mass_kg * (-wanted if reverse else wanted)
        if force < 0.0:
            return Control(steer=steer, brake=-force / model.brake_force_n, reverse=reverse)
        full = model.peak_torque_nm * model.gear_ratio / model.wheel_radius_m
        return Control(throttle=force / full, steer=steer, reverse=reverse)
