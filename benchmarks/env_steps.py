"""Steps per second of the gymnasium environment, with images, on its own carla-lite.

The PID driver drives, so that the car moves and episodes end as usual; resets are included. On a busy machine, the
processor time of a step says more than its rate. Run: ``python benchmarks/env_steps.py --steps 2000 --repeats 5
--json``.
"""

from __future__ import annotations

import json
import os
import time
from typing import Annotated, Any

import psutil
import typer
from lite_server import lite_process
from measuring import counted, leave, machine, spread

from carla_td3.config import EnvironmentConfig, SimulatorConfig
from carla_td3.env.driving import DrivingEnv
from carla_td3.env.expert import PidPurePursuit


def main(
    map: Annotated[str, typer.Option(help="Name of a map, or path of an .xodr file.")] = "Lite01",
    steps: Annotated[int, typer.Option(min=50, help="Steps per repeat.")] = 2000,
    repeats: Annotated[int, typer.Option(min=1, help="Repeats; the result is their median.")] = 5,
    as_json: Annotated[bool, typer.Option("--json", help="Print the result as JSON.")] = False,
) -> None:
    with lite_process(map) as (port, server):
        env = DrivingEnv(EnvironmentConfig(), SimulatorConfig(host="127.0.0.1", port=port))
        _rate(env, 200)  # caches of server and client fill
        before = _processor_s(os.getpid()), _processor_s(server)
        rates = [_rate(env, steps) for _ in counted(range(repeats), "turn")]
        after = _processor_s(os.getpid()), _processor_s(server)
        env.close()
    taken_us = [round((late - early) / (steps * repeats) * 1e6) for early, late in zip(before, after, strict=True)]
    report: dict[str, Any] = {
        "what": "environment steps a second, 4×84×84 image and vector, resets included",
        "map": map,
        "steps_per_s": spread(rates),
        "processor_us_a_step": dict(zip(("client", "server"), taken_us, strict=True)),
        "steps": steps,
        "repeats": repeats,
        "machine": machine("carla", "gymnasium", "numpy", "opencv-python-headless"),
    }
    print(
        json.dumps(report, indent=2, ensure_ascii=False)
        if as_json
        else f"{report['steps_per_s']['median']} steps/s on {map}"
    )
    leave()


def _processor_s(pid: int) -> float:
    times = psutil.Process(pid).cpu_times()
    return times.user + times.system


def _rate(env: DrivingEnv, steps: int) -> float:
    driver = PidPurePursuit()
    observation, _ = env.reset()
    before = observation["image"][-1]
    changed = 0
    started_s = time.perf_counter()
    for _ in range(steps):
        observation, _, terminated, truncated, _ = env.step(driver.act(observation, env.state))
        changed += int(observation["image"][-1, 42, 42] != before[42, 42])
        before = observation["image"][-1]
        if terminated or truncated:
            observation, _ = env.reset()
    seconds = time.perf_counter() - started_s
    # A black or frozen camera would give a flattering figure.
    assert before.std() > 10, f"the image is flat: standard deviation {before.std():.1f}"
    assert changed > steps // 10, f"the image hardly changes: {changed} of {steps} steps"
    return steps / seconds


if __name__ == "__main__":
    typer.run(main)
