"""A foreign project's tests with carla-lite's pytest plugin, in a pytest process; and servers without pytest."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import carla
import pytest

from carla_lite.testing import ServerError, server, servers, synchronous
from carla_lite.towns import generator
from tests.crowd import PATIENCE_S, until
from tests.faults import started

FOREIGN = """
import time

import carla
import pytest


def cars(world):
    return list(world.get_actors().filter("vehicle.*")) + list(world.get_actors().filter("sensor.*"))


@pytest.mark.parametrize("number", range(3))
def test_leaves_cars_and_sensors(carla_world, number):
    assert carla_world.get_settings().synchronous_mode
    assert cars(carla_world) == []
    library, points = carla_world.get_blueprint_library(), carla_world.get_map().get_spawn_points()
    car = carla_world.spawn_actor(library.find("vehicle.tesla.model3"), points[0])
    camera = carla_world.spawn_actor(library.find("sensor.camera.rgb"), carla.Transform(), car)
    images = []
    camera.listen(images.append)
    for number in range(1, 4):
        carla_world.tick()
        while len(images) < number:  # a sensor that goes out of scope while an image arrives ends the client
            time.sleep(0.001)
    carla_world.set_weather(carla.WeatherParameters.HardRainNoon)


def test_finds_the_world_new(carla_world):
    assert cars(carla_world) == []
    assert carla_world.get_weather().precipitation == 0
    assert carla_world.get_snapshot().timestamp.elapsed_seconds == pytest.approx(0.05)


@pytest.mark.carla_town("Lite:seed=3,size=200")
def test_town(carla_world):
    assert carla_world.get_map().name.endswith("Lite:seed=3,size=200")


def test_back_in_the_sessions_town(carla_world):
    assert carla_world.get_map().name.endswith("Lite01")


def test_drives_by_traffic_manager(carla_world, carla_traffic_manager):
    library, points = carla_world.get_blueprint_library(), carla_world.get_map().get_spawn_points()
    car = carla_world.spawn_actor(library.find("vehicle.tesla.model3"), points[0])
    car.set_autopilot(True, carla_traffic_manager.get_port())
    for _ in range(60):
        carla_world.tick()
    assert car.get_velocity().length() > 1


@pytest.mark.carla_server("Lite02")
def test_another_map(carla_world):
    assert carla_world.get_map().name.endswith("Lite02")


@pytest.mark.carla_server(seed=3)
def test_crash(carla_server, carla_client):
    world = carla_client.get_world()
    carla_client.set_timeout(2.0)
    carla_server.fault("crash")
    with pytest.raises(RuntimeError):
        world.get_weather()
    assert not carla_server.alive


def test_kills_the_sessions_server(carla_server):
    carla_server.kill()


def test_finds_it_running(carla_world):
    carla_world.tick()
"""
HOLDS = """
import time
from carla_lite.testing import server
with server() as running:
    print(running.pid, flush=True)
    time.sleep(600)
"""
TOWNS = """
import pytest


@pytest.mark.carla_town
def test_none(carla_world):
    pass


@pytest.mark.carla_town(name="Lite02")
def test_by_keyword(carla_world):
    pass
"""
ON_A_FILES_MAP = """
def test_map(carla_world):
    assert carla_world.get_map().name.endswith("Grid.v2")
"""
FAILS = """
def test_fails(carla_world):
    raise ValueError("wrong")
"""


def foreign(tmp_path: Path, *words: str, text: str = FOREIGN) -> subprocess.CompletedProcess[str]:
    (tmp_path / "test_foreign.py").write_text(text, encoding="utf-8")
    command = [sys.executable, "-m", "pytest", "-q", "-rA", "-p", "no:cacheprovider", "-c", os.devnull, *words]
    command += ["--rootdir", str(tmp_path), str(tmp_path)]
    return subprocess.run(command, capture_output=True, text=True, timeout=300, check=False, cwd=tmp_path)


def test_a_foreign_projects_tests_pass_on_two_workers(tmp_path: Path) -> None:
    ended = foreign(tmp_path, "-n", "2")
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert "11 passed" in ended.stdout


def test_a_server_that_runs_already_is_used(tmp_path: Path) -> None:
    with server() as running:
        ended = foreign(tmp_path, f"--carla-server=127.0.0.1:{running.port}", "-k", "new or crash")
        assert (ended.returncode, running.alive) == (0, True), ended.stdout
    assert "1 passed, 1 skipped" in ended.stdout


def test_a_server_that_runs_already_is_refused_to_two_workers(tmp_path: Path) -> None:
    ended = foreign(tmp_path, "--carla-server=127.0.0.1:2000", "-n", "2")
    assert "--carla-server names one server, for one worker" in ended.stderr
    assert (ended.returncode, "Traceback" in ended.stderr) == (pytest.ExitCode.USAGE_ERROR, False)


@pytest.mark.parametrize("address", ["127.0.0.1:1", "localhost", ":x"])
def test_a_server_that_does_not_answer_is_one_sentence(tmp_path: Path, address: str) -> None:
    ended = foreign(tmp_path, f"--carla-server={address}", "-k", "new")
    assert f"--carla-server {address}: no server answers there" in ended.stdout
    assert (ended.returncode, "Traceback" in ended.stdout) == (1, False)


def test_a_mark_without_a_town_is_one_sentence(tmp_path: Path) -> None:
    ended = foreign(tmp_path, text=TOWNS)
    assert ended.stdout.count('expected one map, as carla_town("Town02")') >= 2
    assert (ended.returncode, "IndexError" in ended.stdout) == (1, False)


def test_all_tests_use_the_map_of_a_file(tmp_path: Path) -> None:
    (tmp_path / "Grid.v2.xodr").write_text(generator.generate("Lite01"), encoding="utf-8")
    ended = foreign(tmp_path, "--carla-map=Grid.v2.xodr", text=ON_A_FILES_MAP)
    assert ended.returncode == 0, ended.stdout


def test_a_failed_test_shows_what_the_server_said(tmp_path: Path) -> None:
    ended = foreign(tmp_path, text=FAILS)
    assert ended.returncode == 1
    assert "carla-lite: Lite01 on 127.0.0.1:" in ended.stdout


def test_servers_take_ports_of_their_own_and_end_with_the_block() -> None:
    with servers(3, "Lite01", seed=2) as running:
        ports = {each.port for each in running}
        for each in running:
            with synchronous(carla.Client(each.host, each.port)) as world:
                assert world.tick() > 0
    assert len(ports) == 3
    assert not any(each.alive for each in running)


def test_a_server_goes_wrong_and_comes_back_on_its_port() -> None:
    with server() as running:
        port = running.port
        with pytest.raises(ServerError, match="explode"):
            running.fault("explode")
        running.fault("crash")
        until(lambda: not running.alive)
        running.restart()
        assert (running.port, running.alive) == (port, True)


def test_a_server_that_cant_start_says_why() -> None:
    with pytest.raises(ServerError, match=r"65.*Nowhere"), server("Nowhere"):
        pass


def test_a_server_ends_with_the_program_that_started_it(tmp_path: Path) -> None:
    with subprocess.Popen([sys.executable, "-c", HOLDS], stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        pid = int(parent.stdout.readline())
        parent.send_signal(signal.SIGKILL)
    until(lambda: not Path(f"/proc/{pid}").exists())


def test_a_ready_file_has_the_ports(tmp_path: Path) -> None:
    ready = tmp_path / "ready.json"
    with started("--port", "0", "--ready-file", str(ready)) as (_, process):
        until(ready.exists)
        told = json.loads(ready.read_text())
    assert (told["pid"], told["control_port"]) == (process.pid, None)
    assert 20_000 <= told["port"] < 32_001


@pytest.mark.parametrize("place", [".", "", "a file/ready.json"])
def test_a_ready_file_that_cannot_be_is_one_sentence(tmp_path: Path, place: str) -> None:
    (tmp_path / "a file").touch()
    command = [sys.executable, "-m", "carla_lite", "--port", "0", "--ready-file", place]
    ended = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, timeout=PATIENCE_S, check=False)
    assert ended.returncode == (2 if place == "." else 73)
    assert "--ready-file" in ended.stderr
    assert "Traceback" not in ended.stderr
    assert [each.name for each in tmp_path.iterdir()] == ["a file"]


def test_a_server_whose_input_is_closed_from_the_start_ends() -> None:
    command = [sys.executable, "-m", "carla_lite", "--port", "0", "--end-with-input"]
    closed = ["sh", "-c", 'exec "$@" <&-', "sh", *command]
    ended = subprocess.run(closed, capture_output=True, text=True, timeout=PATIENCE_S, check=False)
    assert (ended.returncode, ended.stderr) == (0, "")
