"""Ticks a second of carla-lite through the real client, one 84×84 camera awaited each tick, other cars moving.

Starts a server of its own. Every car drives in a circle at its spawn point, the own car too, so that all of them move
for as long as it takes and the picture changes. Run: ``python benchmarks/ticks.py --vehicles 20 --json``.
"""

from __future__ import annotations

import json
import os
import queue
import statistics
import sys
import time
from dataclasses import asdict, dataclass
from typing import Annotated, Any

import carla
import numpy as np
import typer
from lite_server import lite_server
from measuring import machine, spread
from rich.console import Console
from rich.table import Table

_SIDE = 84
_DELTA_S = 0.1
_WAIT_S = 20.0
_CIRCLE = carla.VehicleControl(throttle=0.25, steer=1.0)
_SETTLE_TICKS = 50


@dataclass(frozen=True)
class Figures:
    """What is printed; ``ticks_per_s`` is median, lowest and highest over the repeats."""

    vehicles: int
    ticks: int
    ticks_per_s: dict[str, float]
    median_speed_mps: float
    distinct_images_share: float
    machine: dict[str, Any]


def main(
    ticks: Annotated[int, typer.Option(min=10, help="Ticks a repeat.")] = 2000,
    repeats: Annotated[int, typer.Option(min=1, help="Repeats, all on one server.")] = 5,
    vehicles: Annotated[int, typer.Option(min=0, max=150, help="Other cars.")] = 20,
    map: Annotated[str, typer.Option(help="Map name or path of an .xodr file.")] = "Lite01",
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Measure carla-lite's ticks a second through the carla client."""
    with lite_server(map) as port:
        figures = _measure(port, ticks, repeats, vehicles)
    _print(figures, as_json)
    sys.stdout.flush()
    os._exit(0)  # the client can abort a process that leaves in order with streams open


def _measure(port: int, ticks: int, repeats: int, vehicles: int) -> Figures:
    world = _connect(port)
    own, others = _cars(world, vehicles)
    images: queue.Queue[carla.Image] = queue.Queue()
    camera = _camera(world, own)
    camera.listen(images.put)
    rates, hashes, speeds = [], set(), []
    _run(world, images, _SETTLE_TICKS)
    for _ in range(repeats):
        started = time.perf_counter()
        seen = _run(world, images, ticks)
        rates.append(ticks / (time.perf_counter() - started))
        hashes.update(seen)
        speeds += [car.get_velocity().length() for car in (own, *others)]
    camera.stop()
    share = len(hashes) / (ticks * repeats)
    return Figures(
        vehicles=len(others),
        ticks=ticks,
        ticks_per_s=spread(rates),
        median_speed_mps=round(statistics.median(speeds), 2),
        distinct_images_share=round(share, 3),
        machine=machine("carla", "numpy", "opencv-python-headless", "msgpack"),
    )


def _connect(port: int) -> carla.World:
    client = carla.Client("127.0.0.1", port)
    client.set_timeout(_WAIT_S)
    world = client.get_world()
    settings = world.get_settings()
    settings.synchronous_mode, settings.fixed_delta_seconds = True, _DELTA_S
    world.apply_settings(settings)
    return world


def _cars(world: carla.World, count: int) -> tuple[carla.Vehicle, list[carla.Vehicle]]:
    """Spawn the own car and the others at the places nearest to it, all of them driving in circles."""
    first, *points = world.get_map().get_spawn_points()
    blueprint = world.get_blueprint_library().find("vehicle.tesla.model3")
    nearest = sorted(points, key=lambda point: point.location.distance(first.location))
    cars = [world.spawn_actor(blueprint, point) for point in (first, *nearest[:count])]
    for car in cars:
        car.apply_control(_CIRCLE)
    return cars[0], cars[1:]


def _camera(world: carla.World, car: carla.Vehicle) -> carla.Sensor:
    blueprint = world.get_blueprint_library().find("sensor.camera.rgb")
    for attribute, value in (("image_size_x", _SIDE), ("image_size_y", _SIDE), ("fov", 100)):
        blueprint.set_attribute(attribute, str(value))
    where = carla.Transform(carla.Location(x=1.2, z=1.8), carla.Rotation(pitch=-12))
    return world.spawn_actor(blueprint, where, car)


def _run(world: carla.World, images: queue.Queue[carla.Image], ticks: int) -> set[int]:
    """Tick, await each tick's own image and return the hashes of those that show something."""
    seen = set()
    for _ in range(ticks):
        frame = world.tick()
        image = images.get(timeout=_WAIT_S)
        if image.frame != frame:
            raise SystemExit(f"The image of frame {image.frame} came where {frame} was due.")
        seen.add(hash(bytes(image.raw_data)))
    pixels = np.frombuffer(image.raw_data, np.uint8).reshape(_SIDE, _SIDE, 4)[..., :3]
    if pixels.std() < 5.0 or len(seen) < ticks // 2:
        shown = f"{len(seen)} of {ticks} images differ, standard deviation of the last one's pixels {pixels.std():.1f}"
        raise SystemExit(f"The camera shows too little ({shown}): the figure would mean nothing.")
    return seen


def _print(figures: Figures, as_json: bool) -> None:
    if as_json:
        print(json.dumps(asdict(figures), indent=2))
        return
    table = Table("figure", "value")
    for name, value in asdict(figures).items():
        table.add_row(name.replace("_", " "), str(value))
    Console().print(table)


if __name__ == "__main__":
    typer.run(main)
