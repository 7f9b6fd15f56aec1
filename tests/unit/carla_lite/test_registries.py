"""Methods, blueprints, sensors and faults are found by name: a second one of a name is an error when it is imported."""

from __future__ import annotations

import pytest

from carla_lite.actors.actor import KINDS, Actor, enter
from carla_lite.actors.sensors.camera import RgbCamera
from carla_lite.blueprints.blueprint import Blueprint
from carla_lite.blueprints.catalogue import library
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


@pytest.mark.parametrize(
    ("name", "sentence"),
    [("sensor.camera.rgb", "is a RgbCamera already"), ("sensor.camera.rgc", "isn't in the catalogue")],
)
def test_a_blueprint_has_a_row_and_one_class(name: str, sentence: str) -> None:
    with pytest.raises(ValueError, match=f"blueprint {name} .*{sentence}"):
        enter(Actor, name)
    assert KINDS["sensor.camera.rgb"] is RgbCamera


def test_two_faults_of_one_kind_are_refused() -> None:
    class Again(Hang):
        """One more that hangs."""

    assert list(by_kind((Crash, Hang))) == ["crash", "hang"]
    with pytest.raises(ValueError, match="Again and Hang are both of the kind hang"):
        by_kind((Crash, Hang, Again))
