"""Methods, blueprints, sensors and faults are found by name: a second one of a name is an error when it is imported."""

from __future__ import annotations

import pytest

from carla_lite.actors.actor import KINDS, Actor, register
from carla_lite.actors.sensors.camera import RgbCamera
from carla_lite.blueprints.blueprint import Blueprint
from carla_lite.blueprints.catalogue import CATALOGUE, library
from carla_lite.faults.kinds import Crash, Hang, by_kind
from carla_lite.methods import table
from carla_lite.methods.episode import version
from carla_lite.world import World


def test_a_second_method_of_a_name_is_refused() -> None:
    def another(_: World) -> str:
        return "another"

    another.__name__ = "version"
    with pytest.raises(ValueError, match=r"RPC method version of .* is in carla_lite.methods.episode already"):
        table.method(another)
    assert table._METHODS["version"].function is version


def test_two_blueprints_of_one_id_are_refused() -> None:
    with pytest.raises(ValueError, match=r"blueprint sensor\.camera\.rgb is in the catalogue already"):
        library([Blueprint("sensor.camera.rgb"), Blueprint("sensor.camera.rgb")])


# An attribute and its default of each (ActorBlueprintFunctionLibrary.cpp).
SENSORS = {
    "sensor.camera.cosmos_visualization": ("fov", "90.0"),
    "sensor.camera.depth": ("image_size_x", "800"),
    "sensor.camera.dvs": ("positive_threshold", "0.3"),
    "sensor.camera.instance_segmentation": ("lens_k", "-1.0"),
    "sensor.camera.normals": ("lens_circle_falloff", "5.0"),
    "sensor.camera.optical_flow": ("image_size_y", "600"),
    "sensor.camera.rgb": ("exposure_mode", "histogram"),
    "sensor.camera.semantic_segmentation": ("sensor_tick", "0.0"),
    "sensor.lidar.ray_cast": ("dropoff_general_rate", "0.45"),
    "sensor.lidar.ray_cast_semantic": ("points_per_second", "56000"),
    "sensor.other.collision": ("role_name", "front"),
    "sensor.other.gnss": ("noise_alt_bias", "0.0"),
    "sensor.other.imu": ("role_name", "default"),
    "sensor.other.lane_invasion": ("role_name", "front"),
    "sensor.other.obstacle": ("hit_radius", "0.5"),
    "sensor.other.radar": ("points_per_second", "1500"),
    "sensor.other.rss": ("role_name", "front"),
    "sensor.other.v2x": ("path_loss_model", "winner"),
    "sensor.other.v2x_custom": ("scenario", "highway"),
}


def test_the_library_has_every_sensor_of_carla_0_9_16() -> None:
    assert {name for name in CATALOGUE if name.startswith("sensor.")} == set(SENSORS)
    for name, (attribute, default) in SENSORS.items():
        assert CATALOGUE[name].values({})[attribute] == default


@pytest.mark.parametrize(
    ("name", "sentence"),
    [("sensor.camera.rgb", "is a RgbCamera already"), ("sensor.camera.rgc", "isn't in the catalogue")],
)
def test_a_blueprint_has_a_row_and_one_class(name: str, sentence: str) -> None:
    with pytest.raises(ValueError, match=f"blueprint {name} .*{sentence}"):
        register(Actor, name)
    assert KINDS["sensor.camera.rgb"] is RgbCamera


def test_two_faults_of_one_kind_are_refused() -> None:
    class Again(Hang):
        """One more that hangs."""

    assert list(by_kind((Crash, Hang))) == ["crash", "hang"]
    with pytest.raises(ValueError, match="Again and Hang are both of the kind hang"):
        by_kind((Crash, Hang, Again))
