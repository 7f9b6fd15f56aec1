"""The run that is struck: small networks, short episodes, other cars, and every kind of phase within seconds."""

from __future__ import annotations

from typing import Any

SEED = 3
WARM_UP_STEPS = 60
CHECKPOINT_EVERY = 50
TRAFFIC = 3
LONG, SHORT = 20_000, 1_000
"""Steps of a run that is stopped after its last fault, and of one that is struck at its end."""
SETTINGS: dict[str, Any] = {
    "seed": SEED,
    "simulator": {"timeout_s": 3.0, "patience_s": 30.0},
    "environment": {
        "time_limit": {"constant_s": 4},
        "route": {"min_length_m": 60, "max_length_m": 200},
        "traffic": {"vehicles": TRAFFIC},
    },
    "td3": {"batch_size": 8, "network": {"channels": [4, 4, 4], "features": 16, "hidden": [16]}},
    "replay": {"capacity": 2 * LONG},
    "training": {
        "total_steps": LONG,
        "warmup_steps": WARM_UP_STEPS,
        "learner_threads": 1,
        "checkpoint_every_steps": CHECKPOINT_EVERY,
    },
    "collector": {"hang_margin_s": 0.5, "start_limit_s": 20.0},
    "evaluation": {"every_steps": 150, "episodes": 1, "final_episodes": 1, "baselines": False, "video": False},
}


def settings(total_steps: int, lockstep: bool) -> dict[str, Any]:
    """Return the configuration of one run."""
    return {**SETTINGS, "training": {**SETTINGS["training"], "total_steps": total_steps, "lockstep": lockstep}}
