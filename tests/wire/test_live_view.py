"""The live view of a drive, and that it costs nothing without a viewer."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path

import cv2
import numpy as np
import pytest

from carla_run.paths import RunPaths
from carla_td3.collector import live
from carla_td3.collector.live import LiveView
from carla_td3.collector.watchdog import WatchdogEnv
from carla_td3.config import validate
from carla_td3.exchange.status import Status
from tests.conftest import Server
from tests.wire.trainee import SMALL

STRAIGHT_ON = np.array([0.1, 0.4], np.float32)


@pytest.fixture
def run(tmp_path: Path) -> RunPaths:
    return RunPaths(tmp_path)


def driven(server: Server, run: RunPaths, steps: int = 3, vehicles: int = 0, looks: bool = False) -> None:
    settings = validate(
        {**SMALL, "environment": {"traffic": {"vehicles": vehicles}}, "simulator": {"port": server.port}}, source="test"
    )
    env = WatchdogEnv(settings, Status(run.path / "status.bin"), live=LiveView(run))
    env.reset(seed=5)
    if looks:
        run.live_wanted.touch()  # counts for three seconds, and the reset may take longer
    for _ in range(steps):
        env.step(STRAIGHT_ON)
    env.close()


def test_whoever_looks_sees_the_car_its_route_and_the_map(module_server: Server, run: RunPaths) -> None:
    run.live.mkdir()
    begun_s = time.time()
    driven(module_server, run, looks=True)
    state, town = (json.loads(path.read_text()) for path in (run.live_state, run.live_map))
    assert state["town"] == town["town"]
    assert begun_s <= state["time"] <= time.time()
    assert (state["steer"], state["throttle"], state["brake"]) == (0.1, 0.4, 0.0)
    assert sum(state["reward_terms"].values()) == pytest.approx(state["reward"], abs=1e-3)
    x, y, _ = state["car"]
    assert min(np.hypot(px - x, py - y) for px, py in state["route"]) < 5
    assert min(np.hypot(px - x, py - y) for lane in town["lanes"] for px, py in lane) < 5
    assert {light[2] for light in state["lights"]} <= {"red", "yellow", "green", "off", "unknown"}
    picture = cv2.imread(str(run.live_frame))
    assert picture is not None
    assert picture.shape == (84, 84, 3)
    assert picture.std() > 5
    assert sorted(path.name for path in run.live.iterdir()) == ["frame.jpg", "map.json", "state.json", "wanted"]


@pytest.mark.parametrize("age_s", [None, live.FRESH_S + 1])
def test_nothing_is_written_while_nobody_looks(module_server: Server, run: RunPaths, age_s: float | None) -> None:
    run.live.mkdir()
    if age_s is not None:
        run.live_wanted.touch()
        os.utime(run.live_wanted, (time.time() - age_s,) * 2)
    driven(module_server, run)
    assert [path.name for path in run.live.iterdir() if path.name != "wanted"] == []


def test_a_disk_that_refuses_the_picture_does_not_stop_the_drive(module_server: Server, run: RunPaths) -> None:
    run.live.mkdir()
    for path in (run.live_frame, run.live_state, run.live_map):
        path.mkdir()  # a file can't take its place
    driven(module_server, run, looks=True)
    assert not list(run.live_frame.iterdir())
