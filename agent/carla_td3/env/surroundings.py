"""Reads the actors around the car from the client's newest snapshot, as plain data for ``carla_td3.env.hazards``.

Owns each actor's constant properties (its kind, its box), and which lanes the map's lights hold. It calls the simulator
only for new actors.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import carla
import numpy as np

from carla_td3.env.hazards import HALF_WIDTH_M, RANGE_M, SAME_WAY_RAD, Light, OtherActors, StopLine, World
from carla_td3.env.route_line import Route
from carla_td3.env.session import Session

OTHER_STOREY_M = 4.0
LIGHTS = {
    carla.TrafficLightState.Green: Light.GREEN,
    carla.TrafficLightState.Yellow: Light.YELLOW,
    carla.TrafficLightState.Red: Light.RED,
}


@dataclass(frozen=True)
class _Box:
    """Bounding box of a vehicle or walker, relative to its origin."""

    is_walker: bool
    x_m: float
    half_length_m: float
    half_width_m: float


class Surroundings:
    """All actors except ``car``.

    Raises:
        SimulatorLost: the simulator doesn't answer.
    """

    def __init__(self, session: Session, car: Any) -> None:
        self._session, self._car = session, car
        self._boxes: dict[int, _Box | None] = {}
        with session.answered():
            lights = session.world.get_actors().filter("traffic.traffic_light")
            self._lines = [
                (light, where.location.x, where.location.y, math.radians(where.rotation.yaw))
                for light in sorted(lights, key=lambda light: int(light.id))
                for where in (stop.transform for stop in light.get_stop_waypoints())
            ]

    def lights_on(self, route: Route) -> list[Any]:
        """Return the traffic lights that hold a route, unordered."""
        found = {}
        for light, x, y, yaw in self._lines:
            away = np.hypot(*(route.points - (x, y)).T)
            nearest = int(np.argmin(away))
            if away[nearest] < HALF_WIDTH_M and math.cos(yaw - route.yaw[nearest]) > math.cos(SAME_WAY_RAD):
                found[light.id] = light
        return list(found.values())

    def world(self) -> World:
        """Return the actors and lights within ``RANGE_M`` of the car, in the newest frame.

        Raises:
            SimulatorLost: the simulator doesn't answer.
        """
        with self._session.answered():
            snapshot = self._session.world.get_snapshot()
            here = snapshot.find(self._car.id)
            if here is None:
                return World()
            here = here.get_transform().location
            around = []
            for actor in snapshot:
                if (id := actor.id) not in self._boxes:
                    self._read_new_actors()
                box = self._boxes.setdefault(id, None)
                if box is not None:
                    pose = actor.get_transform()
                    if _near(pose.location, here):
                        around.append((box, pose, actor))
            if len(self._boxes) > 2 * len(snapshot):  # most of them have gone, as walkers do with each episode
                self._boxes = {actor.id: self._boxes[actor.id] for actor in snapshot}
            lines = [
                StopLine(x, y, yaw, LIGHTS.get(light.get_state(), Light.NONE))
                for light, x, y, yaw in self._lines
                if abs(x - here.x) <= RANGE_M and abs(y - here.y) <= RANGE_M
            ]
        groups = [_others([one for one in around if one[0].is_walker is is_walker]) for is_walker in (False, True)]
        return World(groups[0], groups[1], tuple(lines))

    def _read_new_actors(self) -> None:
        """Read the properties of actors that are new since the last call."""
        for actor in self._session.world.get_actors():
            if actor.id not in self._boxes:
                kind = actor.type_id.split(".", 1)[0]
                solid = kind in ("vehicle", "walker") and actor.id != self._car.id
                self._boxes[actor.id] = _box(actor, kind == "walker") if solid else None


def _box(actor: Any, is_walker: bool) -> _Box:
    box = actor.bounding_box
    return _Box(is_walker, box.location.x, box.extent.x, box.extent.y)


def _near(there: Any, here: Any) -> bool:
    """Return whether a place is in range, and not on another level of the road."""
    level: bool = abs(there.z - here.z) < OTHER_STOREY_M
    return level and abs(there.x - here.x) <= RANGE_M and abs(there.y - here.y) <= RANGE_M


def _others(around: Sequence[tuple[_Box, Any, Any]]) -> OtherActors:
    rows = []
    for box, pose, actor in around:
        yaw, velocity = math.radians(pose.rotation.yaw), actor.get_velocity()
        x, y = pose.location.x + box.x_m * math.cos(yaw), pose.location.y + box.x_m * math.sin(yaw)
        rate = math.radians(actor.get_angular_velocity().z)
        rows.append((x, y, yaw, box.half_length_m, box.half_width_m, velocity.x, velocity.y, rate))
    table = np.array(rows, float).reshape(-1, 8)
    return OtherActors(table[:, :2], table[:, 2], table[:, 3:5], table[:, 5:7], table[:, 7])
