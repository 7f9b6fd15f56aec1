"""The vehicles of CARLA 0.9.16, one row of ``vehicles.csv`` each, and the blueprint and motion model of a row.

Owns classes, colours, and the meaning of the rows. Never touches a world.

Sources: id, base type, special type, generation, lights and doors are those of CARLA's vehicle catalogue for 0.9.16
(Docs/catalogue_vehicles.md). Length, width and height are the bounding boxes that a CARLA 0.9.16 server reports, as
Scenic publishes them (tools/carla/snapshots/blueprints_0.9.16.json), to the centimetre; the Model 3's and its mass are
in ``motion.vehicles``. Only the bus has a narrower and lower body than the box that clients get: CARLA's box includes
its mirrors (3.94 m) and would fill two lanes. Mass, power and wheelbase are those of the vehicle that a row names,
rounded; of a motorcycle or bicycle with a rider of 75 kg. ``looked_up`` says which of them were checked, and where
(mostly the press; of the makers, Toyota and Dodge). The others are the makers' figures as commonly quoted, unchecked.
Colours, and the HGV's six wheels, are this project's reading: CARLA publishes none.
"""

from __future__ import annotations

import csv
import math
from dataclasses import dataclass, replace
from enum import Enum
from pathlib import Path

from carla_lite.blueprints.blueprint import Attribute, Blueprint, Kind, read_only, role, unused
from carla_lite.motion.vehicles import MODEL3, VehicleModel
from carla_lite.scenery.vehicle_meshes import Shape


class BaseType(str, Enum):
    """CARLA's attribute ``base_type``."""

    CAR = "car"
    TRUCK = "truck"
    VAN = "van"
    BUS = "bus"
    MOTORCYCLE = "motorcycle"
    BICYCLE = "bicycle"

    @property
    def has_driver(self) -> bool:
        """Whether CARLA seats a driver on it, which has the attribute ``driver_id``: only on two wheels
        (Docs/bp_library.md).
        """
        return self in (BaseType.MOTORCYCLE, BaseType.BICYCLE)


_CAR, _TRUCK, _VAN, _BUS, _MOTORCYCLE, _BICYCLE = BaseType
_COLOURS: dict[str, tuple[str, ...]] = {
    "": (),
    "greys": ("181,181,181", "230,230,230", "92,92,92", "24,24,24"),
    "mixed": ("17,37,103", "180,44,44", "120,20,28", "181,181,173", "38,74,56", "200,120,50"),
    "bikes": ("12,42,12", "160,20,20", "28,44,120", "220,200,60"),
    "police": ("20,22,26", "226,226,226"),
    "taxi": ("230,190,30",),
    "fire": ("150,20,20",),
    "medical": ("232,232,226",),
    "red": ("160,16,16",),
}
_REPORTED_M = {"mitsubishi.fusorosa": (10.27, 3.94, 4.25)}
"""The box that clients get, where the body is smaller."""


@dataclass(frozen=True)
class VehicleBlueprint(Blueprint):
    """A blueprint with a body."""

    model: VehicleModel = MODEL3
    shape: Shape = Shape.SALOON
    reported_m: tuple[float, float, float] | None = None
    """Length, width and height of the box that clients get, if not the body's."""


@dataclass(frozen=True)
class _Class:
    """Properties shared by vehicles of one base type: plausible values, not those of a certain vehicle."""

    drag: float  # drag coefficient times the share of width × height that meets the wind
    mass_height: float  # height of the centre of mass as a share of the vehicle's
    wheel_radius_m: float
    brake_mps2: float  # deceleration of the brakes before tyres slip
    max_steer_deg: float
    drive_front_share: float
    semantic_tag: int
    shape: Shape


_RIDER = 13  # CityObjectLabel, besides the vehicle's

_CLASSES = {
    _CAR: _Class(0.26, 0.31, 0.335, 11.4, 70.0, 0.4, 14, Shape.SALOON),
    _VAN: _Class(0.32, 0.33, 0.35, 10.0, 60.0, 0.0, 14, Shape.VAN),
    _TRUCK: _Class(0.55, 0.33, 0.5, 7.0, 50.0, 0.0, 15, Shape.TRUCK),
    _BUS: _Class(0.5, 0.3, 0.45, 7.0, 50.0, 0.0, 16, Shape.BUS),
    _MOTORCYCLE: _Class(0.32, 0.42, 0.3, 9.0, 45.0, 0.0, 18, Shape.MOTORCYCLE),
    _BICYCLE: _Class(0.5, 0.6, 0.34, 5.5, 45.0, 0.0, 19, Shape.BICYCLE),
}


def _model(row: dict[str, str]) -> VehicleModel:
    """Return the motion model of a row: forces from its mass and power, axles from its wheelbase."""
    if row["id"] == "tesla.model3":
        return MODEL3
    its = _CLASSES[BaseType(row["base_type"])]
    half_length_m, half_width_m, half_height_m = (0.5 * float(row[key]) for key in ("length_m", "width_m", "height_m"))
    mass_kg, power_kw = float(row["mass_kg"]), float(row["power_kw"])
    mass = mass_kg / MODEL3.mass_kg
    radius = its.wheel_radius_m / MODEL3.wheel_radius_m
    wheelbase_m = min(float(row["wheelbase_m"]), 1.7 * half_length_m)
    # Full throttle from standstill: 1.0 m/s² plus 0.04 m/s² for each W/kg, at most the Model 3's.
    launch_mps2 = min(5.5, 1.0 + 0.04 * 1000.0 * power_kw / mass_kg)
    return replace(
        MODEL3,
        mass_kg=mass_kg,
        yaw_inertia_kgm2=MODEL3.yaw_inertia_kgm2 * mass * (half_length_m / MODEL3.half_length_m) ** 2,
        front_axle_m=wheelbase_m * MODEL3.front_axle_m / MODEL3.wheelbase_m,
        rear_axle_m=wheelbase_m * MODEL3.rear_axle_m / MODEL3.wheelbase_m,
        mass_height_m=its.mass_height * 2.0 * half_height_m,
        half_length_m=half_length_m,
        half_width_m=half_width_m,
        half_height_m=half_height_m,
        box_centre_z_m=half_height_m,
        peak_torque_nm=launch_mps2 * mass_kg * its.wheel_radius_m / (MODEL3.gear_ratio * radius),
        peak_power_w=1000.0 * power_kw,
        gear_ratio=MODEL3.gear_ratio * radius,
        wheel_radius_m=its.wheel_radius_m,
        drive_front_share=its.drive_front_share,
        brake_force_n=its.brake_mps2 * mass_kg,
        slip_force_n=MODEL3.slip_force_n * max(1.0, mass),
        hand_brake_force_n=MODEL3.hand_brake_force_n * mass,
        max_steer_rad=math.radians(its.max_steer_deg),
        front_stiffness_n_per_rad=MODEL3.front_stiffness_n_per_rad * mass,
        rear_stiffness_n_per_rad=MODEL3.rear_stiffness_n_per_rad * mass,
        drag_n_per_mps2=0.5 * 1.225 * its.drag * 4.0 * half_width_m * half_height_m,
        motor_drag_n_per_mps=MODEL3.motor_drag_n_per_mps * mass,
    )


_DRIVERS = tuple(str(number) for number in range(1, 8))


def _vehicle(row: dict[str, str]) -> VehicleBlueprint:
    """Return the blueprint of a row, with CARLA's attributes (ActorBlueprintFunctionLibrary.cpp).

    An attribute that a vehicle doesn't have is left out: scripts choose at random from the recommended values, and fail
    on an empty list.
    """
    base_type, colours = BaseType(row["base_type"]), _COLOURS[row["colours"]]
    attributes = [role("autopilot", "scenario", "ego_vehicle")]
    if colours:
        attributes.append(Attribute("color", Kind.COLOR, colours[0], colours))
    if base_type.has_driver:
        driver = Attribute("driver_id", Kind.INT, _DRIVERS[0], _DRIVERS, restricted=True)
        attributes += unused("all riders look the same", driver)
    attributes += [
        Attribute("sticky_control", Kind.BOOL, "true"),
        *unused("the ground is hard everywhere", Attribute("terramechanics", Kind.BOOL, "false")),
        read_only("object_type", ""),
        read_only("base_type", base_type.value),
        read_only("special_type", row["special_type"]),
        read_only("number_of_wheels", int(row["wheels"])),
        read_only("generation", int(row["generation"])),
        read_only("has_dynamic_doors", row["doors"] == "true"),
        read_only("has_lights", row["lights"] == "true"),
    ]
    its, reported_m = _CLASSES[base_type], _REPORTED_M.get(row["id"])
    tags = (its.semantic_tag, _RIDER) if base_type.has_driver else (its.semantic_tag,)
    name = f"vehicle.{row['id']}"
    return VehicleBlueprint(name, tuple(attributes), tags, model=_model(row), shape=its.shape, reported_m=reported_m)


with Path(__file__).with_name("vehicles.csv").open(encoding="utf-8", newline="") as _rows:
    VEHICLES = [_vehicle(row) for row in csv.DictReader(_rows)]
