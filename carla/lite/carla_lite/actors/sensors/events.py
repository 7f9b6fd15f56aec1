"""The event camera (dynamic vision sensor): which pixels' brightness crossed a threshold, and when.

As in CARLA (DVSCamera.cpp, after the simulator ESIM): brightness changes evenly between two pictures. Owns the state of
each pixel between them.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from carla_lite.actors.actor import Identity, register
from carla_lite.actors.sensor import Message, TickSnapshot
from carla_lite.actors.sensors.camera import Viewer
from carla_lite.roads.reference_line import FloatArray
from carla_lite.scenery.camera import Pose
from carla_lite.support import Support, approximated

_EVENT = np.dtype([("x", "<u2"), ("y", "<u2"), ("t", "<i8"), ("positive", "u1")])
_LEAST_CONTRAST, _TOLERANCE = 0.01, 1e-6
_GREY = 0.114, 0.587, 0.2989  # of blue, green and red
_NS = 1e9


class EventCamera(Viewer):
    """Sends the events since the last picture, ordered by time; no message without events."""

    kind: ClassVar[int] = 3
    support: ClassVar[Support] = approximated("events are of carla-lite's pictures, whose surfaces have no texture")

    def __init__(self, identity: Identity, place: Pose) -> None:
        super().__init__(identity, place)
        self._thresholds = self.number("positive_threshold", 0.001), self.number("negative_threshold", 0.001)
        self._sigmas = self.number("sigma_positive_threshold", 0.0), self.number("sigma_negative_threshold", 0.0)
        self._refractory_ns = int(self.number("refractory_period_ns", 0.0))
        self._log_eps = self.number("log_eps", 1e-9) if self.attributes["use_log"].lower() in ("true", "1") else 0.0
        self._random = np.random.default_rng(0)
        self._now_ns = 0
        self._last: FloatArray | None = None
        self._crossed: FloatArray = np.zeros(0)
        self._event_ns: NDArray[np.int64] = np.zeros(0, np.int64)

    def messages(self, snapshot: TickSnapshot) -> Iterator[Message]:
        """Yield the events of this snapshot, if there are any."""
        where = self.pose
        look, beaming = self._look(snapshot, where)
        image = self._camera.picture(look, snapshot.conditions, beaming)
        grey = np.add.reduce([share * image[..., part].ravel() for part, share in enumerate(_GREY)])
        events = self.events(np.log(self._log_eps + grey / 255.0) if self._log_eps else grey, snapshot.elapsed_s)
        if len(events):
            yield self.header(snapshot, where), self._image_head, events.tobytes()

    def events(self, brightness: FloatArray, elapsed_s: float) -> NDArray[Any]:
        """Process a picture (pixels,) and return the events since the previous one."""
        began_ns, self._now_ns = self._now_ns, round(elapsed_s * _NS)
        before, self._last = self._last, brightness
        if before is None:
            self._crossed, self._event_ns = brightness.copy(), np.zeros(len(brightness), np.int64)
            return np.zeros(0, _EVENT)
        pixels = np.flatnonzero(np.abs(brightness - before) > _TOLERANCE)
        start, end = before[pixels], brightness[pixels]
        rises = end >= start
        steps = np.where(rises, *self._thresholds) + self._noise(rises)
        steps = np.where(rises, steps, -steps)
        found = []
        crossed = self._crossed[pixels]
        while len(pixels):
            crossed = crossed + steps
            met = np.where(rises, (crossed > start) & (crossed <= end), (crossed < start) & (crossed >= end))
            pixels, start, end, rises = pixels[met], start[met], end[met], rises[met]
            steps, crossed = steps[met], crossed[met]
            times = began_ns + ((crossed - start) / (end - start) * (self._now_ns - began_ns)).astype(np.int64)
            last = self._event_ns[pixels]
            awake = (last == 0) | (times - last >= self._refractory_ns)
            self._event_ns[pixels[awake]] = times[awake]
            self._crossed[pixels] = crossed
            found.append(self._packed(pixels[awake], times[awake], rises[awake]))
        events = np.concatenate(found) if found else np.zeros(0, _EVENT)
        return events[np.argsort(events["t"], kind="stable")]

    def _noise(self, rises: NDArray[np.bool_]) -> FloatArray:
        """Return the noise of each pixel's threshold, which stays above a least contrast."""
        if not any(self._sigmas):
            return np.zeros(len(rises))
        plain = np.where(rises, *self._thresholds)
        noisy = plain + np.where(rises, *self._sigmas) * self._random.standard_normal(len(rises))
        noise: FloatArray = np.maximum(noisy, _LEAST_CONTRAST) - plain
        return noise

    def _packed(self, pixels: NDArray[np.intp], times: NDArray[np.int64], rises: NDArray[np.bool_]) -> NDArray[Any]:
        events = np.zeros(len(pixels), _EVENT)
        events["y"], events["x"] = np.divmod(pixels, self._camera.lens.width)
        events["t"], events["positive"] = times, rises
        return events


register(EventCamera, "sensor.camera.dvs")
