"""Observes a driver while it is evaluated: the route that it is on, and pictures of its drives for a sheet.

It doesn't change the driver's actions.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from pathlib import Path

import cv2
import numpy as np

from carla_run.files import write_whole
from carla_td3.env.driving import DrivingEnv
from carla_td3.env.expert import Action
from carla_td3.env.observation import DriverState, Observation
from carla_td3.evaluation.contact_sheet import ContactSheet, Picture, sheet
from carla_td3.evaluation.drivers import Driver
from carla_td3.evaluation.overlay import DARK, GREEN

SHEET_WIDTH = 126  # 1.5 times the camera's pixels: a larger sheet takes memory that training may lack
BAR = 2
PICTURE_EVERY = 10
"""Steps between two pictures: one simulated second."""

RouteBegun = Callable[[str, int], None]
"""Called with a driver's name and the number of the route that it begins, from 1."""


class Album:
    """Collects some of the pictures that a driver sees, from all drives."""

    def __init__(self, env: DrivingEnv) -> None:
        self._env = env
        self._sheet = ContactSheet(SHEET_WIDTH)
        self._image: Picture | None = None

    def see(self, observation: Observation, state: DriverState) -> None:
        """Add a picture; a bar at its lower edge shows the position along the route."""
        if self._env.car is None:
            return
        self._image = observation["image"]
        picture = self._env.car.sensors.newest[:, :, :3].copy()
        come = round(state.place.s_m / state.route.length_m * picture.shape[1])
        picture[-BAR:] = DARK
        picture[-BAR:, :come] = GREEN
        self._sheet.add(picture, "")

    def write(self, folder: Path) -> dict[str, str]:
        """Write a contact sheet, and the network's input as planes; return the files' names.

        They are ``evaluation.png`` and ``observation.png``, by their names in TensorBoard; nothing if there is no
        picture, or the disk refuses.
        """
        if self._image is None:
            return {}
        planes = [("", _shown(plane)) for plane in self._image]
        _, png = cv2.imencode(".png", sheet(planes, columns=4))
        with contextlib.suppress(OSError):
            folder.mkdir(exist_ok=True)
            self._sheet.write(folder / "evaluation.png", columns=4)
            write_whole(folder / "observation.png", png.tobytes())
            return {"eval/contact_sheet": "evaluation.png", "eval/observation": "observation.png"}
        return {}


class ObservedDriver:
    """A driver that acts like another one, and reports what it sees.

    Args:
        told: called as each route begins; not again if the route is repeated at once.
        album: gets the pictures; None for none.
    """

    def __init__(self, name: str, other: Driver, told: RouteBegun, album: Album | None = None) -> None:
        self._name, self._other, self._told, self._album = name, other, told, album
        self._route: str | None = None
        self._routes = self._steps = 0

    def act(self, observation: Observation, state: DriverState) -> Action:
        """Return the other driver's action."""
        if state.route.name != self._route:
            self._route, self._routes = state.route.name, self._routes + 1
            self._told(self._name, self._routes)
        if self._album is not None and self._steps % PICTURE_EVERY == 0:
            self._album.see(observation, state)
        self._steps += 1
        return self._other.act(observation, state)


def _shown(plane: Picture) -> Picture:
    larger = cv2.resize(plane, (SHEET_WIDTH, SHEET_WIDTH), interpolation=cv2.INTER_NEAREST)
    return np.repeat(np.asarray(larger, np.uint8)[:, :, None], 3, axis=2)
