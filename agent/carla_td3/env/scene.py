"""The actors and map of one connection: the car, other cars and pedestrians, lights, signs and routes.

It lives as long as its connection; after a loss there is a new one. Owns the actors that a drive begins with, and their
removal at the end. Follows no drive.
"""

from __future__ import annotations

import time
from functools import cached_property

import carla

from carla_td3.config import EnvironmentConfig, most
from carla_td3.env.car import Car
from carla_td3.env.conditions import Conditions
from carla_td3.env.route import Planner
from carla_td3.env.route_line import Route
from carla_td3.env.session import Session, SimulatorLost
from carla_td3.env.stop_signs import StopBox, stop_signs
from carla_td3.env.surroundings import Surroundings
from carla_td3.env.traffic import Traffic
from carla_td3.env.traffic_lights import LightCycles
from carla_td3.env.walkers import Walkers

# An interpreter that exits sooner after a sensor's stop() can abort (protocol section 5.5).
AFTER_STOP_S = 0.2


class Scene:
    """The world of one connection, empty until the first drive.

    Args:
        session: connected.
        seed: for cars and pedestrians, in drives without a seed.
    """

    def __init__(self, session: Session, config: EnvironmentConfig, seed: int) -> None:
        self.session, self._config, self._seed = session, config, seed
        self.car: Car | None = None
        self.traffic: Traffic | None = None
        self.walkers: Walkers | None = None
        self.cycles = LightCycles(session, config.traffic.lights)
        self._replaced = False

    @cached_property
    def planner(self) -> Planner:
        """Routes of the map."""
        return Planner(self.session.map)

    @cached_property
    def signs(self) -> list[StopBox]:
        """The areas in which the map's stop signs hold cars."""
        return stop_signs(self.session)

    @cached_property
    def surroundings(self) -> Surroundings:
        """The reader of the actors around the car."""
        assert self.car is not None
        return Surroundings(self.session, self.car.actor)

    def populate(self, route: Route, wanted: Conditions) -> None:
        """Spawn the car, and the cars and pedestrians of the drive, none of them at its start.

        Raises:
            BlockedStart: something stands where the car is to appear.
            ConfigError: the map has no navigation mesh for pedestrians.
            SimulatorLost: the simulator doesn't answer.
        """
        asked, start = self._config.traffic, (float(route.points[0, 0]), float(route.points[0, 1]))
        seed = self._seed if wanted.seed is None else wanted.seed
        if wanted.seed is not None or self._replaced:
            self._reset_actors(route, seed)
        self._replaced = wanted.seed is not None
        self.car = self.car or Car(self.session, self._config.camera, route)
        if most(asked.vehicles) > 0:
            self.traffic = self.traffic or Traffic(self.session, asked, seed)
            self.traffic.resize(wanted.vehicles, start)
        if most(asked.walkers) > 0:
            self.walkers = self.walkers or Walkers(self.session, asked, seed)
            self.walkers.resize(wanted.walkers, start)

    def set(self, route: Route, wanted: Conditions) -> None:
        """Set lights and weather; call it after ``populate``.

        Raises:
            SimulatorLost: the simulator doesn't answer.
        """
        ours = self.surroundings.lights_on(route) if wanted.restless else []
        self.cycles.prepare(wanted.seed is not None, ours)
        if wanted.weather is not None:
            with self.session.answered():
                self.session.world.set_weather(getattr(carla.WeatherParameters, wanted.weather))

    def close(self) -> None:
        """Remove every actor of this environment."""
        if self.car is None:
            return
        try:
            if self.walkers is not None:
                self.walkers.empty()
            if self.traffic is not None:
                self.traffic.destroy()
            self.car.destroy()
        except SimulatorLost:
            self.session.abandon()  # nothing is left to remove, nor to notify
        vars(self).clear()
        time.sleep(AFTER_STOP_S)

    def abandon(self) -> None:
        """Drop the actors of a lost simulator, even if a drive still refers to this scene."""
        if self.car is not None:
            self.car.abandon()
        vars(self).clear()

    def _reset_actors(self, route: Route, seed: int) -> None:
        """Remove all actors but the car, and move it to the route's start: no other could be spawned where it stood."""
        there = [others for others in (self.walkers, self.traffic) if others is not None]
        for others in there:
            others.empty()
            others.reseed(seed)
        if there and self.car is not None:
            self.car.place(route)
