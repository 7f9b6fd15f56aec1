"""carla-lite's memory over many episodes of ``load_world`` through the real client, each with sensors and traffic.

Starts its own server. An episode loads a map (each of ``--map`` for 20 episodes in turn), spawns a car with
cameras, lidar, radar, IMU, GNSS, collision and obstacle sensor, and others that drive beside it. A few ticks later the
next one begins, with nothing destroyed, as training scripts do (carla #3197, #4664). Exit 1 if the server's RSS at the
end is above that after the first 100 episodes by more than ``--bound-mib``. Run:
``python benchmarks/episodes.py --episodes 1500 --json``.
"""

from __future__ import annotations

import json
import os
import queue
import random
import time
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Annotated, Any

import carla
import numpy as np
import typer
from lite_server import lite_process, sensor, synchronous
from measuring import counted, leave, machine, rss_mib

_DELTA_S, _WAIT_S = 0.1, 30.0
_WARM, _EVERY, _STAY = 100, 10, 20
_MADE_EACH_TICK: dict[str, dict[str, int]] = {
    "camera.rgb": {"image_size_x": 84, "image_size_y": 84},
    "camera.depth": {"image_size_x": 84, "image_size_y": 84},
    "camera.semantic_segmentation": {"image_size_x": 84, "image_size_y": 84},
    "lidar.ray_cast": {"points_per_second": 20_000},
    "other.radar": {},
    "other.imu": {},
    "other.gnss": {},
}
_MADE_SOMETIMES = ("other.collision", "other.obstacle")


@dataclass
class Episodes:
    """The printed result. ``samples`` has the number of episodes, and RSS (MiB) of server and client after them."""

    maps: list[str]
    vehicles: int
    episodes: int
    ticks: int
    bound_mib: float
    server_growth_mib: float = 0.0
    """From the first 100 episodes' end to the last one's."""
    client_growth_mib: float = 0.0
    mib_per_1000_episodes: float = 0.0
    """Slope of a straight line through the server's samples after the first 100 episodes."""
    seconds: float = 0.0
    samples: list[tuple[int, float, float]] = field(default_factory=list)
    machine: dict[str, Any] = field(default_factory=dict)

    @property
    def is_flat(self) -> bool:
        """Whether the server has grown by no more than the bound."""
        return self.server_growth_mib <= self.bound_mib

    def conclude(self, seconds: float) -> None:
        """Fill in the figures from the samples."""
        warm = [sample for sample in self.samples if sample[0] >= _WARM]
        done, server, client = np.array(warm).T
        self.server_growth_mib = round(float(server[-1] - server[0]), 1)
        self.client_growth_mib = round(float(client[-1] - client[0]), 1)
        self.mib_per_1000_episodes = round(1e3 * float(np.polyfit(done, server, 1)[0]), 2)
        self.seconds = round(seconds, 1)
        self.machine = machine("carla", "numpy", "opencv-python-headless")


def _episode(world: carla.World, found: Episodes, rng: random.Random) -> None:
    """Spawn, and drive for some ticks, each with one message of every sensor that makes one."""
    library = world.get_blueprint_library()
    places = iter(rng.sample(world.get_map().get_spawn_points(), found.vehicles + 1))
    models = sorted(library.filter("vehicle.*"), key=lambda blueprint: str(blueprint.id))
    own = world.spawn_actor(library.find("vehicle.tesla.model3"), next(places))
    cars = [own, *filter(None, (world.try_spawn_actor(rng.choice(models), place) for place in places))]
    readings: queue.Queue[carla.SensorData] = queue.Queue()
    where = carla.Transform(carla.Location(x=1.2, z=2.2))
    sensors: list[carla.Sensor] = []
    for kind, attributes in _MADE_EACH_TICK.items():
        sensors.append(sensor(world, kind, where, own, **attributes))
        sensors[-1].listen(readings.put)
    for kind in _MADE_SOMETIMES:
        sensors.append(sensor(world, kind, carla.Transform(), own))
        sensors[-1].listen(lambda _event: None)
    for car in cars:
        car.apply_control(carla.VehicleControl(throttle=0.6, steer=rng.uniform(-0.2, 0.2)))
    for _ in range(found.ticks):
        world.tick()
        for _ in _MADE_EACH_TICK:
            readings.get(timeout=_WAIT_S)
    for each in sensors:
        each.stop()


def main(
    episodes: Annotated[int, typer.Option(min=_WARM + 2 * _EVERY, help="Total number of episodes.")] = 300,
    ticks: Annotated[int, typer.Option(min=1, help="Ticks per episode.")] = 5,
    vehicles: Annotated[int, typer.Option(min=0, max=50, help="Number of other cars.")] = 10,
    map: Annotated[
        list[str] | None, typer.Option(help="Name of a map; the first may be a path. If repeated, the maps take turns.")
    ] = None,
    bound_mib: Annotated[float, typer.Option(min=0.0, help="Largest growth of the server, in MiB.")] = 32.0,
    as_json: Annotated[bool, typer.Option("--json", help="Print the result as JSON.")] = False,
) -> None:
    """Say whether the server's memory stays flat over episodes; exit 1 if it doesn't."""
    found = Episodes(map or ["Lite01", "Lite02"], vehicles, episodes, ticks, bound_mib)
    with lite_process(found.maps[0]) as (port, pid):
        _run(port, pid, found)
    print(json.dumps(asdict(found), indent=2) if as_json else _sentence(found))
    leave(not found.is_flat)


def _sentence(found: Episodes) -> str:
    verdict = "Flat" if found.is_flat else f"Grown by more than {found.bound_mib:g} MiB"
    return (
        f"{verdict}: over {found.episodes} episodes, counted from the {_WARM}th, the server grew by "
        f"{found.server_growth_mib} MiB ({found.mib_per_1000_episodes} MiB per 1 000), the client by "
        f"{found.client_growth_mib} MiB."
    )


def _run(port: int, pid: int, found: Episodes) -> None:
    client, _world = synchronous(port, _DELTA_S, _WAIT_S)
    rng, started = random.Random(0), time.perf_counter()
    for episode in counted(range(found.episodes), "episode"):
        world = client.load_world(Path(found.maps[episode // _STAY % len(found.maps)]).stem, reset_settings=False)
        _episode(world, found, rng)
        if (episode + 1) % _EVERY == 0:
            found.samples.append((episode + 1, rss_mib(pid), rss_mib(os.getpid())))
    found.conclude(time.perf_counter() - started)


if __name__ == "__main__":
    typer.run(main)
