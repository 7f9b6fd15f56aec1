"""A carla-lite server for a benchmark, on a free port, and what its client needs; children that end with their
benchmark.
"""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterator
from pathlib import Path

import carla

from carla_lite.testing import server

FOV_DEG = 100.0


@contextlib.contextmanager
def lite_server(map: str, seed: int = 0) -> Iterator[int]:
    """Run ``python -m carla_lite`` while the block runs; yield its RPC port."""
    with lite_process(map, seed) as (port, _):
        yield port


@contextlib.contextmanager
def lite_process(
    map: str, seed: int = 0, tick_ms: float = 0.0, compiled: bool = True, checkout: Path | None = None
) -> Iterator[tuple[int, int]]:
    """Like :func:`lite_server`, with a shortest duration of ticks; yields port and process id.

    Without ``compiled``, it always runs its .py files; with ``checkout``, those of another checkout.
    """
    environment = {} if compiled else {"LITE_COMPILED_DIR": ""}
    if checkout:
        environment["PYTHONPATH"] = str(checkout / "carla" / "lite")
    with server(map, seed=seed, tick_ms=tick_ms, environment=environment) as running:
        yield running.port, running.pid


def mortal(module: str) -> list[str]:
    """Return a command like ``python -m MODULE`` whose process ends with this one, however this one ends."""
    ends = f"from carla_td3.collector.parent import die_with_parent; die_with_parent({os.getpid()})"
    run = f"import sys; sys.argv[0] = {module!r}\nfrom {module}.__main__ import main\nmain()"
    return [sys.executable, "-c", f"{ends}\n{run}"]


def synchronous(port: int, delta_s: float, timeout_s: float) -> tuple[carla.Client, carla.World]:
    """Connect, and let the world wait for ticks of ``delta_s``."""
    client = carla.Client("127.0.0.1", port)
    client.set_timeout(timeout_s)
    world = client.get_world()
    settings = world.get_settings()
    settings.synchronous_mode, settings.fixed_delta_seconds = True, delta_s
    world.apply_settings(settings)
    return client, world


def sensor(
    world: carla.World, kind: str, where: carla.Transform, car: carla.Actor | None = None, **attributes: float
) -> carla.Sensor:
    """Spawn a sensor, such as ``camera.rgb``, with attributes; on a car, if one is given."""
    blueprint = world.get_blueprint_library().find(f"sensor.{kind}")
    for name, value in attributes.items():
        blueprint.set_attribute(name, str(value))
    return world.spawn_actor(blueprint, where, car)


def front_camera(world: carla.World, car: carla.Vehicle, size: tuple[int, int], kind: str = "rgb") -> carla.Sensor:
    """Spawn a camera behind the windscreen, with an image of (width, height) pixels."""
    where = carla.Transform(carla.Location(x=1.2, z=1.8), carla.Rotation(pitch=-12))
    return sensor(world, f"camera.{kind}", where, car, image_size_x=size[0], image_size_y=size[1], fov=FOV_DEG)
