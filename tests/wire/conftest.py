"""Shared by tests with the real client: a connection, a car, cameras stopped without aborts, a training run."""

from __future__ import annotations

import contextlib
import functools
import queue
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import carla
import pytest

from carla_td3.config import EnvironmentConfig, SimulatorConfig
from carla_td3.env.driving import DrivingEnv
from tests.conftest import Server, StartServer
from tests.faults import Faulty
from tests.wire.launched import Launch, Launched, first_time
from tests.wire.trainee import Run

DELTA_S = 0.05
WAIT_S = 60.0


@dataclass
class Camera:
    """A listening camera, its images in order."""

    sensor: carla.Sensor
    images: queue.Queue[carla.Image] = field(default_factory=queue.Queue)

    def next(self) -> carla.Image:
        return self.images.get(timeout=WAIT_S)

    def at(self, frame: int) -> carla.Image:
        """Return the image of a frame; those before it, which may still be on their way, are passed over."""
        while (image := self.next()).frame < frame:
            pass
        return image


@dataclass
class Session:
    """One client of a server, in synchronous mode unless asked otherwise."""

    client: carla.Client
    world: carla.World
    sensors: list[carla.Sensor] = field(default_factory=list)
    actors: list[carla.Actor] = field(default_factory=list)

    def blueprint(self, name: str, **attributes: str) -> carla.ActorBlueprint:
        blueprint = self.world.get_blueprint_library().find(name)
        for key, value in attributes.items():
            blueprint.set_attribute(key, value)
        return blueprint

    def ticks(self, count: int) -> None:
        for _ in range(count):
            self.world.tick()

    def car(self, place: int = 0, ahead_m: float = 0.0, name: str = "vehicle.tesla.model3") -> carla.Vehicle:
        """Spawn a car at a spawn point, or so far ahead of it."""
        where = self.world.get_map().get_spawn_points()[place]
        where.location += carla.Location(where.get_forward_vector() * ahead_m)
        self.actors.append(self.world.spawn_actor(self.blueprint(name), where))
        return self.actors[-1]

    def camera(
        self, parent: carla.Actor | None, width: int = 84, height: int = 84, kind: str = "rgb", **attributes: str
    ) -> Camera:
        """Spawn a camera above the parent's front axle and listen to it."""
        size = {"image_size_x": str(width), "image_size_y": str(height)}
        where = carla.Transform(carla.Location(x=1.2, z=1.8), carla.Rotation(pitch=-12))
        sensor = self.world.spawn_actor(self.blueprint(f"sensor.camera.{kind}", **size, **attributes), where, parent)
        camera = Camera(sensor)
        self.sensors.append(sensor)
        sensor.listen(camera.images.put)
        return camera

    def sensor(self, name: str, parent: carla.Actor, listener: Callable[[carla.SensorData], object]) -> carla.Sensor:
        """Spawn a sensor at its parent's origin and listen to it."""
        sensor = self.world.spawn_actor(self.blueprint(name), carla.Transform(), parent)
        self.sensors.append(sensor)
        sensor.listen(listener)
        return sensor

    def close(self) -> None:
        # Stopping while an image is being received, or leaving just after, aborts the process (protocol, section 5.5).
        time.sleep(0.05)
        for sensor in self.sensors:
            if sensor.is_listening:
                sensor.stop()
        time.sleep(0.2 if self.sensors else 0.0)

    def give_back(self) -> None:
        """Leave a simulator that goes on as it was found: asynchronous, and without what was spawned here."""
        ours = [actor.id for actor in (*self.sensors, *self.actors)]
        self.client.apply_batch_sync([carla.command.DestroyActor(actor) for actor in ours], False)
        settings = self.world.get_settings()
        settings.synchronous_mode, settings.fixed_delta_seconds = False, None
        self.world.apply_settings(settings)


Connect = Callable[..., Session]
MakeEnv = Callable[..., DrivingEnv]


def spawned(actors: Iterable[Any]) -> list[str]:
    """Return the kinds of what is there beside the map's own lights and signs."""
    return [actor.type_id for actor in actors if not actor.type_id.startswith("traffic.")]


@pytest.fixture
def make_env(request: pytest.FixtureRequest, start_server: StartServer) -> Iterator[MakeEnv]:
    """Make environments that are closed after the test: ``make_env(config=None, port=None, seed=0, **simulator)``.

    Without a port they drive in the module's simulator.
    """
    with contextlib.ExitStack() as made:

        def make(
            config: EnvironmentConfig | None = None, port: int | None = None, seed: int = 0, **simulator: Any
        ) -> DrivingEnv:
            port = port or request.getfixturevalue("module_server").port
            address = SimulatorConfig.model_validate(
                {"host": "127.0.0.1", "port": port, "patience_s": 60.0, **simulator}
            )
            return made.enter_context(contextlib.closing(DrivingEnv(config, address, seed)))

        yield make


@pytest.fixture
def connect() -> Iterator[Connect]:
    """Connect to a server: ``connect(server, synchronous=True)``; cameras are stopped before the server ends."""
    sessions: list[Session] = []

    def connect(server: Server, synchronous: bool = True) -> Session:
        sessions.append(session_of("127.0.0.1", server.port, synchronous))
        return sessions[-1]

    yield connect
    for session in sessions:
        session.close()


def session_of(host: str, port: int, synchronous: bool = True) -> Session:
    client = carla.Client(host, port, 4)
    client.set_timeout(WAIT_S)
    world = client.get_world()
    if synchronous:
        settings = world.get_settings()
        settings.synchronous_mode, settings.fixed_delta_seconds = True, DELTA_S
        world.apply_settings(settings)
    return Session(client, world)


@pytest.fixture
def session(request: pytest.FixtureRequest) -> Iterator[Session]:
    """A synchronous session on a fresh server; in tests for any simulator on the module's, or on ``--simulator``.

    A module whose ``ONE_SERVER`` is true has its own server for all of them, and an episode a test.
    """
    address: str | None = request.config.getoption("--simulator")
    one_server = getattr(request.module, "ONE_SERVER", False)
    if request.node.get_closest_marker("any_simulator") is None and not one_server:
        start_server, connect = (request.getfixturevalue(name) for name in ("start_server", "connect"))
        yield connect(start_server())
        return
    host, _, port = (address or f"127.0.0.1:{request.getfixturevalue('module_server').port}").rpartition(":")
    session = session_of(host, int(port))
    if one_server and address is None:
        session.world = session.client.reload_world(False)
    try:
        yield session
    finally:
        session.close()
        session.give_back()


NewRun = Callable[..., Run]


@pytest.fixture
def new_run(tmp_path: Path) -> Iterator[NewRun]:
    """Make a run directory: ``new_run(name, server, settings=SMALL)``; its training is killed after the test."""
    runs: list[Run] = []

    def make(name: str, server: Server, **settings: Any) -> Run:
        runs.append(Run(tmp_path / name, server.port, **settings))
        return runs[-1]

    yield make
    for run in runs:
        run.kill()


@pytest.fixture
def forked_run(new_run: NewRun) -> NewRun:
    """As ``new_run``, for tests that look at neither a training's start, environment, memory nor process tree."""
    return functools.partial(new_run, forked=True)


@pytest.fixture
def launch(tmp_path: Path) -> Iterator[Launch]:
    """Start a launcher of local processes in the test's own directory; ended after the test.

    ``launch(steps, *options, run_name="test", environment=None)``: no steps for a later start of the same run.
    """
    started: list[Launched] = []

    def start(
        steps: int | None, *options: str, run_name: str = "test", environment: Mapping[str, str] | None = None
    ) -> Launched:
        started.append(Launched(tmp_path, run_name, environment))
        started[-1].up(*(() if steps is None else first_time(tmp_path, steps)), *options)
        return started[-1]

    yield start
    for launched in started:
        launched.end()


StartFaulty = Callable[..., Faulty]


@pytest.fixture
def start_faulty(start_server: StartServer) -> StartFaulty:
    """Start a server with a control port: ``start_faulty(*flags)``; returns once its world is built."""

    def start(*flags: str) -> Faulty:
        return Faulty(start_server(extra=flags))

    return start


@pytest.fixture
def faulty(start_faulty: StartFaulty) -> Faulty:
    """A server with a control port."""
    return start_faulty()
