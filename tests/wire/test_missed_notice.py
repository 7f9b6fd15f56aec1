"""A Traffic Manager's thread that misses a tick's notice is woken again: no drive ends for it.

The race itself comes once in some ten thousand ticks. Here a library in front of the client drops one notice.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from tests.c_library import compiled
from tests.conftest import REPOSITORY, StartServer
from tests.crowd import PATIENCE_S

LIBRARY = """
#define _GNU_SOURCE
#include <dlfcn.h>
#include <unistd.h>
int to_drop = 0, dropped = 0;
void _ZNSt18condition_variable10notify_oneEv(void *condition) {
    static void (*real)(void *);
    if (to_drop > dropped && gettid() == getpid()) {
        dropped++;
        return;
    }
    if (!real) real = (void (*)(void *)) dlsym(
        dlopen("libstdc++.so.6", RTLD_LAZY), "_ZNSt18condition_variable10notify_oneEv");
    real(condition);
}
"""
CODE = """
import ctypes, os, sys, time
from carla_td3.config import EnvironmentConfig, SimulatorConfig, TrafficConfig
from carla_td3.env.driving import DrivingEnv

library = ctypes.CDLL(os.environ["LD_PRELOAD"])
to_drop, dropped = (ctypes.c_int.in_dll(library, name) for name in ("to_drop", "dropped"))
config = EnvironmentConfig(traffic=TrafficConfig(vehicles=3))
env = DrivingEnv(config, SimulatorConfig(host="127.0.0.1", port=int(sys.argv[1]), timeout_s=60.0))
env.reset(seed=1)
for count in (1, 2):
    time.sleep(0.2)  # the manager's thread waits again
    to_drop.value = count
    while dropped.value < count:
        env.step((0.0, -1.0))
before = [car.get_location() for car in env.scene.traffic.cars]
for _ in range(40):
    env.step((0.0, -1.0))
driven = [car.get_location().distance(place) for car, place in zip(env.scene.traffic.cars, before)]
print("dropped", dropped.value, "driven", max(driven), flush=True)
env.close()
os._exit(0)
"""


def test_a_tick_that_waits_for_a_missed_notice_goes_on(start_server: StartServer, tmp_path: Path) -> None:
    library = compiled(LIBRARY, tmp_path / "notices.so")
    ended = subprocess.run(
        [sys.executable, "-c", CODE, str(start_server().port)],
        cwd=REPOSITORY,
        env={**os.environ, "LD_PRELOAD": str(library)},
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )
    assert ended.returncode == 0, ended.stderr
    _, dropped, _, driven_m = ended.stdout.splitlines()[-1].split()
    assert dropped == "2"
    assert float(driven_m) > 1.0
