"""Drivers by rules: a route follower, and an expert that also knows what lies ahead.

They read the car's state on its route and the hazards, no picture and no client. Both are drivers to compare with. The
expert's action at every step is also privileged knowledge for learners (``carla_td3.env.privileged``).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from carla_td3.config import ActionRateConfig
from carla_td3.env.hazards import (
    FRONT_M,
    HALF_WIDTH_M,
    STAND_BEFORE_CAR_M,
    STAND_BEFORE_LINE_M,
    STAND_BEFORE_WALKER_M,
    WALKER_MARGIN_M,
    Hazards,
    Light,
)
from carla_td3.env.observation import DriverState, Observation

Action = NDArray[np.float32]

# The expert's accelerations: in comfort, if necessary, and at worst; and how fast they may change.
ACCELERATION_MPS2, COMFORTABLE_MPS2, HARD_MPS2, EMERGENCY_MPS2, JERK_MPS3 = 1.5, 2.0, 3.0, 8.0, 3.0
HEADWAY_S, IDM_GAP_M = 1.0, 1.5
ROOM_M, CREEPING_MPS = 10.0, 1.0
# A car at rest keeps its brake on until this acceleration is wanted. Before a line the rules want almost nothing for a
# long time, and a learner that imitates a foot hovering over the throttle rolls across the line.
STANDING_MPS, HOLDING_BRAKE, STARTING_MPS2 = 0.2, 0.5, 0.3
# A car that waits behind a line or another car starts only for a gain this large: starting then means that it may go.
WORTH_STARTING_M = 5.0
# About the acceleration that a passenger car's pedals give.
FULL_THROTTLE_MPS2, FULL_BRAKE_MPS2 = 5.0, 11.0
# Comfortable accelerations in bends, and before them.
LATERAL_MPS2, BRAKING_MPS2 = 2.0, 2.0

# CARLA's Tesla Model 3: wheel angle of steering 1, and wheelbase.
MAX_STEER_RAD, WHEELBASE_M = math.radians(70.0), 2.875
# Share of the actuators' lag by which the expert predicts the car's pose. Without prediction the car swings to the
# outside of bends until it is on the lane's edge; with the whole lag it cuts them (tests/unit/agent).
PREVIEW = 0.5


class PidPurePursuit:
    """Steers to a point of the route ahead, and slows down in time for bends.

    Pure pursuit (Coulter 1992) with a look-ahead that grows with speed; a PI controller follows the speed that the
    route's curvature allows within braking distance.

    Args:
        target_mps: speed on straight road.
        actuators: how wheel and pedals follow; the defaults if None.
    """

    def __init__(self, target_mps: float = 8.0, actuators: ActionRateConfig | None = None) -> None:
        actuators = actuators or ActionRateConfig()
        self._ahead_s = PREVIEW * actuators.lag_s
        self._range = actuators.steer_range
        self._target = target_mps
        self._integral = 0.0

    def act(self, observation: Observation, state: DriverState) -> Action:  # noqa: ARG002 (the protocol's)
        """Return steering towards the look-ahead point, and the pedal for the allowed speed."""
        if state.place.s_m < 1.0:
            self._integral = 0.0  # a new route has begun
        later = self.later(state)
        return np.array((self.steer(later), self._pedal(later)), np.float32)

    def later(self, state: DriverState) -> DriverState:
        """Return the car's predicted state a moment later, on the present arc at the present speed."""
        if self._ahead_s == 0.0:
            return state
        way_m = state.speed_mps * self._ahead_s
        turn = way_m * math.tan(state.wheel * MAX_STEER_RAD) / WHEELBASE_M
        x_m = state.x_m + way_m * math.cos(state.yaw + turn / 2.0)
        y_m = state.y_m + way_m * math.sin(state.yaw + turn / 2.0)
        place = state.route.project(x_m, y_m, state.place.s_m)
        return replace(state, place=place, x_m=x_m, y_m=y_m, yaw=state.yaw + turn)

    def steer(self, state: DriverState) -> float:
        """Return the steering towards the look-ahead point, -1 to 1."""
        reach = min(max(2.0 + 0.5 * state.speed_mps, 3.0), 10.0)
        (x, y), *_ = state.route.ahead(state.place.s_m, 1, reach)
        bearing = math.atan2(y - state.y_m, x - state.x_m) - state.yaw
        # The rear axle follows the arc; it is half a wheelbase behind the car's origin.
        distance = math.hypot(x - state.x_m, y - state.y_m) + WHEELBASE_M / 2.0
        if state.route.length_m - state.place.s_m < reach:
            bearing = state.place.yaw - state.yaw  # past the end there is no point to pursue
        angle = math.atan2(2.0 * WHEELBASE_M * math.sin(bearing), distance)
        return min(1.0, max(-1.0, angle / (self._range * MAX_STEER_RAD)))

    def _pedal(self, state: DriverState) -> float:
        error = self.allowed(state) - state.speed_mps
        self._integral = min(1.0, max(-1.0, self._integral + 0.02 * error))
        pedal = 0.25 * error + 0.3 * self._integral
        return min(0.75, max(-1.0, pedal))

    def allowed(self, state: DriverState) -> float:
        """Return the speed, m/s, from which the car can still slow down for every bend ahead."""
        route, s_m = state.route, state.place.s_m
        first, last = route.s.searchsorted((s_m, s_m + 5.0 + self._target**2 / (2.0 * BRAKING_MPS2)))
        bends = np.abs(route.curvature[first:last])
        distance = np.maximum(route.s[first:last] - s_m - 1.0, 0.0)
        square = LATERAL_MPS2 / np.maximum(bends, 1e-3) + 2.0 * BRAKING_MPS2 * distance
        return min(self._target, math.sqrt(float(square.min(initial=self._target**2))))


class Expert:
    """Drives by rules with privileged knowledge: an upper bound for other drivers, and their teacher.

    Pure pursuit along the route, and the Intelligent Driver Model (Treiber et al. 2000) behind cars and before lights,
    walkers and crossing traffic; CARLA's BehaviorAgent and PDM-Lite work in similar ways. Accelerations change
    gradually.

    Args:
        target_mps: speed on straight road.
        step_s: simulated seconds between two actions.
        ahead: returns the hazards in the newest frame.
        actuators: how wheel and pedals follow; the defaults if None.
    """

    def __init__(
        self,
        target_mps: float,
        step_s: float,
        ahead: Callable[[], Hazards],
        actuators: ActionRateConfig | None = None,
    ) -> None:
        self._line = PidPurePursuit(target_mps, actuators=actuators)
        self._step_s = step_s
        self._ahead = ahead
        self._mps2 = 0.0
        self._wanted_mps = 0.0
        self._light = Light.NONE
        self._goes_through = False

    def act(self, observation: Observation, state: DriverState) -> Action:  # noqa: ARG002 (the protocol's)
        """Return steering towards the look-ahead point, and the pedal for the acceleration that all rules allow."""
        seen, later = self._ahead(), self._line.later(state)
        free = min(ACCELERATION_MPS2, max(-HARD_MPS2, 2.0 * (self._line.allowed(later) - state.speed_mps)))
        wanted = min(free, *(_following(state.speed_mps, *each) for each in self._obstacles(seen, state.speed_mps)))
        return np.array((self._line.steer(later), self._pedal(wanted, state.speed_mps)), np.float32)

    def _obstacles(self, seen: Hazards, speed_mps: float) -> list[tuple[float, float]]:
        """Return gap and speed of each obstacle; the distance to keep is already subtracted from the gap."""
        found = [(seen.lead_gap_m - STAND_BEFORE_CAR_M, max(0.0, seen.lead_speed_mps))]
        if self._stops(seen, speed_mps) or _is_full(seen):
            found.append((seen.light_gap_m - STAND_BEFORE_LINE_M, 0.0))
        if speed_mps < STANDING_MPS:
            found = [(0.0 if gap < WORTH_STARTING_M and pace < CREEPING_MPS else gap, pace) for gap, pace in found]
        found.append((seen.sign_gap_m - STAND_BEFORE_LINE_M, 0.0))
        if not _passes(seen, speed_mps):
            found.append((seen.walker_gap_m - STAND_BEFORE_WALKER_M, 0.0))
        if seen.crossing_gap_m > 0.0:  # to stop in the other vehicle's way would block both
            found.append((seen.crossing_gap_m - STAND_BEFORE_CAR_M, 0.0))
        return found

    def _stops(self, seen: Hazards, speed_mps: float) -> bool:
        """Return whether to stop for the light. If it turns yellow too near to stop, the car drives on."""
        if seen.light not in (Light.YELLOW, Light.RED):
            self._goes_through = False
        elif self._light not in (Light.YELLOW, Light.RED):
            needed = speed_mps**2 / (2.0 * max(0.1, seen.light_gap_m))
            self._goes_through = needed > (HARD_MPS2 if seen.light is Light.YELLOW else EMERGENCY_MPS2)
        self._light = seen.light
        return self._light in (Light.YELLOW, Light.RED) and not self._goes_through

    def _pedal(self, wanted_mps2: float, speed_mps: float) -> float:
        """Return throttle or brake for an acceleration that approaches the wanted one; hard braking comes at once."""
        change = 1.0 if wanted_mps2 < -HARD_MPS2 else JERK_MPS3 * self._step_s
        self._mps2 += min(JERK_MPS3 * self._step_s, max(-change, wanted_mps2 - self._mps2))
        if speed_mps < STANDING_MPS and wanted_mps2 < STARTING_MPS2:
            self._mps2 = self._wanted_mps = 0.0
            return -HOLDING_BRAKE
        # A pedal's effect differs by car and slope; following a reference speed corrects for it.
        wanted = self._wanted_mps + self._mps2 * self._step_s
        self._wanted_mps = min(speed_mps + 1.0, max(speed_mps - 1.0, wanted, 0.0))
        full = FULL_THROTTLE_MPS2 if self._mps2 > 0.0 else FULL_BRAKE_MPS2
        pedal = self._mps2 / full + 0.15 * (self._wanted_mps - speed_mps)
        return min(0.75, max(-1.0, pedal))


def _following(speed_mps: float, gap_m: float, leading_mps: float) -> float:
    """Return the Intelligent Driver Model's acceleration for a gap of ``gap_m`` to where the car must stand."""
    closing = speed_mps * (speed_mps - leading_mps) / (2.0 * math.sqrt(ACCELERATION_MPS2 * COMFORTABLE_MPS2))
    kept = IDM_GAP_M + max(0.0, speed_mps * HEADWAY_S + closing)
    there = max(gap_m + IDM_GAP_M, 0.1)
    return max(-EMERGENCY_MPS2, ACCELERATION_MPS2 * (1.0 - (kept / there) ** 2))


def _is_full(seen: Hazards) -> bool:
    """Return whether queueing cars leave no room behind the stop line: the light may turn red meanwhile."""
    room_m = seen.lead_gap_m - seen.light_gap_m
    return 0.0 < room_m < ROOM_M and seen.light_gap_m > 0.0 and seen.lead_speed_mps < CREEPING_MPS


def _passes(seen: Hazards, speed_mps: float) -> bool:
    """Return whether the car passes before the walker enters its path, or the walker leaves the path before the car
    comes.
    """
    beside = abs(seen.walker_lateral_m) - HALF_WIDTH_M - WALKER_MARGIN_M
    towards = -math.copysign(1.0, seen.walker_lateral_m) * seen.walker_lateral_mps
    pace = max(speed_mps, 3.0)
    if towards > 0.0:
        return beside / towards > (seen.walker_gap_m + 2.0 * FRONT_M) / pace + 1.0
    return beside - towards * max(0.0, seen.walker_gap_m / pace - 1.0) > 0.5
