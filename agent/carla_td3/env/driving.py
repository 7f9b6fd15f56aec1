"""The gymnasium environment ``CarlaTD3/Driving-v0``: drive a route with steering and one pedal.

Puts session, car, traffic, episode and observation together and owns their order; decides nothing itself. One
environment a simulator: evaluation shares it, because a second one would destroy this one's actors.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from carla_td3.config import EnvironmentConfig, SimulatorConfig, most
from carla_td3.env import conditions, hazards, observation, privileged, traffic_lights, weather
from carla_td3.env.actuators import Actuators
from carla_td3.env.car import Car, Motion
from carla_td3.env.conditions import Conditions
from carla_td3.env.episode import Episode, Events, Rules
from carla_td3.env.expert import Expert
from carla_td3.env.hazards import Hazards, World
from carla_td3.env.observation import DriverState, Observation, Stack
from carla_td3.env.route import Planner
from carla_td3.env.route_line import Route
from carla_td3.env.session import BlockedStart, NoSimulator, Session, SimulatorLost
from carla_td3.env.stop_signs import Hold, StopWatch, stop_signs
from carla_td3.env.surroundings import Surroundings
from carla_td3.env.traffic import Traffic
from carla_td3.env.traffic_lights import LightAhead, LightCycles, LightWatch
from carla_td3.env.walkers import Walkers

Action = NDArray[np.float32]

LOSSES_A_RESET = 3
# Routes drawn for one drive while somebody stands on their starts; each takes ticks, so what only passes by has gone.
STARTS_A_RESET = 10
# An interpreter that ends sooner after a sensor's stop() can abort (protocol section 5.5).
AFTER_STOP_S = 0.2


@dataclass(frozen=True)
class Drive:
    """What ``reset`` was asked for, and what was drawn."""

    route: Route | None
    conditions: Conditions
    rules: Rules


class DrivingEnv(gymnasium.Env[Observation, Action]):
    """Follow a route.

    Observation: see ``carla_td3.env.observation``. Action: ``Box(-1, 1, (2,))``, steering (positive to the right) and
    throttle (positive) or brake (negative). ``terminated`` means collision, off the road or route finished, and with
    the product reward also a red light or blocked; ``truncated`` any other end. The simulator is reached at the first
    ``reset``.

    Args:
        config: rules; the defaults if None.
        simulator: address, map and time-outs; the defaults if None.
        seed: of routes (until ``reset`` gives another) and of traffic.
        on_lost: see ``Session``; for a process that must leave when a Traffic Manager's simulator dies.
        on_wait, ports: see ``Session``.
    """

    metadata = {"render_modes": []}  # noqa: RUF012 (gymnasium's own declaration)

    def __init__(
        self,
        config: EnvironmentConfig | None = None,
        simulator: SimulatorConfig | None = None,
        seed: int = 0,
        on_lost: Callable[[], None] | None = None,
        on_wait: Callable[[str], None] | None = None,
        ports: Sequence[int] = (),
    ) -> None:
        self.config = config or EnvironmentConfig()
        self.session = Session(
            simulator or SimulatorConfig(),
            traffic=most(self.config.traffic.vehicles) > 0,
            on_lost=on_lost,
            on_wait=on_wait,
            ports=ports,
        )
        extra = privileged.SIZE if self.config.privileged else 0
        self.observation_space = observation.space(self.config.camera, extra)
        self.action_space = spaces.Box(-1.0, 1.0, (2,), np.float32)
        self.car: Car | None = None
        self._anyone = self.config.traffic.anyone
        self._seed: int = seed
        self._seeded = False
        self._replaced = False
        self._planner: Planner | None = None
        self._traffic: Traffic | None = None
        self._walkers: Walkers | None = None
        self._actuators = Actuators(self.config.action_rate, self.session.config.fixed_delta_s)
        self._second = round(1.0 / self.session.config.fixed_delta_s)
        self._episode: Episode | None = None
        self._lights: LightWatch | None = None
        self._expert: Expert | None = None
        self._signs: list[Hold] | None = None
        self._stops: StopWatch | None = None
        self._surroundings: Surroundings | None = None
        self._cycles: LightCycles | None = None
        self._motion: Motion | None = None
        self._around: World | None = None
        self._hazards: Hazards | None = None
        self.loss = ""
        """How the simulator was lost the last time; empty before."""
        self._stack: Stack | None = None
        self._frame = 0

    @property
    def planner(self) -> Planner:
        """Routes of the simulator's map; connects if needed.

        Raises:
            NoSimulator, ConfigError, RouteError: see ``Session.connect`` and ``Planner``.
        """
        self._connected()
        if self._planner is None:
            self._planner = Planner(self.session.map)
        return self._planner

    @property
    def state(self) -> DriverState:
        """The car on its route, for drivers that aren't networks."""
        return self._running().state

    @property
    def around(self) -> World:
        """Everybody else around the car, and the lights, in the newest frame, read at most once a step."""
        if self._around is None:
            self._around = self._look_around()
        return self._around

    @property
    def hazards(self) -> Hazards:
        """What lies on the route ahead in the newest frame."""
        if self._hazards is None:
            state = self._running().state
            assert self._motion is not None
            self._hazards = hazards.hazards(state.route, state.place, self._motion, self.around)
        return self._hazards

    @property
    def frame(self) -> int:
        """Number of the newest frame."""
        return self._frame

    def reset(
        self, *, seed: int | None = None, options: Mapping[str, Any] | None = None
    ) -> tuple[Observation, dict[str, Any]]:
        """Begin a drive.

        Args:
            seed: of what training draws from here on: routes, how many cars and people, weather.
            options: of this drive alone, all optional. ``route``: a ``Route``, else a training route is drawn.
                ``limit_s``: simulated seconds, else by the configuration. ``goes_on``: collisions and lanes left are
                listed in ``info["infractions"]`` and don't end it. ``seed``: cars, people and weather are replaced by
                those that belong to this number, so that two drivers meet the same. After it, whoever a fresh
                environment would find comes back.

        Raises:
            BlockedStart: something stands where the given route starts, or where each of a few drawn ones does.
            ConfigError, Occupied: see ``Session.connect`` and ``Walkers``.
            NoSimulator: no simulator within the patience, or it died at each of a few attempts.
        """
        super().reset(seed=self._seed if seed is None and not self._seeded else seed)
        self._seeded = True
        drive = self._asked(**(options or {}))
        for _ in range(1 if drive.route else STARTS_A_RESET):
            try:
                return self._begin_though_lost(drive)
            except BlockedStart as blocked:
                last = blocked
        raise last

    def step(self, action: Action) -> tuple[Observation, float, bool, bool, dict[str, Any]]:
        """Drive one step; see the class and ``Episode.info`` for what comes back."""
        episode = self._running()
        if episode.end is not None or self.car is None:
            raise gymnasium.error.ResetNeeded("The episode has ended: call reset() before step().")
        applied = self._actuators.follow(*_checked(action))
        # What the action could know of: a reward that went by what only came after it would be no fault of its.
        ahead = self.hazards if self._anyone else hazards.NOTHING
        try:
            whole_second = episode.steps % self._second == 0
            if self._walkers is not None and whole_second:
                before = episode.state
                self._walkers.send_across(hazards.Ahead(before.route, before.place.s_m), before.speed_mps)
            if self._cycles is not None and whole_second and traffic_lights.can_stop(ahead, episode.state.speed_mps):
                self._cycles.redraw(self.np_random)
            motion = self.car.drive(*applied)
            self._see(motion)
            events = self._events(self.car, episode, motion, ahead)
        except SimulatorLost as loss:
            self._lose()
            self.loss = str(loss)
            self._around, self._hazards = World(), hazards.NOTHING
            episode.lose(applied[0])
            return self._observation(), 0.0, False, True, episode.info()
        reward = episode.advance(motion, applied, events)
        terminated = episode.terminated
        return self._observation(), reward, terminated, episode.end is not None and not terminated, episode.info()

    def close(self) -> None:
        """Remove every actor of ours and leave the simulator in asynchronous mode."""
        if self.car is not None:
            try:
                if self._walkers is not None:
                    self._walkers.empty()
                if self._traffic is not None:
                    self._traffic.destroy()
                self.car.destroy()
            except SimulatorLost:
                self.session.abandon()  # nothing is left to remove, nor to be told
            time.sleep(AFTER_STOP_S)
        self.car = self._traffic = self._walkers = self._surroundings = self._signs = self._cycles = None
        self.session.close()

    def _connected(self) -> None:
        if not self.session.connected:
            self._lose()
            self.session.connect()

    def _asked(
        self, route: Route | None = None, limit_s: float | None = None, goes_on: bool = False, seed: int | None = None
    ) -> Drive:
        found = conditions.drawn(self.config, self.np_random) if seed is None else conditions.paired(self.config, seed)
        return Drive(route, found, Rules(limit_s, goes_on))

    def _begin_though_lost(self, drive: Drive) -> tuple[Observation, dict[str, Any]]:
        """Begin on the given route, or on one drawn; on the same one again if the simulator dies."""
        route = drive.route
        for _ in range(LOSSES_A_RESET):
            try:
                route = route or self.planner.sample(self.np_random, self.config.route)
                return self._begin(route, drive)
            except SimulatorLost as loss:
                self._lose()
                last = loss
        raise NoSimulator(f"The simulator at {self.session.address} was lost {LOSSES_A_RESET} times in a row: {last}")

    def _begin(self, route: Route, drive: Drive) -> tuple[Observation, dict[str, Any]]:
        self._connected()
        self._people(route, drive.conditions)
        assert self.car is not None
        self._prepare_lights(route, drive.conditions)
        if drive.conditions.weather is not None:
            weather.set_preset(self.session, drive.conditions.weather)
        motion = self.car.place(route)
        self._stack = self._episode = None
        self._actuators.rest()
        self._see(motion)
        self._episode = Episode(route, self.config, self.session.config.fixed_delta_s, motion, drive.rules)
        if self.config.privileged:
            target_mps = self.config.reward.target_speed_mps
            delta_s, actuators = self.session.config.fixed_delta_s, self.config.action_rate
            self._expert = Expert(target_mps, delta_s, lambda: self.hazards, actuators)
        self._lights = LightWatch(self.session, self.car.actor) if self.config.traffic.lights else None
        self._signs = stop_signs(self.session) if self._signs is None else self._signs
        self._stops = StopWatch(self._signs)
        self._events(self.car, self._episode, motion, hazards.NOTHING)
        return self._observation(), self._episode.info()

    def _people(self, route: Route, wanted: Conditions) -> None:
        """Have the car, and as many others as the drive is to find, none of them where it starts."""
        start = float(route.points[0, 0]), float(route.points[0, 1])
        seed = _or(wanted.seed, self._seed)
        if wanted.seed is not None or self._replaced:
            self._send_off(route, seed)
        elif self._traffic is not None:
            self._traffic.make_way(start)
        self._replaced = wanted.seed is not None
        if self.car is None:
            self.car = Car(self.session, self.config.camera, route)
        if most(self.config.traffic.vehicles) > 0:
            asked = self.config.traffic
            self._traffic = self._traffic or Traffic(self.session, seed, asked.slower_percent, asked.within_m)
            self._traffic.resize(wanted.vehicles, start)
        if most(self.config.traffic.walkers) > 0:
            self._walkers = self._walkers or Walkers(self.session, self.config.traffic, seed)
            self._walkers.resize(wanted.walkers, start)

    def _prepare_lights(self, route: Route, wanted: Conditions) -> None:
        self._cycles = self._cycles or LightCycles(self.session, self.config.traffic.lights)
        ours = self._near().lights_on(route) if wanted.restless else []
        self._cycles.prepare(wanted.seed is not None, ours)

    def _send_off(self, route: Route, seed: int) -> None:
        """Leave nobody but the car, and that at the route's start: where it stood, another can't appear."""
        there = [others for others in (self._walkers, self._traffic) if others is not None]
        for others in there:
            others.empty()
            others.reseed(seed)
        if there and self.car is not None:
            self.car.place(route)

    def _see(self, motion: Motion) -> None:
        assert self.car is not None
        picture = self.car.sensors.picture(motion.frame)
        self._frame, self._motion = motion.frame, motion
        self._around = self._hazards = None
        if self._stack is None:
            self._stack = Stack(self.config.camera.stack, picture)
        else:
            self._stack.add(picture)

    def _events(self, car: Car, episode: Episode, motion: Motion, ahead: Hazards) -> Events:
        assert self._stops is not None
        after = episode.start_frame
        own = Events(
            collisions=tuple(car.sensors.collisions(after)),
            lane_invasions=car.sensors.lane_invasions(after),
            ran_stop_sign=self._stops.look(motion),
        )
        return self._meeting(own, episode, motion, ahead) if self._anyone else own

    def _meeting(self, own: Events, episode: Episode, motion: Motion, ahead: Hazards) -> Events:
        """Return the car's own events with what it had to do with lights, cars and people."""
        compared = self._traffic if episode.rules.goes_on else None
        return replace(
            own,
            light=LightAhead.NONE if self._lights is None else self._lights.look(motion),
            faced=traffic_lights.faced(ahead),
            line_gap_m=ahead.light_gap_m,
            traffic_mps=None if compared is None else compared.mean_speed_mps(),
            allowed_mps=hazards.target_speed(ahead, self.config.reward.target_speed_mps),
            ttc_s=hazards.time_to_collision(ahead, episode.state.speed_mps),
        )

    def _observation(self) -> Observation:
        assert self._stack is not None
        state = self.state
        vector = observation.vector(state, self.config.route.point_spacing_m, self._actuators.applied)
        seen: Observation = {"image": self._stack.image, "vector": vector}
        if self._expert is not None:
            assert self._motion is not None
            walkers, vehicles = (
                hazards.by_bearing(self._motion, who) for who in (self.around.walkers, self.around.vehicles)
            )
            advised = self._expert.act(seen, state)
            seen["privileged"] = privileged.vector(self.hazards, walkers, vehicles, state, advised)
        return seen

    def _near(self) -> Surroundings:
        assert self.car is not None
        self._surroundings = self._surroundings or Surroundings(self.session, self.car.actor)
        return self._surroundings

    def _look_around(self) -> World:
        assert self._stops is not None
        try:
            return replace(self._near().world(), stop_signs=self._stops.asking)
        except SimulatorLost:
            return World()  # the next step will find out

    def _running(self) -> Episode:
        if self._episode is None:
            raise gymnasium.error.ResetNeeded("No episode has begun: call reset() first.")
        return self._episode

    def _lose(self) -> None:
        """Let go of everything that belonged to a dead simulator; its streams must not reconnect to the next one."""
        if self.car is not None:
            self.car.abandon()
        self.car = self._traffic = self._walkers = self._planner = self._surroundings = None
        self._signs = self._cycles = None
        self.session.abandon()


def _checked(action: Action) -> tuple[float, float]:
    steer, pedal = (float(value) for value in action)
    if not (math.isfinite(steer) and math.isfinite(pedal)):
        raise ValueError(f"The action is {action!r}; expected two finite numbers in [-1, 1].")
    return min(1.0, max(-1.0, steer)), min(1.0, max(-1.0, pedal))


def _or(given: int | None, otherwise: int) -> int:
    return otherwise if given is None else given
