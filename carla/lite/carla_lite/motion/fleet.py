"""The motion of many vehicles: ``physics.step`` for all of them at once, as arrays.

Each line is the one of ``physics.step``, in its order of operations, and angles go through ``math``: so a vehicle's
trajectory is the same, bit for bit, whichever of the two moves it, and however many others there are.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from math import atan2, cos, pi, remainder, sin, tau
from operator import attrgetter

import numpy as np
from numpy.typing import NDArray

from carla_lite.motion.physics import (
    AIRBORNE_M,
    BURIED_M,
    HELD_SLOPE,
    MAX_SPEED_MPS,
    MAX_SUBSTEP_S,
    MAX_YAW_RATE_RADPS,
    SLOW_MPS,
    THROWN_MPS,
    Body,
    Ground,
    advance,
)
from carla_lite.motion.vehicles import GRAVITY_MPS2, VehicleModel

FEW = 40
"""So many moving vehicles are as fast one by one, in a server that waits for its client between ticks."""

Floats = NDArray[np.float64]
_state = attrgetter(
    *(
        "x",
        "y",
        "z",
        "pitch",
        "yaw",
        "roll",
        "vx",
        "vy",
        "vz",
        "yaw_rate",
        "steer_angle",
        "rolled_m",
        "gravity",
        "gear",
    ),
    *(f"control.{name}" for name in ("throttle", "steer", "brake", "hand_brake")),
    *(f"control.{name}" for name in ("reverse", "manual_gear_shift", "gear")),
)
_figures = attrgetter(
    *("mass_kg", "yaw_inertia_kgm2", "front_axle_m", "rear_axle_m", "wheelbase_m", "weight_n", "mass_height_m"),
    *("load_front_n", "load_rear_n", "front_tyre_friction", "rear_tyre_friction", "anti_lock_share", "slip_force_n"),
    *("front_stiffness_n_per_rad", "rear_stiffness_n_per_rad", "drive_front_share", "brake_front_share"),
    *("brake_force_n", "hand_brake_force_n", "max_steer_rad", "steer_rate_radps", "top_speed_mps", "peak_power_w"),
    *("peak_force_n", "drag_n_per_mps2", "motor_drag_n_per_mps", "rolling_resistance", "wheel_radius_m", "gear_ratio"),
)


def advance_all(bodies: Sequence[Body], dt: float, ground: Ground, level: float | None = None) -> None:
    """Move the bodies by ``dt`` seconds in equal substeps of at most ``MAX_SUBSTEP_S``.

    ``level`` is the height of the ground where it is the same everywhere.
    """
    moving = [body for body in bodies if body.vx and body.simulate_physics and body.model.drive is None]
    if len(moving) <= FEW:
        moving = []
    if len(moving) < len(bodies):
        taken = set(map(id, moving))
        for body in bodies:
            if id(body) not in taken:
                advance(body, dt, ground)
    if moving:
        with np.errstate(all="ignore"):
            _advance(moving, dt, ground, level)


class _Models:
    """Figures of several vehicles' models, one array each; an axle's have a row for the front and one for the rear."""

    def __init__(self, models: Sequence[VehicleModel]) -> None:
        figures = np.array([_figures(model) for model in models]).T.copy()
        self.mass, self.inertia, self.a, self.b, self.wheelbase, self.weight, self.mass_height = figures[:7]
        self.load_f, self.load_r = figures[7:9]
        self.friction = figures[9:11]
        self.anti_lock_share, self.slip_force = figures[11:13]
        self.stiffness = figures[13:15]
        drive_share, brake_share, self.brake_force, self.hand_brake_force = figures[15:19]
        self.drive_shares = np.array((drive_share, 1.0 - drive_share))
        self.brake_shares = np.array((brake_share, 1.0 - brake_share))
        self.max_steer, self.steer_rate, self.top_speed, self.peak_power, self.peak_force = figures[19:24]
        self.drag, self.motor_drag, rolling_resistance, self.wheel_radius, self.gear_ratio = figures[24:29]
        self.rolling = rolling_resistance * self.weight
        # Segments of the steering curves: a shorter curve's last ones end below any speed.
        most = max(len(model.steering) for model in models)
        curves = [(*model.steering, *[(0.0, 1.0, -1.0, 1.0)] * (most - len(model.steering))) for model in models]
        self.from_kmh, self.from_share, self.to_kmh, to_share = np.array(curves).reshape(-1, most, 4).transpose(2, 1, 0)
        self.steer_rise, self.steer_span = to_share - self.from_share, self.to_kmh - self.from_kmh
        self.last_share = np.array([model.steering_curve[-1][1] for model in models])


_last: tuple[list[VehicleModel], _Models] | None = None


def _models_of(bodies: Sequence[Body]) -> _Models:
    global _last  # noqa: PLW0603 (the same vehicles move in most ticks)
    models = [body.model for body in bodies]
    if _last is None or _last[0] != models:
        _last = models, _Models(models)
    return _last[1]


# Functions of ``math`` of each element: numpy's own differ in the last bits by processor.


def _turned(angles: Floats) -> Floats:
    """Return (2, n) cosines and sines."""
    plain = angles.tolist()
    return np.array((list(map(cos, plain)), list(map(sin, plain))))


def _sines(angles: Floats) -> Floats:
    return np.array(list(map(sin, angles.tolist())))


def _directions(aside: Floats, ahead: Floats) -> Floats:
    found = np.array(list(map(atan2, aside.ravel().tolist(), ahead.ravel().tolist())))
    return found.reshape(aside.shape)


def _between(value: Floats, low: Floats | float, high: Floats | float) -> Floats:
    between: Floats = np.minimum(np.maximum(value, low), high)
    return between


def _advance(  # noqa: PLR0912, PLR0915 (as physics.step)
    bodies: Sequence[Body], whole_dt: float, ground: Ground, level: float | None
) -> None:
    of = _models_of(bodies)
    state = np.array([_state(body) for body in bodies], np.float64).T.copy()
    x, y, z, pitch, yaw, roll, vx, vy, vz, r, delta, rolled, gravity, shown_gear = state[:14]
    asked, (hand_brake, reverse, manual, chosen) = state[14:17], state[17:]
    np.copyto(asked, 0.0, where=np.isnan(asked))  # NaN reads as 0
    throttle, steer, pressed = asked
    substeps = max(1, math.ceil(whole_dt / MAX_SUBSTEP_S - 1e-9))
    dt = whole_dt / substeps

    # What the substeps share.
    wanted = _between(steer, -1.0, 1.0) * of.max_steer
    turn = of.steer_rate * dt
    gear = np.where(reverse != 0.0, -1.0, np.where(manual != 0.0, np.sign(chosen), 1.0))
    torque = _between(throttle, 0.0, 1.0) * gear + 0.0  # no negative zero
    top_speed = np.where(gear > 0.0, of.top_speed, of.top_speed * 0.2)
    brake = _between(pressed, 0.0, 1.0) * of.brake_force
    hand = np.where(hand_brake != 0.0, of.hand_brake_force, 0.0)
    by_hand = bool(np.count_nonzero(hand))
    resist = np.minimum(brake + hand, of.weight)
    braked_most = brake * of.brake_shares
    braked_most[1] += hand
    falls = np.count_nonzero(gravity) < len(bodies)
    m, a, b, weight = of.mass, of.a, of.b, of.weight
    m_dt, inertia_dt, bb = m / dt, of.inertia / dt, b * b
    flat = slope = steep = np.zeros(len(bodies))
    if level is not None:
        height = (level * b + level * a) / of.wheelbase
    loads, lateral, forward = np.empty((3, 2, len(bodies)))

    for _ in range(substeps):
        # _follow_ground
        if level is None:
            cy, sy = _turned(yaw)
            front = np.array(list(map(ground, (x + cy * a).tolist(), (y + sy * a).tolist())))
            rear = np.array(list(map(ground, (x - cy * b).tolist(), (y - sy * b).tolist())))
            height = (front * b + rear * a) / of.wheelbase
            slope = _directions(front - rear, of.wheelbase)
            steep = _sines(slope)
        falling = np.maximum(vz - GRAVITY_MPS2 * dt, -MAX_SPEED_MPS)
        if falls:
            falling = np.where(gravity != 0.0, falling, vz)
        thrown = vz > THROWN_MPS
        if falls or np.count_nonzero(thrown):
            thrown &= vz - vx * _sines(pitch) > THROWN_MPS
            reach_m = np.where((gravity != 0.0) & ~thrown, AIRBORNE_M, -AIRBORNE_M)
            flies = z + falling * dt > height + reach_m
        else:
            flies = z + falling * dt > height + AIRBORNE_M
        flies |= z < height - BURIED_M
        whole = not np.count_nonzero(flies)
        if whole:
            z, pitch, vz, roll, shown_gear = height, slope, vx * steep, flat, gear
        else:
            grounded = ~flies
            shown_gear = np.where(grounded, gear, shown_gear)
            z, pitch = np.where(grounded, height, z + falling * dt), np.where(grounded, slope, pitch)
            vz, roll = np.where(grounded, vx * steep, falling), np.where(grounded, 0.0, roll)

        # _steered
        speed = np.abs(vx)
        kmh = 3.6 * speed
        shares = of.from_share + of.steer_rise * (kmh - of.from_kmh) / of.steer_span
        share, below = of.last_share, kmh < of.to_kmh
        for segment in range(len(shares) - 1, -1, -1):
            share = np.where(below[segment], shares[segment], share)
        delta = delta + _between(wanted * share - delta, -turn, turn)
        c, s = _turned(delta)

        # _drive_force
        ahead = np.maximum(vx * gear, 0.0)
        force = np.minimum(of.peak_power / np.maximum(ahead, 1.0), of.peak_force)
        drive = torque * force * _between((top_speed - ahead) / (0.05 * top_speed), 0.0, 1.0)
        if not whole:
            drive = np.where(grounded, drive, 0.0)

        demand = np.where(speed > SLOW_MPS, drive - np.copysign(resist, vx), 0.0)
        shift = _between(demand, -weight, weight) * of.mass_height / of.wheelbase
        np.subtract(of.load_f, shift, loads[0])
        np.add(of.load_r, shift, loads[1])
        limit = np.maximum(of.friction * loads, 0.0)
        if not whole:
            limit *= grounded
        grip = np.minimum(of.anti_lock_share * limit, of.slip_force)
        driven = _between(drive * of.drive_shares, -grip, grip)
        most = grip
        if by_hand:
            most = grip.copy()
            most[1] = np.where(hand != 0.0, np.minimum(limit[1], of.slip_force), grip[1])
        braked = np.minimum(braked_most, most)

        # Lateral
        speed_f = vy + a * r
        used = np.abs(driven) + braked
        left = np.sqrt(np.maximum(limit * limit - used * used, 0.0))
        np.subtract(c * speed_f, s * vx, lateral[0])
        np.subtract(vy, b * r, lateral[1])
        np.add(c * vx, s * speed_f, forward[0])
        forward[1] = vx
        df, dr = _damping(np.abs(lateral), np.abs(forward), of.stiffness, left)
        drive_f, drive_r = driven
        push = c * s * df * vx + s * drive_f
        cc = c * c
        cca = cc * a
        a11 = m_dt + cc * df + dr
        a21 = cca * df - b * dr
        a12 = a21 + m * vx
        a22 = inertia_dt + cca * a * df + bb * dr
        b1 = m_dt * vy + push
        b2 = inertia_dt * r + a * push
        determinant = a11 * a22 - a12 * a21
        new_vy = (b1 * a22 - a12 * b2) / determinant
        new_r = _between((a11 * b2 - a21 * b1) / determinant, -MAX_YAW_RATE_RADPS, MAX_YAW_RATE_RADPS)

        # Longitudinal
        lateral_f = -df * (c * (new_vy + a * new_r) - s * vx)
        pushing = c * drive_f + drive_r - s * lateral_f - of.drag * vx * speed
        if not whole:
            pushing = np.where(grounded, pushing - weight * steep, pushing)
        elif level is None:
            pushing -= weight * steep
        free_vx = vx + dt * (pushing / m + new_r * new_vy)
        grips = np.maximum(limit[0], limit[1]) > 0.0
        rolls = grips & (drive == 0.0)
        coasting = np.where(rolls, of.motor_drag * speed, 0.0)
        resisting = c * braked[0] + braked[1] + coasting + np.where(grips, of.rolling, 0.0)
        stands = rolls & (vx == 0.0)
        if np.count_nonzero(stands):
            resisting = np.where(stands, resisting + HELD_SLOPE * weight, resisting)
        lost = dt * resisting / m
        new_vx = np.where(np.abs(free_vx) <= lost, 0.0, free_vx - np.copysign(lost, free_vx))
        new_vx = _between(new_vx, -MAX_SPEED_MPS, MAX_SPEED_MPS)

        before, sideways = vx, vy
        vx, vy, r = new_vx, new_vy, new_r
        middle = yaw + 0.5 * dt * r
        cy, sy = _turned(middle)
        x = x + dt * (cy * vx - sy * vy)
        y = y + dt * (sy * vx + cy * vy)
        yaw = yaw + dt * r
        if np.count_nonzero(np.abs(yaw) > pi):
            yaw = np.array([remainder(angle, tau) for angle in yaw.tolist()])
        rolled = rolled + dt * vx

    ax = (vx - before) / dt - r * vy
    ay = (vy - sideways) / dt + r * before
    rpm = np.abs(vx) / of.wheel_radius * of.gear_ratio * 30.0 / pi
    rows = np.array((x, y, z, pitch, yaw, roll, vx, vy, vz, r, ax, ay, delta, rpm, rolled)).T.tolist()
    for body, row, at in zip(bodies, rows, shown_gear.astype(int).tolist(), strict=True):
        body.x, body.y, body.z, body.pitch, body.yaw, body.roll, body.vx, body.vy, body.vz = row[:9]
        body.yaw_rate, body.ax, body.ay, body.steer_angle, body.rpm, body.rolled_m = row[9:]
        body.gear, body.settled = at, None


def _damping(lateral: Floats, forward: Floats, stiffness: Floats, available: Floats) -> Floats:
    slips = np.maximum(lateral, 1e-9)
    damping = np.minimum(stiffness * _directions(lateral, forward), available) / slips
    straight = lateral < 1e-9
    if np.count_nonzero(straight):
        held = np.minimum(stiffness, available * 1e3) / np.maximum(forward, 0.01)
        damping = np.where(straight, held, damping)
    return damping
