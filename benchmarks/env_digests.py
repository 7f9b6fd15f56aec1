"""Does a change of the environment change a single bit? Digests of observations, rewards and infos, by task and seed.

Each row drives with a PID driver and some noise on its own carla-lite: an empty town, the preset ``traffic``
(cars, pedestrians, lights, two colour views, hazards, the product), and the sum with traffic. Digests of two processors
may differ. ``--beside CHECKOUT`` runs another checkout's agent on the same server and compares. Run: ``python
benchmarks/env_digests.py --beside ../before``. Exit code 1: a digest differs.
"""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer
from lite_server import lite_process

from carla_td3.config import EnvironmentConfig, SimulatorConfig, load
from carla_td3.env.driving import DrivingEnv
from carla_td3.env.expert import PidPurePursuit
from carla_td3.layered_yaml import PRESETS

TASKS = ("plain", "traffic", "sum")
TOWN = "Lite:seed=7,size=400"


def main(
    steps: Annotated[int, typer.Option(min=1, help="Steps per row.")] = 600,
    seeds: Annotated[str, typer.Option(help="Seeds, separated by commas. Each makes a row.")] = "0,1,2",
    beside: Annotated[Path | None, typer.Option(help="Path of another checkout whose agent is compared.")] = None,
) -> None:
    """Print the digests as JSON, those of another checkout beside them."""
    found = {f"{task}, seed {seed}": _digest(task, int(seed), steps) for task in TASKS for seed in seeds.split(",")}
    if beside is None:
        print(json.dumps(found, indent=1), flush=True)
        return
    path = os.pathsep.join(str(beside.resolve() / folder) for folder in ("agent", "contract"))
    command = [sys.executable, __file__, "--steps", str(steps), "--seeds", seeds]
    environment = {**os.environ, "PYTHONPATH": path}
    other = json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True, env=environment).stdout)
    verdicts = {name: "same" if digest == other[name] else "differs" for name, digest in found.items()}
    print(json.dumps(verdicts, indent=1), flush=True)
    if "differs" in verdicts.values():
        raise typer.Exit(1)


def _task(name: str) -> EnvironmentConfig:
    if name == "plain":
        return EnvironmentConfig()
    environment = load(PRESETS / "traffic.yaml").environment
    if name == "sum":
        reward = environment.reward.model_copy(update={"form": "sum"})
        environment = environment.model_copy(update={"reward": reward, "privileged": False})
    return environment


def _digest(task: str, seed: int, steps: int) -> str:
    digest, driver = hashlib.sha256(), PidPurePursuit()
    rng = np.random.default_rng(seed)
    with lite_process(TOWN, seed=seed) as (port, _):
        env = DrivingEnv(_task(task), SimulatorConfig(host="127.0.0.1", port=port), seed=seed)
        observation, info = env.reset(seed=seed, options={"seed": seed})
        for _ in range(steps):
            action = driver.act(observation, env.state) + rng.normal(0.0, 0.05, 2).astype(np.float32)
            observation, reward, terminated, truncated, info = env.step(np.clip(action, -1.0, 1.0))
            _add(digest, observation, reward, terminated, truncated, info)
            if terminated or truncated:
                observation, info = env.reset(options={"seed": seed})
                _add(digest, observation, info)
        env.close()
    return digest.hexdigest()


def _add(digest: Any, *results: Any) -> None:
    for result in results:
        if isinstance(result, dict):
            for key in sorted(result):
                digest.update(key.encode())
                _add(digest, result[key])
        else:
            digest.update(result.tobytes() if isinstance(result, np.ndarray) else repr(result).encode())


if __name__ == "__main__":
    typer.run(main)
