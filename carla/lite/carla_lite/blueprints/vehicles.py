"""The vehicles of CARLA 0.9.16, one row each, and the motion model that follows from a row.

Owns ids, classes, boxes and the figures of the real vehicles. Never touches a world; ``blueprints`` has the library.

Sources: id, base type, special type, generation, lights and doors are those of CARLA's vehicle catalogue for 0.9.16
(Docs/catalogue_vehicles.md). Length, width and height are the bounding boxes that a CARLA 0.9.16 server reports, as
Scenic publishes them (tools/carla/snapshots/blueprints_0.9.16.json), to the centimetre; the Model 3's and its mass are
in ``motion.vehicles``. Only the bus is narrower and lower as a body than what clients are told: CARLA's box counts its
mirrors in (3.94 m) and would fill two lanes. Mass, power and wheelbase are those of the vehicle that a row names,
rounded; of a motorcycle or bicycle with a rider of 75 kg. ``FOUND`` says which of them were looked up again and where
(the press, mostly: of the makers' own, Toyota's and Dodge's were at hand); the others are the makers' figures as they
are commonly quoted, unchecked. Colours, and the HGV's six wheels, are this project's reading: CARLA publishes none.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from enum import Enum

from carla_lite.motion.vehicles import MODEL3, VehicleModel


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
        """Whether CARLA seats a driver on it, and so has ``driver_id``: on two wheels only (Docs/bp_library.md)."""
        return self in (BaseType.MOTORCYCLE, BaseType.BICYCLE)


@dataclass(frozen=True)
class VehicleRow:
    """One vehicle: box in metres, mass with rider in kg, peak power in kW, wheelbase in metres."""

    id: str
    base_type: BaseType
    generation: int
    size_m: tuple[float, float, float]
    mass_kg: float
    power_kw: float
    wheelbase_m: float
    figures_of: str
    """The real vehicle whose published mass, power and wheelbase these are."""
    special_type: str = ""
    lights: bool = False
    doors: bool = False
    wheels: int = 4
    colors: tuple[str, ...] = ()
    told_m: tuple[float, float, float] | None = None
    """The box that clients are told, where the body is smaller."""

    @property
    def extent(self) -> tuple[float, float, float]:
        """Half sizes (m)."""
        length, width, height = self.size_m
        return 0.5 * length, 0.5 * width, 0.5 * height


_CAR, _TRUCK, _VAN, _BUS, _MOTORCYCLE, _BICYCLE = BaseType
_GREYS = ("181,181,181", "230,230,230", "92,92,92", "24,24,24")
_MIXED = ("17,37,103", "180,44,44", "120,20,28", "181,181,173", "38,74,56", "200,120,50")
_BIKES = ("12,42,12", "160,20,20", "28,44,120", "220,200,60")
_TAXI, _FIRE, _MEDICAL = ("230,190,30",), ("150,20,20",), ("232,232,226",)
_POLICE = ("20,22,26", "226,226,226")


def _car(id: str, size_m: tuple[float, float, float], *figures: float, of: str, special: str = "") -> VehicleRow:
    """Return a first-generation car: no lights, no doors that open."""
    mass_kg, power_kw, wheelbase_m = figures
    return VehicleRow(id, _CAR, 1, size_m, mass_kg, power_kw, wheelbase_m, of, special, colors=_MIXED)


def _new(base: BaseType, id: str, size_m: tuple[float, float, float], *figures: float, of: str) -> VehicleRow:
    """Return a second-generation vehicle with lights and doors that open."""
    mass_kg, power_kw, wheelbase_m = figures
    return VehicleRow(id, base, 2, size_m, mass_kg, power_kw, wheelbase_m, of, lights=True, doors=True, colors=_GREYS)


def _two(base: BaseType, id: str, size_m: tuple[float, float, float], *figures: float, of: str) -> VehicleRow:
    """Return a two-wheeler, with the rider's 75 kg added to its own mass."""
    mass_kg, power_kw, wheelbase_m = figures
    return VehicleRow(id, base, 1, size_m, mass_kg + 75.0, power_kw, wheelbase_m, of, wheels=2, colors=_BIKES)


# Figures in each row: length, width, height; mass, power, wheelbase.
VEHICLES: tuple[VehicleRow, ...] = (
    _car(
        "tesla.model3", (4.79, 2.16, 1.49), MODEL3.mass_kg, 211.0, 2.875, of="Tesla Model 3 (2019)", special="electric"
    ),
    _car("audi.a2", (3.71, 1.79, 1.55), 990.0, 55.0, 2.405, of="Audi A2 1.4 (2000)"),
    _car("audi.etron", (4.86, 2.03, 1.65), 2490.0, 300.0, 2.928, of="Audi e-tron 55 (2019)", special="electric"),
    _car("audi.tt", (4.18, 1.99, 1.39), 1230.0, 169.0, 2.505, of="Audi TT 2.0 TFSI (2014)"),
    _car("bmw.grandtourer", (4.61, 2.24, 1.67), 1495.0, 141.0, 2.780, of="BMW 220i Gran Tourer (2015)"),
    _car("chevrolet.impala", (5.36, 2.03, 1.41), 1680.0, 205.0, 3.023, of="Chevrolet Impala (1967), by its size"),
    _car("citroen.c3", (3.99, 1.85, 1.62), 1075.0, 70.0, 2.466, of="Citroën C3 1.4 (2010)"),
    replace(
        _car("dodge.charger_police", (4.97, 2.04, 1.54), 1887.0, 274.0, 3.048, of="Dodge Charger Pursuit (2010)"),
        special_type="emergency",
        colors=_POLICE,
    ),
    _car("ford.mustang", (4.72, 1.89, 1.30), 1500.0, 216.0, 2.743, of="Ford Mustang Mach 1 (1969), by its size"),
    _car("jeep.wrangler_rubicon", (3.87, 1.91, 1.88), 1860.0, 213.0, 2.423, of="Jeep Wrangler Rubicon (2012)"),
    _car("lincoln.mkz_2017", (4.90, 2.13, 1.51), 1696.0, 183.0, 2.850, of="Lincoln MKZ 2.0T (2017)"),
    _car("mercedes.coupe", (5.03, 2.15, 1.65), 1770.0, 245.0, 2.873, of="Mercedes-Benz E 400 Coupé (2017)"),
    _car("micro.microlino", (2.21, 1.48, 1.38), 535.0, 12.5, 1.565, of="Microlino (2022)", special="electric"),
    _car("mini.cooper_s", (3.81, 1.97, 1.48), 1140.0, 120.0, 2.467, of="Mini Cooper S (2002)"),
    _car("nissan.micra", (3.63, 1.85, 1.50), 915.0, 59.0, 2.430, of="Nissan Micra 1.2 (2003)"),
    _car("nissan.patrol", (4.60, 1.93, 1.85), 2250.0, 116.0, 2.400, of="Nissan Patrol 3.0 Di three-door (2000)"),
    _car("seat.leon", (4.19, 1.82, 1.47), 1322.0, 132.0, 2.513, of="Seat León 1.8 20VT (1999)"),
    _car("toyota.prius", (4.51, 2.01, 1.52), 1350.0, 100.0, 2.700, of="Toyota Prius (2009)", special="electric"),
    _new(_CAR, "dodge.charger_2020", (5.01, 1.88, 1.53), 1944.0, 276.0, 3.052, of="Dodge Charger R/T (2020)"),
    replace(
        _new(
            *(_CAR, "dodge.charger_police_2020", (5.24, 1.93, 1.64), 2000.0, 276.0, 3.058),
            of="Dodge Charger Pursuit V8 AWD (2020)",
        ),
        special_type="emergency",
        colors=_POLICE,
    ),
    replace(
        _new(_CAR, "ford.crown", (5.37, 1.80, 1.57), 1840.0, 178.0, 2.913, of="Ford Crown Victoria (2008)"),
        special_type="taxi",
        colors=_TAXI,
    ),
    _new(_CAR, "lincoln.mkz_2020", (4.89, 1.84, 1.49), 1696.0, 183.0, 2.850, of="Lincoln MKZ 2.0T (2020)"),
    _new(_CAR, "mercedes.coupe_2020", (4.67, 1.81, 1.44), 1575.0, 190.0, 2.840, of="Mercedes-Benz C 300 Coupé (2019)"),
    _new(_CAR, "mini.cooper_s_2021", (4.55, 2.10, 1.77), 1295.0, 131.0, 2.567, of="Mini Cooper S five-door (2021)"),
    _new(_CAR, "nissan.patrol_2021", (5.57, 2.15, 2.05), 2750.0, 298.0, 3.075, of="Nissan Patrol 5.6 V8 (2021)"),
    VehicleRow(
        "carlamotors.carlacola",
        _TRUCK,
        1,
        (5.20, 2.63, 2.47),
        5500.0,
        110.0,
        3.0,
        "a delivery truck of 5.5 t",
        colors=("160,16,16",),
    ),
    VehicleRow(
        "carlamotors.european_hgv",
        _TRUCK,
        2,
        (7.94, 2.89, 3.46),
        15000.0,
        330.0,
        4.5,
        "a cab-over truck of 15 t",
        wheels=6,
        colors=_GREYS,
    ),
    replace(
        _new(_TRUCK, "carlamotors.firetruck", (8.47, 2.89, 3.83), 13500.0, 220.0, 4.4, of="a pumper of 14 t (EN 1846)"),
        special_type="emergency",
        colors=_FIRE,
    ),
    VehicleRow(
        "tesla.cybertruck",
        _TRUCK,
        2,
        (6.27, 2.39, 2.10),
        2995.0,
        447.0,
        3.635,
        "Tesla Cybertruck AWD (2023)",
        "electric",
    ),
    replace(
        _new(_VAN, "ford.ambulance", (6.37, 2.35, 2.43), 4800.0, 227.0, 3.505, of="Ford E-350 ambulance (2016)"),
        special_type="emergency",
        colors=_MEDICAL,
    ),
    _new(
        _VAN, "mercedes.sprinter", (5.92, 1.99, 2.56), 2300.0, 120.0, 3.665, of="Mercedes-Benz Sprinter 316 CDI (2018)"
    ),
    VehicleRow(
        "volkswagen.t2",
        _VAN,
        1,
        (4.48, 2.07, 2.04),
        1300.0,
        37.0,
        2.400,
        "Volkswagen T2 1.6 (1972)",
        colors=_MIXED,
    ),
    _new(_VAN, "volkswagen.t2_2021", (4.44, 1.77, 1.99), 1300.0, 37.0, 2.400, of="Volkswagen T2 1.6 (1972)"),
    replace(
        _new(_BUS, "mitsubishi.fusorosa", (10.27, 2.70, 3.70), 5600.0, 129.0, 4.550, of="Mitsubishi Fuso Rosa (2018)"),
        doors=False,
        told_m=(10.27, 3.94, 4.25),
    ),
    _two(
        _MOTORCYCLE, "harley-davidson.low_rider", (2.35, 0.77, 1.65), 300.0, 63.0, 1.630, of="Harley Low Rider (2018)"
    ),
    _two(_MOTORCYCLE, "kawasaki.ninja", (2.04, 0.80, 1.52), 196.0, 95.0, 1.400, of="Kawasaki Ninja ZX-6R (2019)"),
    _two(_MOTORCYCLE, "vespa.zx125", (1.82, 0.87, 1.59), 130.0, 7.9, 1.334, of="Vespa Primavera 125 (2018)"),
    _two(_MOTORCYCLE, "yamaha.yzf", (2.19, 0.87, 1.53), 190.0, 87.0, 1.375, of="Yamaha YZF-R6 (2017)"),
    _two(_BICYCLE, "bh.crossbike", (1.51, 0.87, 1.61), 13.0, 0.4, 1.05, of="a cross bike, its rider's peak power"),
    _two(_BICYCLE, "diamondback.century", (1.66, 0.58, 1.62), 9.0, 0.4, 1.0, of="Diamondback Century, likewise"),
    _two(_BICYCLE, "gazelle.omafiets", (1.84, 0.66, 1.78), 20.0, 0.4, 1.13, of="Gazelle Omafiets, likewise"),
)


FOUND = {
    "audi.a2": "power, and mass between 895 kg empty and 990 kg as sold: press at its launch and a road test of 2002",
    "audi.etron": "mass, power with boost and wheelbase (115.1 in): press at its launch, 2018",
    "audi.tt": "mass, power (230 PS) and wheelbase: press at its launch, 2014",
    "bmw.grandtourer": "power (192 PS), wheelbase, and mass between 1 395 and 1 565 kg: press at its launch, 2015",
    "chevrolet.impala": "power (275 hp gross, 327 V8) and wheelbase (119 in): guides to the model year 1967",
    "citroen.c3": "power (95 hp): press at its launch, 2009",
    "dodge.charger_2020": "mass (4 286 lb), power (370 hp) and wheelbase (120 in): road test of 2020",
    "dodge.charger_police": "power (368 hp, 5.7 V8): Dodge's release for 2009; mass and wheelbase (120 in): Wikipedia",
    "dodge.charger_police_2020": "power (370 hp, 5.7 V8): press at the launch of its all-wheel drive, 2013",
    "ford.ambulance": "power (305 hp, 6.8 V10): road test of an E-450, 2017",
    "ford.crown": "mass (4 057 lb) and wheelbase (114.7 in): Wikipedia, of the generation",
    "ford.mustang": "power (290 hp gross, 351-4V) and wheelbase (108 in): guides to the model year 1969; mass, "
    "below the 3 607 lb of the 428: road test of 1968",
    "gazelle.omafiets": "mass, about 20 kg: an owner of one",
    "harley-davidson.low_rider": "power (85 hp) and wheelbase (64.2 in): press at its launch, 2017, and a rider; mass, "
    "near the 308 kg of the S of 2020: road test",
    "jeep.wrangler_rubicon": "power (285 hp): road tests of 2012",
    "kawasaki.ninja": "mass with fuel, power (95.4 kW) and wheelbase: press on its type approval, 2018",
    "lincoln.mkz_2017": "mass: what a CARLA server reports; power (245 hp) and wheelbase (112.2 in): road test of 2016",
    "lincoln.mkz_2020": "mass (3 739 lb), power (245 hp) and wheelbase (112.2 in): a site of specifications",
    "mercedes.coupe": "power (333 PS) and wheelbase (2.87 m): press at its launch, 2017",
    "mercedes.coupe_2020": "power (255 hp): road test of 2018; wheelbase: road test of 2016",
    "mercedes.sprinter": "power: road test of 2017",
    "micro.microlino": "mass (535 kg): press at its launch, 2022; power: Wikipedia",
    "mini.cooper_s": "mass (1 215 kg with a driver): a Mini site, 2006; power (163 PS), wheelbase (97.1 in): tests",
    "mini.cooper_s_2021": "power (178 PS): road test of 2021; wheelbase: press at its launch, 2014",
    "nissan.micra": "power (78 bhp): fleet press, 2005",
    "nissan.patrol": "power: road test of its successor, 2004",
    "nissan.patrol_2021": "power: road test of 2020; mass, almost three tonnes: road test of 2013",
    "seat.leon": "power (180 PS): Wikipedia",
    "tesla.cybertruck": "mass (6 603 lb) and wheelbase: press at its launch, 2023",
    "tesla.model3": "``motion.vehicles`` says",
    "toyota.prius": "mass (grades G and S) and wheelbase: Toyota's history of its cars; power (134 hp): press, 2011",
    "vespa.zx125": "power (10.7 PS) and wheelbase (1.34 m): press at its launches, 2013 and 2018",
    "volkswagen.t2": "mass (1.3 t, of Brazil's last ones): road test of 2012; power and wheelbase: Wikipedia",
    "volkswagen.t2_2021": "as volkswagen.t2",
    "yamaha.yzf": "mass with fuel: press, 2018",
}
"""Of a row by its id: which figures were looked up again, and where."""


@dataclass(frozen=True)
class _Class:
    """What vehicles of one base type share: plausible values of their kind, not those of one vehicle."""

    drag: float  # drag coefficient times the share of width × height that meets the wind
    mass_height: float  # height of the centre of mass as a share of the vehicle's
    wheel_radius_m: float
    brake_mps2: float  # what the brakes can, before tyres slip
    max_steer_deg: float
    drive_front_share: float


_CLASSES = {
    _CAR: _Class(0.26, 0.31, 0.335, 11.4, 70.0, 0.4),
    _VAN: _Class(0.32, 0.33, 0.35, 10.0, 60.0, 0.0),
    _TRUCK: _Class(0.55, 0.33, 0.5, 7.0, 50.0, 0.0),
    _BUS: _Class(0.5, 0.3, 0.45, 7.0, 50.0, 0.0),
    _MOTORCYCLE: _Class(0.32, 0.42, 0.3, 9.0, 45.0, 0.0),
    _BICYCLE: _Class(0.5, 0.6, 0.34, 5.5, 45.0, 0.0),
}


def model_of(row: VehicleRow) -> VehicleModel:
    """Return the motion model of a row: forces by its mass and power, axles by its wheelbase."""
    if row.id == "tesla.model3":
        return MODEL3
    its = _CLASSES[row.base_type]
    half_length_m, half_width_m, half_height_m = row.extent
    mass = row.mass_kg / MODEL3.mass_kg
    radius = its.wheel_radius_m / MODEL3.wheel_radius_m
    wheelbase_m = min(row.wheelbase_m, 1.7 * half_length_m)
    # Full throttle from standstill: 1.0 m/s² and 0.04 m/s² for each W/kg more, and never more than the Model 3 does.
    launch_mps2 = min(5.5, 1.0 + 0.04 * 1000.0 * row.power_kw / row.mass_kg)
    return replace(
        MODEL3,
        mass_kg=row.mass_kg,
        yaw_inertia_kgm2=MODEL3.yaw_inertia_kgm2 * mass * (half_length_m / MODEL3.half_length_m) ** 2,
        front_axle_m=wheelbase_m * MODEL3.front_axle_m / MODEL3.wheelbase_m,
        rear_axle_m=wheelbase_m * MODEL3.rear_axle_m / MODEL3.wheelbase_m,
        mass_height_m=its.mass_height * 2.0 * half_height_m,
        half_length_m=half_length_m,
        half_width_m=half_width_m,
        half_height_m=half_height_m,
        box_centre_z_m=half_height_m,
        peak_torque_nm=launch_mps2 * row.mass_kg * its.wheel_radius_m / (MODEL3.gear_ratio * radius),
        peak_power_w=1000.0 * row.power_kw,
        gear_ratio=MODEL3.gear_ratio * radius,
        wheel_radius_m=its.wheel_radius_m,
        drive_front_share=its.drive_front_share,
        brake_force_n=its.brake_mps2 * row.mass_kg,
        slip_force_n=MODEL3.slip_force_n * max(1.0, mass),
        hand_brake_force_n=MODEL3.hand_brake_force_n * mass,
        max_steer_rad=math.radians(its.max_steer_deg),
        front_stiffness_n_per_rad=MODEL3.front_stiffness_n_per_rad * mass,
        rear_stiffness_n_per_rad=MODEL3.rear_stiffness_n_per_rad * mass,
        drag_n_per_mps2=0.5 * 1.225 * its.drag * 4.0 * half_width_m * half_height_m,
        motor_drag_n_per_mps=MODEL3.motor_drag_n_per_mps * mass,
    )
