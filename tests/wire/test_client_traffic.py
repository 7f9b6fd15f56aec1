"""A real Traffic Manager drives cars on a real server."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from tests.conftest import port_pair
from tests.crowd import PATIENCE_S

PROCESS = Path(__file__).with_name("traffic_process.py")


def test_a_traffic_manager_drives_cars_along_their_lanes(start_server):
    server = start_server()
    arguments = [str(number) for number in (server.port, port_pair(), 6, 300)]
    ended = subprocess.run(
        [sys.executable, str(PROCESS), *arguments], capture_output=True, text=True, timeout=PATIENCE_S, check=False
    )
    assert ended.returncode == 0, ended.stderr
    outcome = json.loads(ended.stdout.splitlines()[-1])
    assert outcome["spawned"] == 6
    assert sum(metres > 20.0 for metres in outcome["driven_m"]) >= 5
    assert outcome["off_lane_m"] < 2.0


def test_a_traffic_manager_drives_in_a_town_from_a_seed(start_server):
    server = start_server(map="Lite:seed=12,size=300")
    arguments = [str(number) for number in (server.port, port_pair(), 20, 300)]
    ended = subprocess.run(
        [sys.executable, str(PROCESS), *arguments], capture_output=True, text=True, timeout=PATIENCE_S, check=False
    )
    assert ended.returncode == 0, ended.stderr
    outcome = json.loads(ended.stdout.splitlines()[-1])
    assert outcome["spawned"] == 20
    assert sum(metres > 20.0 for metres in outcome["driven_m"]) >= 10, "others may wait at a light"
    assert outcome["off_lane_m"] < 2.0
