"""Stable-Baselines3's TD3 or SAC on ``CarlaTD3/Driving-v0``, with an evaluation and a checkpoint now and then.

Two simulators, one to train in and one to evaluate in: ``python -m carla_lite --port 2000 &`` and the same with
``--port 2003``. Then ``python examples/sb3_td3_sac.py --ports 2000,2003 --algorithm sac``. A checkpoint holds
networks and optimizers; Stable-Baselines3's replay keeps each picture twice, 113 kB a step.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import gymnasium
from stable_baselines3 import SAC, TD3
from stable_baselines3.common.callbacks import CheckpointCallback, EvalCallback
from stable_baselines3.common.monitor import Monitor

import carla_td3.env  # noqa: F401 (registers the environment)

ALGORITHMS = {"td3": TD3, "sac": SAC}


def main() -> None:
    """Train, and save the results."""
    asked = arguments()
    training, evaluating = (
        Monitor(gymnasium.make("CarlaTD3/Driving-v0", simulator={"port": port, "patience_s": 60}, seed=asked.seed))
        for port in asked.ports
    )
    try:
        model = ALGORITHMS[asked.algorithm](
            "MultiInputPolicy",
            training,
            batch_size=asked.batch,
            buffer_size=asked.buffer,
            learning_starts=asked.warm_up,
            seed=asked.seed,
            device="auto",
        )
        evaluation = EvalCallback(
            evaluating,
            n_eval_episodes=asked.episodes,
            eval_freq=asked.every,
            log_path=str(asked.folder),
            best_model_save_path=str(asked.folder),
        )
        checkpoints = CheckpointCallback(asked.every, str(asked.folder), name_prefix=asked.algorithm)
        model.learn(asked.steps, callback=[evaluation, checkpoints])
        model.save(asked.folder / f"{asked.algorithm}.zip")
    finally:
        training.close()
        evaluating.close()


def arguments() -> argparse.Namespace:
    """Return the command line's arguments."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.ArgumentDefaultsHelpFormatter)
    parser.add_argument("--algorithm", choices=ALGORITHMS, default="td3", help="Algorithm to train with.")
    parser.add_argument("--ports", type=ports, default=(2000, 2003), help="Ports of the two simulators.")
    parser.add_argument("--steps", type=int, default=100_000, help="Environment steps.")
    parser.add_argument("--warm-up", type=int, default=1_000, help="Steps of random actions before the first update.")
    parser.add_argument("--every", type=int, default=5_000, help="Steps between evaluations and checkpoints.")
    parser.add_argument("--episodes", type=int, default=5, help="Drives of an evaluation.")
    parser.add_argument("--batch", type=int, default=64, help="Transitions of an update.")
    parser.add_argument("--buffer", type=int, default=20_000, help="Transitions that the replay holds.")
    parser.add_argument("--seed", type=int, default=0, help="Seed of routes and networks.")
    parser.add_argument("--folder", type=Path, default=Path("runs/stable-baselines3"), help="Folder for the results.")
    return parser.parse_args()


def ports(text: str) -> tuple[int, int]:
    """Return the two ports of ``2000,2003``."""
    training, evaluating = (int(part) for part in text.split(","))
    return training, evaluating


if __name__ == "__main__":
    main()
