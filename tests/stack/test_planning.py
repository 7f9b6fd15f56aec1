"""``plan`` for the Compose stack: its containers' limits count, its image is asked, and nothing of it is left."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from carla_launcher.act.compose.project import name_of
from carla_run.paths import RunPaths
from tests.conftest import REPOSITORY
from tests.crowd import PATIENCE_S
from tests.stack.stack import CALLER, docker

QUICK = "quick"


@pytest.fixture
def runs(tmp_path: Path) -> Path:
    folder = tmp_path / "runs"
    folder.mkdir()
    os.chown(folder, CALLER, CALLER)
    return folder


def plan(runs: Path, **environment: str) -> dict[str, Any]:
    """Return the plan; whatever is told of its project afterwards is under ``left``."""
    command = [sys.executable, "-m", "carla_launcher", "plan", "--json", "--config", QUICK, "--runs-dir", str(runs)]
    planner = subprocess.Popen(
        [*command, "--runtime", "compose", "--simulator", "carla-lite"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=REPOSITORY,
        env={**os.environ, **environment},
    )
    reported, said = planner.communicate(timeout=PATIENCE_S)
    assert reported, said
    project = f"label=com.docker.compose.project={name_of(RunPaths(runs / f'.planned-{planner.pid}'))}"
    left = [docker(*words, "--quiet", "--filter", project).stdout for words in (("ps", "--all"), ("network", "ls"))]
    return {**json.loads(reported), "left": "".join(left).split()}


def test_a_plan_counts_with_the_containers_limits(compose_plugin: None, runs: Path) -> None:
    found = plan(runs, AGENT_MEMORY="3g", CARLA_MEMORY="1g")
    totals = {name: pool["total_mib"] for name, pool in found["asked"]["pools"].items()}
    assert (totals["ram:agent"], totals["ram:simulator"]) == (3072, 1024)
    assert found["fits"]
    assert not plan(runs, AGENT_MEMORY="200m", CARLA_MEMORY="1g")["fits"]
    assert list(runs.iterdir()) == []


def test_without_pytorch_here_the_plan_asks_the_image_and_leaves_nothing(images: None, runs: Path) -> None:
    hidden = runs.parent / "hidden"
    hidden.mkdir()
    (hidden / "sitecustomize.py").write_text("import sys; sys.modules['torch'] = None")
    found = plan(runs, PYTHONPATH=str(hidden))
    assert found["agent_by_phase_mib"]["ram"]["updating"] > 0
    assert list(runs.iterdir()) == []
    assert found["left"] == []
