"""A real Traffic Manager drives cars on a real server."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

from tests.conftest import StartServer, port_pair
from tests.crowd import PATIENCE_S

PROCESS = Path(__file__).with_name("traffic_process.py")
TRIES = 3


def driven(start_server: StartServer, cars: int, ticks: int, **server: str) -> dict[str, Any]:
    """Return what the Traffic Manager of another process did with so many cars.

    A process whose Traffic Manager waits for itself is ended by its alarm, and another server gets another one.
    """
    for _ in range(TRIES):
        words = map(str, (start_server(**server).port, port_pair(), cars, ticks))
        ended = subprocess.run(
            [sys.executable, str(PROCESS), *words], capture_output=True, text=True, timeout=PATIENCE_S, check=False
        )
        if ended.returncode != -signal.SIGALRM:
            break
    assert ended.returncode == 0, ended.stderr
    outcome: dict[str, Any] = json.loads(ended.stdout.splitlines()[-1])
    return outcome


def test_a_traffic_manager_drives_cars_along_their_lanes(start_server: StartServer) -> None:
    outcome = driven(start_server, 6, 300)
    assert outcome["spawned"] == 6
    assert sum(metres > 20.0 for metres in outcome["driven_m"]) >= 5
    assert outcome["off_lane_m"] < 2.0


def test_a_traffic_manager_drives_in_a_town_from_a_seed(start_server: StartServer) -> None:
    outcome = driven(start_server, 20, 300, map="Lite:seed=12,size=300")
    assert outcome["spawned"] == 20
    assert sum(metres > 20.0 for metres in outcome["driven_m"]) >= 10, "others may wait at a light"
    assert outcome["off_lane_m"] < 2.0
