"""The plans of the two generated towns, as data: crossings at coordinates, and the streets between them.

Owns a town's layout. Knows neither OpenDRIVE nor the geometry of lanes. The two layouts share no block, so that Lite02
tests generalisation after training in Lite01: Lite01 is a grid within a rounded ring, around a straight avenue; Lite02
has oblique crossings, winding streets and a curved avenue.
"""

from __future__ import annotations

from dataclasses import dataclass

LANE_M = 3.5
SHOULDER_M = 0.3  # between the edge line and the kerb, as in CARLA's Town01
SIDEWALK_M = 3.0


@dataclass(frozen=True)
class Street:
    """A two-way street from one crossing to another; its corners are rounded to arcs of the given radius."""

    start: str
    end: str
    corners: tuple[tuple[float, float, float], ...] = ()  # (x, y, radius) in metres
    lanes: int = 1  # in each direction
    speed_kmh: int = 40

    @property
    def kerb_m(self) -> float:
        """Distance from the centre line to the kerb."""
        return self.lanes * LANE_M + SHOULDER_M


@dataclass(frozen=True)
class Plan:
    """A town; coordinates are metres in OpenDRIVE's frame (x east, y north)."""

    crossings: dict[str, tuple[float, float]]
    streets: tuple[Street, ...]


def avenue(start: str, end: str, *corners: tuple[float, float, float]) -> Street:
    """Return a street with two lanes in each direction."""
    return Street(start, end, corners, lanes=2, speed_kmh=60)


def street(start: str, end: str, *corners: tuple[float, float, float], speed_kmh: int = 40) -> Street:
    """Return a street with one lane in each direction."""
    return Street(start, end, corners, speed_kmh=speed_kmh)


LITE01 = Plan(
    crossings={
        "west": (0, 150),
        "plaza": (130, 150),
        "market": (270, 150),
        "east": (400, 150),
        "north": (130, 300),
        "north-east": (270, 300),
        "south": (130, 0),
        "south-east": (270, 0),
        "mill": (130, 225),
        "school": (270, 225),
    },
    streets=(
        avenue("west", "plaza"),
        avenue("plaza", "market"),
        avenue("market", "east"),
        street("west", "north", (0, 300, 60), speed_kmh=50),
        street("north", "north-east"),
        street("north-east", "east", (400, 300, 40), speed_kmh=50),
        street("west", "south", (0, 0, 25)),
        street("south", "south-east", (165, 0, 25), (185, 30, 20), (215, 30, 20), (235, 0, 25), speed_kmh=30),
        street("south-east", "east", (400, 0, 80), speed_kmh=50),
        street("plaza", "mill"),
        street("mill", "north"),
        street("market", "school"),
        street("school", "north-east"),
        street("mill", "school", (180, 225, 20), (180, 262, 15), (222, 262, 15), (222, 225, 20), speed_kmh=30),
        street("plaza", "south"),
        street("market", "south-east", (270, 110, 30), (310, 85, 25), (310, 45, 25), (270, 23, 15), speed_kmh=30),
    ),
)

LITE02 = Plan(
    crossings={
        "gate": (190, 0),
        "bridge": (205, 115),
        "square": (222, 180),
        "church": (212, 275),
        "harbour": (0, 105),
        "orchard": (70, 185),
        "hill": (375, 160),
        "park": (300, 145),
        "station": (310, 15),
    },
    streets=(
        avenue("gate", "bridge", (172, 55, 70)),
        avenue("bridge", "square"),
        avenue("square", "church", (235, 230, 60)),
        street("harbour", "bridge", (55, 105, 50), (120, 135, 60)),
        street("bridge", "park"),
        street("park", "hill"),
        street("harbour", "gate", (0, 0, 80), speed_kmh=50),
        street("gate", "station"),
        street("station", "park", (335, 55, 25), (285, 100, 20), speed_kmh=30),
        street("station", "hill", (385, 15, 40), speed_kmh=50),
        street("harbour", "orchard", (0, 185, 45)),
        street("orchard", "church", (70, 275, 25)),
        street("orchard", "square", (120, 165, 15), (165, 205, 30), speed_kmh=30),
        street("church", "hill", (370, 285, 35), speed_kmh=50),
    ),
)

PLANS = {"Lite01": LITE01, "Lite02": LITE02}
