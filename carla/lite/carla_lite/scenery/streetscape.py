"""Objects beside the streets: buildings, lamp posts and trees, placed at random from a seed.

Owns their placement. It reads lanes only to keep off them, and doesn't paint or draw. The same network and seed give
the same boxes in the same order.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

import cv2
import numpy as np
from numpy.typing import NDArray

from carla_lite.roads import polyline
from carla_lite.roads.lanes import Lane
from carla_lite.roads.network import RoadNetwork
from carla_lite.roads.reference_line import FloatArray
from carla_lite.roads.signals import Signal
from carla_lite.scenery.sign_faces import mast_of, post_of
from carla_lite.scenery.statics import TAG_BUILDING, TAG_POLE, TAG_VEGETATION, StaticBox

PLAN_M = 0.25
# For a town of 2 × 2 km; a larger one is planned more coarsely.
MAX_PLAN_CELLS = 64_000_000
MARGIN_M = 45.0
BUILDING_CLEARANCE_M = 1.5
POST_CLEARANCE_M = 0.4
SETBACK_M = 3.6
FLOOR_M = 3.1
LAMP_SPACING_M = 26.0
TREE_SPACING_M = 9.0
MIN_STREET_M = 6.0
# Trees and lamps keep this distance from a sign, which they would hide.
SIGN_CLEARANCE_M = 2.5
# Distance of a mast from the lanes, and largest length of its arm.
MAST_CLEARANCE_M, LONGEST_ARM_M = 0.5, 16.0

# BGR: plaster, brick, sandstone, concrete, and two painted fronts.
FRONTS = (
    (196, 210, 219),
    (86, 102, 160),
    (150, 186, 206),
    (176, 178, 180),
    (128, 158, 190),
    (201, 190, 172),
    (112, 124, 148),
    (164, 200, 214),
    (150, 164, 142),
)
LEAVES = ((52, 112, 74), (60, 124, 92), (48, 98, 60), (66, 132, 112))
LAMP_COLOUR = (92, 88, 84)
TRUNK_COLOUR = (48, 66, 84)


class Plan:
    """A coarse map of occupied ground: first lanes, then every placed building."""

    def __init__(self, network: RoadNetwork) -> None:
        x_min, y_min, x_max, y_max = network.bounds
        self.x, self.y = x_min - MARGIN_M, y_min - MARGIN_M
        sides_m = y_max - y_min + 2 * MARGIN_M, x_max - x_min + 2 * MARGIN_M
        self.cell_m = max(PLAN_M, math.sqrt(math.prod(sides_m) / MAX_PLAN_CELLS))
        shape = (math.ceil(sides_m[0] / self.cell_m), math.ceil(sides_m[1] / self.cell_m))
        lanes = np.zeros(shape, np.uint8)
        for lane in network.lanes:
            outline = self._pixels(np.concatenate([lane.left, lane.right[::-1]]))
            cv2.fillPoly(lanes, [outline], 1)
            cv2.polylines(lanes, [outline], True, 1)
        distance = np.asarray(cv2.distanceTransform(1 - lanes, cv2.DIST_L2, 5), np.float32)
        # One pixel for the rounding of corners, and about 2 % for the transform's error.
        # In place: of a large town it is 256 MB.
        distance *= self.cell_m * 0.97
        distance -= 1.5 * self.cell_m
        self.clear_m = distance
        self.taken = np.zeros(shape, np.uint8)

    def take(self, footprint: Sequence[tuple[float, float]], clearance_m: float) -> bool:
        """Occupy the convex footprint if it is free and this far from every lane; return whether it was."""
        # Plain numbers: for so few of them arrays cost more than the sums.
        columns = [round((x - self.x) / self.cell_m) for x, _ in footprint]
        rows = [round((y - self.y) / self.cell_m) for _, y in footprint]
        left, top, right, bottom = min(columns), min(rows), max(columns) + 1, max(rows) + 1
        if min(left, top) < 1 or right >= self.taken.shape[1] or bottom >= self.taken.shape[0]:
            return False
        window = np.s_[top:bottom, left:right]
        mask = np.zeros((bottom - top, right - left), np.uint8)
        corners = [(column - left, row - top) for column, row in zip(columns, rows, strict=True)]
        cv2.fillConvexPoly(mask, np.array(corners, np.int32), 1)
        inside = mask.view(bool)
        if self.taken[window][inside].any() or self.clear_m[window][inside].min() < clearance_m:
            return False
        self.taken[window] |= mask
        return True

    def keep_clear(self, x: float, y: float, radius_m: float) -> None:
        """Occupy everything this near to a place."""
        cv2.fillConvexPoly(self.taken, self._pixels(np.array(_square(x, y, radius_m))), 1)

    def _pixels(self, points: FloatArray) -> NDArray[np.int32]:
        return np.rint((points[:, :2] - (self.x, self.y)) / self.cell_m).astype(np.int32)


def furnish(network: RoadNetwork, seed: int) -> list[StaticBox]:
    """Return all objects beside the streets of a network, buildings first."""
    rng = np.random.default_rng([seed, 0x5CE2E])
    plan = Plan(network)
    streets = [_evenly(lane.right) for lane in _outermost(network.lanes)]
    streets = [street for street in streets if len(street) * 1.0 >= MIN_STREET_M]
    placed: list[StaticBox] = []
    for street in streets:
        placed.extend(_buildings(street, plan, rng))
    placed.extend(_sign_posts(network, plan))
    for street in streets:
        placed.extend(_lamps(street, plan))
    for street in streets:
        placed.extend(_trees(street, plan, rng))
    return placed


def _sign_posts(network: RoadNetwork, plan: Plan) -> Iterator[StaticBox]:
    """Yield the post of each sign, or a mast with an arm if it hangs over a lane; keep the ground before it free."""
    if not network.signals.signals:
        return
    driven = [lane for lane in network.lanes if lane.kind == "driving"]
    middles = np.concatenate([lane.centre[:, :2] for lane in driven])
    halves = np.concatenate([0.5 * lane.width_m for lane in driven])
    for signal in network.signals.signals:
        plan.keep_clear(signal.x, signal.y, SIGN_CLEARANCE_M)
        foot = _foot(signal, middles, halves)
        if foot == (signal.x, signal.y):
            yield post_of(signal, network.height(*foot, signal.z))
        elif foot is not None:
            plan.keep_clear(*foot, 0.5)
            yield from mast_of(signal, foot, network.height(*foot, signal.z))


def _foot(signal: Signal, middles: FloatArray, halves: FloatArray) -> tuple[float, float] | None:
    """Return the place nearest to a sign, beside its line of sight, outside all lanes; None if it is too far away."""
    beside = -math.sin(signal.yaw), math.cos(signal.yaw)
    for aside in (0.0, *(way * 0.5 * step for step in range(1, int(2 * LONGEST_ARM_M)) for way in (1.0, -1.0))):
        x, y = signal.x + aside * beside[0], signal.y + aside * beside[1]
        free_m = MAST_CLEARANCE_M if aside else 0.0
        if (np.hypot(*(middles - (x, y)).T) > halves + free_m).all():
            return x, y
    return None


def _outermost(lanes: Sequence[Lane]) -> list[Lane]:
    """Return the outermost lane on each side of each road outside junctions."""
    outermost: dict[tuple[int, int, bool], Lane] = {}
    for lane in lanes:
        if lane.in_junction:
            continue
        key = (lane.road_id, lane.section, lane.lane_id > 0)
        if key not in outermost or abs(lane.lane_id) > abs(outermost[key].lane_id):
            outermost[key] = lane
    return [outermost[key] for key in sorted(outermost)]


def _evenly(edge: FloatArray) -> FloatArray:
    """Return the polyline sampled every metre: (n, 3)."""
    along = polyline.along(edge)
    return polyline.sampled(edge, along, np.arange(0.0, along[-1] + 1e-9, 1.0))


def _buildings(street: FloatArray, plan: Plan, rng: np.random.Generator) -> Iterator[StaticBox]:
    position = 0
    while position < len(street) - 8:
        frontage = int(rng.integers(9, 21))
        floors = int(rng.integers(2, 6))
        depth, setback, gap = rng.uniform(8.0, 13.0), SETBACK_M + rng.uniform(0.0, 1.6), int(rng.integers(0, 4))
        front = FRONTS[int(rng.integers(len(FRONTS)))]
        tint = rng.uniform(0.9, 1.06)
        end = min(position + frontage, len(street) - 1)
        box = _beside(street, position, end, setback, (depth, floors * FLOOR_M + 0.8))
        colour = _scaled(front, tint)
        if end - position >= 8 and plan.take(box.corners(), BUILDING_CLEARANCE_M):
            yield StaticBox(*box.centre, *box.extent, box.yaw, colour, TAG_BUILDING)
            position = end + gap
        else:
            position += 3


def _beside(street: FloatArray, start: int, end: int, setback: float, size: tuple[float, float]) -> StaticBox:
    """Return a box along the street's right-hand edge between two samples; ``size`` is depth and height."""
    depth, height = size
    chord = street[end] - street[start]
    yaw = math.atan2(chord[1], chord[0])
    half_length = 0.5 * math.hypot(chord[0], chord[1]) - 0.02
    out = setback + 0.5 * depth
    x, y, z = (0.5 * (street[start] + street[end])).tolist()
    x, y = x - math.sin(yaw) * out, y + math.cos(yaw) * out
    return StaticBox(x, y, z + 0.5 * height, half_length, 0.5 * depth, 0.5 * height, yaw, (0, 0, 0), TAG_BUILDING)


def _lamps(street: FloatArray, plan: Plan) -> Iterator[StaticBox]:
    spacing = int(LAMP_SPACING_M)
    for index in range(spacing // 3, len(street) - 2, spacing):
        x, y, z, yaw = _off_street(street, index, 1.2)
        if plan.take(_square(x, y, 0.3), POST_CLEARANCE_M):
            yield StaticBox(x, y, z + 3.0, 0.09, 0.09, 3.0, yaw, LAMP_COLOUR, TAG_POLE, lamp=True)


def _trees(street: FloatArray, plan: Plan, rng: np.random.Generator) -> Iterator[StaticBox]:
    index = 4.0
    while index < len(street) - 2:
        out, radius = 1.7 + rng.uniform(0.0, 0.6), rng.uniform(1.2, 2.1)
        trunk = rng.uniform(1.9, 2.7)
        leaves = _scaled(LEAVES[int(rng.integers(len(LEAVES)))], rng.uniform(0.85, 1.15))
        grown = rng.uniform() < 0.7
        x, y, z, yaw = _off_street(street, int(index), out)
        index += TREE_SPACING_M * rng.uniform(0.8, 1.6)
        if grown and plan.take(_square(x, y, 0.35), 0.8):
            yield StaticBox(x, y, z + 0.5 * trunk, 0.16, 0.16, 0.5 * trunk, yaw, TRUNK_COLOUR, TAG_VEGETATION)
            yield StaticBox(
                x, y, z + trunk + 0.8 * radius, radius, radius, radius, yaw, leaves, TAG_VEGETATION, solid=False
            )


def _off_street(street: FloatArray, index: int, out: float) -> tuple[float, float, float, float]:
    """Return x, y, z and yaw of a place ``out`` metres to the right of a street's edge."""
    chord = street[index + 1] - street[index - 1]
    yaw = math.atan2(chord[1], chord[0])
    x, y, z = street[index].tolist()
    return x - math.sin(yaw) * out, y + math.cos(yaw) * out, z, yaw


def _square(x: float, y: float, half: float) -> list[tuple[float, float]]:
    return [(x + u * half, y + v * half) for u, v in ((1, 1), (-1, 1), (-1, -1), (1, -1))]


def _scaled(colour: tuple[int, int, int], factor: float) -> tuple[int, int, int]:
    blue, green, red = (min(255, round(channel * factor)) for channel in colour)
    return blue, green, red
