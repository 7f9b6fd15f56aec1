"""An engine with a clutch and a gearbox, as in PhysX's ``PxVehicleDrive4W``.

Owns the engine's speed, the force at the wheels and when an automatic gearbox shifts. Never touches tyres, brakes or
the body: ``physics`` asks it for a force. A vehicle uses it once a client has applied engine or gearbox figures that
differ from those of ``get_physics_control``.

The engine of inertia I turns at w, the gearbox's side of the clutch at g v (g: ratio of wheels and gears per metre, v:
the vehicle's speed). The clutch passes K (w - g v), the throttle's torque is T, the engine's damping d w:

    I w' = T - d w - K (w - g v),    m v' = K g (w - g v)

Both are solved implicitly for a step, so that any clutch strength and any step are stable.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

RPM = math.pi / 30.0
"""Radians per second in one revolution per minute."""
# Unreal's default GearAutoBoxLatency: how long an automatic gearbox stays in a new gear.
SETTLES_S = 1.0


@dataclass(frozen=True, slots=True)
class Gear:
    """A forward gear, and the shares of ``max_rpm`` at which an automatic gearbox shifts down and up from it."""

    ratio: float
    down_share: float
    up_share: float


@dataclass(frozen=True, slots=True)
class Drivetrain:
    """Figures of an engine and a gearbox, as a client applied them."""

    torque: tuple[tuple[float, float], ...]
    """Torque at full throttle (N m) over the engine's speed (rpm), ascending; linear between the points."""
    max_rpm: float
    inertia_kgm2: float
    damping_full_throttle: float
    """Damping (N m s), like the next two: at full throttle, at zero throttle in gear, and in neutral."""
    damping_engaged: float
    damping_neutral: float
    clutch_strength: float
    """N m for each rad/s of the clutch's slip."""
    gears: tuple[Gear, ...]
    final_ratio: float
    automatic: bool
    shift_s: float
    """Duration of a gear change, during which there is no drive."""

    def full_torque_nm(self, rpm: float) -> float:
        """Return the torque at full throttle."""
        low_rpm, low_nm = self.torque[0]
        for high_rpm, high_nm in self.torque:
            if rpm < high_rpm:
                if high_rpm == low_rpm:
                    return high_nm
                return low_nm + (high_nm - low_nm) * max(0.0, rpm - low_rpm) / (high_rpm - low_rpm)
            low_rpm, low_nm = high_rpm, high_nm
        return low_nm

    def ratio(self, gear: int) -> float:
        """Return engine turns per wheel turn: negative in reverse, which has the ratio of the first gear."""
        if gear == 0:
            return 0.0
        gear_ratio = self.gears[gear - 1 if gear > 0 else 0].ratio
        return gear_ratio * self.final_ratio * (1.0 if gear > 0 else -1.0)

    def better_gear(self, gear: int, rpm: float) -> int:
        """Return the forward gear of an automatic gearbox at this engine speed."""
        now = self.gears[gear - 1]
        if rpm > now.up_share * self.max_rpm and gear < len(self.gears):
            return gear + 1
        if rpm < now.down_share * self.max_rpm and gear > 1:
            return gear - 1
        return gear

    def drive(
        self, ratio: float, throttle: float, rpm: float, speed_mps: float, radius_m: float, mass_kg: float, dt: float
    ) -> tuple[float, float]:
        """Return the force at the wheels (N) and the engine's new speed (rpm); ratio 0 means neutral."""
        closed = self.damping_engaged if ratio else self.damping_neutral
        damping = closed + (self.damping_full_throttle - closed) * throttle
        carried = self.inertia_kgm2 / dt
        held = carried + damping
        pushed = carried * rpm * RPM + throttle * self.full_torque_nm(rpm)
        top = self.max_rpm * RPM
        if not ratio:
            return 0.0, min(pushed / held, top) / RPM
        clutch, g = self.clutch_strength, ratio / radius_m
        share = clutch * g / (held + clutch)
        force = share * (pushed - held * g * speed_mps) / (1.0 + dt / mass_kg * share * g * held)
        speed = (pushed + clutch * g * (speed_mps + dt / mass_kg * force)) / (held + clutch)
        if not 0.0 <= speed <= top:  # the rev limiter, or an engine that doesn't turn backwards
            speed = 0.0 if speed < 0.0 else top
            force = clutch * g * (speed - g * speed_mps) / (1.0 + dt / mass_kg * clutch * g * g)
        return force, speed / RPM
