"""A lidar of carla-lite: milliseconds of casting, and ticks per second with the real client, which awaits each
measurement.

Cars drive in circles around the ego car, as in ``benchmarks/ticks.py``. Casting is measured in this process, with and
without moving things, on the rays of one step. Run: ``python benchmarks/lidar.py --map Town02.xodr --vehicles 20
--json``.
"""

from __future__ import annotations

import contextlib
import json
import math
import queue
import time
from dataclasses import asdict, dataclass
from typing import Annotated, Any

import carla
import numpy as np
import typer
from lite_server import lite_process, sensor, synchronous
from measuring import leave, machine, rss_mib, spread
from ticks import cars_in_circles, cpu_s

from carla_lite.maps import Maps
from carla_lite.protocol.channel import listen
from carla_lite.protocol.streams import Streams
from carla_lite.protocol.wire import RpcError
from carla_lite.rays.field import Field
from carla_lite.scenery.projection import Pose
from carla_lite.world import World

_DELTA_S, _WAIT_S, _SETTLE_TICKS, _RANGE_M, _HIGH_M = 0.1, 20.0, 20, 100.0, 2.4


@dataclass(frozen=True)
class Figures:
    """The result; rates are median, lowest and highest over the repeats."""

    map: str
    vehicles: int
    channels: int
    points_per_second: int
    ticks: int
    ticks_per_s: dict[str, float]
    server_cpu_us: float
    """Processor time per tick, the lowest of the repeats."""
    points_a_tick: float
    server_rss_mib: dict[str, float]
    """Before the first ray, and at the end."""
    first_ray_s: float
    """Time to build the static things and cast at them once."""
    cast_ms: dict[str, dict[str, float]]
    """One step's rays in this process: at static things only, and at moving ones, too."""
    machine: dict[str, Any]


def main(
    ticks: Annotated[int, typer.Option(min=10, help="Ticks per repeat.")] = 500,
    repeats: Annotated[int, typer.Option(min=1, help="Repeats on one server; the result is their median.")] = 5,
    vehicles: Annotated[int, typer.Option(min=0, max=150, help="Number of other cars.")] = 20,
    channels: Annotated[int, typer.Option(min=1, help="Number of lasers.")] = 64,
    points: Annotated[int, typer.Option(min=1, help="Points per second.")] = 100_000,
    map: Annotated[str, typer.Option(help="Name of a map, or path of an .xodr file.")] = "Lite01",
    as_json: Annotated[bool, typer.Option("--json", help="Print the result as JSON.")] = False,
) -> None:
    """Measure a lidar of carla-lite."""
    first_ray_s, cast_ms = _casting(map, vehicles, channels, points)
    with lite_process(map) as (port, pid):
        _, world = synchronous(port, _DELTA_S, _WAIT_S)
        own, _ = cars_in_circles(world, vehicles)
        world.tick()
        before_mib = rss_mib(pid)
        measured: queue.Queue[carla.LidarMeasurement] = queue.Queue()
        lidar = _lidar(world, own, channels, points)
        lidar.listen(measured.put)
        _run(world, measured, _SETTLE_TICKS)
        rates, served, counts = [], [], []
        for _ in range(repeats):
            began, server_s = time.perf_counter(), cpu_s(pid)
            counts += _run(world, measured, ticks)
            rates.append(ticks / (time.perf_counter() - began))
            served.append(1e6 * (cpu_s(pid) - server_s) / ticks)
        rss = {"before": before_mib, "end": rss_mib(pid)}
        lidar.stop()
    about = machine("carla", "numpy", "embreex")
    each = spread(rates)
    figures = Figures(
        *(map, vehicles, channels, points, ticks, each, round(min(served), 1), round(float(np.mean(counts)), 1)),
        *(rss, first_ray_s, cast_ms, about),
    )
    print(json.dumps(asdict(figures), indent=2) if as_json else figures)
    leave()


def _lidar(world: carla.World, car: carla.Vehicle, channels: int, points: int) -> carla.Sensor:
    values = {"channels": channels, "points_per_second": points, "range": _RANGE_M, "rotation_frequency": 10}
    all_rays = {"dropoff_general_rate": 0.0}  # the default loses 45 % of them before
    return sensor(world, "lidar.ray_cast", carla.Transform(carla.Location(z=_HIGH_M)), car, **values, **all_rays)


def _run(world: carla.World, measured: queue.Queue[carla.LidarMeasurement], ticks: int) -> list[int]:
    """Tick, await each tick's measurement, and return the number of points in each."""
    counts = []
    for _ in range(ticks):
        frame = world.tick()
        points = measured.get(timeout=_WAIT_S)
        if points.frame != frame:
            raise SystemExit(f"The points of frame {points.frame} came where {frame} was due.")
        counts.append(len(points))
    return counts


def _casting(map: str, vehicles: int, channels: int, points: int) -> tuple[float, dict[str, dict[str, float]]]:
    """Return the time of the first rays (s), and of one step's rays at static things and at all (ms)."""
    with listen("127.0.0.1", 0) as listener:
        world = World(Streams(listener), Maps(map))
        place = world.network.spawn_points()[0]
        _park(world, vehicles)
        each = round(points * _DELTA_S / channels)
        pitches, yaws = np.meshgrid(np.radians(np.linspace(10.0, -30.0, channels)), np.linspace(0.0, math.tau, each))
        ways = np.stack([np.cos(pitches) * np.cos(yaws), np.cos(pitches) * np.sin(yaws), np.sin(pitches)])
        ways, eye = ways.reshape(3, -1), (place.x, place.y, place.z + _HIGH_M)
        moving = world.rays()
        still = Field(moving.still, [], moving.signs)
        began = time.perf_counter()
        moving.cast(eye, ways, _RANGE_M)
        first_s = time.perf_counter() - began
        taken: dict[str, dict[str, float]] = {}
        for name, field in (("still", still), ("all", moving)):
            times = []
            for _ in range(50):
                began = time.perf_counter()
                Field(field.still, field.movers, field.signs).cast(eye, ways, _RANGE_M)
                times.append(1e3 * (time.perf_counter() - began))
            taken[name] = spread(times)
        return round(first_s, 3), taken


def _park(world: World, count: int) -> None:
    """Put cars on the lanes nearest to the first spawn point."""
    place = world.network.spawn_points()[0]
    lanes = np.concatenate([lane.centre[::9] for lane in world.network.lanes if lane.kind == "driving"])
    away = np.hypot(lanes[:, 0] - place.x, lanes[:, 1] - place.y)
    for x, y, z in lanes[np.argsort(away, kind="stable")].tolist():
        if len(world.vehicles) == count:
            break
        with contextlib.suppress(RpcError):  # no room there
            world.spawn("vehicle.tesla.model3", {}, Pose(x, y, z + 0.1))


if __name__ == "__main__":
    typer.run(main)
