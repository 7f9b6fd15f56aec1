"""The window's content: pictures and places, made while there is a viewer, and viewers' commands for the spectator."""

from __future__ import annotations

import contextlib
import math
import threading
import time
import traceback
import zlib
from collections.abc import Callable
from typing import Any

import cv2

from carla_lite.actors.actor import Vehicle
from carla_lite.actors.props import Prop
from carla_lite.protocol.wire import RpcError
from carla_lite.scenery.camera import Pose
from carla_lite.view import spectator
from carla_lite.view.client import LostError, Messages, Rpc
from carla_lite.view.replica import Replica

LOOKING_S = 3.0
PICTURE_S = 0.066
RETRY_S = 1.0
OURS_S = 0.5
"""Time after a move from here during which the spectator is assumed to be where it was put."""
JPEG_QUALITY = 82
TOWN_PX = 1400


class Watch:
    """One server with any number of viewers; ``run`` is executed by a thread."""

    def __init__(self, host: str, port: int, seed: int) -> None:
        self._address, self._seed = (host, port), seed
        self._new = threading.Condition()
        self._looked_s = float("-inf")
        self._pose: Pose | None = None
        self._moved_s = float("-inf")
        self._told: Pose | None = None
        self._following: int | None = None
        self._picture: tuple[int, bytes] = (0, b"")
        self._state: dict[str, Any] = {}
        self._town: tuple[str, dict[str, Any], bytes] | None = None
        self._height: Callable[[float, float], float] = lambda _x, _y: 0.0
        """Of the watched map's roads (m)."""
        self.problem = ""

    # For viewers.

    def look(self) -> None:
        """Record that there is a viewer."""
        self._looked_s = time.monotonic()

    def picture(self, after: int, wait_s: float) -> tuple[int, bytes]:
        """Return the number and JPEG of a picture later than ``after``; an earlier or empty one if none is in time."""
        with self._new:
            self._new.wait_for(lambda: self._picture[0] > after and self._picture[1], wait_s)
            return self._picture

    def state(self) -> dict[str, Any]:
        """Return the actors' places, which are missing until it is connected, and a sentence on what is wrong."""
        return {**self._state, "problem": self.problem, "following": self._following}

    def town(self) -> bytes:
        """Return the painted ground as a JPEG; empty before there is one."""
        return self._town[2] if self._town else b""

    def command(self, asked: dict[str, Any]) -> None:
        """Turn, move or attach the spectator as a viewer commands.

        Raises:
            ValueError: there is no such command.
        """
        numbers = {key: float(value) for key, value in asked.items() if key != "follow"}
        if not all(math.isfinite(value) and abs(value) <= 1e5 for value in numbers.values()):
            raise ValueError(asked)
        with self._new:
            if "follow" in asked:
                self._following = None if asked["follow"] is None else int(asked["follow"])
                return
            pose = self._pose
            if pose is None:
                return
            if {"x", "y"} <= numbers.keys():
                pose = spectator.above(numbers["x"], numbers["y"], self._height(numbers["x"], numbers["y"]))
            pose = spectator.turned(pose, numbers.get("yaw", 0.0), numbers.get("pitch", 0.0))
            pose = spectator.moved(pose, *(numbers.get(name, 0.0) for name in ("forward", "right", "up")))
            if numbers:
                self._following = None
            self._pose, self._moved_s = pose, time.monotonic()

    # The thread.

    def run(self) -> None:
        """Run for ever: connect while there is a viewer, disconnect when there is none."""
        while True:
            if not self._is_looked_at:
                self._forget()
                time.sleep(0.1)
                continue
            try:
                self._watch()
                self._forget()
            except (LostError, RpcError) as error:
                self.problem = f"{error}"
                time.sleep(RETRY_S)
            except Exception as error:  # a bug here costs a moment, not the window
                traceback.print_exc()
                self.problem = f"{type(error).__name__}: {error}"
                time.sleep(RETRY_S)

    def _forget(self) -> None:
        """Forget what was seen: until it is connected again, nothing is known."""
        with self._new:
            self.problem, self._state, self._picture = "", {}, (self._picture[0], b"")

    @property
    def _is_looked_at(self) -> bool:
        return time.monotonic() - self._looked_s < LOOKING_S

    def _watch(self) -> None:
        with contextlib.closing(Rpc(*self._address)) as rpc:
            replica = Replica(rpc, self._seed)
            self._paint_town(replica)
            self._height = replica.network.height
            _, stream = rpc.world_stream()
            with stream:
                messages, self._told, self._pose = Messages(stream), None, None
                self.problem = ""
                while self._is_looked_at:
                    due_s = time.monotonic() + PICTURE_S
                    message = messages.newest(PICTURE_S)
                    if message is not None and not replica.take(message):
                        return  # another episode
                    if self._steer(replica) or message is not None:
                        self._show(replica)
                    time.sleep(max(0.0, due_s - time.monotonic()))

    def _steer(self, replica: Replica) -> bool:
        """Apply viewers' commands to the spectator; return whether it must be moved."""
        with self._new:
            if self._told is None or (
                replica.spectator != self._told and time.monotonic() - self._moved_s > OURS_S
            ):  # a client has moved it
                self._pose = self._told = replica.spectator
            followed = None if self._following is None else replica.moving.get(self._following)
            if self._following is not None and followed is None:
                self._following = None
            if followed is not None:
                self._pose = spectator.behind(followed.place)
            wanted = self._pose
        assert wanted is not None
        if wanted == self._told:
            return False
        replica.send_spectator(wanted)
        self._told, self._moved_s = wanted, time.monotonic()
        return True

    def _show(self, replica: Replica) -> None:
        assert self._pose is not None
        _, jpeg = cv2.imencode(".jpg", replica.picture(self._pose), [cv2.IMWRITE_JPEG_QUALITY, JPEG_QUALITY])
        camera = self._pose
        state = {
            "frame": replica.frame,
            "elapsed_s": round(replica.elapsed_s, 2),
            "camera": [round(camera.x, 2), round(camera.y, 2), round(math.degrees(camera.yaw), 1)],
            "town": None if self._town is None else self._town[1],
            "actors": [
                [number, actor.blueprint.id, *_half_size(actor), *_place(actor.place)]
                for number, actor in replica.moving.items()
                if not isinstance(actor, Prop)
            ],
            "lights": [
                [round(each.pose.x, 1), round(each.pose.y, 1), each.state.name.lower()] for each in replica.lights
            ],
        }
        with self._new:
            self._picture = self._picture[0] + 1, jpeg.tobytes()
            self._state = state
            self._new.notify_all()

    def _paint_town(self, replica: Replica) -> None:
        if self._town is not None and self._town[0] == replica.network.xodr:
            return
        ground = replica.scene.ground
        level = next(
            (k for k, image in enumerate(ground.levels) if max(image.shape) <= TOWN_PX), len(ground.levels) - 1
        )
        image, scale = ground.levels[level], ground.metres_per_pixel * 2**level
        height, width = image.shape[:2]
        _, jpeg = cv2.imencode(".jpg", image, [cv2.IMWRITE_JPEG_QUALITY, JPEG_QUALITY])
        box = {"x": ground.x_min, "y": ground.y_min, "width": width * scale, "height": height * scale}
        xodr, name = replica.network.xodr, replica.network.name  # generated maps all have one name
        self._town = xodr, {"name": name, "digest": zlib.crc32(xodr.encode()), **box}, jpeg.tobytes()


def _place(pose: Pose) -> list[float]:
    return [round(pose.x, 2), round(pose.y, 2), round(math.degrees(pose.yaw), 1)]


def _half_size(actor: Any) -> list[float]:
    if isinstance(actor, Vehicle):
        return [round(actor.body.model.half_length_m, 2), round(actor.body.model.half_width_m, 2)]
    return [round(actor.radius_m, 2)] * 2
