"""The real client against a real server: lidars, checked by closed forms."""

from __future__ import annotations

import math
import queue
from dataclasses import dataclass
from typing import Any

import carla
import numpy as np
import pytest

from tests.wire.conftest import WAIT_S, Session

ONE_SERVER = True

ROAD, SIDEWALK, CAR, TERRAIN, LINE = 1, 2, 14, 10, 24
_KEPT = {"dropoff_general_rate": "0", "dropoff_zero_intensity": "0"}
_POINT = np.dtype([("x", "f4"), ("y", "f4"), ("z", "f4"), ("cos", "f4"), ("id", "u4"), ("tag", "u4")])


@dataclass
class Lidar:
    """A listening lidar; each tick gives one measurement."""

    session: Session
    sensor: carla.Sensor
    measured: queue.Queue[Any]

    @classmethod
    def at(
        cls, session: Session, where: carla.Transform, parent: Any = None, name: str = "_semantic", **attributes: str
    ) -> Lidar:
        blueprint = session.blueprint(f"sensor.lidar.ray_cast{name}", **attributes)
        lidar = cls(session, session.world.spawn_actor(blueprint, where, parent), queue.Queue())
        session.sensors.append(lidar.sensor)
        lidar.sensor.listen(lidar.measured.put)
        return lidar

    def tick(self) -> Any:
        frame = self.session.world.tick()
        while (measured := self.measured.get(timeout=WAIT_S)).frame < frame:
            pass
        return measured

    def points(self) -> Any:
        """Return the points of a tick, one record each."""
        measured = self.tick()
        return np.frombuffer(measured.raw_data, _POINT).copy()

    def shaded(self) -> Any:
        """Return the points of a tick (n, 4) of a lidar with intensities."""
        measured = self.tick()
        return np.frombuffer(measured.raw_data, np.float32).reshape(-1, 4).copy()


def turn_a_tick(**attributes: str) -> dict[str, str]:
    """Return attributes of a lidar that turns once in a tick of 0.05 s."""
    return {"rotation_frequency": "20", "range": "100", **attributes}


def above(session: Session, high_m: float, ahead_m: float = 0.0) -> carla.Transform:
    """Return a level place above the road at the first spawn point."""
    where = session.world.get_map().get_waypoint(session.world.get_map().get_spawn_points()[0].location).transform
    where.location += carla.Location(where.get_forward_vector() * ahead_m) + carla.Location(z=high_m)
    return where


def test_the_ground_is_as_far_below_as_the_sensor_is_high(session):
    lidar = Lidar.at(session, above(session, 8.0), **turn_a_tick(channels="16", upper_fov="-20", lower_fov="-80"))
    points = lidar.points()
    ground = points[np.isin(points["tag"], (ROAD, SIDEWALK, TERRAIN, LINE))]
    assert len(ground) > 500
    assert (points["tag"] == ROAD).sum() > 100
    assert ground["z"] == pytest.approx(np.full(len(ground), -8.0), abs=2e-3)
    away = np.sqrt(ground["x"] ** 2 + ground["y"] ** 2 + ground["z"] ** 2)
    assert ground["cos"] == pytest.approx(8.0 / away, abs=1e-4)
    assert not ground["id"].any()


def test_channels_look_at_their_angles_the_upper_first(session):
    angles = turn_a_tick(channels="4", upper_fov="-30", lower_fov="-60", points_per_second="16000")
    lidar = Lidar.at(session, above(session, 4.0), **angles)
    measured = lidar.tick()
    points = np.frombuffer(measured.raw_data, _POINT)
    assert measured.channels == 4
    assert [measured.get_point_count(channel) for channel in range(4)] == [200] * 4
    below = np.degrees(np.arctan2(points["z"], np.hypot(points["x"], points["y"]))).reshape(4, 200)
    assert below == pytest.approx(np.repeat([[-30.0], [-40.0], [-50.0], [-60.0]], 200, axis=1), abs=1e-2)
    around = np.degrees(np.arctan2(points["y"], points["x"])).reshape(4, 200)
    assert around[:, 1:] == pytest.approx(np.tile(-180.0 + 1.8 * np.arange(1, 200), (4, 1)), abs=1e-2)


def test_a_sweep_goes_on_where_the_last_one_ended(session):
    quarter = {"rotation_frequency": "5", "channels": "1", "upper_fov": "-45", "points_per_second": "1800"}
    lidar = Lidar.at(session, above(session, 5.0), **quarter)
    for turn in range(1, 6):
        measured = lidar.tick()
        points = np.frombuffer(measured.raw_data, _POINT)
        around = np.degrees(np.arctan2(points["y"], points["x"])) % 360.0
        first = -180.0 + 90.0 * (turn - 1)
        assert math.remainder(float(around[0]) - first, 360.0) == pytest.approx(0.0, abs=0.01)
        assert len(points) == 90
        assert math.remainder(math.degrees(measured.horizontal_angle) - 90.0 * turn, 360.0) == pytest.approx(
            0.0, abs=0.01
        )


def test_a_narrow_view_looks_ahead(session):
    narrow = turn_a_tick(horizontal_fov="60", channels="1", upper_fov="-45", points_per_second="2000")
    points = Lidar.at(session, above(session, 5.0), **narrow).points()
    around = np.degrees(np.arctan2(points["y"], points["x"]))
    assert around.min() == pytest.approx(-30.0, abs=0.1)
    assert around.max() == pytest.approx(29.4, abs=0.1)


def test_a_car_is_where_it_stands_and_has_its_id_and_label(session):
    car = session.car(ahead_m=20.0)
    session.ticks(20)  # it is put down from above
    level = turn_a_tick(channels="1", upper_fov="0", lower_fov="0", horizontal_fov="2", points_per_second="400")
    points = Lidar.at(session, above(session, 0.5), **level).points()
    hit = points[points["id"] == car.id]
    assert len(hit) == len(points) == 20
    assert set(hit["tag"].tolist()) == {CAR}
    box = car.bounding_box
    assert hit["x"] == pytest.approx(np.full(20, 20.0 - box.extent.x), abs=0.15)
    assert (hit["cos"] > 0.9).all()


def test_what_moves_is_found_where_it_is_now(session):
    car = session.car(ahead_m=10.0)
    session.ticks(20)
    level = turn_a_tick(channels="1", upper_fov="0", lower_fov="0", horizontal_fov="1", points_per_second="400")
    lidar = Lidar.at(session, above(session, 0.5), **level)
    before = lidar.points()["x"].mean()
    ahead = car.get_transform().get_forward_vector()
    car.set_location(car.get_location() + carla.Location(ahead * 7.0))
    assert lidar.points()["x"].mean() == pytest.approx(before + 7.0, abs=0.05)
    car.destroy()
    assert car.id not in lidar.points()["id"]


def test_a_lidar_sees_its_own_roof_from_above_only(session):
    car = session.car()
    session.world.tick()
    down = turn_a_tick(channels="32", upper_fov="-10", lower_fov="-90", points_per_second="64000")
    on_top = Lidar.at(session, carla.Transform(carla.Location(z=2.4)), car, **down)
    inside = Lidar.at(session, carla.Transform(carla.Location(z=0.8)), car, **down)
    seen = on_top.points()
    own = seen[seen["id"] == car.id]
    assert len(own) > 100
    assert own["z"].max() < 0.0
    # Faces are met from outside only, as by PhysX: from inside the car is as if it weren't there.
    measured = inside.tick()
    assert car.id not in np.frombuffer(measured.raw_data, _POINT)["id"]


def test_range_ends_what_is_seen(session):
    lidar = Lidar.at(session, above(session, 5.0), **turn_a_tick(range="4.9", channels="8", lower_fov="-90"))
    assert len(lidar.points()) == 0


def test_points_follow_a_sensor_that_is_pitched_and_rolled(session):
    where = above(session, 6.0)
    where.rotation.pitch, where.rotation.roll = -20.0, 15.0
    lidar = Lidar.at(session, where, **turn_a_tick(channels="8", upper_fov="-40", lower_fov="-80"))
    points = lidar.points()
    ground = points[points["tag"] == ROAD]
    assert len(ground) > 50
    for point in ground[:: max(1, len(ground) // 20)]:
        x, y, z = (float(point[axis]) for axis in "xyz")
        assert where.transform(carla.Location(x, y, z)).z == pytest.approx(where.location.z - 6.0, abs=5e-3)


def test_intensity_falls_with_the_distance(session):
    lidar = Lidar.at(
        session,
        above(session, 8.0),
        name="",
        **turn_a_tick(channels="16", lower_fov="-60"),
        **_KEPT,
        atmosphere_attenuation_rate="0.05",
    )
    points = lidar.shaded()
    away = np.sqrt((points[:, :3] ** 2).sum(axis=1))
    assert len(points) > 500
    assert points[:, 3] == pytest.approx(np.exp(-0.05 * away), abs=1e-5)


def test_a_share_of_the_rays_is_lost_at_random(session):
    counts = turn_a_tick(channels="32", upper_fov="-20", lower_fov="-80", points_per_second="640000")
    everything = {"dropoff_zero_intensity": "0", "atmosphere_attenuation_rate": "0"}
    lidar = Lidar.at(session, above(session, 5.0), name="", **counts, **everything, dropoff_general_rate="0.45")
    kept = len(lidar.shaded()) / 32_000
    assert kept == pytest.approx(0.55, abs=5.0 * math.sqrt(0.55 * 0.45 / 32_000))


def test_weak_points_are_lost_as_their_intensity_says(session):
    # At 10 m, e^-1; below the limit of 0.8 the chance is 1 - 0.4 + 0.4 / 0.8 of the intensity.
    down = turn_a_tick(channels="1", upper_fov="-90", lower_fov="-90", points_per_second="400000")
    lidar = Lidar.at(
        session,
        above(session, 10.0),
        name="",
        **down,
        dropoff_general_rate="0",
        atmosphere_attenuation_rate="0.1",
        dropoff_zero_intensity="0.4",
        dropoff_intensity_limit="0.8",
    )
    chance = 0.6 + 0.5 * math.exp(-1.0)
    assert len(lidar.shaded()) / 20_000 == pytest.approx(chance, abs=5.0 * math.sqrt(chance * (1.0 - chance) / 20_000))


def test_noise_lies_along_the_rays(session):
    down = turn_a_tick(channels="1", upper_fov="-90", lower_fov="-90", points_per_second="100000")
    lidar = Lidar.at(session, above(session, 5.0), name="", **down, **_KEPT, noise_stddev="0.2")
    points = lidar.shaded()
    assert points[:, 2].mean() == pytest.approx(-5.0, abs=5 * 0.2 / math.sqrt(5000))
    assert points[:, 2].std() == pytest.approx(0.2, rel=0.1)
    assert abs(points[:, :2]).max() < 1e-5


def test_the_same_seed_gives_the_same_bytes(session):
    def bytes_of(seed: str) -> list[bytes]:
        lidar = Lidar.at(session, above(session, 5.0), name="", channels="8", noise_stddev="0.1", noise_seed=seed)
        return [bytes(lidar.tick().raw_data) for _ in range(3)]

    first = bytes_of("7")
    assert bytes_of("7") == first
    assert bytes_of("8") != first


@pytest.mark.parametrize(
    ("attribute", "value", "expected"),
    [
        ("channels", "0", "from 1.0 to"),
        ("range", "-1", "from 0.0"),
        ("horizontal_fov", "0", "from 0.001 to 360.0"),
        ("rotation_frequency", "1e9", "from 0.0 to"),
        ("upper_fov", "nan", "from -360.0 to"),
    ],
)
def test_a_lidar_that_makes_no_sense_is_refused(session, attribute, value, expected):
    blueprint = session.blueprint("sensor.lidar.ray_cast", **{attribute: value})
    with pytest.raises(RuntimeError, match=f"{attribute} is {value}.*, expected a number {expected}"):
        session.world.spawn_actor(blueprint, carla.Transform())


def test_fewer_points_than_channels_are_no_error(session):
    assert len(Lidar.at(session, above(session, 5.0), channels="32", points_per_second="100").points()) == 0


def test_another_server_gives_the_same_bytes(start_server, connect):
    def measured() -> list[bytes]:
        session = connect(start_server())
        session.car(ahead_m=12.0)
        session.ticks(5)
        lidars = [
            Lidar.at(session, above(session, 2.4), name=name, channels="64", range="80") for name in ("", "_semantic")
        ]
        return [bytes(lidar.tick().raw_data) for lidar in lidars]

    assert measured() == measured()
