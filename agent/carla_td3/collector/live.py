"""The live view of a drive: writes ``live/frame.jpg``, ``state.json`` and ``map.json``.

It writes at most ten times a second, and only while ``live/wanted`` is fresh. Otherwise it neither asks the simulator
nor draws, and training runs the same with and without a viewer. Errors of the disk, or of a simulator that dies
meanwhile, are ignored: other parts report them.
"""

from __future__ import annotations

import contextlib
import json
import math
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import cv2
import numpy as np

from carla_run.files import write_whole
from carla_run.paths import RunPaths
from carla_td3.env.driving import Action, DrivingEnv
from carla_td3.env.observation import DriverState
from carla_td3.env.route_line import FloatArray, Route

EVERY_S = 0.1
ASK_EVERY_S = 0.5
"""Seconds between two looks at ``wanted`` while there is no viewer."""
FRESH_S = 3.0
ACTORS_EVERY_S = 1.0
"""Seconds between two queries for the list of actors. Their poses are in each frame."""
NEAR_M = 150.0
"""Actors farther from the car aren't shown."""
LANE_POINT_M, ROUTE_POINT_M = 4, 3
"""Every n-th point of a line is kept; points are about a metre apart."""
JPEG_QUALITY = 85


@dataclass(frozen=True)
class _ActorShape:
    """An actor and its constant properties."""

    actor: Any
    kind: str
    half_length_m: float
    half_width_m: float


class LiveView:
    """Writes the live view of one collector. It creates the folder; the viewer touches ``wanted``."""

    def __init__(self, run: RunPaths) -> None:
        self._run = run
        with contextlib.suppress(OSError):
            run.live.mkdir(exist_ok=True)
        self._next_s = 0.0
        self._actors: list[_ActorShape] = []
        self._actors_s = float("-inf")
        self._mapped: object = None
        self._route: tuple[Route | None, list[list[float]]] = (None, [])

    def show(self, env: DrivingEnv, action: Action, reward: float, info: Mapping[str, Any]) -> None:
        """Write the frame after a step, if there is a viewer and the last frame is old enough.

        Args:
            env: just stepped, by the thread that steps it.
            action: the action taken.
            reward: its reward; ``info`` as the step returned it.
        """
        now_s = time.monotonic()
        if now_s < self._next_s:
            return
        if not self._wanted():
            self._next_s = now_s + ASK_EVERY_S
            return
        self._next_s = now_s + EVERY_S
        if env.car is None or not env.session.connected:
            return
        with contextlib.suppress(OSError, RuntimeError):  # RuntimeError: the simulator is gone; the next tick says so
            self._write(env, action, reward, info, now_s)

    def _wanted(self) -> bool:
        try:
            return abs(time.time() - self._run.live_wanted.stat().st_mtime) < FRESH_S
        except OSError:
            return False

    def _write(self, env: DrivingEnv, action: Action, reward: float, info: Mapping[str, Any], now_s: float) -> None:
        assert env.car is not None
        picture = env.car.sensors.newest
        if picture is not None:
            _, jpeg = cv2.imencode(".jpg", picture[:, :, :3], [cv2.IMWRITE_JPEG_QUALITY, JPEG_QUALITY])
            write_whole(self._run.live_frame, jpeg.tobytes(), durable=False)
        planner = env.planner
        if planner is not self._mapped or not self._run.live_map.exists():
            lanes = [_thinned(line, LANE_POINT_M) for line in planner.lanes]
            self._write_json(self._run.live_map, {"town": planner.name, "lanes": lanes})
            self._mapped = planner
        if now_s - self._actors_s >= ACTORS_EVERY_S:
            self._actors, self._actors_s = _actors(env), now_s
        steer, pedal = (float(value) for value in action)
        state = env.state
        self._write_json(
            self._run.live_state,
            {
                "time": round(time.time(), 3),
                "frame": env.frame,
                "town": planner.name,
                "car": _pose(state.x_m, state.y_m, math.degrees(state.yaw)),
                "speed_mps": round(state.speed_mps, 2),
                "steer": round(steer, 3),
                "throttle": round(max(pedal, 0.0), 3),
                "brake": round(max(-pedal, 0.0), 3),
                "reward": round(reward, 4),
                "reward_terms": {name: round(value, 4) for name, value in info["reward_terms"].items()},
                "route": self._points_of(state.route),
                "route_completion": round(info["route_completion"], 4),
                "end": info["end"],
                **_around(env, self._actors, state),
            },
        )

    def _points_of(self, route: Route) -> list[list[float]]:
        if self._route[0] is not route:
            self._route = route, _thinned(route.points, ROUTE_POINT_M)
        return self._route[1]

    @staticmethod
    def _write_json(path: Any, content: Mapping[str, Any]) -> None:
        write_whole(path, json.dumps(content, separators=(",", ":")), durable=False)


def _thinned(line: FloatArray, every: int) -> list[list[float]]:
    """Return every ``every``-th point of an (n, 2) line, always with the last one."""
    kept = np.concatenate([line[:-1:every], line[-1:]])
    return [[round(float(x), 1), round(float(y), 1)] for x, y in kept]


def _pose(x_m: float, y_m: float, yaw_deg: float) -> list[float]:
    return [round(x_m, 2), round(y_m, 2), round(yaw_deg, 1)]


def _actors(env: DrivingEnv) -> list[_ActorShape]:
    """Return all vehicles, walkers and lights except the car itself."""
    kinds = {"vehicle.": "vehicle", "walker.": "walker", "traffic.traffic_light": "light"}
    assert env.car is not None
    found = []
    for actor in env.session.world.get_actors():
        kind = next((kind for start, kind in kinds.items() if actor.type_id.startswith(start)), None)
        if kind is not None and actor.id != env.car.actor.id:
            extent = actor.bounding_box.extent
            found.append(_ActorShape(actor, kind, round(extent.x, 2), round(extent.y, 2)))
    return found


def _around(env: DrivingEnv, actors: list[_ActorShape], state: DriverState) -> dict[str, list[Any]]:
    """Return the actors near the car: ``others`` with pose and half size, ``lights`` with their state."""
    snapshot = env.session.world.get_snapshot()
    others: list[Any] = []
    lights: list[Any] = []
    for shown in actors:
        seen = snapshot.find(shown.actor.id)
        if seen is None:
            continue
        pose = seen.get_transform()
        x, y = pose.location.x, pose.location.y
        if math.hypot(x - state.x_m, y - state.y_m) > NEAR_M:
            continue
        if shown.kind == "light":
            lights.append([round(x, 1), round(y, 1), str(shown.actor.get_state()).lower()])
        else:
            size = [shown.half_length_m, shown.half_width_m]
            others.append([shown.kind, shown.actor.id, *_pose(x, y, pose.rotation.yaw), *size])
    return {"others": others, "lights": lights}
