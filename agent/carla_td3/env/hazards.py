"""Hazards on the route ahead: the car in front, the light or stop sign, a walker, a vehicle that crosses in a junction.

Pure: a ``World`` of plain data in, the nearest of each kind out; ``env.surroundings`` reads it from the client.
It knows more than a driver can see: for rewards, critics, auxiliary losses and the expert, never for an actor.

Metres, seconds and radians in CARLA's frame (y and laterals positive to the right). Gaps are along the route, from the
car's front bumper. Nothing ahead within ``RANGE_M`` is an infinite gap.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

import numpy as np
from numpy.typing import NDArray

from carla_td3.env.car import Motion
from carla_td3.env.route_line import FloatArray, Projection, Route, wrapped
from carla_td3.env.stop_signs import StopBox

RANGE_M, BEHIND_M = 60.0, 15.0
NEXT_LANE_M = 10.0
# CARLA's Tesla Model 3: distances from its origin.
FRONT_M, HALF_WIDTH_M = 2.4, 1.09
# Half width of the path that the car covers, and the distance to keep from others.
CAR_MARGIN_M, WALKER_MARGIN_M = 0.3, 0.6
# A stop line holds the car until the front has passed it by this much; the junction begins behind it.
PAST_LINE_M = 2.5
SAME_WAY_RAD = math.radians(60.0)
# How far ahead in time others' motion is extrapolated, and how fast a car that waits at a junction would enter it.
HORIZON_S, STEP_S, STARTING_MPS = 4.0, 0.5, 4.0
CROSSING_MARGIN_S = 1.0
# Conflicts are looked for only in junctions: elsewhere an oncoming car in a bend would seem to cross the path.
JUNCTION_MARGIN_M = 4.0
STANDING_MPS = 0.3
BEARINGS = np.radians(np.arange(-55.0, 56.0, 10.0))
"""Edges of the directions in which others are reported: radians from the car's nose, positive to the right."""

# Distance before each kind of hazard at which the target speed is 0. The idea is Roach's (2108.08265), the distances
# are ours. 3 m before its line a light is at most 23° to the side in Town02 (38° from 1 m), so a camera needs no
# fisheye.
STAND_BEFORE_CAR_M, STAND_BEFORE_LINE_M, STAND_BEFORE_WALKER_M = 3.0, 3.0, 4.0
BRAKING_MPS2 = 2.5


class Light(Enum):
    """State of a traffic light; ``NONE``: no light on the route ahead, or one that is off."""

    NONE = "none"
    GREEN = "green"
    YELLOW = "yellow"
    RED = "red"


@dataclass(frozen=True)
class Hazards:
    """The nearest hazard of each kind on the route ahead."""

    lead_gap_m: float = math.inf
    """Gap to the rear of the next vehicle on the path."""
    lead_speed_mps: float = 0.0
    """That vehicle's speed along the route; negative if it is oncoming."""
    light: Light = Light.NONE
    light_gap_m: float = math.inf
    """Gap to the light's stop line; down to ``-PAST_LINE_M``."""
    sign_gap_m: float = math.inf
    """Gap to the line of a stop sign; infinite once the car has stopped there."""
    walker_gap_m: float = math.inf
    """Gap to a walker who is on the path, or will be within ``HORIZON_S``."""
    walker_lateral_m: float = 0.0
    walker_lateral_mps: float = 0.0
    crossing_gap_m: float = math.inf
    """Gap to where a vehicle, at constant speed and turn, enters the path in a junction just when the car gets there.
    """
    crossing_s: float = math.inf
    """Seconds until that vehicle is there."""


NOTHING = Hazards()


@dataclass(frozen=True, eq=False)
class OtherActors:
    """n boxes on the road."""

    place: FloatArray = field(default_factory=lambda: np.empty((0, 2)))
    """(n, 2) centres."""
    yaw: FloatArray = field(default_factory=lambda: np.empty(0))
    half: FloatArray = field(default_factory=lambda: np.empty((0, 2)))
    """(n, 2) half length and half width."""
    velocity: FloatArray = field(default_factory=lambda: np.empty((0, 2)))
    yaw_rate: FloatArray = field(default_factory=lambda: np.empty(0))

    def of(self, which: NDArray[Any]) -> OtherActors:
        """Return the boxes that a mask or indices select."""
        return OtherActors(
            self.place[which], self.yaw[which], self.half[which], self.velocity[which], self.yaw_rate[which]
        )


@dataclass(frozen=True)
class StopLine:
    """A stop line of a light, in one lane."""

    x_m: float
    y_m: float
    yaw: float
    """Direction of travel over the line."""
    light: Light


@dataclass(frozen=True, eq=False)
class World:
    """The other actors around the car, and the lights, in one frame."""

    vehicles: OtherActors = field(default_factory=OtherActors)
    walkers: OtherActors = field(default_factory=OtherActors)
    stop_lines: tuple[StopLine, ...] = ()
    stop_signs: tuple[StopBox, ...] = ()
    """Stop signs at which the car hasn't stopped yet."""


def hazards(route: Route, place: Projection, motion: Motion, world: World) -> Hazards:
    """Return the hazards ahead of the car at ``place`` on its route."""
    path = Ahead(route, place.s_m)
    lead = _lead(path, world.vehicles)
    light = _light(path, world.stop_lines)
    sign = _sign(path, world.stop_signs)
    walker, crossing = _walker(path, world.walkers), _crossing(path, motion.speed_mps, world.vehicles)
    return Hazards(*lead, *light, sign, *walker, *crossing)


def by_bearing(motion: Motion, others: OtherActors) -> FloatArray:
    """Return the distance from the car's centre to the nearest other centre in each of ``BEARINGS``, from the left.
    Infinite if there is none within ``RANGE_M``. It ignores the route and what hides the view.
    """
    nearest = np.full(len(BEARINGS) - 1, np.inf)
    if len(others.yaw):
        dx, dy = others.place[:, 0] - motion.x_m, others.place[:, 1] - motion.y_m
        bearing = wrapped(np.arctan2(dy, dx) - motion.yaw)
        away = np.hypot(dx, dy)
        at = np.searchsorted(BEARINGS, bearing) - 1
        among = (at >= 0) & (at < len(nearest)) & (away <= RANGE_M)
        np.minimum.at(nearest, at[among], away[among])
    return nearest


def nearest(motion: Motion, others: OtherActors, count: int) -> FloatArray:
    """Return the nearest boxes ahead, nearest first, (count, 4): metres ahead of the car's centre and to its right, and
    velocities in m/s in the same directions. Zeros stand where there are fewer within ``RANGE_M``.
    """
    found = np.zeros((count, 4))
    cos, sin = math.cos(motion.yaw), math.sin(motion.yaw)
    turn = np.array(((cos, -sin), (sin, cos)))
    places = (others.place - (motion.x_m, motion.y_m)) @ turn
    away = np.hypot(*places.T)
    which = np.flatnonzero((places[:, 0] > -1.0) & (away < RANGE_M))
    which = which[np.argsort(away[which])][:count]
    found[: len(which)] = np.column_stack((places[which], others.velocity[which] @ turn))
    return found


def target_speed(seen: Hazards, allowed_mps: float) -> float:
    """Return the speed that the hazards allow, at most ``allowed_mps``; as in Roach it falls to 0 before each of them.

    It is the speed from which comfortable braking (``BRAKING_MPS2``) still stops where the car should stand.
    """
    bounds = [
        _slowing_to(seen.lead_speed_mps, seen.lead_gap_m - STAND_BEFORE_CAR_M),
        _slowing_to(0.0, seen.walker_gap_m - STAND_BEFORE_WALKER_M),
        _slowing_to(0.0, seen.crossing_gap_m - STAND_BEFORE_CAR_M),
        _slowing_to(0.0, seen.sign_gap_m - STAND_BEFORE_LINE_M),
    ]
    if seen.light in (Light.RED, Light.YELLOW):
        bounds.append(_slowing_to(0.0, seen.light_gap_m - STAND_BEFORE_LINE_M))
    return min(allowed_mps, *bounds)


def time_to_collision(seen: Hazards, speed_mps: float) -> float:
    """Return the seconds until the car, at constant speed, meets a vehicle or walker; infinite if it doesn't."""
    closing = speed_mps - seen.lead_speed_mps
    times = [
        seen.lead_gap_m / closing if closing > 0.0 else math.inf,
        seen.walker_gap_m / speed_mps if speed_mps > 0.0 else math.inf,
        seen.crossing_gap_m / speed_mps if speed_mps > 0.0 else math.inf,
    ]
    return max(0.0, min(times))


def _slowing_to(speed_mps: float, metres: float) -> float:
    """Return the speed from which comfortable braking reaches ``speed_mps`` within ``metres``."""
    return math.sqrt(max(0.0, max(0.0, speed_mps) ** 2 + 2.0 * BRAKING_MPS2 * metres))


class Ahead:
    """The route's points from ``BEHIND_M`` behind the car to ``RANGE_M`` before it, extended straight at both ends."""

    def __init__(self, route: Route, s_m: float) -> None:
        first = int(np.searchsorted(route.s, s_m - BEHIND_M))
        last = int(np.searchsorted(route.s, s_m + FRONT_M + RANGE_M)) + 1
        self._points = route.points[first:last]
        self._squares = np.einsum("ij,ij->i", self._points, self._points)
        self._yaw = route.yaw[first:last]
        self._gap = route.s[first:last] - s_m - FRONT_M
        self._junctions = self._gap[route.junction[first:last]]

    def project(self, places: FloatArray) -> tuple[FloatArray, FloatArray, FloatArray]:
        """Return gap, lateral offset and the path's yaw at (n, 2) places, (n,) each, by the nearest point's tangent."""
        best = np.argmin(self._squares - 2.0 * (places @ self._points.T), axis=1)
        yaw, (dx, dy) = self._yaw[best], (places - self._points[best]).T
        cos, sin = np.cos(yaw), np.sin(yaw)
        return self._gap[best] + cos * dx + sin * dy, cos * dy - sin * dx, yaw

    @property
    def junction_ahead(self) -> bool:
        """Whether any part of it lies in a junction."""
        return len(self._junctions) > 0

    def in_junction(self, gap_m: FloatArray) -> NDArray[np.bool_]:
        """Return which of the gaps lie in a junction, or just before or behind one."""
        near = np.zeros(gap_m.shape, np.bool_)
        for inside in self._junctions[::3]:
            near |= np.abs(gap_m - inside) <= JUNCTION_MARGIN_M
        return near


def _lead(path: Ahead, vehicles: OtherActors) -> tuple[float, float]:
    """Return gap and speed along the route of the next vehicle whose box touches the path."""
    beside = _beside(path, vehicles, NEXT_LANE_M)
    if beside is None:
        return math.inf, 0.0
    near, (middle, _, yaw) = beside
    gap, lateral, _ = (
        values.reshape(-1, 4) for values in path.project(corners(near.place, near.yaw, near.half).reshape(-1, 2))
    )
    reach = HALF_WIDTH_M + CAR_MARGIN_M
    on = (lateral.min(axis=1) < reach) & (lateral.max(axis=1) > -reach) & (middle > -FRONT_M)
    best = _nearest(gap.min(axis=1), on)
    if best is None:
        return math.inf, 0.0
    along = near.velocity[best] @ (math.cos(yaw[best]), math.sin(yaw[best]))
    return max(0.0, float(gap[best].min())), float(along)


def _light(path: Ahead, lines: tuple[StopLine, ...]) -> tuple[Light, float]:
    """Return the next light of the route's lane, and the gap to its line."""
    lit = [line for line in lines if line.light is not Light.NONE]
    if not lit:
        return Light.NONE, math.inf
    gap, lateral, same_way = _poses(path, [(line.x_m, line.y_m, line.yaw) for line in lit])
    best = _nearest(gap, same_way & (np.abs(lateral) < HALF_WIDTH_M) & (gap > -PAST_LINE_M))
    return (Light.NONE, math.inf) if best is None else (lit[best].light, float(gap[best]))


def _sign(path: Ahead, holds: tuple[StopBox, ...]) -> float:
    """Return the gap to the line of the next stop sign."""
    if not holds:
        return math.inf
    gap, lateral, same_way = _poses(path, [(hold.x_m, hold.y_m, hold.travel) for hold in holds])
    across, along = np.array([(hold.half_x_m, hold.half_y_m) for hold in holds]).reshape(-1, 2).T
    best = _nearest(gap, same_way & (np.abs(lateral) < across) & (gap + FRONT_M > -along))
    return math.inf if best is None else float(gap[best]) + FRONT_M + STAND_BEFORE_LINE_M


def _walker(path: Ahead, walkers: OtherActors) -> tuple[float, float, float]:
    """Return gap, lateral offset and lateral speed of the next walker who is, or soon will be, on the path."""
    beside = _beside(path, walkers, NEXT_LANE_M)
    if beside is None:
        return math.inf, 0.0, 0.0
    near, (gap, lateral, yaw) = beside
    size = near.half.max(axis=1)
    across = near.velocity[:, 1] * np.cos(yaw) - near.velocity[:, 0] * np.sin(yaw)
    towards = np.maximum(-np.sign(lateral) * across, 1e-3)
    enters_s = np.maximum(np.abs(lateral) - HALF_WIDTH_M - WALKER_MARGIN_M - size, 0.0) / towards
    best = _nearest(gap - size, (enters_s < HORIZON_S) & (gap > -FRONT_M))
    if best is None:
        return math.inf, 0.0, 0.0
    return max(0.0, float(gap[best] - size[best])), float(lateral[best]), float(across[best])


def _crossing(path: Ahead, speed_mps: float, vehicles: OtherActors) -> tuple[float, float]:
    """Return gap and time of the next conflict in a junction with a vehicle that isn't on the path yet."""
    if not path.junction_ahead:
        return math.inf, math.inf
    beside = _beside(path, vehicles.of(np.hypot(*vehicles.velocity.T) > STANDING_MPS), RANGE_M)
    if beside is None:
        return math.inf, math.inf
    near, _ = beside
    times = np.arange(0.0, HORIZON_S + STEP_S / 2.0, STEP_S)
    places, yaws = _followed(near, times)
    gap, lateral, along = (values.reshape(yaws.shape) for values in path.project(places.reshape(-1, 2)))
    cos, sin = np.abs(np.cos(yaws - along)), np.abs(np.sin(yaws - along))
    (length, width) = (near.half[:, axis, None] for axis in (0, 1))
    deep, broad = length * cos + width * sin, length * sin + width * cos
    on = np.abs(lateral) < HALF_WIDTH_M + CAR_MARGIN_M + broad
    own_mps = max(speed_mps, STARTING_MPS)
    arrives_s, leaves_s = (gap - deep) / own_mps, (gap + deep + 2.0 * FRONT_M) / own_mps
    met = on & (gap + deep > 0.0) & (arrives_s < times + CROSSING_MARGIN_S) & (leaves_s > times - CROSSING_MARGIN_S)
    # A vehicle on the path by now is ahead of the car, or behind it.
    met &= path.in_junction(gap) & ~on[:, :1]
    gaps = (gap - deep).ravel()
    best = _nearest(gaps, met.ravel())
    return (math.inf, math.inf) if best is None else (max(0.0, float(gaps[best])), times[best % len(times)])


def _poses(path: Ahead, poses: list[tuple[float, float, float]]) -> tuple[FloatArray, FloatArray, NDArray[np.bool_]]:
    """Return gap and lateral offset of poses (x, y, yaw), and which of them point along the path."""
    x, y, yaw = np.array(poses).reshape(-1, 3).T
    gap, lateral, along = path.project(np.stack((x, y), axis=1))
    return gap, lateral, np.cos(yaw - along) > math.cos(SAME_WAY_RAD)


def _nearest(gap_m: FloatArray, which: NDArray[np.bool_]) -> int | None:
    """Return the index of the smallest gap among ``which``, up to the range; None if there is none."""
    near = np.flatnonzero(which & (gap_m <= RANGE_M))
    return int(near[np.argmin(gap_m[near])]) if len(near) else None


def _beside(path: Ahead, others: OtherActors, metres: float) -> tuple[OtherActors, FloatArray] | None:
    """Return the n boxes whose centres are within ``metres`` of the path; None if there are none.

    And (3, n): gap, lateral offset and the path's yaw at their centres.
    """
    if not len(others.yaw):
        return None
    centres = np.array(path.project(others.place))
    which = np.flatnonzero(np.abs(centres[1]) < metres)
    return (others.of(which), centres[:, which]) if len(which) else None


SIGNS = np.array(((1.0, 1.0), (1.0, -1.0), (-1.0, -1.0), (-1.0, 1.0)))


def corners(place: FloatArray, yaw: FloatArray, half: FloatArray) -> FloatArray:
    """Return the (n, 4, 2) corners of boxes; see ``OtherActors`` for the arguments."""
    along, beside = np.moveaxis(half[:, None] * SIGNS, 2, 0)
    cos, sin = np.cos(yaw)[:, None], np.sin(yaw)[:, None]
    offsets = np.stack((along * cos - beside * sin, along * sin + beside * cos), axis=-1)
    found: FloatArray = place[:, None] + offsets
    return found


def _followed(others: OtherActors, times_s: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Return places (n, t, 2) and yaws (n, t) of boxes that keep their present speed and turn."""
    turned = others.yaw_rate[:, None] * times_s
    chord = turned / 2.0
    metres = times_s * np.sinc(chord / math.pi)
    (vx, vy), cos, sin = others.velocity.T[:, :, None], np.cos(chord), np.sin(chord)
    moved = np.stack((vx * cos - vy * sin, vx * sin + vy * cos), axis=-1) * metres[..., None]
    return others.place[:, None] + moved, others.yaw[:, None] + turned
