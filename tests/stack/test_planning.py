"""``plan`` for the Compose stack: its containers' limits count, its image is asked, and nothing of it is left."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from launcher.run_directory import RunDirectory
from launcher.runtimes.project import name_of
from tests.conftest import REPOSITORY
from tests.stack.stack import CALLER, docker

QUICK = str(REPOSITORY / "config" / "td3_config_quick.yaml")


@pytest.fixture
def runs(tmp_path: Path) -> Path:
    folder = tmp_path / "runs"
    folder.mkdir()
    os.chown(folder, CALLER, CALLER)
    return folder


def plan(runs: Path, **environment: str) -> dict[str, Any]:
    command = [sys.executable, "-m", "launcher", "plan", "--json", "--config", QUICK, "--runs-dir", str(runs)]
    ended = subprocess.run(
        [*command, "--runtime", "compose", "--simulator", "carla-lite"],
        check=False,
        capture_output=True,
        text=True,
        cwd=REPOSITORY,
        env={**os.environ, **environment},
        timeout=180,
    )
    assert ended.stdout, ended.stderr
    found = json.loads(ended.stdout)
    assert isinstance(found, dict)
    return found


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
    project = f"label=com.docker.compose.project={name_of(RunDirectory(runs / 'planned'))}"
    left = (docker(*words, "--quiet", "--filter", project).stdout for words in (("ps", "--all"), ("network", "ls")))
    assert "".join(left) == ""
