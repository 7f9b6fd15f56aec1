"""The motion of one vehicle: a single-track model whose tyres are integrated implicitly.

Owns the state of a vehicle and its change over time. Never touches other vehicles, the scene or the wire. Scalar
``math`` code in a fixed order, so that equal inputs give equal trajectories, bit for bit.

The lateral tyre force is linear in the slip angle up to the friction limit that drive and brakes leave over (friction
circle). It enters the equations as a damper on the contact point's sideways velocity, solved implicitly for the new
sideways velocity and yaw rate (Rajamani, Vehicle Dynamics and Control, section 2.3, for the equations). As the car
slows, the damper grows without bound and the solution becomes rolling without slip, the kinematic single-track model:
one set of equations from standstill to top speed, stable at any step.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from math import atan2, copysign, cos, pi, remainder, sin, sqrt, tau

from carla_lite.motion.drivetrain import SETTLES_S, Drivetrain
from carla_lite.motion.vehicles import GRAVITY_MPS2, MODEL3, VehicleModel

__all__ = ["MAX_SUBSTEP_S", "MODEL3", "Body", "Control", "Ground", "VehicleModel", "advance", "step"]

Ground = Callable[[float, float, float], float]

MAX_SUBSTEP_S = 0.05
MAX_SPEED_MPS = 150.0
MAX_YAW_RATE_RADPS = 20.0
SLOW_MPS = 1e-3
# The steepest slope on which a car without pedals stands still. In gear a usual car of CARLA rolls there at 0.2 m/s;
# below that PhysX's tyres stick after a second (updateLowForwardSpeedTimer).
HELD_SLOPE = 0.07
AIRBORNE_M = 0.1  # downward travel of the springs: a bump is no flight
THROWN_MPS = 1.0  # a car that leaves the road faster than this was pushed; the springs don't hold it
BURIED_M = 5.0  # a car deeper than this is below the ground, where programs keep cars for later, and keeps falling


@dataclass(slots=True)
class Control:
    """The driver's control, with CARLA's field names; out-of-range values are clipped, NaN reads as 0."""

    throttle: float = 0.0
    steer: float = 0.0
    brake: float = 0.0
    hand_brake: bool = False
    reverse: bool = False
    manual_gear_shift: bool = False
    gear: int = 0


@dataclass(slots=True)
class Body:
    """State of one vehicle: origin on the ground below the centre of mass, CARLA's left-handed frame, radians.

    ``vx`` and ``vy`` are the velocity along the body's forward and right axes, ``ax`` and ``ay`` the acceleration along
    them (inertial, without gravity), ``yaw_rate`` is clockwise from above.
    """

    model: VehicleModel = MODEL3
    x: float = 0.0
    y: float = 0.0
    z: float = 0.0
    pitch: float = 0.0
    yaw: float = 0.0
    roll: float = 0.0
    vx: float = 0.0
    vy: float = 0.0
    vz: float = 0.0
    yaw_rate: float = 0.0
    ax: float = 0.0
    ay: float = 0.0
    steer_angle: float = 0.0
    gear: int = 1
    rpm: float = 0.0
    shifting_s: float = 0.0
    """Seconds that the gearbox still stays in its last gear; above ``SETTLES_S`` it is still shifting."""
    rolled_m: float = 0.0
    """Distance that the wheels have rolled, negative backwards."""
    control: Control = field(default_factory=Control)
    simulate_physics: bool = True
    gravity: bool = True
    placed: bool = field(default=True, compare=False, repr=False)
    """Whether it was just placed, and hasn't been checked for collisions since."""
    settled: tuple[object, ...] | None = field(default=None, compare=False, repr=False)
    """State that ``advance`` left at rest, if another step would change nothing."""

    def world_velocity(self) -> tuple[float, float, float]:
        """Return the velocity in the world's frame (m/s)."""
        c, s = math.cos(self.yaw), math.sin(self.yaw)
        return c * self.vx - s * self.vy, s * self.vx + c * self.vy, self.vz

    def is_in(self, ground: Ground, springs_m: float = AIRBORNE_M) -> bool:
        """Return whether a corner of its floor is deeper in the ground than the springs reach, but not below the
        ground.
        """
        length, width = self.model.half_length_m, self.model.half_width_m
        c, s, climb = math.cos(self.yaw), math.sin(self.yaw), math.sin(self.pitch)
        corners = ((u * length, v * width) for u in (1, -1) for v in (1, -1))
        return any(
            springs_m < ground(self.x + c * u - s * v, self.y + s * u + c * v, self.z) - (self.z + climb * u) < BURIED_M
            for u, v in corners
        )

    def set_world_velocity(self, vx: float, vy: float, vz: float = 0.0) -> None:
        """Set the velocity in the world's frame (m/s); each component is limited to ±150 m/s, NaN reads as 0."""
        vx, vy = _within(vx, -MAX_SPEED_MPS, MAX_SPEED_MPS), _within(vy, -MAX_SPEED_MPS, MAX_SPEED_MPS)
        c, s = math.cos(self.yaw), math.sin(self.yaw)
        self.vx, self.vy = c * vx + s * vy, c * vy - s * vx
        self.vz = _within(vz, -MAX_SPEED_MPS, MAX_SPEED_MPS)

    def push(self, impulse: tuple[float, float, float]) -> None:
        """Add an impulse in the world's frame (N s)."""
        mass = self.model.mass_kg
        vx, vy, vz = self.world_velocity()
        self.set_world_velocity(vx + impulse[0] / mass, vy + impulse[1] / mass, vz + impulse[2] / mass)


def advance(body: Body, dt: float, ground: Ground) -> None:
    """Move the body by ``dt`` seconds in equal substeps of at most ``MAX_SUBSTEP_S``."""
    # Many cars are parked or waiting: a car that a step left unchanged needs no further step.
    before = None if body.vx else _standing(body, dt)
    if before is not None and before == body.settled:
        return
    substeps = max(1, math.ceil(dt / MAX_SUBSTEP_S - 1e-9))
    for _ in range(substeps):
        step(body, dt / substeps, ground)
    body.settled = before if before is not None and _standing(body, dt) == before else None


def _standing(body: Body, dt: float) -> tuple[object, ...] | None:
    """Return all values that a step of a body at rest reads or changes; None if it moves."""
    if body.vx or body.vy or body.vz or body.yaw_rate or body.model.drive is not None:
        return None
    asked = body.control
    return (
        *(dt, body.x, body.y, body.z, body.pitch, body.yaw, body.roll, body.ax, body.ay, body.steer_angle),
        *(body.gear, body.rpm, body.simulate_physics, body.gravity, body.model),
        *(asked.throttle, asked.steer, asked.brake, asked.hand_brake),
        *(asked.reverse, asked.manual_gear_shift, asked.gear),
    )


def step(body: Body, dt: float, ground: Ground) -> None:  # noqa: PLR0915 (one set of equations, in one piece)
    """Move the body by one substep of ``dt`` ≤ 0.05 s; ``ground`` gives the height of the road at (x, y, z).

    Symbols: c, s cosine and sine of the front wheels' angle; a, b distances of the axles; X drive and brake force,
    N load, D lateral damping of an axle's contact (N s/m), the index f for the front and r for the rear axle.

    Called for each car at least twice per tick: limits are written out where a call would cost more than the sum.
    """
    if not body.simulate_physics:
        return
    model, control = body.model, body.control
    m, inertia, a, b = model.mass_kg, model.yaw_inertia_kgm2, model.front_axle_m, model.rear_axle_m
    vx, vy, r = body.vx, body.vy, body.yaw_rate
    weight, load_f, load_r = model.weight_n, model.load_front_n, model.load_rear_n
    grounded = _follow_ground(body, dt, ground)

    body.steer_angle = delta = _steered(body, dt)
    c, s = cos(delta), sin(delta)
    geared = model.drive
    if geared is not None:
        drive = _geared_force(body, geared, dt)
        drive = drive if grounded else 0.0
    else:
        drive = _drive_force(body) if grounded else 0.0
    pressed = control.brake
    brake = (pressed if 0.0 <= pressed <= 1.0 else _within(pressed, 0.0, 1.0)) * model.brake_force_n if pressed else 0.0
    hand = model.hand_brake_force_n if control.hand_brake else 0.0

    # Load shifts between the axles with the driver's demand; the true force is limited by friction below.
    resist = brake + hand
    demand = drive - copysign(resist if resist < weight else weight, vx) if abs(vx) > SLOW_MPS else 0.0
    if not -weight <= demand <= weight:
        demand = _within(demand, -weight, weight)
    shift = demand * model.mass_height_m / model.wheelbase_m
    limit_f = model.front_tyre_friction * (load_f - shift) if grounded else 0.0
    limit_f = limit_f if limit_f > 0.0 else 0.0
    limit_r = model.rear_tyre_friction * (load_r + shift) if grounded else 0.0
    limit_r = limit_r if limit_r > 0.0 else 0.0
    share, slip_force = model.anti_lock_share, model.slip_force_n
    grip_f, grip_r = share * limit_f, share * limit_r
    grip_f = slip_force if slip_force < grip_f else grip_f
    grip_r = slip_force if slip_force < grip_r else grip_r
    drive_f, drive_r = drive * model.drive_front_share, drive * (1.0 - model.drive_front_share)
    if not -grip_f <= drive_f <= grip_f:
        drive_f = _within(drive_f, -grip_f, grip_f)
    if not -grip_r <= drive_r <= grip_r:
        drive_r = _within(drive_r, -grip_r, grip_r)
    brake_f, brake_r = brake * model.brake_front_share, brake * (1.0 - model.brake_front_share) + hand
    most_r = min(limit_r, slip_force) if hand else grip_r
    brake_f = grip_f if grip_f < brake_f else brake_f
    brake_r = most_r if most_r < brake_r else brake_r

    # Lateral: implicit in the new vy and r.
    speed_f = vy + a * r
    used_f, used_r = abs(drive_f) + brake_f, abs(drive_r) + brake_r
    left_f, left_r = limit_f * limit_f - used_f * used_f, limit_r * limit_r - used_r * used_r
    left_f, left_r = sqrt(left_f) if left_f > 0.0 else 0.0, sqrt(left_r) if left_r > 0.0 else 0.0
    df = _damping(c * speed_f - s * vx, c * vx + s * speed_f, model.front_stiffness_n_per_rad, left_f)
    dr = _damping(vy - b * r, vx, model.rear_stiffness_n_per_rad, left_r)
    push = c * s * df * vx + s * drive_f
    a11 = m / dt + c * c * df + dr
    a21 = c * c * a * df - b * dr
    a12 = a21 + m * vx
    a22 = inertia / dt + c * c * a * a * df + b * b * dr
    b1 = m / dt * vy + push
    b2 = inertia / dt * r + a * push
    determinant = a11 * a22 - a12 * a21
    new_vy = (b1 * a22 - a12 * b2) / determinant
    new_r = (a11 * b2 - a21 * b1) / determinant
    if not -MAX_YAW_RATE_RADPS <= new_r <= MAX_YAW_RATE_RADPS:
        new_r = _within(new_r, -MAX_YAW_RATE_RADPS, MAX_YAW_RATE_RADPS)

    # Longitudinal: first the forces that push, then those that only resist, so that they stop the car and hold it.
    lateral_f = -df * (c * (new_vy + a * new_r) - s * vx)
    pushing = c * drive_f + drive_r - s * lateral_f - model.drag_n_per_mps2 * vx * abs(vx)
    if grounded:
        pushing -= weight * sin(body.pitch)
    free_vx = vx + dt * (pushing / m + new_r * new_vy)
    grips = limit_f > 0.0 or limit_r > 0.0
    coasting = model.motor_drag_n_per_mps * abs(vx) if grips and drive == 0.0 else 0.0
    resisting = c * brake_f + brake_r + coasting + (model.rolling_resistance * weight if grips else 0.0)
    if vx == 0.0 and drive == 0.0 and grips:
        resisting += HELD_SLOPE * weight
    lost = dt * resisting / m
    new_vx = 0.0 if abs(free_vx) <= lost else free_vx - copysign(lost, free_vx)
    if not -MAX_SPEED_MPS <= new_vx <= MAX_SPEED_MPS:
        new_vx = _within(new_vx, -MAX_SPEED_MPS, MAX_SPEED_MPS)

    body.ax = (new_vx - vx) / dt - new_r * new_vy
    body.ay = (new_vy - vy) / dt + new_r * vx
    body.vx, body.vy, body.yaw_rate = new_vx, new_vy, new_r
    # Place, yaw and motor speed change with the new velocities, along the mean direction of the step.
    middle = body.yaw + 0.5 * dt * new_r
    cy, sy = cos(middle), sin(middle)
    body.x += dt * (cy * new_vx - sy * new_vy)
    body.y += dt * (sy * new_vx + cy * new_vy)
    body.yaw = remainder(body.yaw + dt * new_r, tau)
    body.rolled_m += dt * new_vx
    if geared is None:
        body.rpm = abs(new_vx) / model.wheel_radius_m * model.gear_ratio * 30.0 / pi


def _within(value: float, low: float, high: float) -> float:
    if low <= value <= high:
        return value
    if value < low:
        return low
    return high if value > high else 0.0  # neither: NaN


def _steered(body: Body, dt: float) -> float:
    """Return the front wheels' new angle (rad), which approaches the asked one at a limited rate."""
    model, steer, angle = body.model, body.control.steer, body.steer_angle
    kmh = 3.6 * abs(body.vx)
    share = model.steering_curve[-1][1]
    for low, at_low, high, at_high in model.steering:
        if kmh < high:
            share = at_low + (at_high - at_low) * (kmh - low) / (high - low)
            break
    wanted = (steer if -1.0 <= steer <= 1.0 else _within(steer, -1.0, 1.0)) * model.max_steer_rad * share
    reach = model.steer_rate_radps * dt
    change = wanted - angle
    return angle + (change if -reach <= change <= reach else _within(change, -reach, reach))


def _drive_force(body: Body) -> float:
    """Return the force of the motor at the wheels (N), forward positive, and set the gear.

    Constant torque up to the power limit, constant power above it, nothing at the highest motor speed.
    """
    model, control = body.model, body.control
    if control.manual_gear_shift and not control.reverse:
        body.gear = gear = (control.gear > 0) - (control.gear < 0)
    else:
        body.gear = gear = -1 if control.reverse else 1
    throttle = control.throttle
    throttle = throttle if 0.0 <= throttle <= 1.0 else _within(throttle, 0.0, 1.0)
    if throttle == 0.0 or gear == 0:
        return 0.0
    speed = body.vx * gear
    speed = speed if speed > 0.0 else 0.0
    top_speed = model.top_speed_mps if gear > 0 else model.top_speed_mps * 0.2  # reverse is limited to town speed
    by_power = model.peak_power_w / (speed if speed > 1.0 else 1.0)
    force = by_power if by_power < model.peak_force_n else model.peak_force_n
    left = (top_speed - speed) / (0.05 * top_speed)
    return throttle * gear * force * (left if 0.0 <= left <= 1.0 else _within(left, 0.0, 1.0))


def _geared_force(body: Body, drive: Drivetrain, dt: float) -> float:
    """Return the force of an engine with a gearbox at the wheels (N), and set gear and engine speed."""
    model, control = body.model, body.control
    before = body.gear
    if control.reverse:
        body.gear = -1
    elif control.manual_gear_shift:
        body.gear = max(-1, min(len(drive.gears), control.gear))
    elif before < 1 or before > len(drive.gears):
        body.gear = 1
    elif drive.automatic and body.shifting_s <= 0.0:
        body.gear = drive.better_gear(before, body.rpm)
        if body.gear != before:
            body.shifting_s = drive.shift_s + SETTLES_S
    ratio = 0.0 if body.shifting_s > SETTLES_S + 1e-9 else drive.ratio(body.gear)
    body.shifting_s = max(0.0, body.shifting_s - dt)
    throttle = _within(control.throttle, 0.0, 1.0)
    radius_m = model.wheel_radius_m
    force, body.rpm = drive.drive(ratio, throttle, body.rpm, body.vx, radius_m, model.mass_kg, dt)
    return force


def _damping(lateral: float, forward: float, stiffness: float, available: float) -> float:
    """Return an axle's lateral force per sideways velocity (N s/m) at the present slip, at most ``available`` N."""
    lateral, forward = abs(lateral), abs(forward)
    if lateral < 1e-9:
        return min(stiffness, available * 1e3) / max(forward, 0.01)
    force = stiffness * atan2(lateral, forward)
    return (available if available < force else force) / lateral


def _follow_ground(body: Body, dt: float, ground: Ground) -> bool:
    """Set height and pitch from the road below both axles, or fall freely; return whether the tyres touch the road."""
    a, b = body.model.front_axle_m, body.model.rear_axle_m
    x, y, yaw = body.x, body.y, body.yaw
    cy, sy = cos(yaw), sin(yaw)
    front = ground(x + cy * a, y + sy * a, body.z)
    rear = ground(x - cy * b, y - sy * b, body.z)
    wheelbase = body.model.wheelbase_m
    height = (front * b + rear * a) / wheelbase
    falling = max(body.vz - GRAVITY_MPS2 * dt, -MAX_SPEED_MPS) if body.gravity else body.vz
    thrown = body.vz > THROWN_MPS and body.vz - body.vx * sin(body.pitch) > THROWN_MPS
    reach_m = AIRBORNE_M if body.gravity and not thrown else -AIRBORNE_M
    if body.z + falling * dt > height + reach_m or body.z < height - BURIED_M:
        body.vz = falling
        body.z += falling * dt
        return False
    body.z = height
    body.pitch = pitch = atan2(front - rear, wheelbase)
    body.vz = body.vx * sin(pitch)  # not from this step's rise, which would throw up a car placed inside the ground
    body.roll = 0.0
    return True
