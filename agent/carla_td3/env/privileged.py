"""What the simulator knows as a vector, for critics and losses in training; no driver ever receives it.

The hazards ahead; who is where, in the directions in which a camera may look; and what the expert, who knows all of it,
would do now (DAgger's label, Ross et al. 2011).

All entries are clipped to [-2, 2]. ``…_near`` is 1 (a walker's 2) at the front bumper and falls to 0 at ``RANGE_M`` (a
walker's at ``WALKER_SEEN_M``), or with nothing there; ``walker_lateral`` in half widths of a road,
``walker_lateral_speed`` in walking speeds, positive to the right. ``walker_at_N`` and ``vehicle_at_N`` say how
near the nearest is in the ten degrees around N, positive to the right of the nose (0 from ``VEHICLE_SEEN_M`` on).

Encoders learn to tell these numbers by their squared errors (``td3.auxiliary``), so a light's state and a walker are
told where a camera can make them out, else 0 (what can't be seen is learned by heart, town by town), and what is rare
weighs more: cars are before six times as many reds as greens, and before a walker in one step of fifty. Such a walker
alone is learned by heart as well; somebody is in sight in most rows (what all that changed: docs/benchmarks.md).
"""

from __future__ import annotations

import math

import numpy as np

from carla_td3.env.expert import Action
from carla_td3.env.hazards import BEARINGS, HORIZON_S, RANGE_M, Hazards, Light, target_speed
from carla_td3.env.observation import BOUND, SPEED_SCALE_MPS, DriverState, Vector
from carla_td3.env.route_line import FloatArray

_MIDDLES = np.degrees((BEARINGS[:-1] + BEARINGS[1:]) / 2.0).round().astype(int).tolist()
NAMES = (
    "lead_near",
    "lead_speed",
    "light_red",
    "light_yellow",
    "light_green",
    "light_near",
    "sign_near",
    "walker_near",
    "walker_lateral",
    "walker_lateral_speed",
    "crossing_near",
    "crossing_soon",
    "lane_position",
    "heading_error",
    "speed",
    "target_speed",
    *(f"walker_at_{middle}" for middle in _MIDDLES),
    *(f"vehicle_at_{middle}" for middle in _MIDDLES),
    "expert_steer",
    "expert_pedal",
)
SIZE = len(NAMES)

ROAD_HALF_WIDTH_M, WALKING_MPS = 4.0, 1.5
LIGHT_SEEN_M = WALKER_SEEN_M = 25.0
VEHICLE_SEEN_M = 40.0
RED, YELLOW, GREEN, WALKER = 0.75, 1.0, 2.0, 2.0


def vector(seen: Hazards, walkers_m: FloatArray, vehicles_m: FloatArray, state: DriverState, advised: Action) -> Vector:
    """Return the (SIZE,) float32 vector of ``NAMES``.

    Args:
        seen: what lies on the route ahead.
        walkers_m, vehicles_m: who is how far away in each direction (``hazards.by_bearing``).
        state: of the car.
        advised: the expert's action.
    """
    light = seen.light if seen.light_gap_m <= LIGHT_SEEN_M else Light.NONE
    is_seen = seen.walker_gap_m <= WALKER_SEEN_M
    values = (
        _near(seen.lead_gap_m, RANGE_M),
        seen.lead_speed_mps / SPEED_SCALE_MPS,
        RED * (light is Light.RED),
        YELLOW * (light is Light.YELLOW),
        GREEN * (light is Light.GREEN),
        _near(seen.light_gap_m, RANGE_M),
        _near(seen.sign_gap_m, RANGE_M),
        WALKER * _near(seen.walker_gap_m, WALKER_SEEN_M),
        is_seen * seen.walker_lateral_m / ROAD_HALF_WIDTH_M,
        is_seen * seen.walker_lateral_mps / WALKING_MPS,
        _near(seen.crossing_gap_m, RANGE_M),
        _near(seen.crossing_s, HORIZON_S),
        state.place.lateral_m / state.place.half_lane_m,
        state.heading_error / (math.pi / 2.0),
        state.speed_mps / SPEED_SCALE_MPS,
        target_speed(seen, SPEED_SCALE_MPS) / SPEED_SCALE_MPS,
        *(WALKER * _near(gap, WALKER_SEEN_M) for gap in walkers_m),
        *(_near(gap, VEHICLE_SEEN_M) for gap in vehicles_m),
        *advised,
    )
    return np.clip(np.array(values, np.float32), -BOUND, BOUND)


def _near(gap: float, reach: float) -> float:
    return max(0.0, 1.0 - gap / reach)
