"""Races of the client's own, which no server can mend: here to be seen when a later client has mended one."""

from __future__ import annotations

import os
import signal
import subprocess
import sys

import carla
import pytest

from tests.conftest import Server, StartServer, port_pair
from tests.crowd import PATIENCE_S

WARNING = "a map is loaded beside a Traffic Manager in asynchronous mode"
CODE = """
import os, sys, time, carla
client = carla.Client("127.0.0.1", int(sys.argv[1]))
client.set_timeout(20.0)
world, manager = client.get_world(), client.get_trafficmanager(int(sys.argv[2]))
model = world.get_blueprint_library().find("vehicle.tesla.model3")
cars = [world.spawn_actor(model, place) for place in world.get_map().get_spawn_points()[:24:4]]
for car in cars:
    car.set_autopilot(True, int(sys.argv[2]))
time.sleep(1.0)
for way in sys.argv[3:]:
    if way == "leave":
        for car in cars:
            car.set_autopilot(False, int(sys.argv[2]))
            car.destroy()
        manager.shut_down()
        time.sleep(1.5)
    else:
        client.load_world(way) if way != "reload" else client.reload_world()
        time.sleep(1.0)
print("loaded", flush=True)
os._exit(0)
"""


def traffic(server: Server, *ways: str, **variables: str) -> subprocess.CompletedProcess[str]:
    """Return how a process with asynchronous traffic ended that went these ways."""
    arguments = [sys.executable, "-c", CODE, str(server.port), str(port_pair()), *ways]
    environment = {**os.environ, **variables}
    return subprocess.run(arguments, env=environment, capture_output=True, text=True, timeout=PATIENCE_S, check=False)


@pytest.mark.parametrize("way", ["Lite02", pytest.param("reload", marks=pytest.mark.long)])
def test_a_map_loaded_beside_asynchronous_traffic_ends_the_client(start_server: StartServer, way: str) -> None:
    server = start_server()
    assert traffic(server, way).returncode == -signal.SIGSEGV
    assert WARNING in server.output
    assert carla.Client("127.0.0.1", server.port).get_world().get_snapshot().frame > 0


@pytest.mark.skipif("CARLA_0_9_15" not in os.environ, reason="CARLA_0_9_15 names no folder with the client of 0.9.15")
def test_the_client_of_0_9_15_outlives_it(start_server: StartServer) -> None:
    server = start_server(extra=("--client", "0.9.15"))
    ended = traffic(server, "Lite02", "reload", PYTHONPATH=os.environ["CARLA_0_9_15"])
    assert (ended.returncode, ended.stdout) == (0, "loaded\n"), ended.stderr
    assert WARNING not in server.output


def test_a_map_loaded_after_the_traffic_manager_ends_nobody(start_server: StartServer) -> None:
    server = start_server()
    ended = traffic(server, "leave", "Lite02")
    assert (ended.returncode, ended.stdout) == (0, "loaded\n"), ended.stderr
    assert WARNING not in server.output
