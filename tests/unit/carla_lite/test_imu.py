"""The inertial measurement unit measures the same in a server that has run for longer."""

from __future__ import annotations

import pytest

from carla_lite.actors.actor import Identity
from carla_lite.actors.sensors.navigation import Imu
from carla_lite.blueprints.catalogue import CATALOGUE
from carla_lite.scenery.camera import Pose


def felt(frames_before: int) -> list[tuple[float, float, float]]:
    """Return the accelerations of a sensor that rises and turns, in a server that made frames before."""
    blueprint = CATALOGUE["sensor.other.imu"]
    imu, elapsed_s, found = Imu(Identity(1, blueprint, blueprint.values({})), Pose(0, 0, 0)), 0.0, []
    for _ in range(frames_before):
        elapsed_s += 0.05
    for step in range(60):
        elapsed_s += 0.05
        found.append(imu._acceleration(elapsed_s, (0.3 * step, 0.01 * step * step, 0.7 + 0.1 * step)))
    return found


@pytest.mark.parametrize("frames_before", [1, 2, 7, 1000])
def test_no_digit_depends_on_the_servers_age(frames_before: int) -> None:
    assert felt(frames_before) == felt(0)
    assert felt(0)[-1][1] == pytest.approx(2 * 0.01 / 0.05**2)
