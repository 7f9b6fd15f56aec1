"""The overlay on a driver's picture and beside it: the route ahead, speed, pedals, reward, lights, other actors.

Pictures are (height, width, 3) uint8, blue first; the data of one step is an :class:`OverlayData`. The evaluation's
video and the visual test use it. Owns layout and colours. Encodes nothing and writes no file.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from operator import itemgetter
from typing import Any

import cv2
import numpy as np
from numpy.typing import ArrayLike, NDArray

from carla_td3.config import CameraConfig
from carla_td3.env.driving import DrivingEnv
from carla_td3.env.hazards import FRONT_M, HALF_WIDTH_M, RANGE_M, Hazards, Light, World, corners
from carla_td3.env.observation import DriverState
from carla_td3.env.route_line import FloatArray, turned

Picture = NDArray[np.uint8]
Colour = tuple[int, int, int]
Heatmap = NDArray[np.float32]
"""(S, S), ≥ 0: how much each pixel of the agent's front view matters."""

MARGIN = 10
INSET, INSET_OF_SEVERAL = 168, 126  # twice the agent's pixels, or 1.5 times if there are two views
FRONT = 480
"""Side of the visual test's front view in pixels."""
SIDE_WIDTH, TOWN_HEIGHT = 400, 228
HEAT = FRONT // 3
LINE = 20

WHITE, SOFT, DARK, GROUND = (255, 255, 255), (170, 170, 170), (40, 40, 40), (26, 24, 22)
GREEN, RED, YELLOW, BLUE, ORANGE = (90, 200, 90), (70, 70, 230), (60, 200, 240), (230, 160, 70), (60, 150, 250)
LAMPS = {Light.GREEN: GREEN, Light.YELLOW: YELLOW, Light.RED: RED}
ROAD, RAIL = (74, 70, 66), (64, 62, 60)

ROUTE_FROM_M, ROUTE_TO_M, ROUTE_STEP_M, ROUTE_HALF_M = 4.0, 40.0, 1.0, 0.9
AROUND_M, LANE_M, BEHIND = 45.0, 3.5, 0.75
"""View from above: metres to either side, a lane's width, and the car's place as a share of the height from the top."""
SUBPIXEL = 4
"""Fractional bits of OpenCV's coordinates."""


@dataclass(frozen=True)
class OverlayData:
    """The data drawn for one step."""

    state: DriverState
    world: World
    hazards: Hazards
    action: Iterable[float]
    """Steering and pedal, -1 to 1."""
    completion: float
    """Share of the route, 0 to 1."""
    title: str = ""
    step: int = 0
    steps: int = 0
    """Total number of steps; 0 if unknown."""
    reward: float = 0.0
    terms: Mapping[str, float] = field(default_factory=dict)
    held_mib: Mapping[str, float] = field(default_factory=dict)
    """Memory by process."""

    @classmethod
    def of(
        cls, env: DrivingEnv, action: Iterable[float], reward: float, info: Mapping[str, Any], **more: Any
    ) -> OverlayData:
        """Return what to draw for an environment that was just stepped with this result; ``more``: other fields."""
        return cls(
            state=env.state,
            world=env.drive.world,
            hazards=env.hazards,
            action=action,
            completion=info["route_completion"],
            reward=reward,
            terms=info["reward_terms"],
            **more,
        )


class TownMap:
    """The lanes of a map, for the view from above.

    Args:
        lanes: centre lines, (n, 2) metres each.
    """

    def __init__(self, lanes: Sequence[FloatArray]) -> None:
        self._lanes = lanes
        self._low = np.array([lane.min(axis=0) for lane in lanes]).reshape(-1, 2)
        self._high = np.array([lane.max(axis=0) for lane in lanes]).reshape(-1, 2)

    def near(self, state: DriverState) -> list[FloatArray]:
        """Return the lanes that may have a part within ``RANGE_M`` of the car."""
        here = np.array((state.x_m, state.y_m))
        close = ((self._low < here + RANGE_M) & (self._high > here - RANGE_M)).all(axis=1)
        return [self._lanes[int(index)] for index in np.flatnonzero(close)]


def views(frame: NDArray[np.uint8], camera: CameraConfig) -> list[Picture]:
    """Return the pictures of a frame (planes, S, S), one (S, S, 3) per view, from the leftmost view on."""
    pictures = []
    for view in camera.views:
        own, frame = frame[: view.own_planes], frame[view.own_planes :]
        blue_first = np.repeat(own[::-1], 3 // len(own), axis=0)
        pictures.append((view.yaw_deg, np.ascontiguousarray(blue_first.transpose(1, 2, 0))))
    return [picture for _, picture in sorted(pictures, key=itemgetter(0))]


def filmed(picture: Picture, own: Sequence[Picture], seen: OverlayData, town: TownMap) -> Picture:
    """Draw into a chase camera's picture and return it: the agent's views, the town, title, speed, route."""
    height, width = picture.shape[:2]
    left = width - INSET - MARGIN
    size = INSET if len(own) == 1 else INSET_OF_SEVERAL
    for place, view in enumerate(reversed(own)):
        _framed(picture, MARGIN, width - MARGIN - size - place * (size + 2), _sized(view, size, cv2.INTER_NEAREST))
    above = picture[2 * MARGIN + size : height - 6 * MARGIN, left : left + INSET]
    _from_above(above, seen, town)
    _write(picture, seen.title, MARGIN, 36, 1.0, 2)
    bottom = height - MARGIN
    cv2.rectangle(picture, (MARGIN, bottom - 40), (MARGIN + 400, bottom - 8), DARK, -1)
    pace = f"{3.6 * seen.state.speed_mps:3.0f} km/h   route {seen.completion:4.0%}"
    _write(picture, pace, MARGIN + 8, bottom - 18, 0.6)
    for row, (_, low, high, colour) in enumerate(_pedals(seen)):
        _bar(picture, MARGIN + 260, bottom - 36 + 9 * row, 130, 5, low, high, colour)
    _bar(picture, MARGIN, bottom - 8, width - 2 * MARGIN, 8, 0.0, seen.completion, GREEN)
    return picture


def composed(
    front: Picture, lens: CameraConfig, seen: OverlayData, town: TownMap, heatmaps: Mapping[str, Heatmap] | None = None
) -> Picture:
    """Return the visual test's picture, with the size of ``size_of``.

    Args:
        front: square, of any size, through ``lens``.
        heatmaps: by name, at most three; drawn over the front view.
    """
    width, height = size_of(bool(heatmaps))
    picture = np.full((height, width, 3), GROUND, np.uint8)
    view = _sized(front, FRONT, cv2.INTER_CUBIC)
    for row, (name, heat) in enumerate((heatmaps or {}).items()):
        tile = picture[row * HEAT : (row + 1) * HEAT, FRONT : FRONT + HEAT]
        tile[:] = with_heatmap(_sized(view, HEAT, cv2.INTER_AREA), heat)
        _write(tile, name, 6, HEAT - 8, 0.42)
    _route_ahead(view, lens, seen.state)
    _write(view, seen.title, MARGIN, 36, 1.0, 2)
    picture[:, :FRONT] = view
    side = picture[:, width - SIDE_WIDTH :]
    _from_above(side[:TOWN_HEIGHT], seen, town)
    _figures(side[TOWN_HEIGHT:, : SIDE_WIDTH // 2], seen)
    _rewards(side[TOWN_HEIGHT:, SIDE_WIDTH // 2 :], seen)
    return picture


def size_of(explained: bool) -> tuple[int, int]:
    """Return width and height of the visual test's pictures, with heat maps or without."""
    return FRONT + SIDE_WIDTH + (HEAT if explained else 0), FRONT


def with_heatmap(picture: Picture, heat: Heatmap) -> Picture:
    """Return the darkened picture with the heat map as light: dark where it is 0, brightest at its maximum."""
    height, width = picture.shape[:2]
    part = (heat / max(float(heat.max()), 1e-12)).astype(np.float32)
    share = np.asarray(cv2.resize(part, (width, height), interpolation=cv2.INTER_LINEAR))[:, :, None]
    colours = cv2.applyColorMap((255 * share).astype(np.uint8), cv2.COLORMAP_INFERNO)
    mixed: Picture = (0.45 * picture * (1.0 - share) + colours * share**0.5).clip(0, 255).astype(np.uint8)
    return mixed


def projected(
    points: FloatArray, lens: CameraConfig, state: DriverState, size: int
) -> tuple[FloatArray, NDArray[np.bool_]]:
    """Return the pixels (n, 2) of points (n, 2) on level ground in a square picture, and which are in front of it.

    Slopes and the car's tilt are ignored.
    """
    forward, right = _relative(points, state)
    pitch = math.radians(lens.pitch_deg)
    (dx, right), dz = turned(forward - lens.x_m, right, math.radians(lens.yaw_deg)), -lens.z_m
    depth = dx * math.cos(pitch) + dz * math.sin(pitch)
    up = dz * math.cos(pitch) - dx * math.sin(pitch)
    before = depth > 0.5
    focal = size / (2.0 * math.tan(math.radians(lens.fov_deg) / 2.0))
    by = focal / np.where(before, depth, 1.0)
    return np.stack((size / 2.0 + by * right, size / 2.0 - by * up), axis=1), before


def _relative(points: FloatArray, state: DriverState) -> tuple[FloatArray, FloatArray]:
    """Return the points' distances ahead of the car and to its right."""
    return turned(points[:, 0] - state.x_m, points[:, 1] - state.y_m, state.yaw)


def _route_ahead(view: Picture, lens: CameraConfig, state: DriverState) -> None:
    """Draw the route as a ribbon on the ground."""
    place = state.place.s_m + ROUTE_FROM_M
    count = int((min(ROUTE_TO_M, state.route.length_m - place)) / ROUTE_STEP_M)
    if count < 2:
        return
    line = state.route.ahead(place, count, ROUTE_STEP_M)
    tangent = np.gradient(line, axis=0)
    tangent /= np.maximum(np.hypot(*tangent.T), 1e-6)[:, None]
    beside = ROUTE_HALF_M * np.stack((-tangent[:, 1], tangent[:, 0]), axis=1)
    edges = [projected(line + side, lens, state, len(view)) for side in (-beside, beside)]
    there = edges[0][1] & edges[1][1]
    outline = np.concatenate((edges[0][0][there], edges[1][0][there][::-1]))
    if len(outline) < 4:
        return
    painted = view.copy()
    _fill(painted, outline, GREEN)
    cv2.addWeighted(painted, 0.4, view, 0.6, 0.0, dst=view)


def _from_above(into: Picture, seen: OverlayData, town: TownMap) -> None:
    """Draw roads, route, lights and other actors around the car, which points up."""
    height, width = into.shape[:2]
    scale, state = width / (2.0 * AROUND_M), seen.state
    into[:] = GROUND

    def pixels(points: FloatArray) -> FloatArray:
        forward, right = _relative(points, state)
        return np.stack((width / 2.0 + scale * right, BEHIND * height - scale * forward), axis=1)

    def boxes(place: ArrayLike, yaw: ArrayLike, half: ArrayLike, colour: Colour) -> None:
        for outline in corners(*(np.asarray(each, float) for each in (place, yaw, half))):
            _fill(into, pixels(outline), colour)

    for lane in town.near(state):
        _line(into, pixels(lane), ROAD, max(1, round(scale * LANE_M)))
    ahead = state.route.points[state.route.s >= state.place.s_m]
    _line(into, pixels(np.concatenate(([(state.x_m, state.y_m)], ahead))), GREEN, 2)
    for stop in seen.world.stop_lines:
        boxes([(stop.x_m, stop.y_m)], [stop.yaw], [(0.5, LANE_M / 2.0)], LAMPS.get(stop.light, SOFT))
    for others, colour, least_m in ((seen.world.vehicles, BLUE, 0.0), (seen.world.walkers, ORANGE, 0.6)):
        boxes(others.place, others.yaw, np.maximum(others.half, least_m), colour)
    boxes([(state.x_m, state.y_m)], [state.yaw], [(FRONT_M, HALF_WIDTH_M)], WHITE)
    cv2.rectangle(into, (0, 0), (width - 1, height - 1), SOFT, 1)


def _figures(into: Picture, seen: OverlayData) -> None:
    """Write speed, light, pedals, step and memory, one below the other."""
    _write(into, f"{3.6 * seen.state.speed_mps:.0f} km/h", MARGIN, 34, 0.9, 2)
    y = 60
    ahead = seen.hazards
    lit = ahead.light is not Light.NONE
    cv2.circle(into, (MARGIN + 6, y - 5), 6, LAMPS.get(ahead.light, DARK), -1, cv2.LINE_AA)
    text = f"{ahead.light.value}, {max(0.0, ahead.light_gap_m):.0f} m" if lit else "no light ahead"
    _write(into, text, MARGIN + 20, y, 0.45)
    for name, low, high, colour in (*_pedals(seen), ("route", 0.0, seen.completion, WHITE)):
        y += LINE
        _write(into, name, MARGIN, y, 0.45)
        _bar(into, MARGIN + 68, y - 9, 112, 9, low, high, colour)
    of = f" of {seen.steps}" if seen.steps else ""
    for text in (f"step {seen.step}{of}", *(f"{who} {mib:.0f} MiB" for who, mib in seen.held_mib.items())):
        y += LINE
        _write(into, text, MARGIN, y, 0.45)


def _rewards(into: Picture, seen: OverlayData) -> None:
    """Write the step's reward and each of its terms, with a bar about 0."""
    _write(into, f"reward {seen.reward:+.2f}", 0, 34, 0.6)
    for row, (name, value) in enumerate(seen.terms.items()):
        y = 60 + LINE * row
        _write(into, name.replace("_", " "), 0, y, 0.4, colour=WHITE if value else SOFT)
        share = max(-1.0, min(1.0, value))
        colour = GREEN if value > 0 else RED
        _bar(into, 118, y - 9, 70, 9, 0.5 + min(0.0, share) / 2.0, 0.5 + max(0.0, share) / 2.0, colour)


def _pedals(seen: OverlayData) -> list[tuple[str, float, float, Colour]]:
    """Return the bars of steering, throttle and brake: name, both ends as shares, and colour."""
    steer, pedal = (float(value) for value in seen.action)
    wheel = 0.5 + steer / 2.0
    return [
        ("steer", min(0.5, wheel), max(0.5, wheel), BLUE),
        ("throttle", 0.0, max(0.0, pedal), GREEN),
        ("brake", 0.0, max(0.0, -pedal), RED),
    ]


def _bar(into: Picture, x: int, y: int, width: int, height: int, low: float, high: float, colour: Colour) -> None:
    cv2.rectangle(into, (x, y), (x + width, y + height), RAIL, -1)
    if high > low:
        cv2.rectangle(into, (x + round(low * width), y), (x + round(high * width), y + height), colour, -1)
    if 0.0 < low <= 0.5 <= high:  # a bar that extends to both sides of the middle
        cv2.line(into, (x + width // 2, y), (x + width // 2, y + height), SOFT, 1)


def _write(into: Picture, text: str, x: int, y: int, size: float, weight: int = 1, colour: Colour = WHITE) -> None:
    for shadow, each in ((1, DARK), (0, colour)):
        cv2.putText(into, text, (x + shadow, y + shadow), cv2.FONT_HERSHEY_SIMPLEX, size, each, weight, cv2.LINE_AA)


def _framed(into: Picture, top: int, left: int, inset: Picture) -> None:
    height, width = inset.shape[:2]
    into[top : top + height, left : left + width] = inset
    cv2.rectangle(into, (left - 1, top - 1), (left + width, top + height), WHITE, 1)


def _sized(picture: NDArray[np.uint8], size: int, way: int) -> NDArray[np.uint8]:
    return np.array(cv2.resize(picture, (size, size), interpolation=way), np.uint8)


def _fill(into: Picture, corners: FloatArray, colour: Colour) -> None:
    cv2.fillPoly(into, [_fixed(corners)], colour, cv2.LINE_AA, SUBPIXEL)


def _line(into: Picture, points: FloatArray, colour: Colour, thickness: int) -> None:
    cv2.polylines(into, [_fixed(points)], False, colour, thickness, cv2.LINE_AA, SUBPIXEL)


def _fixed(points: FloatArray) -> NDArray[np.int32]:
    return np.round(np.clip(points, -4000.0, 4000.0) * (1 << SUBPIXEL)).astype(np.int32)
