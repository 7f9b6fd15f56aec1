"""A card that the driver shows and an engine that can't give it to a container: said before anything is started."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import uuid
from pathlib import Path

import pytest

from carla_launcher.observe.container_engine import HOOKS
from tests.conftest import REPOSITORY
from tests.gpu_stub.stub import Figures, build
from tests.stack.stack import docker
from tests.wire.launched import own_limits

pytestmark = [pytest.mark.stack, pytest.mark.timeout(600)]
QUICK = "quick"
TAG = "none"


@pytest.fixture
def figures(images: None, tmp_path: Path) -> Figures:
    """A stand-in's card, on an engine that knows of none."""
    if "nvidia" in docker("info", "--format", "{{json .Runtimes}}").stdout or any(map(shutil.which, HOOKS)):
        pytest.skip("this engine has the NVIDIA Container Toolkit")
    return Figures(tmp_path / "figures", build(tmp_path), total_mib=12_000, uuid=f"GPU-{uuid.uuid4()}")


def launch(figures: Figures, *words: str, **environment: str) -> subprocess.CompletedProcess[str]:
    folder = figures.path.parent / "runs"
    return subprocess.run(
        [
            sys.executable,
            "-m",
            "carla_launcher",
            *words,
            "--runs-dir",
            str(folder),
            "--config",
            QUICK,
            "--simulator",
            "carla",
        ],
        check=False,
        capture_output=True,
        text=True,
        cwd=REPOSITORY,
        env={**figures.environment, "CARLA_VERSION": TAG, **environment},
        timeout=300,
    )


def test_plan_does_not_say_fits_and_up_starts_nothing(figures: Figures) -> None:
    planned = launch(figures, "plan", "--json")
    found = json.loads(planned.stdout)
    assert (planned.returncode, found["fits"]) == (65, False)
    assert "can't give a container the GPU: install the NVIDIA Container Toolkit" in found["obstacle"]
    assert "`python scripts/launch.py doctor`" in found["obstacle"]
    assert [each for each in found["configurations"] if each["fits"]], "memory isn't what stands in the way"
    shown = launch(figures, "plan")
    assert (shown.returncode, shown.stdout.splitlines()[-1]) == (65, f"A run can't start: {found['obstacle']}")
    ended = launch(figures, "up", "--run-name", "run")
    assert (ended.returncode, ended.stderr.splitlines()) == (65, [f"launcher: {found['obstacle']}"])


def test_what_the_daemon_says_where_a_runtime_is_vouched_for_is_explained(figures: Figures, tmp_path: Path) -> None:
    docker("tag", "carla-td3-lite:latest", f"carla-td3-simulator:{TAG}")
    try:
        ended = launch(figures, "up", "--run-name", "run", *own_limits(tmp_path, {}), GPU_RUNTIME="runc")
    finally:
        docker("image", "rm", f"carla-td3-simulator:{TAG}")
    assert ended.returncode == 69, ended.stdout + ended.stderr
    said = ended.stdout + ended.stderr
    assert (
        "install the NVIDIA Container Toolkit and restart Docker; `python scripts/launch.py doctor` says more" in said
    )
    assert "could not select device driver" in said
    assert "Vulkan finds no driver" not in said, "no container has run"
