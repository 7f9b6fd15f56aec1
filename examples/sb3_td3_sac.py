"""Stable-Baselines3's TD3 or SAC on ``CarlaTD3/Driving-v0``, with an evaluation and a checkpoint now and then.

Two simulators, one to train in and one to evaluate in: ``python -m carla_lite --port 2000 &`` and the same with
``--port 2003``. Then ``python examples/sb3_td3_sac.py --ports 2000,2003 --algorithm sac``. With one port nothing is
evaluated. A checkpoint holds networks and optimizers; Stable-Baselines3's replay keeps each picture twice, 113 kB a
step, and begins empty after ``--resume``.

It reports to a launcher, where one started it, and goes on from its checkpoint after a kill: ``--resume``.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any

import gymnasium
from sb3_report import LauncherCallback
from stable_baselines3 import SAC, TD3
from stable_baselines3.common.callbacks import BaseCallback, EvalCallback
from stable_baselines3.common.monitor import Monitor

import carla_td3.env  # noqa: F401 (registers the environment)
from carla_run import run

ALGORITHMS: dict[str, Any] = {"td3": TD3, "sac": SAC}


def main() -> int:
    """Train, and leave what came of it; return the exit code."""
    asked = arguments()
    training, *others = [
        Monitor(gymnasium.make("CarlaTD3/Driving-v0", simulator={"port": port, "patience_s": 60}, seed=asked.seed))
        for port in asked.ports
    ]
    saved = asked.folder / f"{asked.algorithm}.zip"
    try:
        with run.report(asked.steps, sigterm=True) as report:
            model = begun(asked, saved, training)
            reporting = LauncherCallback(report, saved, asked.every)
            callbacks: list[BaseCallback] = [reporting]
            if others:
                callbacks.append(
                    EvalCallback(
                        others[0],
                        n_eval_episodes=asked.episodes,
                        eval_freq=asked.every,
                        log_path=str(asked.folder),
                        best_model_save_path=str(asked.folder),
                    )
                )
            model.learn(asked.steps - model.num_timesteps, callback=callbacks, reset_num_timesteps=False)
            reporting.save()
    finally:
        for each in (training, *others):
            each.close()
    return report.exit_code


def begun(asked: argparse.Namespace, saved: Path, training: Monitor[Any, Any]) -> Any:
    """Return the model: the saved one, where it is to resume and there is one."""
    kind = ALGORITHMS[asked.algorithm]
    settings = {"batch_size": asked.batch, "buffer_size": asked.buffer, "seed": asked.seed, "device": "auto"}
    if not (asked.resume and saved.exists()):
        return kind("MultiInputPolicy", training, learning_starts=asked.warm_up, **settings)
    model = kind.load(saved, training, **settings)
    model.learning_starts = model.num_timesteps + asked.warm_up  # its replay is empty
    return model


def arguments() -> argparse.Namespace:
    """Return the command line's."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.ArgumentDefaultsHelpFormatter)
    parser.add_argument("--algorithm", choices=ALGORITHMS, default="td3", help="Algorithm to train with.")
    parser.add_argument("--ports", type=ports, default=(2000, 2003), help="Ports of the simulators.")
    parser.add_argument("--steps", type=int, default=100_000, help="Environment steps.")
    parser.add_argument("--warm-up", type=int, default=1_000, help="Steps of random actions before the first update.")
    parser.add_argument("--every", type=int, default=5_000, help="Steps between evaluations and checkpoints.")
    parser.add_argument("--episodes", type=int, default=5, help="Drives of an evaluation.")
    parser.add_argument("--batch", type=int, default=64, help="Transitions of an update.")
    parser.add_argument("--buffer", type=int, default=20_000, help="Transitions that the replay holds.")
    parser.add_argument("--seed", type=int, default=0, help="Seed of routes and networks.")
    parser.add_argument("--resume", action="store_true", help="Go on from the folder's checkpoint, if it has one.")
    parser.add_argument("--folder", type=Path, default=Path("runs/stable-baselines3"), help="Folder for the results.")
    return parser.parse_args()


def ports(text: str) -> tuple[int, ...]:
    """Return the ports of ``2000,2003``."""
    return tuple(int(part) for part in text.split(","))


if __name__ == "__main__":
    sys.exit(main())
