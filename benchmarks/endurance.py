"""carla-lite's memory over many ticks and respawns through the real client.

Starts a server with driving cars and a camera on the ego car. At each respawn the ego car and another car are destroyed
with their sensors and spawned elsewhere, as episodes do. Exit 1 if the server's RSS at the end exceeds the one after
the first 5 % of the ticks by more than ``--bound-mib``. The server caches views of a town up to 64 MiB
(``scenery/vista.py``), and a short run ends before the cache is full. Run: ``python benchmarks/endurance.py --ticks
1000000 --respawns 2000 --json``.
"""

from __future__ import annotations

import json
import queue
import random
import time
from dataclasses import asdict, dataclass, field
from typing import Annotated, Any

import carla
import numpy as np
import typer
from lite_server import front_camera, lite_process, sensor, synchronous
from measuring import leave, machine, rss_mib

_DELTA_S = 0.1
_WAIT_S = 20.0
_SIZE_PX = 84
_SAMPLES = 200
_WARM_SHARE = 0.05
_CONTROL_TICKS = 20


@dataclass
class Endurance:
    """The result; ``samples`` are ticks done and the server's RSS (MiB) after them."""

    map: str
    vehicles: int
    ticks: int
    respawns: int
    bound_mib: float
    warm_mib: float = 0.0
    """RSS after the first 5 % of the ticks."""
    end_mib: float = 0.0
    mib_per_100_000_ticks: float = 0.0
    """Slope of a straight line through the samples after the first 5 %."""
    seconds: float = 0.0
    samples: list[tuple[int, float]] = field(default_factory=list)
    machine: dict[str, Any] = field(default_factory=dict)

    @property
    def is_flat(self) -> bool:
        """Whether the server has grown by no more than the bound."""
        return self.end_mib <= self.warm_mib + self.bound_mib

    def conclude(self, seconds: float) -> None:
        """Fill in the figures from the samples."""
        warm = [sample for sample in self.samples if sample[0] >= _WARM_SHARE * self.ticks]
        ticks, mib = np.array(warm).T
        self.warm_mib, self.end_mib = warm[0][1], warm[-1][1]
        self.mib_per_100_000_ticks = round(1e5 * float(np.polyfit(ticks, mib, 1)[0]), 3)
        self.seconds = round(seconds, 1)
        self.machine = machine("carla", "numpy", "opencv-python-headless", "msgpack")


class _Traffic:
    """The cars; the first is the ego car, with a camera and a collision sensor."""

    def __init__(self, world: carla.World, count: int, seed: int) -> None:
        self._world, self._rng = world, random.Random(seed)
        self._places = world.get_map().get_spawn_points()
        self._models = sorted(
            world.get_blueprint_library().filter("vehicle.*"), key=lambda blueprint: str(blueprint.id)
        )
        self.images: queue.Queue[carla.Image] = queue.Queue()
        self._sensors: list[carla.Sensor] = []
        self._cars = [self._spawn() for _ in range(count + 1)]
        self._equip()

    def steer(self) -> None:
        """Give every car a new control."""
        for car in self._cars:
            car.apply_control(carla.VehicleControl(throttle=0.5, steer=self._rng.uniform(-0.3, 0.3)))

    def respawn(self) -> None:
        """Destroy the ego car, its sensors and another car, and spawn them elsewhere."""
        for each in self._sensors:
            each.stop()
            each.destroy()
        for index in {0, self._rng.randrange(len(self._cars))}:
            self._cars[index].destroy()
            self._cars[index] = self._spawn()
        self._equip()

    def _spawn(self) -> carla.Vehicle:
        for place in self._rng.sample(self._places, len(self._places)):
            car = self._world.try_spawn_actor(self._rng.choice(self._models), place)
            if car is not None:
                return car
        raise SystemExit("No spawn point is free: ask for fewer --vehicles.")

    def _equip(self) -> None:
        camera = front_camera(self._world, self._cars[0], (_SIZE_PX, _SIZE_PX))
        collisions = sensor(self._world, "other.collision", carla.Transform(), self._cars[0])
        images: queue.Queue[carla.Image] = queue.Queue()
        self.images = images
        camera.listen(images.put)
        collisions.listen(lambda _event: None)
        self._sensors = [camera, collisions]


def main(
    ticks: Annotated[int, typer.Option(min=200, help="Total number of ticks.")] = 20_000,
    respawns: Annotated[int, typer.Option(min=0, help="Respawns of cars, spread over the ticks.")] = 200,
    vehicles: Annotated[int, typer.Option(min=0, max=100, help="Number of other cars.")] = 10,
    map: Annotated[str, typer.Option(help="Name of a map, or path of an .xodr file.")] = "Lite01",
    bound_mib: Annotated[
        float, typer.Option(min=0.0, help="Largest growth of the server after the first 5 % of the ticks, in MiB.")
    ] = 64.0,
    as_json: Annotated[bool, typer.Option("--json", help="Print the result as JSON.")] = False,
) -> None:
    """Say whether the server's memory stays flat; exit 1 if it doesn't."""
    found = Endurance(map, vehicles, ticks, respawns, bound_mib)
    with lite_process(map) as (port, pid):
        _run(port, pid, found)
    print(json.dumps(asdict(found), indent=2) if as_json else _sentence(found))
    leave(not found.is_flat)


def _sentence(found: Endurance) -> str:
    verdict = "Flat" if found.is_flat else f"Grown by more than {found.bound_mib:g} MiB"
    begin, end = (
        f"{found.warm_mib} MiB after {_WARM_SHARE:.0%} of {found.ticks} ticks",
        f"{found.end_mib} MiB at the end",
    )
    return f"{verdict}: {begin}, {end}, {found.mib_per_100_000_ticks} MiB per 100 000 ticks between."


def _run(port: int, pid: int, found: Endurance) -> None:
    _client, world = synchronous(port, _DELTA_S, _WAIT_S)
    traffic = _Traffic(world, found.vehicles, seed=0)
    started = time.perf_counter()
    respawned = 0
    for tick in range(found.ticks):
        if respawned < found.respawns and tick * found.respawns >= (respawned + 1) * found.ticks:
            traffic.respawn()
            respawned += 1
        if tick % _CONTROL_TICKS == 0:
            traffic.steer()
        frame = world.tick()
        while traffic.images.get(timeout=_WAIT_S).frame < frame:
            pass
        if (tick + 1) % max(1, found.ticks // _SAMPLES) == 0:
            found.samples.append((tick + 1, rss_mib(pid)))
    found.conclude(time.perf_counter() - started)


if __name__ == "__main__":
    typer.run(main)
