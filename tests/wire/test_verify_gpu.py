"""``make verify-gpu`` as far as it can be had without a card and without CARLA: a stub's card, carla-lite for CARLA."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import uuid
import zipfile
from pathlib import Path

import pytest

from tests.conftest import REPOSITORY
from tests.gpu_stub.stub import Figures, build

pytestmark = pytest.mark.long

WITHOUT_TORCH = {"torch-sees-the-card"}
"""The stub deceives NVML, and nobody who would compute."""


def verify(folder: Path, environment: dict[str, str], *options: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "scripts/verify_gpu.py", "--runs-dir", str(folder), *options]
    kept = {name: value for name, value in environment.items() if name not in ("CARLA_HOST", "CARLA_PORT")}
    return subprocess.run(command, cwd=REPOSITORY, env=kept, capture_output=True, text=True, check=False)


def test_without_a_card_it_says_what_is_missing_and_leaves_nothing(tmp_path: Path) -> None:
    ended = verify(tmp_path, {**os.environ, "PATH": str(tmp_path)}, "--gpu", "7")
    assert ended.returncode == 69
    (sentence,) = ended.stderr.splitlines()
    assert "an NVIDIA GPU of index 7" in sentence
    assert "CARLA 0.9.16" in sentence
    assert not list(tmp_path.iterdir())


@pytest.mark.slow
@pytest.mark.timeout(400)
def test_a_verification_leaves_one_file_with_everything_and_no_names(tmp_path: Path) -> None:
    figures = Figures(tmp_path / "figures", build(tmp_path), uuid=f"GPU-{uuid.uuid4()}")
    limits = tmp_path / "launcher.yaml"
    shipped = (REPOSITORY / "config" / "launcher.yaml").read_text(encoding="utf-8")
    command = f"{sys.executable} -m carla_lite --port {{port}}"
    limits.write_text(shipped.replace("command: null", f'command: "{command}"'), encoding="utf-8")
    (tmp_path / "runs").mkdir()
    ended = verify(tmp_path / "runs", figures.environment, "--launcher-config", str(limits), "--steps", "100")
    (packed,) = (tmp_path / "runs").iterdir()
    with zipfile.ZipFile(packed) as archive:
        told = {name: archive.read(name).decode() for name in archive.namelist()}
    summary = json.loads(told["summary.json"])
    codes = {step["name"]: step["code"] for step in summary["steps"]}
    assert {name for name, code in codes.items() if code != 0} == WITHOUT_TORCH, ended.stdout + ended.stderr
    assert ended.returncode == 1
    assert {"doctor", "plan-before", "plan-with-carla", "wire-tests", "run", "gpu-tests"} <= codes.keys()
    assert summary["card_with_carla"]["card"]["total_mib"] == figures.total_mib
    plan = json.loads(told["plan-before.txt"])
    assert (plan["gpu"], plan["simulator"]) == ("ok", "CARLA")
    assert json.loads(told["run/agent.json"])["step"] == 100
    assert str(REPOSITORY) not in "".join(told.values())
