"""One drive along a route: follows the car's projection, counts what happened, decides reward and end.

Pure bookkeeping over ``Motion`` values; owns no simulator, so that every rule can be tested without one.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Literal

from agent.config import EnvironmentConfig
from agent.env import reward
from agent.env.car import Motion
from agent.env.observation import DriverState
from agent.env.route_line import Route, wrapped
from agent.env.sensors import Collision
from agent.env.traffic_lights import LightAhead

End = Literal["collision", "off_road", "finished", "time", "stuck", "simulator_lost"]
TERMINAL: frozenset[str] = frozenset({"collision", "off_road", "finished"})

FINISH_M = 2.0
PROGRESS_M = 1.0


@dataclass(frozen=True)
class Events:
    """What the sensors saw in a step."""

    collision: Collision | None = None
    lane_invasions: int = 0
    light: LightAhead = LightAhead.NONE


class Episode:
    """State of one drive.

    Args:
        motion: the car at rest at the route's start.
        seconds: simulated duration of a step.
    """

    def __init__(self, route: Route, config: EnvironmentConfig, seconds: float, motion: Motion) -> None:
        self.route = route
        self.start_frame = motion.frame
        self.end: End | None = None
        self.steps = 0
        self.distance_m = 0.0
        self.lane_invasions = 0
        self.red_lights = 0
        """How often the car's rear went over a stop line while the light was red."""
        self.collision: Collision | None = None
        self.terms: dict[str, float] = {}
        self.jerk_mps3 = 0.0
        self._config = config
        self._seconds = seconds
        self._light = LightAhead.NONE
        self._action = (0.0, 0.0)
        self._acceleration = (0.0, 0.0)
        self._best_s_m = self._counted_s_m = 0.0
        self._counted_step = 0
        self._motion = motion
        self.state = self._state(motion, 0.0)

    @property
    def route_completion(self) -> float:
        """Share of the route driven, 0 to 1; it never falls."""
        return min(1.0, self._best_s_m / max(self.route.length_m - FINISH_M, 1e-6))

    def advance(self, motion: Motion, action: tuple[float, float], events: Events) -> float:
        """Take in one step, set ``end`` if it was the last, and return its reward."""
        before = self.state
        self.state = self._state(motion, before.place.s_m)
        self._measure(motion, events)
        self.end = self._decide()
        step = reward.Step(
            seconds=self._seconds,
            progress_m=self.state.place.s_m - before.place.s_m,
            speed_mps=self.state.speed_mps,
            lateral=self.state.place.lateral_m / self.state.place.half_lane_m,
            heading_error=self.state.heading_error,
            action_change=abs(action[0] - self._action[0]) + abs(action[1] - self._action[1]),
            collision=self.end == "collision",
            off_road=self.end == "off_road",
            finished=self.end == "finished",
        )
        self._motion, self._action = motion, action
        self.terms = reward.terms(step, self._config.reward)
        return sum(self.terms.values())

    def info(self) -> dict[str, Any]:
        """Return what a step reports beside observation and reward."""
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
            "red_lights": self.red_lights,
            "distance_m": self.distance_m,
            "jerk_mps3": self.jerk_mps3,
            "end": self.end,
        }

    def _state(self, motion: Motion, hint_s_m: float) -> DriverState:
        place = self.route.project(motion.x_m, motion.y_m, hint_s_m)
        return DriverState(self.route, place, motion.x_m, motion.y_m, wrapped(motion.yaw), motion.speed_mps)

    def _measure(self, motion: Motion, events: Events) -> None:
        self.steps += 1
        self.distance_m += math.hypot(motion.x_m - self._motion.x_m, motion.y_m - self._motion.y_m)
        self.lane_invasions += events.lane_invasions
        self.red_lights += self._light is LightAhead.RED and events.light is LightAhead.NONE
        self._light = events.light
        self.collision = self.collision or events.collision
        ax = (motion.vx_mps - self._motion.vx_mps) / self._seconds
        ay = (motion.vy_mps - self._motion.vy_mps) / self._seconds
        self.jerk_mps3 = math.hypot(ax - self._acceleration[0], ay - self._acceleration[1]) / self._seconds
        self._acceleration = ax, ay
        self._best_s_m = max(self._best_s_m, self.state.place.s_m)
        if self._best_s_m >= self._counted_s_m + PROGRESS_M:
            self._counted_s_m, self._counted_step = self._best_s_m, self.steps

    def _decide(self) -> End | None:
        """Return why the episode ends; an infraction in the last step is one, even at the route's end."""
        if self.collision is not None:
            return "collision"
        if abs(self.state.place.lateral_m) > self._config.off_road_m:
            return "off_road"
        if self.state.place.s_m >= self.route.length_m - FINISH_M:
            return "finished"
        if self.steps >= self._config.max_steps:
            return "time"
        if (self.steps - self._counted_step) * self._seconds >= self._config.stuck_s:
            return "stuck"
        return None
