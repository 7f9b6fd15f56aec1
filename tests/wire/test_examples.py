"""The programs of ``examples/``, a few steps each, as a person starts them."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import StartServer

REPOSITORY = Path(__file__).resolve().parents[2]
LIMIT_S = 400


def ran(name: str, *arguments: str, port: int | None = None) -> str:
    """Run an example to its end, which must be a good one, and return what it printed."""
    environment = {**os.environ, "OMP_NUM_THREADS": "1", **({} if port is None else {"CARLA_PORT": str(port)})}
    command = [sys.executable, str(REPOSITORY / "examples" / name), *arguments]
    done = subprocess.run(
        command, cwd=REPOSITORY, env=environment, capture_output=True, text=True, check=False, timeout=LIMIT_S
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout


@pytest.mark.parametrize("algorithm", ["td3", "sac"])
def test_stable_baselines3_leaves_checkpoints(start_server: StartServer, tmp_path: Path, algorithm: str) -> None:
    pytest.importorskip("stable_baselines3")
    ports = ",".join(str(start_server().port) for _ in range(2))
    sizes = ("--steps", "60", "--warm-up", "40", "--every", "30", "--episodes", "1", "--batch", "4", "--buffer", "100")
    ran("sb3_td3_sac.py", "--algorithm", algorithm, "--ports", ports, "--folder", str(tmp_path), *sizes)
    names = {path.name for path in tmp_path.iterdir()}
    assert names == {"evaluations.npz", "best_model.zip", f"{algorithm}.zip"}


def test_soft_actor_critic_in_one_file_trains(start_server: StartServer, tmp_path: Path) -> None:
    weights = tmp_path / "sac.pt"
    sizes = ("--steps", "60", "--warm-up", "40", "--batch", "4", "--capacity", "100", "--weights", str(weights))
    said = ran("sac_single_file.py", *sizes, port=start_server().port)
    assert "60 steps" in said
    assert weights.stat().st_size > 1_000_000
