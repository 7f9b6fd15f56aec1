"""The real client on maps of a folder, and on CARLA's own road networks, where they are at hand."""

from __future__ import annotations

import carla
import pytest

from carla_lite.maps import Maps
from carla_lite.towns import generator
from tests.conftest import REPOSITORY
from tests.faults import run

MAPS = REPOSITORY.parent / "shared" / "maps"


@pytest.fixture
def map_dir(tmp_path):
    """A folder with two maps under the names of CARLA's towns."""
    for town, generated in (("Town01", "Lite01"), ("Town02", "Lite02")):
        (tmp_path / f"{town}.xodr").write_text(generator.generate(generated), encoding="utf-8")
    return tmp_path


@pytest.mark.parametrize("first", ["Town01", "/Game/Carla/Maps/Town01", "Town01_Opt", "Lite01"])
def test_a_folders_maps_load_by_all_their_names(first, start_server, connect, map_dir):
    session = connect(start_server(map=first, extra=("--map-dir", str(map_dir))))
    assert session.world.get_map().name.rsplit("/", 1)[-1] == first.rsplit("/", 1)[-1]
    towns = ("Town01", "Town02", "Town01_Opt", "Town02_Opt")
    assert {f"/Game/Carla/Maps/{name}" for name in (*towns, "Lite01", "Lite02")} == set(
        session.client.get_available_maps()
    )
    for name in ("Town02_Opt", "/Game/Carla/Maps/Town02", "Carla/Maps/Town01_Opt", "Lite02"):
        world = session.client.load_world(name)
        assert world.get_map().name == f"Carla/Maps/{name.rsplit('/', 1)[-1]}"
        assert len(world.get_map().get_spawn_points()) >= 20
    with pytest.raises(RuntimeError, match=r"this server has no map Town07, expected one of .*Town01"):
        session.client.load_world("Town07")


def test_a_file_with_opt_in_its_name_is_the_same_map(tmp_path):
    """CARLA names an .xodr file after its map, ``_Opt`` included."""
    for file, generated in (("Town01_Opt", "Lite01"), ("Town02", "Lite01"), ("Town02_Opt", "Lite02")):
        (tmp_path / f"{file}.xodr").write_text(generator.generate(generated), encoding="utf-8")
    path = str(tmp_path / "Town01_Opt.xodr")
    for maps in (Maps("Town01_Opt", tmp_path), Maps(path)):
        assert maps.first.name == "Town01_Opt"
        assert {"Town01", "Town01_Opt"} <= set(maps.names)
        assert len(set(maps.names)) == len(maps.names)
        for name in ("Town01", "/Game/Carla/Maps/Town01_Opt"):
            assert maps.load(name).name == name.rsplit("/", 1)[-1]
    assert Maps("Lite01", tmp_path).load("Town02_Opt").xodr == generator.generate("Lite01")


def test_a_folder_without_maps_is_named(tmp_path):
    ended = run("--map-dir", str(tmp_path))
    assert ended.returncode == 65
    assert ended.stderr.count("\n") == 1
    assert str(tmp_path) in ended.stderr


def test_a_town_from_a_seed_loads_by_its_name(start_server, connect):
    session = connect(start_server(map="Lite:seed=7,size=200"))
    assert session.world.get_map().name == "Carla/Maps/Lite:seed=7,size=200"
    for name in ("Lite:seed=8,size=200", "/Game/Carla/Maps/Lite:seed=7,size=200"):
        town = session.client.load_world(name).get_map()
        assert town.name == f"Carla/Maps/{name.rsplit('/', 1)[-1]}"
        assert town.to_opendrive() == generator.generate(name.rsplit("/", 1)[-1])
        assert len(town.get_crosswalks()) >= 50
        assert {landmark.type for landmark in town.get_all_landmarks()} >= {"1000001", "274"}
    with pytest.raises(RuntimeError, match=r"has no map Lite:seed=7,size=9, expected .*Lite:seed=NUMBER,size=METRES"):
        session.client.load_world("Lite:seed=7,size=9")


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
