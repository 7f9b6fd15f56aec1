"""The map's traffic lights: whether they change, and which one the agent's car is at.

Owns the state of the lights at each drive's start. Like a Traffic Manager, it reads from the car's actor record which
light holds it; it knows no penalty.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import carla
import numpy as np

from carla_td3.env.car import Motion
from carla_td3.env.hazards import STAND_BEFORE_LINE_M, STANDING_MPS, Hazards, Light
from carla_td3.env.session import Session
from carla_td3.env.surroundings import LIGHTS

# From the end of a light's trigger volume, which a car leaves with its rear, to the junction (protocol section 3.4).
TO_LINE_M = 1.5
# Distance to its line within which a light counts as met: room for the second car of a queue.
MET_M = 15.0
# A light doesn't turn red for a car that can't stop any more: half a second of reaction, then this deceleration.
REACTION_S, HARD_BRAKING_MPS2 = 0.5, 4.0


class LightCycles:
    """All lights of a map, over all drives on it.

    Args:
        changing: whether they change; if not, all are set to green once.
    """

    def __init__(self, session: Session, changing: bool) -> None:
        self._session, self._changing = session, changing
        self._fresh = True
        self._held: list[tuple[Any, Any]] = []
        self._restless: list[Any] = []

    def prepare(self, restart: bool, restless: Sequence[Any] = ()) -> None:
        """Set the lights for a drive: at the beginning of their cycles, or anywhere in them.

        Call it after a Traffic Manager has started, which resets them all.

        Args:
            restart: whether their cycles begin. Otherwise they continue, except in a map's first drive and after a
                drive with ``restart``.
            restless: lights that ``redraw`` sets during the drive, instead of a cycle; all others of their junctions
                stay red.

        Raises:
            SimulatorLost: the simulator doesn't answer.
        """
        with self._session.answered():
            world = self._session.world
            lights = list(world.get_actors().filter("traffic.traffic_light"))
            if not lights:
                return
            for light, state in self._held:
                light.set_state(state)
            world.freeze_all_traffic_lights(not self._changing)
            self._held, self._restless = [], []
            if not self._changing:
                for light in lights:
                    light.set_state(carla.TrafficLightState.Green)
                return
            if restart or self._fresh:
                world.reset_all_traffic_lights()
            self._fresh = restart
            self._hold(restless)

    def redraw(self, rng: np.random.Generator) -> None:
        """Draw red or green for each restless light; call it once per simulated second.

        Raises:
            SimulatorLost: the simulator doesn't answer.
        """
        with self._session.answered():
            for light in self._restless:
                light.set_state(carla.TrafficLightState.Green if rng.random() < 0.5 else carla.TrafficLightState.Red)

    def _hold(self, restless: Sequence[Any]) -> None:
        own = {light.id for light in restless}
        junctions = {each.id: each for light in restless for each in light.get_group_traffic_lights()}
        self._held = [(each, each.get_state()) for each in junctions.values()]
        self._restless = sorted(restless, key=lambda light: int(light.id))
        for each in junctions.values():
            each.freeze(True)
            each.set_state(carla.TrafficLightState.Green if each.id in own else carla.TrafficLightState.Red)


def can_stop(ahead: Hazards, speed_mps: float) -> bool:
    """Return whether the car can still stop if the light turns red now."""
    way_m = REACTION_S * speed_mps + speed_mps**2 / (2.0 * HARD_BRAKING_MPS2)
    return ahead.light_gap_m > way_m + STAND_BEFORE_LINE_M or speed_mps < STANDING_MPS


def faced(ahead: Hazards) -> Light:
    """Return the state of the light that the car is coming to, within ``MET_M`` of its line."""
    return Light.NONE if ahead.light_gap_m > MET_M else ahead.light


class LightWatch:
    """Records one drive's lights: which one the car is at, until its rear is over the stop line.

    Args:
        car: the vehicle.
    """

    def __init__(self, session: Session, car: Any) -> None:
        self._session, self._car = session, car
        self._light: Any = None
        self._left: tuple[float, float] | None = None

    def look(self, motion: Motion) -> Light:
        """Return the state of the light that the car is at in the newest frame, given its ``motion`` there.

        Raises:
            SimulatorLost: the simulator doesn't answer.
        """
        with self._session.answered():
            if self._car.is_at_traffic_light():
                self._light, self._left = self._car.get_traffic_light(), None
            elif self._light is not None:
                self._left = self._left or (motion.x_m, motion.y_m)
                if math.dist(self._left, (motion.x_m, motion.y_m)) >= TO_LINE_M:
                    self._light = None
            if self._light is None:
                return Light.NONE
            return LIGHTS.get(self._light.get_state(), Light.GREEN)  # a light that is off holds no car
