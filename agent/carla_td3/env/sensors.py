"""Sensors on the car: cameras whose images are matched to the tick, and collision and lane-invasion records.

Owns the sensors' lifecycle: creation, first image, draining before ``stop()``, destruction before the car. Knows no
time-out (the session waits) and nothing of rewards.
"""

from __future__ import annotations

import queue
import time
from dataclasses import dataclass
from typing import Any

import carla
import cv2
import numpy as np
from numpy.typing import NDArray

from carla_td3.config import CameraConfig, Channels, NarrowConfig
from carla_td3.env.session import ROLE_PREFIX, Session, SimulatorLost

Planes = NDArray[np.uint8]

FIRST_IMAGE_TICKS = 20
# ``stop()`` while a message is being received aborts the process; ≥ 0.3 ms after the last message it is safe (5.5).
QUIET_BEFORE_STOP_S = 0.002


class FrameCamera:
    """An RGB camera attached to a car; ``image(frame)`` returns exactly that frame's picture.

    Args:
        transform: pose in the car's frame.
        width, height: size of the simulator's pictures in pixels; nothing is resized.

    Raises:
        SimulatorLost: the simulator doesn't answer, or no longer has that car.
    """

    def __init__(
        self, session: Session, car: Any, transform: carla.Transform, *, width: int, height: int, fov_deg: float
    ) -> None:
        self._session = session
        self._arrivals: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self._message: carla.Image | None = None
        blueprint = _blueprint(session.world, "sensor.camera.rgb")
        for key, value in (("image_size_x", width), ("image_size_y", height), ("fov", fov_deg)):
            blueprint.set_attribute(key, str(value))
        with session.answered():
            self.actor = session.world.spawn_actor(blueprint, transform, attach_to=car)
        self.actor.listen(self._arrivals.put)

    def image(self, frame: int) -> NDArray[np.uint8]:
        """Return the (height, width, 4) BGRA picture of ``frame``, valid until the next call.

        Raises:
            SimulatorLost: it does not come.
        """
        # Keep a reference: the client reuses the memory of a message that nothing refers to.
        self._message = self._session.receive(self._arrivals, frame)
        return self.last

    @property
    def last(self) -> NDArray[np.uint8]:
        """The picture that ``image`` returned last."""
        message = self._message
        assert message is not None
        return np.frombuffer(message.raw_data, np.uint8).reshape(message.height, message.width, 4)

    def planes(self, frame: int, channels: Channels) -> Planes:
        """Return the picture of ``frame`` as (1, height, width) grey, or (3, height, width) red, green and blue."""
        image = self.image(frame)
        if channels == "grey":
            return np.asarray(cv2.cvtColor(image, cv2.COLOR_BGRA2GRAY), np.uint8)[None]
        return np.ascontiguousarray(np.moveaxis(image[..., 2::-1], 2, 0))

    def destroy(self) -> None:
        """Receive the last image, stop the sensor and destroy it."""
        time.sleep(QUIET_BEFORE_STOP_S)
        self.actor.stop()
        self._session.destroy([self.actor])

    def wait_for_first(self) -> int:
        """Tick until a tick's own image arrives (the first may be sent before the subscription, 2.6); return its frame.

        Raises:
            SimulatorLost: no image in ``FIRST_IMAGE_TICKS`` ticks.
        """
        for _ in range(FIRST_IMAGE_TICKS):
            frame = self._session.tick()
            try:
                while self._arrivals.get(timeout=0.5).frame < frame:
                    pass
            except queue.Empty:
                continue
            return frame
        raise SimulatorLost(f"The camera sent no image in {FIRST_IMAGE_TICKS} ticks.")


@dataclass(frozen=True)
class Collision:
    """A contact: the other actor, and the frame."""

    frame: int
    kind: str
    """``vehicle``, ``pedestrian`` or ``static``: the driving score has a penalty for each."""
    other_id: int = 0
    impulse_ns: float = 0.0
    """Newton seconds."""


class SensorRig:
    """The agent's sensors on one car: cameras, collision, lane invasion. They survive teleports of the car."""

    def __init__(self, session: Session, car: Any, config: CameraConfig) -> None:
        self._session, self._config = session, config
        self._collisions: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self._invasions: queue.SimpleQueue[Any] = queue.SimpleQueue()
        # Collision before camera: a simulator publishes in this order, so an image follows its frame's collisions.
        events = [
            self._listen(car, "sensor.other.collision", self._collisions),
            self._listen(car, "sensor.other.lane_invasion", self._invasions),
        ]
        self._lanes = events[1]
        self._views = [(self._camera(car, view, config.width, config.height), view.channels) for view in config.views]
        self._all = [*events, *(camera.actor for camera, _ in self._views)]
        self._added: list[FrameCamera] = []
        self._ids = [sensor.id for sensor in self._all]
        for camera, _ in self._views:
            camera.wait_for_first()

    def picture(self, frame: int) -> Planes:
        """Return the (planes, height, width) picture of ``frame``, with the planes of all views in order."""
        views = [camera.planes(frame, channels) for camera, channels in self._views]
        for camera in self._added:
            camera.image(frame)
        return views[0] if len(views) == 1 else np.concatenate(views)

    def are_in(self, snapshot: Any) -> bool:
        """Return whether a frame has all sensors: without its sensor, a collision would be missed."""
        return all(map(snapshot.has_actor, self._ids))

    @property
    def newest(self) -> NDArray[np.uint8]:
        """The front camera's newest image, (height, width, 4) BGRA."""
        return self._views[0][0].last

    def add_view(self, car: Any, pixels: int) -> FrameCamera:
        """Add another camera to the car, with the front view's place and lens; that takes ticks.

        Each frame then waits for its picture too, and it is stopped and destroyed with the others.

        Args:
            pixels: width and height of its pictures.

        Raises:
            SimulatorLost: the simulator doesn't answer, or sends no picture.
        """
        with self._session.answered():
            camera = self._camera(car, self._config, pixels, pixels)
        camera.wait_for_first()
        self._added.append(camera)
        self._all.append(camera.actor)
        return camera

    def collisions(self, after_frame: int) -> list[Collision]:
        """Return the contacts after ``after_frame`` since the last call; call it after the frame's image."""
        return [_collision(event) for event in _drained(self._collisions) if event.frame > after_frame]

    def lane_invasions(self, after_frame: int) -> int:
        """Return the number of lane lines crossed after ``after_frame`` since the last call."""
        return sum(event.frame > after_frame for event in _drained(self._invasions))

    def watch_lanes(self, watched: bool) -> None:
        """Record lane invasions from now on, or no longer; the simulator isn't called."""
        if watched and not self._lanes.is_listening():
            self._lanes.listen(self._invasions.put)
        elif not watched and self._lanes.is_listening():
            self._lanes.stop()

    def stop(self) -> None:
        """Receive each sensor's last image and stop it.

        Also on a lost simulator: the streams would otherwise reconnect to the next one (3.2).
        """
        time.sleep(QUIET_BEFORE_STOP_S)
        for sensor in self._all:
            sensor.stop()

    def destroy(self) -> None:
        """Stop every sensor, then destroy them all; the car may be destroyed after this."""
        self.stop()
        self._session.destroy(self._all)

    def _camera(self, car: Any, view: CameraConfig | NarrowConfig, width: int, height: int) -> FrameCamera:
        where = carla.Location(x=self._config.x_m, z=self._config.z_m)
        pose = carla.Transform(where, carla.Rotation(pitch=view.pitch_deg, yaw=view.yaw_deg))
        return FrameCamera(self._session, car, pose, width=width, height=height, fov_deg=view.fov_deg)

    def _listen(self, car: Any, name: str, arrivals: queue.SimpleQueue[Any]) -> Any:
        sensor = self._session.world.spawn_actor(
            _blueprint(self._session.world, name), carla.Transform(), attach_to=car
        )
        sensor.listen(arrivals.put)
        return sensor


def _blueprint(world: Any, name: str) -> Any:
    blueprint = world.get_blueprint_library().find(name)
    if blueprint.has_attribute("role_name"):
        blueprint.set_attribute("role_name", f"{ROLE_PREFIX}sensor")
    return blueprint


def _drained(arrivals: queue.SimpleQueue[Any]) -> list[Any]:
    return [arrivals.get_nowait() for _ in range(arrivals.qsize())]


def _collision(event: Any) -> Collision:
    other = event.other_actor
    kind = {"vehicle": "vehicle", "walker": "pedestrian"}.get(other.type_id.split(".", 1)[0], "static")
    return Collision(event.frame, kind, other.id, event.normal_impulse.length())
