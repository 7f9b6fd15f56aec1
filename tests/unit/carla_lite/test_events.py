"""The event camera's simulation: thresholds, times between two pictures, and the time that a pixel sleeps."""

from __future__ import annotations

import numpy as np
import pytest

from carla_lite.actors.actor import Identity
from carla_lite.actors.sensors.events import EventCamera
from carla_lite.blueprints.catalogue import find
from carla_lite.protocol.wire import RpcError
from carla_lite.scenery.projection import Pose


def camera(**attributes: str) -> EventCamera:
    """Return a camera of two pixels that has seen a picture of zeros after one second."""
    blueprint = find("sensor.camera.dvs")
    given = {"image_size_x": "2", "image_size_y": "1", **attributes}
    made = EventCamera(Identity(1, blueprint, blueprint.values(given)), Pose(0.0, 0.0, 0.0))
    assert not len(made.events(np.zeros(2), 1.0))
    return made


def events(of: EventCamera, brightness: tuple[float, float], at_s: float) -> list[tuple[int, float, bool]]:
    """Return column, second to the millisecond, and whether it rises, of each event."""
    seen = of.events(np.array(brightness), at_s)
    assert (seen["y"] == 0).all()
    return [(int(one["x"]), round(one["t"] / 1e9, 3), bool(one["positive"])) for one in seen]


def test_each_threshold_that_is_crossed_is_an_event_at_its_time():
    assert events(camera(), (1.0, -0.7), 2.0) == [
        (0, 1.3, True),
        (1, 1.429, False),
        (0, 1.6, True),
        (1, 1.857, False),
        (0, 1.9, True),
    ]


def test_what_is_left_below_a_threshold_counts_on():
    one = camera()
    assert events(one, (0.25, 0.0), 2.0) == []
    assert events(one, (0.35, 0.0), 3.0) == [(0, 2.5, True)]
    assert events(one, (0.35, 0.0), 4.0) == []
    assert events(one, (-0.05, 0.0), 5.0) == [(0, 4.875, False)]


def test_a_pixel_sleeps_for_its_refractory_period():
    assert events(camera(refractory_period_ns="400000000"), (1.0, 0.0), 2.0) == [(0, 1.3, True), (0, 1.9, True)]


@pytest.mark.parametrize(("name", "value"), [("positive_threshold", "0"), ("log_eps", "0"), ("fov", "200")])
def test_what_would_give_events_without_end_is_refused(name: str, value: str):
    with pytest.raises(RpcError, match=f"{name} is {value}, expected a number from"):
        camera(**{name: value})
