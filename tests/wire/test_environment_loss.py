"""Simulators that die, are missing, or were left untidy by a collector that was killed."""

from __future__ import annotations

import json
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import carla
import numpy as np
import pytest

from carla_td3.config import ConfigError, SimulatorConfig
from carla_td3.env.expert import PidPurePursuit
from carla_td3.env.observation import DriverState, Observation
from carla_td3.env.route import held_out_routes
from carla_td3.env.route_line import OtherMap
from carla_td3.env.sensors import FrameCamera
from carla_td3.env.session import NoSimulator, Session, SimulatorLost
from carla_td3.evaluation.routes import completed, evaluate
from tests.conftest import REPOSITORY, Server, StartServer, port_pair
from tests.crowd import PATIENCE_S, until
from tests.wire.conftest import MakeEnv, spawned

GO = np.array((0.0, 0.3), np.float32)
# Far above pytest's limit for a test: code that waits for the client's own time-out fails.
LONG_S = 2000.0


def other_client(server: Server) -> carla.Client:
    client = carla.Client("127.0.0.1", server.port)
    client.set_timeout(10.0)
    return client


def test_a_killed_simulator_truncates_and_the_next_one_is_used(start_server: StartServer, make_env: MakeEnv) -> None:
    server = start_server()
    env = make_env(port=server.port, timeout_s=LONG_S)
    first, _ = env.reset(seed=1)
    env.step(GO)
    server.kill()
    observation, reward, terminated, truncated, info = env.step(GO)
    assert (reward, terminated, truncated) == (0.0, False, True)
    assert info["simulator_lost"]
    assert info["end"] == "simulator_lost"
    assert observation["image"].shape == (4, 84, 84)
    start_server(port=server.port)
    again, info = env.reset(seed=1)
    assert (again["image"] == first["image"]).all()
    assert not info["simulator_lost"]
    assert not env.step(GO)[4]["simulator_lost"]


@pytest.mark.parametrize(
    ("timeout_s", "then", "is_lost"),
    [(LONG_S, "sleep 2; kill -9", True), (120.0, "sleep 2.5; kill -CONT", False), (2.0, "true", True)],
    ids=["dies under the tick", "comes back", "stays silent"],
)
def test_a_simulator_that_stalls_under_a_tick(
    start_server: StartServer, make_env: MakeEnv, timeout_s: float, then: str, is_lost: bool
) -> None:
    """It leaves the tick unanswered; where it then dies, the client would wait on."""
    server = start_server()
    env = make_env(port=server.port, timeout_s=timeout_s)
    env.reset()
    frame = env.frame
    server.process.send_signal(signal.SIGSTOP)
    with subprocess.Popen(["sh", "-c", f"{then} {server.process.pid}"]):
        assert env.step(GO)[4]["simulator_lost"] is is_lost
    server.process.send_signal(signal.SIGCONT)
    if not is_lost:
        assert env.frame == frame + 1
        assert not env.step(GO)[4]["simulator_lost"]
        assert env.frame == frame + 2


def test_the_loss_is_told_to_whoever_asked(start_server: StartServer) -> None:
    server = start_server()
    reported: list[float] = []
    session = Session(SimulatorConfig(host="127.0.0.1", port=server.port), on_lost=lambda: reported.append(time.time()))
    session.connect()
    session.tick()
    assert session.ticks == 1
    assert not reported
    server.kill()
    until(lambda: reported)
    assert len(reported) == 1
    assert not session.connected
    session.close()


@pytest.mark.parametrize(
    ("kind", "says"),
    [
        ("vehicle.", "The car is gone"),
        ("sensor.other.collision", "A sensor of the car is gone"),
        ("sensor.other.lane_invasion", "A sensor of the car is gone"),
        ("sensor.camera", "A sensor of the car is gone"),
    ],
)
def test_a_drive_ends_without_its_car_or_a_sensor(
    module_server: Server, make_env: MakeEnv, kind: str, says: str
) -> None:
    """Without its sensor a collision would be none, and what is learned from the drive wrong."""
    env, other = make_env(timeout_s=LONG_S), other_client(module_server)
    env.reset(seed=1)
    assert env.car is not None
    car = env.car.actor
    (gone,) = (actor for actor in env.session.world.get_actors() if actor.type_id.startswith(kind))
    other.apply_batch_sync([carla.command.DestroyActor(gone.id)], False)
    assert env.step(GO)[4]["simulator_lost"]
    assert says in env.loss
    other.apply_batch_sync([carla.command.DestroyActor(car.id)], False)
    env.reset()
    with pytest.raises(SimulatorLost, match="does not exist"):
        FrameCamera(env.session, car, carla.Transform(), width=84, height=84, fov_deg=90.0)
    assert not env.step(GO)[4]["simulator_lost"]
    assert env.car.sensors.are_in(env.session.world.get_snapshot())


def test_a_car_that_another_client_destroys_at_once_is_no_car(module_server: Server) -> None:
    session, other = Session(SimulatorConfig(host="127.0.0.1", port=module_server.port)), other_client(module_server)
    session.connect()
    client = session.client

    def spawned_and_destroyed(batch: list[Any], tick: bool) -> list[Any]:
        replies = list(client.apply_batch_sync(batch, tick))
        other.apply_batch_sync([carla.command.DestroyActor(reply.actor_id) for reply in replies], False)
        return replies

    session.client = SimpleNamespace(apply_batch_sync=spawned_and_destroyed)
    blueprint = session.world.get_blueprint_library().find("vehicle.tesla.model3")
    with pytest.raises(SimulatorLost, match="another client destroyed it"):
        session.spawn_car(blueprint, session.map.get_spawn_points()[0])
    session.close()


def test_nothing_that_answers_is_one_sentence_naming_it(make_env: MakeEnv) -> None:
    port = port_pair()
    with pytest.raises(NoSimulator, match=rf"127\.0\.0\.1:{port} within 0\.5 s .*start CARLA or"):
        make_env(port=port, patience_s=0.5).reset()
    with socket.create_server(("127.0.0.1", 0)) as dumb:
        port = dumb.getsockname()[1]
        with pytest.raises(NoSimulator, match=str(port)):
            make_env(port=port, patience_s=1.0, timeout_s=1.0).reset()


def test_the_simulator_may_start_later_than_the_environment(make_env: MakeEnv) -> None:
    port = port_pair()
    command = [sys.executable, "-m", "carla_lite", "--host", "127.0.0.1", "--port", str(port), "--map", "Lite01"]
    late = subprocess.Popen(["sh", "-c", f"sleep 1; exec {' '.join(command)}"])
    try:
        env = make_env(port=port)
        assert env.reset()[1]["end"] is None
        env.close()
    finally:
        late.terminate()
        late.wait(PATIENCE_S)


def test_close_leaves_no_actor_and_asynchronous_mode(start_server: StartServer, make_env: MakeEnv) -> None:
    server = start_server()
    env = make_env(port=server.port)
    env.reset()
    env.step(GO)
    spectator = env.session.world.get_spectator().get_transform()
    env.close()
    world = other_client(server).get_world()
    assert not world.get_settings().synchronous_mode
    assert spawned(world.get_actors()) == ["spectator"]
    assert world.get_spectator().get_transform() == spectator


# The client of a synchronous server knows of no actor before its first snapshot, which CARLA sends with a tick and
# carla-lite, in a thread of the client's, with the subscription: too late where the machine is busy.
SILENT_BEFORE_A_TICK = """
from carla_lite.protocol.streams import Streams
opened = Streams.open
Streams.open = lambda self, welcome=None: opened(self)
"""


@pytest.mark.parametrize("prelude", ["", SILENT_BEFORE_A_TICK], ids=["greeting", "silent"])
def test_only_what_a_killed_collector_left_is_removed(
    start_server: StartServer, make_env: MakeEnv, prelude: str
) -> None:
    server = start_server(prelude=prelude)
    library = (world := other_client(server).get_world()).get_blueprint_library()
    foreign = world.spawn_actor(library.find("vehicle.tesla.model3"), world.get_map().get_spawn_points()[7])
    script = (
        "import os\nfrom carla_td3.config import *\nfrom carla_td3.env.driving import DrivingEnv\n"
        f"env = DrivingEnv(None, SimulatorConfig(host='127.0.0.1', port={server.port}))\n"
        "env.reset(); os.kill(os.getpid(), 9)"
    )
    assert subprocess.run([sys.executable, "-c", script], check=False, timeout=PATIENCE_S).returncode == -signal.SIGKILL
    env = make_env(port=server.port)
    env.reset()
    env.session.tick()
    there = env.session.world.get_actors()
    kinds = sorted(spawned(actor for actor in there if actor.id != foreign.id))
    sensors = [f"sensor.{kind}" for kind in ("camera.rgb", "other.collision", "other.lane_invasion")]
    assert kinds == [*sensors, "spectator", "vehicle.tesla.model3"]
    assert foreign.id in {actor.id for actor in there}


def test_a_map_is_loaded_unless_it_is_there(start_server: StartServer, make_env: MakeEnv) -> None:
    server = start_server(map="Lite01")
    wrong = make_env(port=server.port, map="Nowhere")
    with pytest.raises(ConfigError, match=r"'Nowhere'.* has .*Lite01"):
        wrong.reset()
    wrong.close()
    before = other_client(server).get_world().id
    for name in ("Lite01", "Lite02", "Lite:seed=3,size=200"):  # the last is in no list of maps
        env = make_env(port=server.port, map=name)
        assert env.planner.name == name
        assert (env.session.world.id == before) is (name == "Lite01")
        assert env.reset()[1]["end"] is None
        env.close()


def test_an_opendrive_file_is_loaded_unless_it_is_there(start_server: StartServer, make_env: MakeEnv) -> None:
    town = REPOSITORY.parent / "shared" / "maps" / "Town02.xodr"
    if not town.exists():
        pytest.skip("Town02.xodr is not beside the repository")
    served = start_server(map=str(town))
    before = other_client(served).get_world().id
    env = make_env(port=served.port, map=str(town))
    assert env.reset()[1]["end"] is None
    assert env.session.world.id == before
    env = make_env(port=start_server(map="Lite01").port, map=str(town))
    assert env.reset()[1]["end"] is None
    assert env.session.map.to_opendrive().strip() == town.read_text(encoding="utf-8").strip()


class Killer(PidPurePursuit):
    """Drives well, and loses its simulator once on the way."""

    def __init__(self, lose: Callable[[], object]) -> None:
        super().__init__()
        self._lose, self.steps = lose, 0

    def act(self, observation: Observation, state: DriverState) -> np.ndarray:
        self.steps += 1
        if self.steps == 30:
            self._lose()
        return super().act(observation, state)


def test_a_route_lost_with_the_simulator_is_driven_again(start_server: StartServer, make_env: MakeEnv) -> None:
    server = start_server()

    def lose() -> None:
        server.kill()
        start_server(port=server.port)

    env = make_env(port=server.port)
    chosen = held_out_routes(env.planner, env.config.route, 2, seed=1)
    evaluation = completed(evaluate(env, Killer(lose), chosen, "pid"))
    assert [result.route for result in evaluation.routes] == [route.name for route in chosen]
    assert all(result.success for result in evaluation.routes)


@pytest.mark.parametrize("given", [True, False], ids=["given", "drawn"])
def test_a_simulator_with_another_map_gets_no_old_route(
    start_server: StartServer, make_env: MakeEnv, given: bool
) -> None:
    server = start_server(map="Lite01")

    def lose() -> None:
        server.kill()
        start_server(map="Lite02", port=server.port)

    env = make_env(port=server.port)
    chosen = held_out_routes(env.planner, env.config.route, 1, seed=1)
    if given:
        with pytest.raises(OtherMap, match=r"is of map Lite01, and the simulator at .* now has map Lite02: "):
            completed(evaluate(env, Killer(lose), chosen, "pid"))
    else:
        env.reset()
        lose()
    env.reset()
    assert env.planner.name == env.state.route.map == "Lite02"


TRAFFIC = """
import hashlib, json, os, sys
import numpy as np
from carla_td3.env.expert import PidPurePursuit
from carla_td3.config import EnvironmentConfig, SimulatorConfig, TrafficConfig
from carla_td3.env.driving import DrivingEnv
config = EnvironmentConfig(traffic=TrafficConfig(vehicles=6))
env = DrivingEnv(config, SimulatorConfig(host="127.0.0.1", port=int(sys.argv[1])), seed=4)
driver = PidPurePursuit()
observation, info = env.reset(seed=4)
digest = hashlib.sha256()
cars = [a for a in env.session.world.get_actors() if a.attributes.get("role_name") == "td3-traffic"]
before = {a.id: a.get_location() for a in cars}
for _ in range(150):
    observation, reward, terminated, truncated, info = env.step(driver.act(observation, env.state))
    digest.update(observation["image"].tobytes() + repr(reward).encode())
    if terminated or truncated:
        observation, info = env.reset()
moved = [a.get_location().distance(before[a.id]) for a in cars]
env.close()
kinds = sorted({a.attributes["base_type"] for a in cars})
print(json.dumps({"cars": len(cars), "kinds": kinds, "moved": moved, "digest": digest.hexdigest()}), flush=True)
os._exit(0)
"""


def test_traffic_drives_in_the_same_process_and_is_reproducible(start_server: StartServer) -> None:
    reports = []
    for _ in range(2):
        server = start_server(seed=2)
        command = [sys.executable, "-c", TRAFFIC, str(server.port)]
        done = subprocess.run(command, check=True, timeout=PATIENCE_S, capture_output=True, text=True)
        reports.append(json.loads(done.stdout.splitlines()[-1]))
        left = other_client(server).get_world().get_actors()
        assert spawned(left) == ["spectator"]
    assert reports[0]["cars"] == 6
    assert reports[0]["kinds"] == ["car"]
    assert sum(metres > 5.0 for metres in reports[0]["moved"]) >= 3
    assert reports[0] == reports[1]


# The manager's next round begins with a question to the simulator, straight after reset()'s last tick and in its own
# thread (protocol, section 5.8). A simulator that stops before the answer ends the process whatever close() does.
ROUND_BEGINS_S = 1.0
CLOSING = f"""
import os, sys, time
from carla_td3.config import EnvironmentConfig, SimulatorConfig, TrafficConfig
from carla_td3.env.driving import DrivingEnv
traffic = TrafficConfig(vehicles=2)
env = DrivingEnv(EnvironmentConfig(traffic=traffic), SimulatorConfig(port=int(sys.argv[1]), timeout_s=2.0))
env.reset(seed=1)
time.sleep({ROUND_BEGINS_S})
print("drives", flush=True)
sys.stdin.readline()
env.close()
print("closed", flush=True)
os._exit(0)
"""


def test_an_environment_with_traffic_is_closed_though_its_simulator_is_silent(start_server: StartServer) -> None:
    """The end of a Traffic Manager would wait for the simulator, and abort the process at the client's time-out."""
    server = start_server()
    words = [sys.executable, "-c", CLOSING, str(server.port)]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=REPOSITORY) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stdout.readline() == "drives\n"
        server.process.send_signal(signal.SIGSTOP)
        said, _ = process.communicate("\n", PATIENCE_S)
    assert (process.returncode, said) == (0, "closed\n")
