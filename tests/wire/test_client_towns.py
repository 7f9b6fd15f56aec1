"""The real client on CARLA's own road networks, where they are at hand."""

from __future__ import annotations

import carla
import pytest

from tests.conftest import REPOSITORY

MAPS = REPOSITORY.parent / "shared" / "maps"


@pytest.mark.parametrize("town", ["Town01", "Town02"])
def test_carlas_own_towns_load_and_a_car_drives_there(town, start_server, connect):
    path = MAPS / f"{town}.xodr"
    if not path.is_file():
        pytest.skip(f"{town}.xodr is not beside the repository")
    session = connect(start_server(map=str(path)))
    assert session.world.get_map().name.endswith(town)
    car = session.car()
    camera = session.camera(car)
    car.apply_control(carla.VehicleControl(throttle=0.5))
    for _ in range(60):
        frame = session.world.tick()
        assert camera.next().frame == frame
    assert car.get_velocity().length() > 3.0
    assert f"/Game/Carla/Maps/{town}" in session.client.get_available_maps()
