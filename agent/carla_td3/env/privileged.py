"""Privileged knowledge of the simulator as a vector, for critics and losses in training; no driver receives it.

It holds the hazards ahead, the nearest walker and vehicle in each direction of the camera's view, and the expert's
action now (DAgger's label, Ross et al. 2011).

All entries are clipped to [-2, 2]. ``…_near`` is 1 (a walker's 2) at the front bumper and falls to 0 at ``RANGE_M`` (a
walker's at ``WALKER_SEEN_M``), or with nothing there; ``walker_lateral`` in half widths of a road,
``walker_lateral_speed`` in walking speeds, positive to the right. ``walker_at_N`` and ``vehicle_at_N`` say how
near the nearest is in the ten degrees around N, positive to the right of the nose (0 from ``VEHICLE_SEEN_M`` on).
``person_…_K`` and ``vehicle_…_K`` say where the K-th nearest one ahead is, within ``RANGE_M``, and how it moves: ahead
of the car's centre and to its right, in 20 m, and in walking speeds or 10 m/s; 0 without one.

The lists of the nearest ones only teach the cells of a detector (``td3.detector``). Critics see the rest, and encoders
learn to predict it by squared errors (``td3.auxiliary``). So a light's state and a walker count only where a camera can
make them out, else they are 0: an encoder learns what it can't see by heart, town by town. Rare cases weigh more: a car
is before a red light six times as often as before a green one, and before a walker in one step of fifty. Rows with such
a walker are too few, and are learned by heart as well; but some walker is in sight in most rows (results:
docs/benchmarks.md).
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from carla_td3.env.expert import Action
from carla_td3.env.hazards import BEARINGS, HORIZON_S, NOTHING, RANGE_M, Hazards, Light, target_speed
from carla_td3.env.observation import BOUND, SPEED_SCALE_MPS, DriverState, Vector
from carla_td3.env.route_line import FloatArray

_MIDDLES = np.degrees((BEARINGS[:-1] + BEARINGS[1:]) / 2.0).round().astype(int).tolist()
ROAD_HALF_WIDTH_M, WALKING_MPS = 4.0, 1.5
LIGHT_SEEN_M = WALKER_SEEN_M = 25.0
VEHICLE_SEEN_M = 40.0
RED, YELLOW, GREEN, WALKER = 0.75, 1.0, 2.0, 2.0
NEAREST = 8
_SCALES = np.array(((20.0, 20.0, WALKING_MPS, WALKING_MPS), (20.0, 20.0, SPEED_SCALE_MPS, SPEED_SCALE_MPS)))


def vector(
    seen: Hazards,
    by_bearing_m: Sequence[FloatArray],
    nearest: Sequence[FloatArray],
    state: DriverState,
    advised: Action,
) -> Vector:
    """Return the (SIZE,) float32 vector of ``NAMES``.

    Args:
        seen: hazards on the route ahead.
        by_bearing_m: distance to the nearest walker, and to the nearest vehicle, in each direction
            (``hazards.by_bearing``).
        nearest: (``NEAREST``, 4) the nearest walkers ahead, and vehicles (``hazards.nearest``).
        state: state of the car.
        advised: the expert's action.
    """
    place = state.place.lateral_m / state.place.half_lane_m, state.heading_error / (math.pi / 2.0)
    own = *place, state.speed_mps / SPEED_SCALE_MPS
    listed = [(each / scales).ravel() for each, scales in zip(nearest, _SCALES, strict=True)]
    told = list(_numbers(seen, by_bearing_m, own, advised).values())
    return np.clip(np.concatenate((*listed, told), dtype=np.float32), -BOUND, BOUND)


def _numbers(
    seen: Hazards,
    by_bearing_m: Sequence[FloatArray],
    own: tuple[float, float, float],
    advised: Action,
) -> dict[str, float]:
    light = seen.light if seen.light_gap_m <= LIGHT_SEEN_M else Light.NONE
    is_seen = seen.walker_gap_m <= WALKER_SEEN_M
    lane_position, heading_error, speed = own
    (walkers_m, vehicles_m), (steer, pedal) = by_bearing_m, advised
    return {
        "lead_near": _near(seen.lead_gap_m, RANGE_M),
        "lead_speed": seen.lead_speed_mps / SPEED_SCALE_MPS,
        "light_red": RED * (light is Light.RED),
        "light_yellow": YELLOW * (light is Light.YELLOW),
        "light_green": GREEN * (light is Light.GREEN),
        "light_near": _near(seen.light_gap_m, RANGE_M),
        "sign_near": _near(seen.sign_gap_m, RANGE_M),
        "walker_near": WALKER * _near(seen.walker_gap_m, WALKER_SEEN_M),
        "walker_lateral": is_seen * seen.walker_lateral_m / ROAD_HALF_WIDTH_M,
        "walker_lateral_speed": is_seen * seen.walker_lateral_mps / WALKING_MPS,
        "crossing_near": _near(seen.crossing_gap_m, RANGE_M),
        "crossing_soon": _near(seen.crossing_s, HORIZON_S),
        "lane_position": lane_position,
        "heading_error": heading_error,
        "speed": speed,
        "target_speed": target_speed(seen, SPEED_SCALE_MPS) / SPEED_SCALE_MPS,
        **{f"walker_at_{at}": WALKER * _near(gap, WALKER_SEEN_M) for at, gap in zip(_MIDDLES, walkers_m, strict=True)},
        **{f"vehicle_at_{at}": _near(gap, VEHICLE_SEEN_M) for at, gap in zip(_MIDDLES, vehicles_m, strict=True)},
        "expert_steer": float(steer),
        "expert_pedal": float(pedal),
    }


def _near(gap: float, reach: float) -> float:
    return max(0.0, 1.0 - gap / reach)


_NO_ACTORS = np.full(len(_MIDDLES), np.inf)
NAMES = (
    *(
        f"{kind}_{number}_{rank}"
        for kind in ("person", "vehicle")
        for rank in range(NEAREST)
        for number in ("ahead", "right", "speed_ahead", "speed_right")
    ),
    *_numbers(NOTHING, (_NO_ACTORS, _NO_ACTORS), (0.0, 0.0, 0.0), np.zeros(2, np.float32)),
)
SIZE = len(NAMES)
