"""The gymnasium environment ``CarlaTD3/Driving-v0``: drive a route with steering and one pedal.

Puts session, car, traffic, episode and observation together and owns their order; decides nothing itself. One
environment a simulator: evaluation shares it, because a second one would destroy this one's actors.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from agent.config import EnvironmentConfig, SimulatorConfig
from agent.env import hazards, observation, privileged, traffic_lights
from agent.env.car import Car, Motion
from agent.env.episode import TERMINAL, Episode, Events
from agent.env.hazards import Hazards
from agent.env.observation import DriverState, Frames, Observation
from agent.env.route import Planner
from agent.env.route_line import Route
from agent.env.session import BlockedStart, NoSimulator, Session, SimulatorLost
from agent.env.surroundings import Surroundings
from agent.env.traffic import Traffic
from agent.env.traffic_lights import LightAhead, LightWatch

Action = NDArray[np.float32]

LOSSES_A_RESET = 3
# Routes drawn for one drive while somebody stands on their starts; each takes ticks, so what only passes by has gone.
STARTS_A_RESET = 10
# An interpreter that ends sooner after a sensor's stop() can abort (protocol section 5.5).
AFTER_STOP_S = 0.2


class DrivingEnv(gymnasium.Env[Observation, Action]):
    """Follow a route.

    Observation: see ``agent.env.observation``. Action: ``Box(-1, 1, (2,))``, steering (positive to the right) and
    throttle (positive) or brake (negative). ``terminated`` means collision, off the road or route finished;
    ``truncated`` means time limit, stuck or simulator lost. The simulator is reached at the first ``reset``.

    Args:
        config: rules; the defaults if None.
        simulator: address, map and time-outs; the defaults if None.
        seed: of routes (until ``reset`` gives another) and of traffic.
        on_lost: see ``Session``; for a process that must leave when a Traffic Manager's simulator dies.
    """

    metadata = {"render_modes": []}  # noqa: RUF012 (gymnasium's own declaration)

    def __init__(
        self,
        config: EnvironmentConfig | None = None,
        simulator: SimulatorConfig | None = None,
        seed: int = 0,
        on_lost: Callable[[], None] | None = None,
    ) -> None:
        self.config = config or EnvironmentConfig()
        self.session = Session(
            simulator or SimulatorConfig(), traffic=self.config.traffic.vehicles > 0, on_lost=on_lost
        )
        extra = privileged.SIZE if self.config.privileged else 0
        self.observation_space = observation.space(self.config.camera.width, extra)
        self.action_space = spaces.Box(-1.0, 1.0, (2,), np.float32)
        self.car: Car | None = None
        self._seed: int = seed
        self._seeded = False
        self._planner: Planner | None = None
        self._traffic: Traffic | None = None
        self._episode: Episode | None = None
        self._lights: LightWatch | None = None
        self._surroundings: Surroundings | None = None
        self._motion: Motion | None = None
        self._hazards: Hazards | None = None
        self._stack: Frames | None = None
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
    def hazards(self) -> Hazards:
        """What lies on the route ahead in the newest frame, read at most once a step."""
        if self._hazards is None:
            self._hazards = self._read_hazards()
        return self._hazards

    @property
    def frame(self) -> int:
        """Number of the newest frame."""
        return self._frame

    def reset(
        self, *, seed: int | None = None, options: Mapping[str, Any] | None = None
    ) -> tuple[Observation, dict[str, Any]]:
        """Begin a drive; ``options={"route": Route}`` gives the route, else a training route is drawn.

        Raises:
            BlockedStart: something stands where the given route starts, or where each of a few drawn ones does.
            NoSimulator: no simulator within the patience, or it died at each of a few attempts.
        """
        super().reset(seed=self._seed if seed is None and not self._seeded else seed)
        self._seeded = True
        given = (options or {}).get("route")
        for _ in range(1 if given else STARTS_A_RESET):
            try:
                return self._begin_though_lost(given)
            except BlockedStart as blocked:
                last = blocked
        raise last

    def step(self, action: Action) -> tuple[Observation, float, bool, bool, dict[str, Any]]:
        """Drive one step; see the class and ``Episode.info`` for what comes back."""
        episode = self._running()
        if episode.end is not None or self.car is None:
            raise gymnasium.error.ResetNeeded("The episode has ended: call reset() before step().")
        steer, pedal = _checked(action)
        try:
            motion = self.car.drive(steer, pedal)
            self._see(motion)
            events = self._events(self.car, episode, motion)
        except SimulatorLost:
            self._lose()
            self._hazards = hazards.NOTHING
            episode.end = "simulator_lost"
            episode.terms = dict.fromkeys(episode.terms, 0.0)
            return self._observation(), 0.0, False, True, episode.info()
        reward = episode.advance(motion, (steer, pedal), events)
        terminated = episode.end in TERMINAL
        return self._observation(), reward, terminated, episode.end is not None and not terminated, episode.info()

    def close(self) -> None:
        """Remove every actor of ours and leave the simulator in asynchronous mode."""
        if self.car is not None:
            try:
                if self._traffic is not None:
                    self._traffic.destroy()
                self.car.destroy()
            except SimulatorLost:
                self.session.abandon()  # nothing is left to remove, nor to be told
            time.sleep(AFTER_STOP_S)
        self.car = self._traffic = self._surroundings = None
        self.session.close()

    def _connected(self) -> None:
        if not self.session.connected:
            self._lose()
            self.session.connect()

    def _begin_though_lost(self, given: Route | None) -> tuple[Observation, dict[str, Any]]:
        """Begin on the given route, or on one drawn; on the same one again if the simulator dies."""
        route = given
        for _ in range(LOSSES_A_RESET):
            try:
                route = route or self.planner.sample(self.np_random, self.config.route)
                return self._begin(route)
            except SimulatorLost as loss:
                self._lose()
                last = loss
        raise NoSimulator(f"The simulator at {self.session.address} died {LOSSES_A_RESET} times in a row: {last}")

    def _begin(self, route: Route) -> tuple[Observation, dict[str, Any]]:
        self._connected()
        x, y = float(route.points[0, 0]), float(route.points[0, 1])
        if self._traffic is not None:
            self._traffic.clear(x, y)
        if self.car is None:
            self.car = Car(self.session, self.config.camera, route)
        if self._traffic is None and self.config.traffic.vehicles > 0:
            rng = np.random.default_rng(self._seed)
            self._traffic = Traffic(self.session, self.config.traffic.vehicles, rng, (x, y))
        traffic_lights.prepare(self.session, self.config.traffic.lights)
        motion = self.car.place(route)
        self._stack = self._episode = None
        self._see(motion)
        self._episode = Episode(route, self.config, self.session.config.fixed_delta_s, motion)
        self._lights = LightWatch(self.session, self.car.actor)
        self._events(self.car, self._episode, motion)
        return self._observation(), self._episode.info()

    def _see(self, motion: Motion) -> None:
        assert self.car is not None
        grey = self.car.sensors.grey(motion.frame)
        self._frame, self._motion, self._hazards = motion.frame, motion, None
        self._stack = (
            observation.first_stack(grey) if self._stack is None else observation.next_stack(self._stack, grey)
        )

    def _events(self, car: Car, episode: Episode, motion: Motion) -> Events:
        after = episode.start_frame
        light = LightAhead.NONE if self._lights is None else self._lights.look(motion)
        return Events(car.sensors.collision(after), car.sensors.lane_invasions(after), light)

    def _observation(self) -> Observation:
        assert self._stack is not None
        state = self._running().state
        seen = {"image": self._stack, "vector": observation.vector(state, self.config.route.point_spacing_m)}
        return {**seen, "privileged": privileged.vector(self.hazards, state)} if self.config.privileged else seen

    def _read_hazards(self) -> Hazards:
        state = self._running().state
        assert self.car is not None
        assert self._motion is not None
        try:
            if self._surroundings is None:
                self._surroundings = Surroundings(self.session, self.car.actor)
            world = self._surroundings.world()
        except SimulatorLost:
            return hazards.NOTHING  # the next step will find out
        return hazards.hazards(state.route, state.place, self._motion, world)

    def _running(self) -> Episode:
        if self._episode is None:
            raise gymnasium.error.ResetNeeded("No episode has begun: call reset() first.")
        return self._episode

    def _lose(self) -> None:
        """Let go of everything that belonged to a dead simulator; its streams must not reconnect to the next one."""
        if self.car is not None:
            self.car.abandon()
        self.car = self._traffic = self._planner = self._surroundings = None
        self.session.abandon()


def _checked(action: Action) -> tuple[float, float]:
    steer, pedal = (float(value) for value in action)
    if not (np.isfinite(steer) and np.isfinite(pedal)):
        raise ValueError(f"The action is {action!r}; expected two finite numbers in [-1, 1].")
    return min(1.0, max(-1.0, steer)), min(1.0, max(-1.0, pedal))
