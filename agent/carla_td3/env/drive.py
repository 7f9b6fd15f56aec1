"""One drive: the car on its route, its observations, and the result of each step.

Exists from the moment the car is put on its route until the next reset. Owns the order of a step; rules and rewards are
the episode's.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from carla_td3.config import EnvironmentConfig
from carla_td3.env import hazards, observation, privileged, traffic_lights
from carla_td3.env.actuators import Actuators
from carla_td3.env.car import Motion
from carla_td3.env.episode import Episode, Events, Rules
from carla_td3.env.expert import Expert
from carla_td3.env.hazards import Hazards, Light, World
from carla_td3.env.observation import Frames, Observation, Stack
from carla_td3.env.route_line import Route
from carla_td3.env.scene import Scene
from carla_td3.env.session import SimulatorLost
from carla_td3.env.stop_signs import StopSignWatch
from carla_td3.env.traffic_lights import LightWatch


class Drive:
    """Puts the car on the route's start, and drives it from there.

    Args:
        scene: populated and set for this drive.
        rng: for random changes on the way.

    Raises:
        BlockedStart: something stands where the route starts.
        SimulatorLost: the simulator doesn't answer.
    """

    def __init__(
        self, scene: Scene, config: EnvironmentConfig, route: Route, rules: Rules, rng: np.random.Generator
    ) -> None:
        assert scene.car is not None
        self._scene, self._config, self._rng = scene, config, rng
        self._car = car = scene.car
        delta_s = scene.session.config.fixed_delta_s
        self._second = round(1.0 / delta_s)
        self._actuators = Actuators(config.action_rate, delta_s)
        self._around: World | None = None
        self._hazards: Hazards | None = None
        car.sensors.watch_lanes(rules.lane_invasions)
        self.motion = car.place(route)
        """Motion of the car in the newest frame."""
        self.picture: Frames = car.sensors.picture(self.motion.frame)
        """The newest frame, (planes, S, S)."""
        self._stack = Stack(config.camera.stack, self.picture)
        self.episode = Episode(route, config, delta_s, self.motion, rules)
        target_mps = config.reward.target_speed_mps
        told = config.privileged
        self._expert = Expert(target_mps, delta_s, lambda: self.hazards, config.action_rate) if told else None
        self._lights = LightWatch(scene.session, car.actor) if config.traffic.lights else None
        self._stops = StopSignWatch(scene.signs)
        self._events(hazards.NOTHING)

    @property
    def world(self) -> World:
        """Return the other actors around the car and the lights in the newest frame; read once per step at most."""
        if self._around is None:
            try:
                self._around = replace(self._scene.surroundings.world(), stop_signs=self._stops.active)
            except SimulatorLost:
                self._around = World()  # read again in the next step
        return self._around

    @property
    def hazards(self) -> Hazards:
        """Return the hazards on the route ahead in the newest frame."""
        if self._hazards is None:
            state = self.episode.state
            self._hazards = hazards.hazards(state.route, state.place, self.motion, self.world)
        return self._hazards

    def step(self, steer: float, pedal: float) -> float:
        """Drive one step and return its reward.

        Raises:
            SimulatorLost: the drive has ended with its simulator.
        """
        applied = self._actuators.follow(steer, pedal)
        # Hazards before the step: the reward must not depend on what the action could not know.
        ahead = self.hazards if self._config.traffic.can_be_blocked else hazards.NOTHING
        try:
            if self.episode.steps % self._second == 0:
                self._change_surroundings(ahead)
            self._read_frame(self._car.drive(*applied))
            events = self._events(ahead)
        except SimulatorLost:
            self._around, self._hazards = World(), hazards.NOTHING
            self.episode.end_lost(applied[0])
            raise
        return self.episode.advance(self.motion, applied, events)

    def observation(self) -> Observation:
        """Return the observation of the newest frame, in new arrays."""
        state = self.episode.state
        vector = observation.vector(state, self._config.route.point_spacing_m, self._actuators.applied)
        seen: Observation = {"image": self._stack.image, "vector": vector}
        if self._expert is not None:
            others = self.world.walkers, self.world.vehicles
            nearness = [hazards.by_bearing(self.motion, each) for each in others]
            listed = [hazards.nearest(self.motion, each, privileged.NEAREST) for each in others]
            advised = self._expert.act(seen, state)
            seen["privileged"] = privileged.vector(self.hazards, nearness, listed, state, advised)
        return seen

    def _change_surroundings(self, ahead: Hazards) -> None:
        """Let pedestrians step out and restless lights change, once per simulated second."""
        state = self.episode.state
        if self._scene.walkers is not None:
            self._scene.walkers.send_across(hazards.Ahead(state.route, state.place.s_m), state.speed_mps)
        if traffic_lights.can_stop(ahead, state.speed_mps):
            self._scene.cycles.redraw(self._rng)

    def _read_frame(self, motion: Motion) -> None:
        self.picture = self._car.sensors.picture(motion.frame)
        self._stack.add(self.picture)
        self.motion, self._around, self._hazards = motion, None, None

    def _events(self, ahead: Hazards) -> Events:
        """Return the events of the newest frame, with those of lights, cars and pedestrians."""
        after, sensors = self.episode.start_frame, self._car.sensors
        own = Events(
            collisions=tuple(sensors.collisions(after)),
            lane_invasions=sensors.lane_invasions(after),
            ran_stop_sign=self._stops.look(self.motion),
        )
        if not self._config.traffic.can_be_blocked:
            return own
        compared = self._scene.traffic if self.episode.rules.continue_after_infractions else None
        return replace(
            own,
            light=Light.NONE if self._lights is None else self._lights.look(self.motion),
            faced=traffic_lights.faced(ahead),
            line_gap_m=ahead.light_gap_m,
            traffic_mps=None if compared is None else compared.mean_speed_mps(),
            allowed_mps=hazards.target_speed(ahead, self._config.reward.target_speed_mps),
            ttc_s=hazards.time_to_collision(ahead, self.episode.state.speed_mps),
        )
