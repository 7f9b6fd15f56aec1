"""The gymnasium environment ``CarlaTD3/Driving-v0``: drive a route with steering and one pedal.

Owns the connection, the scene that lives as long as it (``scene``), and the current drive (``drive``); decides nothing
itself. There is one environment per simulator: evaluation shares it, because a second one would destroy its actors.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from numbers import Integral, Real
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from carla_td3.config import ConfigError, EnvironmentConfig, SimulatorConfig, most
from carla_td3.env import conditions, observation, privileged
from carla_td3.env.car import Car
from carla_td3.env.conditions import Conditions
from carla_td3.env.drive import Drive
from carla_td3.env.episode import Rules
from carla_td3.env.hazards import Hazards
from carla_td3.env.observation import DriverState, Frames, Observation
from carla_td3.env.route import Planner
from carla_td3.env.route_line import OtherMap, Route
from carla_td3.env.scene import Scene
from carla_td3.env.session import BlockedStart, NoSimulator, Session, SimulatorLost

Action = NDArray[np.float32]

LOSSES_A_RESET = 3
# Routes drawn for one drive while something stands on their starts. Each try takes ticks, so passing cars move on.
STARTS_A_RESET = 10

FLAGS = ("continue_after_infractions", "lane_invasions")
OPTIONS = {"route", "limit_s", "seed", *FLAGS}


class DrivingEnv(gymnasium.Env[Observation, Action]):
    """Follow a route.

    Observation: see ``carla_td3.env.observation``. Action: ``Box(-1, 1, (2,))``, steering (positive to the right) and
    throttle (positive) or brake (negative). ``terminated`` means collision, off the road or route finished, and with
    the product reward also a red light or blocked; ``truncated`` means any other end. It connects to the simulator at
    the first ``reset``.

    Args:
        config: the task; the defaults if None.
        simulator: address, map and time-outs; the defaults if None.
        seed: of routes (until ``reset`` gives another) and of traffic.
        on_lost: see ``Session``; for a process that must exit when a Traffic Manager's simulator dies.
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
        super().reset(seed=seed)
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
        self.loss = ""
        """How the simulator was last lost; empty before."""
        self._seed = seed
        self._scene: Scene | None = None
        self._drive: Drive | None = None

    @property
    def planner(self) -> Planner:
        """Routes of the simulator's map; connects if needed.

        Raises:
            NoSimulator, ConfigError, RouteError: see ``Session.connect`` and ``Planner``.
        """
        return self.scene.planner

    @property
    def scene(self) -> Scene:
        """Return the actors of this environment in the simulator; connects if needed."""
        self._connected()
        assert self._scene is not None
        return self._scene

    @property
    def car(self) -> Car | None:
        """Return the car; None before the first reset and without a simulator."""
        return None if self._scene is None else self._scene.car

    @property
    def drive(self) -> Drive:
        """Return the current drive, or the last one.

        Raises:
            ResetNeeded: none has begun.
        """
        if self._drive is None:
            raise gymnasium.error.ResetNeeded("No episode has begun: call reset() first.")
        return self._drive

    @property
    def state(self) -> DriverState:
        """Return the state of the car on its route, for drivers that aren't networks."""
        return self.drive.episode.state

    @property
    def hazards(self) -> Hazards:
        """Return the hazards on the route ahead in the newest frame."""
        return self.drive.hazards

    @property
    def frame(self) -> int:
        """Return the number of the newest frame."""
        return self.drive.motion.frame

    @property
    def picture(self) -> Frames:
        """Return the newest frame, (planes, S, S), as a replay stores it."""
        return self.drive.picture

    def reset(
        self, *, seed: int | None = None, options: Mapping[str, Any] | None = None
    ) -> tuple[Observation, dict[str, Any]]:
        """Begin a drive.

        Args:
            seed: for training's draws from here on: routes, numbers of cars and pedestrians, weather. It doesn't repeat
                where cars and pedestrians are: the option ``seed`` does.
            options: for this drive only, all optional. ``route``: a ``Route``, else a training route is drawn.
                ``limit_s``: simulated seconds, else as configured. ``continue_after_infractions``: infractions don't
                end the drive, and are listed in ``info["infractions"]``. ``lane_invasions``: False leaves
                ``info["lane_invasions"]`` at 0, which saves a third of the client's time. ``seed``: cars, pedestrians
                and weather of this drive, so that two drivers meet the same ones; the next drive without it has those
                of a fresh environment.

        Raises:
            OtherMap: the given route is of another map than the simulator has.
            BlockedStart: something stands where the given route starts, or at the start of each drawn one.
            ConfigError: an option is none of these, or its value is wrong; and as SimulatorOccupied, see
                ``Session.connect`` and ``Walkers``.
            NoSimulator: no simulator within the patience, or it died at each of a few attempts.
        """
        super().reset(seed=seed)
        self._drive = None  # if this fails, no step goes on with the last drive
        try:
            self._drive = self._start(**_checked_options({} if options is None else options))
        except KeyboardInterrupt:
            self.close()  # else the next reset spawns another car beside an unfinished one
            raise
        return self._drive.observation(), self._drive.episode.info()

    def step(self, action: Action) -> tuple[Observation, float, bool, bool, dict[str, Any]]:
        """Drive one step; see the class and ``Episode.info`` for what comes back."""
        episode = self.drive.episode
        if episode.end is not None or self.car is None:
            raise gymnasium.error.ResetNeeded("The episode has ended: call reset() before step().")
        try:
            reward = self.drive.step(*_checked(action))
        except SimulatorLost as loss:
            self._forget_simulator()
            self.loss, reward = str(loss), 0.0
        terminated = episode.terminated
        return self.drive.observation(), reward, terminated, episode.end is not None and not terminated, episode.info()

    def close(self) -> None:
        """Remove all actors of this environment and leave the simulator in asynchronous mode."""
        if self._scene is not None:
            self._scene.close()
        self._scene = None
        self.session.close()

    def _connected(self) -> None:
        if not self.session.connected:
            self._forget_simulator()
            self.session.connect()
        if self._scene is None:
            self._scene = Scene(self.session, self.config, self._seed)

    def _start(
        self,
        route: Route | None = None,
        limit_s: float | None = None,
        continue_after_infractions: bool = False,
        lane_invasions: bool = True,
        seed: int | None = None,
    ) -> Drive:
        """Return a drive on the given route, or on a drawn one; draw another if its start is taken."""
        wanted = (
            conditions.draw(self.config, self.np_random) if seed is None else conditions.from_seed(self.config, seed)
        )
        rules = Rules(limit_s, continue_after_infractions, lane_invasions)
        for _ in range(1 if route else STARTS_A_RESET):
            try:
                return self._start_with_retries(route, wanted, rules)
            except BlockedStart as blocked:
                last = blocked
        raise last

    def _start_with_retries(self, route: Route | None, wanted: Conditions, rules: Rules) -> Drive:
        """Return a drive on the given or a drawn route; retry the same route if the simulator dies.

        If it comes back with another map, another route is drawn.
        """
        drawn = route
        for _ in range(LOSSES_A_RESET):
            try:
                scene = self.scene
                if drawn is None or drawn.map not in ("", self.planner.name):
                    drawn = self._drawn(route)
                self._populate(drawn, wanted)
                scene.set(drawn, wanted)
                return Drive(scene, self.config, drawn, rules, self.np_random)
            except SimulatorLost as loss:
                self._forget_simulator()
                last = loss
        raise NoSimulator(f"The simulator at {self.session.address} was lost {LOSSES_A_RESET} times in a row: {last}")

    def _drawn(self, given: Route | None) -> Route:
        if given is None:
            return self.planner.sample(self.np_random, self.config.route)
        raise OtherMap(
            f"Route {given.name} is of map {given.map}, and the simulator at {self.session.address} now has map "
            f"{self.planner.name}: give it {given.map}, or begin again with routes of {self.planner.name}."
        )

    def _populate(self, route: Route, wanted: Conditions) -> None:
        assert self._scene is not None
        self._scene.populate(route, wanted)

    def _forget_simulator(self) -> None:
        """Drop every reference to a lost simulator."""
        if self._scene is not None:
            self._scene.abandon()
        self._scene = None
        self.session.abandon()


def _checked_options(options: Mapping[str, Any]) -> Mapping[str, Any]:
    known = ", ".join(sorted(OPTIONS))
    if not isinstance(options, Mapping):
        raise ConfigError(f"options is {options!r:.60}: expected a mapping with some of {known}.")
    if unknown := sorted(map(str, options.keys() - OPTIONS)):
        raise ConfigError(f"options has {', '.join(unknown)}: expected some of {known}.")
    route, limit_s, seed = (options.get(key) for key in ("route", "limit_s", "seed"))
    if route is not None and not isinstance(route, Route):
        raise ConfigError(f"options has route {route!r:.60}: expected a Route of env.planner.")
    if limit_s is not None and not (isinstance(limit_s, Real) and 0.0 < float(limit_s) < math.inf):
        raise ConfigError(f"options has limit_s {limit_s!r:.60}: expected a number of seconds above 0.")
    if seed is not None and not (isinstance(seed, Integral) and int(seed) >= 0):
        raise ConfigError(f"options has seed {seed!r:.60}: expected a whole number from 0 on.")
    for flag in FLAGS:
        if not isinstance(options.get(flag, False), bool | np.bool_):
            raise ConfigError(f"options has {flag} {options[flag]!r:.60}: expected true or false.")
    return options


def _checked(action: Action) -> tuple[float, float]:
    try:
        steer, pedal = (float(value) for value in action)
    except (TypeError, ValueError):
        steer = pedal = math.nan
    if not (math.isfinite(steer) and math.isfinite(pedal)):
        raise ValueError(f"The action is {action!r}; expected two finite numbers in [-1, 1].")
    return min(1.0, max(-1.0, steer)), min(1.0, max(-1.0, pedal))
