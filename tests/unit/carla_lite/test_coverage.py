"""The declared coverage agrees with the client's calls, with the attributes that the code reads, and with refusals."""

from __future__ import annotations

import json
import mmap
import random
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import carla
import pytest

import carla_lite.methods  # noqa: F401  (enters all methods and kinds of actors)
from carla_lite import coverage
from carla_lite.actors import physics_control
from carla_lite.actors.actor import KINDS, Identity
from carla_lite.blueprints.catalogue import CATALOGUE
from carla_lite.blueprints.sensors import REFUSED
from carla_lite.coverage import CLIENT_CALLS, Kind
from carla_lite.maps import Maps
from carla_lite.methods import commands, table
from carla_lite.protocol import wire
from carla_lite.protocol.channel import listen
from carla_lite.protocol.streams import Streams
from carla_lite.scenery import daylight
from carla_lite.scenery.camera import Pose
from carla_lite.support import Status
from carla_lite.world import World

ROWS = coverage.rows()
READ_BY_CLIENTS = {"role_name", "speed"}
"""Attributes that CARLA's server doesn't act on either: clients read them back."""


@pytest.fixture(scope="module")
def world() -> Iterator[World]:
    with listen("127.0.0.1", 0) as listener:
        yield World(Streams(listener), Maps("Lite01"))


def test_each_call_is_in_the_clients_binary() -> None:
    (binary,) = Path(carla.__file__).parent.glob("libcarla*.so")
    with binary.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as found:
        assert [name for name in sorted(CLIENT_CALLS) if found.find(f"{name}\0".encode()) < 0] == []
        assert found.find(b"load_new_planet\0") < 0


def test_no_call_of_the_client_is_absent() -> None:
    assert [row.name for row in ROWS if row.status is Status.ABSENT] == []
    calls = {row.name for row in ROWS if row.kind is Kind.CALL}
    assert calls - CLIENT_CALLS == {"set_walker_state", "console_command"}  # commands of apply_batch only
    assert set(commands._COMMANDS.values()) <= calls


def test_all_but_what_works_says_how_or_why() -> None:
    assert {row.status for row in ROWS if not row.how} == {Status.WORKS}
    assert {row.status for row in ROWS} == set(Status) - {Status.ABSENT}
    assert len({(row.kind, row.name) for row in ROWS}) == len(ROWS)


def test_a_blueprint_has_a_class_or_a_reason() -> None:
    assert set(CATALOGUE) - set(KINDS) == set(REFUSED)


@pytest.mark.parametrize(
    ("names", "struct"),
    [
        (physics_control.FIGURES, carla.VehiclePhysicsControl),
        (physics_control.WHEEL_FIGURES, carla.WheelPhysicsControl),
        (daylight.SHOWN, carla.WeatherParameters),
        (wire.SETTINGS, carla.WorldSettings),
    ],
)
def test_fields_are_those_of_the_clients_struct(names: dict[str, Any], struct: type) -> None:
    assert set(names) == {name for name in vars(struct) if isinstance(vars(struct)[name], property)}


@pytest.mark.parametrize("row", [row for row in ROWS if row.kind is Kind.CALL and row.status is Status.REFUSED])
def test_a_refused_call_is_answered_by_its_reason(world: World, row: coverage.Row) -> None:
    assert table.answer(world, row.name, [1, 2]) == table.failure(row.how)
    assert world.unsupported[row.name] > 0


@pytest.mark.parametrize("force", [False, True])
def test_a_push_beside_the_centre_turns_by_its_lever(world: World, force: bool) -> None:
    point = world.network.spawn_points()[3]
    car: Any = world.spawn("vehicle.tesla.model3", {}, Pose(point.x, point.y, point.z, 0.0, point.yaw))
    name = "add_actor_force_at_location" if force else "add_actor_impulse_at_location"
    size = 400.0 / (world.settings.physics_s if force else 1.0)
    table.call(world, name, [car.id, [size, 0.0, 0.0], [point.x, point.y + 2.0, point.z]])
    assert car.body.world_velocity()[0] == pytest.approx(400.0 / car.body.model.mass_kg)
    # Unreal's yaw grows from x to y, to the right: pushed ahead at its right, a car turns to the left.
    assert car.body.yaw_rate == pytest.approx(-2.0 * 400.0 / car.body.model.yaw_inertia_kgm2)
    world.destroy(car.id)


class Noting(dict[str, str]):
    """Attributes that note which of them are read."""

    def __init__(self, values: dict[str, str]) -> None:
        super().__init__(values)
        self.read: set[str] = set()

    def __getitem__(self, name: str) -> str:
        self.read.add(name)
        return super().__getitem__(name)

    def get(self, name: str, default: Any = None) -> Any:
        self.read.add(name)
        return super().get(name, default)


@pytest.mark.parametrize(
    "name", [*(name for name in KINDS if name.startswith("sensor.")), *random.Random(7).sample([*KINDS], 20)]
)
def test_an_attribute_is_read_or_says_that_it_has_no_effect(world: World, name: str) -> None:
    blueprint = CATALOGUE[name]
    noting = Noting(blueprint.values({}))
    actor = KINDS[name](Identity(1, blueprint, noting, None), Pose(0.0, 0.0, 5.0))
    for reading in ("lat", "lon", "alt", "accel_x", "accel_y", "accel_z", "gyro_x", "gyro_y", "gyro_z"):
        if hasattr(actor, "noisy"):
            actor.noisy(0.0, reading)
    for attribute in blueprint.attributes:
        if attribute.modifiable and attribute.id not in READ_BY_CLIENTS and name != "sensor.other.lane_invasion":
            assert (attribute.id in noting.read) is not bool(attribute.unused), attribute.id


def changed(value: Any) -> Any:
    """Return a figure of another value."""
    if isinstance(value, bool):
        return not value
    if isinstance(value, float | int):
        return 1.5 * value + 3.0
    return [changed(each) for each in value]


def test_a_figure_changes_the_model_or_says_that_it_has_no_effect(world: World) -> None:
    point = world.network.spawn_points()[0]
    car: Any = world.spawn("vehicle.tesla.model3", {}, Pose(point.x, point.y, point.z, 0.0, point.yaw))
    built, figures = car.body.model, car.figures
    plain = physics_control.applied(built, figures)
    wheels = list(physics_control.FIGURES).index("wheels")
    for place, (name, unused) in enumerate(physics_control.FIGURES.items()):
        other = [*figures[:place], changed(figures[place]), *figures[place + 1 :]]
        assert (physics_control.applied(built, other) == plain) is bool(unused), name
    for place, (name, unused) in enumerate(physics_control.WHEEL_FIGURES.items()):
        given = [[*wheel[:place], changed(wheel[place]), *wheel[place + 1 :]] for wheel in figures[wheels]]
        other = [*figures[:wheels], given, *figures[wheels + 1 :]]
        assert (physics_control.applied(built, other) == plain) is bool(unused), name


def test_the_command_prints_every_row_as_json() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "carla_lite", "coverage", "--json"], capture_output=True, text=True, check=True
    )
    told = json.loads(done.stdout)
    assert [(row["kind"], row["name"], row["status"], row["how"]) for row in told["rows"]] == [
        (row.kind, row.name, row.status, row.how) for row in ROWS
    ]
    assert sum(sum(counts.values()) for counts in told["counts"].values()) == len(ROWS)


def test_the_report_names_all_that_does_not_just_work() -> None:
    report = coverage.report(ROWS)
    for row in ROWS:
        if row.status is not Status.WORKS:
            assert row.how in report
    assert "vehicle.*: terramechanics" in report
    assert "static.prop.mesh: mesh_path, mass, scale" in report
