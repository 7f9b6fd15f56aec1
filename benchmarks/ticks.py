"""Ticks per second of carla-lite with the real client, which awaits one camera in each tick; other cars move in its
view.

Starts a server for each set of cameras. Every car, the ego car included, drives in a circle, so that all move for any
length of time and the picture changes; they are as near to each other as the circles allow. The CPU time of both
processes is measured, too, since it says more on a busy machine. If carla-lite is compiled, ``--both`` measures
compiled and .py files in turns; ``--beside CHECKOUT`` measures another checkout's server in turns. ``digest`` is of all
cameras' images and all actors' states in 100 ticks after the measured ones: servers that simulate and draw alike have
the same. Run: ``python benchmarks/ticks.py --vehicles 20 --size 256x144 --weather HardRainNoon --json``, or for what
depth and labels cost beside colours ``python benchmarks/ticks.py --size 256x144 --cameras rgb --cameras rgb,depth
--cameras rgb,semantic_segmentation --cameras rgb,depth,semantic_segmentation``.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import math
import queue
import statistics
import struct
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated

import carla
import numpy as np
import typer
from lite_server import FOV_DEG, front_camera, lite_process, synchronous
from measuring import leave, machine, rss_mib, spread
from rich.console import Console
from rich.table import Table

from carla_lite.testing import free_port

_DELTA_S = 0.1
_WAIT_S = 20.0
_CIRCLE = carla.VehicleControl(throttle=0.25, steer=1.0)
_SETTLE_TICKS = 50
_APART_M = 11.0
_SEEN_M = 60.0


@dataclass(frozen=True)
class Case:
    """A case to measure."""

    vehicles: int
    walkers: int
    size: tuple[int, int]
    weather: str
    map: str
    traffic_manager: bool
    """Whether a Traffic Manager drives the other cars; its cost is then part of ``client_cpu_us``."""
    cameras: str = "rgb"
    """Kinds of cameras, all at one place, or none; images of the first one are checked."""


@dataclass(frozen=True)
class Figures:
    """The result; ``ticks_per_s`` is median, lowest and highest over the repeats."""

    case: Case
    checkout: str
    """The checkout whose server it is; empty: this one."""
    compiled_code: bool
    """Whether the server ran compiled modules (``python -m carla_lite.compiled``) or the .py files."""
    ticks: int
    ticks_per_s: dict[str, float]
    of_the_first: float
    """Median of the ticks per second divided by those of the first set in the same turn."""
    server_cpu_us: float
    """Processor time per tick; the lowest of the repeats, as for the next field but one."""
    server_cpu_median_us: float
    client_cpu_us: float
    cars_in_view: float
    """Mean number of cars within 60 m, ignoring buildings."""
    median_speed_mps: float
    distinct_images_share: float
    digest: str
    start_to_first_tick_s: float
    server_rss_mib: float


def main(
    ticks: Annotated[int, typer.Option(min=10, help="Ticks per repeat.")] = 2000,
    repeats: Annotated[int, typer.Option(min=1, help="Repeats on one server; the result is their median.")] = 5,
    vehicles: Annotated[int, typer.Option(min=0, max=150, help="Number of other cars.")] = 20,
    walkers: Annotated[int, typer.Option(min=0, max=500, help="Number of pedestrians on the pavements.")] = 0,
    size: Annotated[str, typer.Option(help="Size of the image, WIDTHxHEIGHT.")] = "84x84",
    weather: Annotated[str, typer.Option(help="Weather preset of CARLA.")] = "ClearNoon",
    map: Annotated[str, typer.Option(help="Name of a map, or path of an .xodr file.")] = "Lite01",
    traffic_manager: Annotated[bool, typer.Option(help="Let the Traffic Manager drive the other cars.")] = False,
    cameras: Annotated[
        list[str] | None,
        typer.Option(help="Kinds of cameras, separated by commas, or none. If repeated, they take turns [rgb]."),
    ] = None,
    both: Annotated[
        bool, typer.Option("--both", help="Also measure the .py files, in turns with the compiled code.")
    ] = False,
    beside: Annotated[
        Path | None, typer.Option(help="Path of another checkout to measure in turns with this one.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the result as JSON.")] = False,
) -> None:
    """Measure carla-lite's ticks a second through the carla client."""
    width, height = (int(part) for part in size.split("x"))
    cases = [
        Case(vehicles, walkers, (width, height), weather, map, traffic_manager, kinds) for kinds in cameras or ["rgb"]
    ]
    with contextlib.ExitStack() as servers:
        codes = (True, False) if both else (True,)
        checkouts = (None, beside) if beside else (None,)
        drives = [
            Drive(servers, case, compiled, checkout) for case in cases for compiled in codes for checkout in checkouts
        ]
        for _ in range(repeats):
            for drive in drives:
                drive.repeat(ticks)
        figures = [drive.figures(drives[0]) for drive in drives]
    _print(figures, as_json)
    leave()


class Drive:
    """A server with the case's cars, people and camera, and its measurements so far.

    Attributes:
        pid: of the server.
        served_us: its processor time per tick, by repeat.
        asked_us: processor time of this process per tick, by repeat.
    """

    def __init__(self, servers: contextlib.ExitStack, case: Case, compiled: bool, checkout: Path | None) -> None:
        self._case, self._checkout, started = case, checkout, time.perf_counter()
        port, self.pid = servers.enter_context(lite_process(case.map, compiled=compiled, checkout=checkout))
        client, _ = synchronous(port, _DELTA_S, _WAIT_S)
        self._world = client.reload_world(reset_settings=False)  # as the server starts, its lights change in real time
        self._world.tick()
        self._first_tick_s = time.perf_counter() - started
        self._world.set_weather(getattr(carla.WeatherParameters, case.weather))
        self._own, self._others = cars_in_circles(self._world, case.vehicles)
        if case.traffic_manager:
            _hand_over(client, self._others)
        _people(self._world, case.walkers)
        kinds = [] if case.cameras == "none" else case.cameras.split(",")
        self._images: list[queue.Queue[carla.Image]] = [queue.Queue() for _ in kinds]
        self._cameras = [front_camera(self._world, self._own, case.size, kind) for kind in kinds]
        for camera, images in zip(self._cameras, self._images, strict=True):
            camera.listen(images.put)
        self._rates: list[float] = []
        self.served_us: list[float] = []
        self.asked_us: list[float] = []
        self._hashes: set[int] = set()
        self._speeds: list[float] = []
        self._ticks = 0
        _run(self._world, self._images, _SETTLE_TICKS, case.size)

    def repeat(self, ticks: int) -> None:
        """Measure so many ticks."""
        began, server_s, client_s = time.perf_counter(), cpu_s(self.pid), time.process_time()
        self._hashes.update(_run(self._world, self._images, ticks, self._case.size))
        self._ticks += ticks
        self._rates.append(ticks / (time.perf_counter() - began))
        self.served_us.append(1e6 * (cpu_s(self.pid) - server_s) / ticks)
        self.asked_us.append(1e6 * (time.process_time() - client_s) / ticks)
        self._speeds += [car.get_velocity().length() for car in (self._own, *self._others)]

    def figures(self, first: Drive) -> Figures:
        """Return the measurements, and what was visible."""
        seen, digest = [], hashlib.sha256()
        for _ in range(100):  # outside the time: asking where all cars are takes longer than a tick
            _run(self._world, self._images, 3, self._case.size, checked=False)
            digest.update(self._shown())
            seen.append(_in_view(self._cameras[0], self._others) if self._cameras else 0)
        for camera in self._cameras:
            camera.stop()
        shares = [rate / other for rate, other in zip(self._rates, first._rates, strict=True)]
        return Figures(
            case=self._case,
            checkout=str(self._checkout or ""),
            compiled_code=_runs_compiled(self.pid),
            ticks=self._ticks // len(self._rates),
            ticks_per_s=spread(self._rates),
            of_the_first=round(statistics.median(shares), 3),
            server_cpu_us=round(min(self.served_us), 1),
            server_cpu_median_us=round(statistics.median(self.served_us), 1),
            client_cpu_us=round(min(self.asked_us), 1),
            cars_in_view=round(statistics.fmean(seen), 2),
            median_speed_mps=round(statistics.median(self._speeds), 2),
            distinct_images_share=round(len(self._hashes) / self._ticks, 3),
            digest=digest.hexdigest()[:16],
            start_to_first_tick_s=round(self._first_tick_s, 2),
            server_rss_mib=rss_mib(self.pid),
        )

    def _shown(self) -> bytes:
        """Tick, and return the bytes of all cameras' images and of all actors' places and velocities."""
        self._world.tick()
        states = [
            struct.pack(
                "9d",
                *(place.location.x, place.location.y, place.location.z),
                *(place.rotation.pitch, place.rotation.yaw, place.rotation.roll),
                *(velocity.x, velocity.y, velocity.z),
            )
            for actor in sorted(self._world.get_snapshot(), key=lambda actor: int(actor.id))
            for place, velocity in ((actor.get_transform(), actor.get_velocity()),)
        ]
        return b"".join([*states, *(bytes(images.get(timeout=_WAIT_S).raw_data) for images in self._images)])


def _runs_compiled(pid: int) -> bool:
    """Return whether a server has loaded the compiled modules."""
    return "/carla_lite_" in Path(f"/proc/{pid}/maps").read_text(encoding="utf-8")


def cpu_s(pid: int) -> float:
    """Return a process's processor time (s), by the scheduler's clock: that of ``stat`` counts in hundredths."""
    return (
        sum(int((task / "schedstat").read_text("ascii").split()[0]) for task in Path(f"/proc/{pid}/task").iterdir())
        / 1e9
    )


def cars_in_circles(world: carla.World, count: int) -> tuple[carla.Vehicle, list[carla.Vehicle]]:
    """Spawn the ego car and the others around it, all driving in circles."""
    map_, blueprint = world.get_map(), world.get_blueprint_library().find("vehicle.tesla.model3")
    first = map_.get_spawn_points()[0]
    lanes = [waypoint.transform for waypoint in map_.generate_waypoints(3.0) if not waypoint.is_junction]
    cars: list[carla.Vehicle] = []
    taken: list[carla.Location] = []
    for place in (first, *sorted(lanes, key=lambda place: place.location.distance(first.location))):
        if len(cars) <= count and all(place.location.distance(other) >= _APART_M for other in taken):
            place.location.z += 0.1
            car = world.try_spawn_actor(blueprint, place)
            if car is not None:
                taken.append(place.location)
                cars.append(car)
    if len(cars) <= count:
        raise SystemExit(f"There is room for {len(cars) - 1} other cars on this map, fewer than {count}.")
    for car in cars:
        car.apply_control(_CIRCLE)
    return cars[0], cars[1:]


def _hand_over(client: carla.Client, cars: list[carla.Vehicle]) -> None:
    manager = client.get_trafficmanager(free_port())
    manager.set_synchronous_mode(True)
    for car in cars:
        car.set_autopilot(True, manager.get_port())


def _people(world: carla.World, count: int) -> None:
    """Spawn people beside the lanes, all of them walking along."""
    if count == 0:
        return
    blueprints = world.get_blueprint_library().filter("walker.pedestrian.*")
    first = world.get_map().get_spawn_points()[0].location
    lanes = sorted(world.get_map().generate_waypoints(2.0), key=lambda lane: lane.transform.location.distance(first))
    spawned = 0
    for lane in lanes:
        place = lane.transform
        place.location += place.get_right_vector() * (0.5 * lane.lane_width + 1.5) + carla.Vector3D(z=1.0)
        walker = world.try_spawn_actor(blueprints[spawned % len(blueprints)], place)
        if walker is not None:
            walker.apply_control(carla.WalkerControl(place.get_forward_vector(), 1.4))
            spawned += 1
        if spawned == count:
            return
    raise SystemExit(f"Only {spawned} of {count} people could be spawned.")


def _in_view(camera: carla.Sensor, cars: list[carla.Vehicle]) -> int:
    """Return how many cars' centres are between the image's left and right edge, and near enough to be visible."""
    where = camera.get_transform()
    ahead, right = where.get_forward_vector(), where.get_right_vector()
    count = 0
    for car in cars:
        away = car.get_location() - where.location
        depth, aside = away.dot(ahead), away.dot(right)
        count += 0.0 < depth < _SEEN_M and abs(aside) < depth * math.tan(math.radians(0.5 * FOV_DEG))
    return count


def _run(
    world: carla.World,
    queues: Sequence[queue.Queue[carla.Image]],
    ticks: int,
    size: tuple[int, int],
    checked: bool = True,
) -> set[int]:
    """Tick, await each tick's images, and return the hashes of those of the first camera."""
    seen = set()
    for _ in range(ticks):
        frame = world.tick()
        for images in reversed(queues):
            image = images.get(timeout=_WAIT_S)
            if image.frame != frame:
                raise SystemExit(f"The image of frame {image.frame} came where {frame} was due.")
        if queues:
            seen.add(hash(bytes(image.raw_data)))
    if not queues:
        return seen
    pixels = np.frombuffer(image.raw_data, np.uint8).reshape(size[1], size[0], 4)[..., :3]
    if checked and (pixels.std() < 3.0 or len(seen) < ticks // 2):
        shown = f"{len(seen)} of {ticks} images differ, standard deviation of the last one's pixels {pixels.std():.1f}"
        raise SystemExit(f"The camera shows too little ({shown}): the figure would mean nothing.")
    return seen


def _print(figures: Sequence[Figures], as_json: bool) -> None:
    rows, measured_on = [asdict(one) for one in figures], machine("carla", "numpy", "opencv-python-headless", "msgpack")
    if as_json:
        print(json.dumps({"machine": measured_on, "rows": rows}, indent=2))
        return
    table = Table("figure", *(["value"] * len(rows)))
    for name in rows[0]:
        table.add_row(name.replace("_", " "), *(str(row[name]) for row in rows))
    Console().print(table, measured_on)


if __name__ == "__main__":
    typer.run(main)
