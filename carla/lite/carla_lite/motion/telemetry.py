"""Telemetry of a vehicle's wheels: angles, and the forces between tyres and road (``get_telemetry_data``).

Owns how the single-track model's axles are read as four wheels. Changes nothing that it reads.

The forces follow from the accelerations of the last step, by Newton's laws: along the vehicle without drag and slope,
shared between the axles like drive or brakes; across it by the axles' distances. Both wheels of an axle have half of
its force.
"""

from __future__ import annotations

import math
from dataclasses import astuple, dataclass

from carla_lite.motion.physics import Body
from carla_lite.motion.vehicles import TYRE_SCALE

FRONT_LEFT, FRONT_RIGHT, REAR_LEFT, REAR_RIGHT = range(4)
WHEELS = (FRONT_LEFT, FRONT_RIGHT, REAR_LEFT, REAR_RIGHT)
"""VehicleWheelLocation, numbered as in CARLA."""
_TRACK_SHARE = 0.8
"""Distance between the wheels of an axle, as a share of the vehicle's width."""
_CREEPS_MPS = 0.1
# PhysX wraps an angle to 0 here.
_MOST_TURNED_RAD = 10.0 * math.pi


def track_m(body: Body) -> float:
    """Return the distance between the wheels of an axle."""
    return _TRACK_SHARE * 2.0 * body.model.half_width_m


def wheel_steer_rad(body: Body, wheel: int) -> float:
    """Return a wheel's angle, positive to the right.

    The inner front wheel has the steering angle, the outer one the angle for the same turning centre (Ackermann's
    geometry, as in PhysX).
    """
    angle = body.steer_angle
    if wheel in (REAR_LEFT, REAR_RIGHT) or angle == 0.0:
        return 0.0
    if wheel == (FRONT_RIGHT if angle > 0.0 else FRONT_LEFT):
        return angle
    wheelbase = body.model.wheelbase_m
    outer = math.atan2(wheelbase, track_m(body) + wheelbase / math.tan(abs(angle)))
    return math.copysign(outer, angle)


def wheel_pitch_rad(body: Body) -> float:
    """Return how far a wheel has rolled: negative ahead, as in Unreal's ``GetRotationAngle``."""
    return 0.0 - math.fmod(body.rolled_m / body.model.wheel_radius_m, _MOST_TURNED_RAD)


@dataclass(frozen=True)
class WheelTelemetry:
    """WheelTelemetryData in wire order: degrees, rad/s, N, N m."""

    tire_friction: float
    lat_slip_deg: float
    long_slip: float
    omega_radps: float
    tire_load_n: float
    normalized_tire_load: float
    torque_nm: float
    long_force_n: float
    lat_force_n: float
    normalized_long_force: float
    normalized_lat_force: float


def telemetry(body: Body) -> list[object]:
    """Return VehicleTelemetryData: speed (m/s), steering, throttle, brake, motor (rpm), gear, drag (N), wheels."""
    asked = body.control
    drag = body.model.drag_n_per_mps2 * body.vx * body.vx
    wheels = [list(astuple(_wheel(body, wheel))) for wheel in WHEELS]
    return [body.vx, asked.steer, asked.throttle, asked.brake, body.rpm, body.gear, drag, wheels]


def _wheel(body: Body, wheel: int) -> WheelTelemetry:
    model, front = body.model, wheel in (FRONT_LEFT, FRONT_RIGHT)
    rest_n = 0.5 * (model.load_front_n if front else model.load_rear_n)
    shifted_n = 0.5 * model.mass_kg * body.ax * model.mass_height_m / model.wheelbase_m
    load_n = max(0.0, rest_n - shifted_n if front else rest_n + shifted_n)
    along_n, across_n = (0.5 * force for force in _axle_forces(body, front))
    ahead_mps, aside_mps = _contact_velocity(body, wheel)
    slip = 2.0 * along_n / model.slip_force_n if model.slip_force_n else 0.0
    rolls = abs(ahead_mps) > _CREEPS_MPS
    radius_m = model.wheel_radius_m
    return WheelTelemetry(
        TYRE_SCALE * (model.front_tyre_friction if front else model.rear_tyre_friction),
        math.degrees(math.atan2(aside_mps, abs(ahead_mps))) if rolls else 0.0,
        slip,
        (1.0 + slip) * ahead_mps / radius_m,
        load_n,
        load_n / rest_n,
        along_n * radius_m,
        along_n,
        across_n,
        abs(along_n) / rest_n,
        abs(across_n) / rest_n,
    )


def _axle_forces(body: Body, front: bool) -> tuple[float, float]:
    """Return the road's force on an axle's tyres, along and across the vehicle (N)."""
    model, asked = body.model, body.control
    if not body.simulate_physics:
        return 0.0, 0.0
    drag = model.drag_n_per_mps2 * body.vx * abs(body.vx)
    along = model.mass_kg * body.ax + drag + model.weight_n * math.sin(body.pitch)
    brakes = along * body.vx < 0.0 and asked.brake > 0.0
    at_front = model.brake_front_share if brakes else model.drive_front_share
    share = at_front if front else 1.0 - at_front
    other_axle_m = model.rear_axle_m if front else model.front_axle_m
    return along * share, model.mass_kg * body.ay * other_axle_m / model.wheelbase_m


def _contact_velocity(body: Body, wheel: int) -> tuple[float, float]:
    """Return the velocity of a wheel's contact point, along and across the wheel (m/s)."""
    model, r = body.model, body.yaw_rate
    front = wheel in (FRONT_LEFT, FRONT_RIGHT)
    forward = model.front_axle_m if front else -model.rear_axle_m
    right = 0.5 * track_m(body) * (1.0 if wheel in (FRONT_RIGHT, REAR_RIGHT) else -1.0)
    vx, vy = body.vx - r * right, body.vy + r * forward
    angle = wheel_steer_rad(body, wheel)
    c, s = math.cos(angle), math.sin(angle)
    return c * vx + s * vy, c * vy - s * vx
