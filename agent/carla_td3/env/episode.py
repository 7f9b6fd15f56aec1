"""One drive along a route: follows the car's projection, records events, decides reward and end.

Pure bookkeeping over ``Motion`` values, without a simulator, so that every rule can be tested.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any, Literal

from carla_td3.config import EnvironmentConfig
from carla_td3.env import reward
from carla_td3.env.car import Motion
from carla_td3.env.hazards import Light
from carla_td3.env.infractions import Record
from carla_td3.env.observation import DriverState
from carla_td3.env.route_line import Route, wrapped
from carla_td3.env.sensors import Collision

End = Literal["collision", "red_light", "off_road", "finished", "time", "blocked", "simulator_lost"]
TERMINAL: dict[str, frozenset[End]] = {
    "sum": frozenset({"collision", "off_road", "finished"}),
    "product": frozenset({"collision", "red_light", "off_road", "blocked", "finished"}),
}
"""Ends that terminate an episode, by the reward's form; all other ends truncate it."""

FINISH_M = 2.0
PROGRESS_M = 1.0
STUCK_S, BLOCKED_S, BLOCKED_MPS = 15.0, 180.0, 0.1
# A drive that continues after infractions ends here, as in the Leaderboard's InRouteTest.
OFF_ROUTE_M = 30.0
# In training, running a red light ends the drive when the front is this far over the line: the light is still in view.
# The Leaderboard judges at the rear, when neither picture nor privileged numbers show the light any more, so nothing
# could be learned from it.
OVER_LINE_M = 0.5


@dataclass(frozen=True)
class Rules:
    """Rules of one drive, where they differ from training's."""

    limit_s: float | None = None
    """Limit in simulated seconds; None means ``environment.time_limit``."""
    continue_after_infractions: bool = False
    """Whether infractions are only listed. The drive then ends at the route's end, 30 m off it, blocked or out of time.
    """
    lane_invasions: bool = True
    """Whether lane invasions are counted. The client looks for them in every frame, which takes a third of its time."""


@dataclass(frozen=True)
class Events:
    """Events of one step."""

    collisions: tuple[Collision, ...] = ()
    lane_invasions: int = 0
    light: Light = Light.NONE
    """State of the light whose stop line the car stands before or is driving over."""
    faced: Light = Light.NONE
    """State of the light that the car is coming to."""
    line_gap_m: float = math.inf
    """Distance from the front bumper to that light's stop line; negative past it."""
    ran_stop_sign: bool = False
    traffic_mps: float | None = None
    """Mean speed of the other cars."""
    allowed_mps: float = math.inf
    """Speed that cars, lights and pedestrians ahead allow."""
    ttc_s: float = math.inf
    """Time to collision with any of them."""


class Episode:
    """State of one drive.

    Args:
        motion: the car at rest at the route's start.
        seconds: simulated duration of a step.
    """

    def __init__(
        self, route: Route, config: EnvironmentConfig, seconds: float, motion: Motion, rules: Rules | None = None
    ) -> None:
        self.route = route
        self.rules = rules or Rules()
        self.start_frame = motion.frame
        self.end: End | None = None
        self.steps = 0
        self.lane_invasions = 0
        self.red_lights_met = 0
        """Number of lights that were red when the car came to them."""
        self.collision: Collision | None = None
        """The first collision."""
        self.terms: dict[str, float] = {}
        self.jerk_mps3 = 0.0
        self.record = Record()
        self._config = config
        self._seconds = seconds
        limit = config.time_limit
        limit_s = self.rules.limit_s or limit.constant_s + limit.s_per_m * route.length_m
        self._limit_steps = math.ceil(limit_s / seconds - 1e-6)
        self._blocked_s = config.blocked_s or (BLOCKED_S if config.traffic.can_be_blocked else STUCK_S)
        self._light = Light.NONE
        self._met_red = False
        self._line_gap_m = math.inf
        self._action = (0.0, 0.0)
        self._acceleration = (0.0, 0.0)
        self._best_s_m = self._counted_s_m = 0.0
        self._got_on_step = 0
        self._motion = motion
        self.state = self._state(motion, 0.0, 0.0)

    @property
    def time_s(self) -> float:
        """Simulated seconds so far."""
        return self.steps * self._seconds

    @property
    def route_completion(self) -> float:
        """Share of the route driven, 0 to 1; it never falls."""
        return min(1.0, self._best_s_m / max(self.route.length_m - FINISH_M, 1e-6))

    @property
    def terminated(self) -> bool:
        """Whether the drive has ended in a terminal state, not by truncation."""
        return self.end in TERMINAL[self._config.reward.form]

    def advance(self, motion: Motion, action: tuple[float, float], events: Events) -> float:
        """Take in one step, set ``end`` if it was the last, and return its reward."""
        before, best_s_m = self.state, self._best_s_m
        self.state = self._state(motion, before.place.s_m, action[0])
        self._measure(motion, events)
        hit, passed = self._hit(events), self._passes_red(events)
        self._judge_lights(events)
        self.end = self._decide(hit, passed)
        if self.end in ("off_road", "blocked", "red_light"):
            self.record.add(self.end, self.state.place.s_m, self.time_s)
        step = reward.RewardStep(
            seconds=self._seconds,
            progress_m=self.state.place.s_m - before.place.s_m,
            gained_m=self._best_s_m - best_s_m,
            speed_mps=self.state.speed_mps,
            lateral=self.state.place.lateral_m / self.state.place.half_lane_m,
            heading_error=self.state.heading_error,
            action_change=abs(action[0] - self._action[0]) + abs(action[1] - self._action[1]),
            collision=hit,
            off_road=self.end == "off_road",
            finished=self.end == "finished",
            allowed_mps=events.allowed_mps,
            ttc_s=events.ttc_s,
            red_light=passed,
            blocked=self.end == "blocked",
        )
        self._motion, self._action = motion, action
        self.terms = reward.terms(step, self._config.reward)
        return sum(self.terms.values())

    def end_lost(self, wheel: float) -> None:
        """End the drive because the simulator was lost. Of the current step, only the wheel's position is taken."""
        self.end = "simulator_lost"
        self.state = replace(self.state, wheel=wheel)
        self.terms = dict.fromkeys(self.terms, 0.0)

    def info(self) -> dict[str, Any]:
        """Return the ``info`` dictionary of a step."""
        return {
            "reward_terms": self.terms,
            "route": self.route.name,
            "route_completion": self.route_completion,
            "speed_mps": self.state.speed_mps,
            "collision": self.collision is not None,
            "collision_with": self.collision.kind if self.collision else None,
            "off_road": self.end == "off_road",
            "success": self.end == "finished",
            "simulator_lost": self.end == "simulator_lost",
            "lane_invasions": self.lane_invasions,
            "red_lights": self.record.count("red_light"),
            "red_lights_met": self.red_lights_met,
            "infractions": tuple(self.record.infractions),
            "off_lane_share": self.record.off_lane_share,
            "minimum_speed_share": self.record.minimum_speed_share,
            "time_s": self.time_s,
            "distance_m": self.record.driven_m,
            "jerk_mps3": self.jerk_mps3,
            "end": self.end,
        }

    def _state(self, motion: Motion, hint_s_m: float, wheel: float) -> DriverState:
        place = self.route.project(motion.x_m, motion.y_m, hint_s_m)
        return DriverState(self.route, place, motion.x_m, motion.y_m, wrapped(motion.yaw), motion.speed_mps, wheel)

    def _measure(self, motion: Motion, events: Events) -> None:
        self.steps += 1
        self.lane_invasions += events.lane_invasions
        metres = math.hypot(motion.x_m - self._motion.x_m, motion.y_m - self._motion.y_m)
        self.record.drive(metres, abs(self.state.place.lateral_m) > self.state.place.half_lane_m)
        ax = (motion.vx_mps - self._motion.vx_mps) / self._seconds
        ay = (motion.vy_mps - self._motion.vy_mps) / self._seconds
        self.jerk_mps3 = math.hypot(ax - self._acceleration[0], ay - self._acceleration[1]) / self._seconds
        self._acceleration = ax, ay
        self._best_s_m = max(self._best_s_m, self.state.place.s_m)
        self.record.keep_pace(motion.speed_mps, events.traffic_mps, self.route_completion)
        if self._makes_progress(motion):
            self._counted_s_m, self._got_on_step = self._best_s_m, self.steps

    def _makes_progress(self, motion: Motion) -> bool:
        """Return whether the car makes progress. If something may hold it up, creeping is enough."""
        if self._config.traffic.can_be_blocked and motion.speed_mps >= BLOCKED_MPS:
            return True
        return self._best_s_m >= self._counted_s_m + PROGRESS_M

    def _hit(self, events: Events) -> bool:
        """Record this step's collisions and return whether there is a new one."""
        fresh = [each for each in events.collisions if self.record.collide(each, self.state.place.s_m, self.time_s)]
        self.collision = self.collision or (fresh[0] if fresh else None)
        return bool(fresh)

    def _passes_red(self, events: Events) -> bool:
        """Return whether the car's front passes a stop line in this step while its light is red."""
        before_m, self._line_gap_m = self._line_gap_m, events.line_gap_m
        return events.faced is Light.RED and before_m > -OVER_LINE_M >= events.line_gap_m

    def _judge_lights(self, events: Events) -> None:
        """Record the lights and signs run in this step."""
        ran = self._light is Light.RED and events.light is Light.NONE
        self._light = events.light
        before_one = events.light is not Light.NONE or events.faced is not Light.NONE
        before_red = events.light is Light.RED or events.faced is Light.RED
        self.red_lights_met += before_red and not self._met_red
        self._met_red = before_red or (self._met_red and before_one)
        if ran:
            self.record.add("red_light", self.state.place.s_m, self.time_s)
        if events.ran_stop_sign:
            self.record.add("stop_sign", self.state.place.s_m, self.time_s)

    def _decide(self, hit: bool, passed_red: bool) -> End | None:
        """Return why the episode ends, if it does. An infraction in the last step counts, even at the route's end."""
        continue_after_infractions = self.rules.continue_after_infractions
        ends: dict[End, bool] = {
            "collision": hit and not continue_after_infractions,
            "red_light": passed_red
            and not continue_after_infractions
            and "red_light" in TERMINAL[self._config.reward.form],
            "off_road": abs(self.state.place.lateral_m)
            > (OFF_ROUTE_M if continue_after_infractions else self._config.off_road_m),
            "finished": self.state.place.s_m >= self.route.length_m - FINISH_M,
            "time": self.steps >= self._limit_steps,
            "blocked": (self.steps - self._got_on_step) * self._seconds >= self._blocked_s,
        }
        return next((end for end, so in ends.items() if so), None)
