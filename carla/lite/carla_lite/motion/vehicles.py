"""Parameters of vehicle models: masses, forces, tyres, sizes.

Owns the parameters of the motion model as plain data. Never touches state, time or controls: ``physics`` reads it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from itertools import pairwise

from carla_lite.motion.drivetrain import Drivetrain

GRAVITY_MPS2 = 9.81
TYRE_SCALE = 3.5
"""CARLA's friction of its tyres, where the model's friction, a true coefficient, is about 1."""
STEERING_CURVE: tuple[tuple[float, float], ...] = ((0.0, 1.0), (20.0, 0.9), (60.0, 0.8), (120.0, 0.7))
"""Share of the full wheel angle over the speed in km/h: the curve that CARLA 0.9 vehicles report."""


@dataclass(slots=True, unsafe_hash=True)  # not frozen: it computes some of its fields
class VehicleModel:
    """Parameters of a single-track model; never changed once created.

    It has an electric drivetrain (one gear, constant torque, then constant power), or the engine and gearbox that a
    client applied.
    """

    mass_kg: float
    yaw_inertia_kgm2: float
    front_axle_m: float
    """Distance from the centre of mass (the actor's origin) to the front axle."""
    rear_axle_m: float
    mass_height_m: float
    half_length_m: float
    half_width_m: float
    half_height_m: float
    box_centre_z_m: float
    """Height of the bounding box's centre above the actor's origin, which is on the ground."""
    peak_torque_nm: float
    peak_power_w: float
    max_rpm: float
    gear_ratio: float
    wheel_radius_m: float
    drive_front_share: float
    brake_front_share: float
    brake_force_n: float
    hand_brake_force_n: float
    max_steer_rad: float
    steer_rate_radps: float
    front_tyre_friction: float
    rear_tyre_friction: float
    anti_lock_share: float
    """Share of the friction limit that drive and brakes may take: the rest keeps the car steerable (ABS, ESP)."""
    slip_force_n: float
    """Force of an axle's tyres, driving or braking, at full slip, whatever the friction."""
    front_stiffness_n_per_rad: float
    rear_stiffness_n_per_rad: float
    drag_n_per_mps2: float
    rolling_resistance: float
    motor_drag_n_per_mps: float
    mass_forward_m: float
    """Distance of the centre of mass before the actor's origin, which shifts load between the axles."""
    steering_curve: tuple[tuple[float, float], ...]
    """Share of the full wheel angle over the speed in km/h, ascending from 0."""
    drive: Drivetrain | None
    """The engine and gearbox that a client applied; None for the electric drivetrain of the fields above."""

    wheelbase_m: float = field(init=False, compare=False)
    """Distance between the axles. This field and those below are computed in advance, since each step needs them."""
    weight_n: float = field(init=False, compare=False)
    """Force on all tyres at rest."""
    load_front_n: float = field(init=False, compare=False)
    """The front axle's share of it."""
    load_rear_n: float = field(init=False, compare=False)
    top_speed_mps: float = field(init=False, compare=False)
    """Speed at the motor's highest speed."""
    peak_force_n: float = field(init=False, compare=False)
    """Force at the wheels at peak torque."""
    reach_m: float = field(init=False, compare=False)
    """Radius of the circle around the footprint."""
    extent: tuple[float, float, float] = field(init=False, compare=False)
    """Half sizes of the bounding box as in CARLA (m)."""
    steering: tuple[tuple[float, float, float, float], ...] = field(init=False, compare=False)
    """Segments of the steering curve: speed and share at the start and at the end of each."""

    def __post_init__(self) -> None:
        self.wheelbase_m = wheelbase = self.front_axle_m + self.rear_axle_m
        self.weight_n = weight = self.mass_kg * GRAVITY_MPS2
        self.load_front_n, self.load_rear_n = (
            weight * (self.rear_axle_m + self.mass_forward_m) / wheelbase,
            weight * (self.front_axle_m - self.mass_forward_m) / wheelbase,
        )
        self.top_speed_mps = self.max_rpm * math.pi / 30.0 / self.gear_ratio * self.wheel_radius_m
        self.peak_force_n = self.peak_torque_nm * self.gear_ratio / self.wheel_radius_m
        self.reach_m = math.hypot(self.half_length_m, self.half_width_m)
        self.extent = self.half_length_m, self.half_width_m, self.half_height_m
        self.steering = tuple((*low, *high) for low, high in pairwise(self.steering_curve))


MODEL3 = VehicleModel(
    # Mass and box are CARLA's for vehicle.tesla.model3; wheelbase 2.875 m, drag coefficient 0.23 × 2.22 m² and 211 kW
    # are from Tesla's data sheet (Model 3, 2019). The stiffness is that of passenger-car tyres (Rajamani, Vehicle
    # Dynamics and Control, section 2.4: about 80 kN/rad per tyre), larger at the rear, so the car understeers.
    mass_kg=1845.0,
    yaw_inertia_kgm2=2900.0,
    front_axle_m=1.48,
    rear_axle_m=1.395,
    mass_height_m=0.46,
    half_length_m=2.3959,
    half_width_m=1.0817,
    half_height_m=0.7442,
    box_centre_z_m=0.7442,
    peak_torque_nm=375.0,
    peak_power_w=211e3,
    max_rpm=16_000.0,
    gear_ratio=9.04,
    wheel_radius_m=0.335,
    drive_front_share=0.4,
    brake_front_share=0.62,
    brake_force_n=21_000.0,
    hand_brake_force_n=9_000.0,
    max_steer_rad=math.radians(70.0),
    steer_rate_radps=4.0,
    front_tyre_friction=1.05,
    rear_tyre_friction=1.05,
    anti_lock_share=0.95,
    # PhysX's default: 1000 N for each unit of slip and of gravity (m/s²) per tyre; two tyres per axle.
    slip_force_n=2 * 1000.0 * GRAVITY_MPS2,
    front_stiffness_n_per_rad=125e3,
    rear_stiffness_n_per_rad=150e3,
    drag_n_per_mps2=0.5 * 1.225 * 0.23 * 2.22,
    rolling_resistance=0.012,
    motor_drag_n_per_mps=25.0,
    mass_forward_m=0.0,
    steering_curve=STEERING_CURVE,
    drive=None,
)
