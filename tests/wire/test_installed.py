"""The launcher installed from a wheel, used outside any checkout: what works there, and what asks for one."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import sysconfig
import zipfile
from pathlib import Path

import pytest

from tests.conftest import REPOSITORY
from tests.crowd import PATIENCE_S

CONFIG = """
environment: {time_limit: {constant_s: 4}, route: {min_length_m: 60, max_length_m: 150}}
td3: {batch_size: 8, network: {channels: [4, 4, 4], features: 16, hidden: [16]}}
replay: {capacity: 1000}
training: {total_steps: 60, warmup_steps: 50, log_every_steps: 50, learner_threads: 1}
evaluation: {every_steps: 0, final_episodes: 0, baselines: false, video: false}
"""


class Installed:
    """An environment of its own that has the wheel, and these tests' dependencies but not their checkout."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder / "elsewhere"
        self.folder.mkdir()
        (self.folder / "own.yaml").write_text(CONFIG, encoding="utf-8")
        subprocess.run(
            [sys.executable, "-m", "venv", "--without-pip", str(folder / "venv")], check=True, timeout=PATIENCE_S
        )
        self._python = folder / "venv" / "bin" / "python"
        asked = [str(self._python), "-c", "import sysconfig; print(sysconfig.get_path('purelib'))"]
        packages = Path(
            subprocess.run(asked, capture_output=True, text=True, check=True, timeout=PATIENCE_S).stdout.strip()
        )
        with zipfile.ZipFile(wheel(folder)) as archive:
            archive.extractall(packages)
        # A path that a .pth file names doesn't have its own .pth files read: the editable checkout stays out.
        shared = {sysconfig.get_path("purelib"), sysconfig.get_path("platlib")}
        (packages / "shared.pth").write_text("\n".join(sorted(shared)), encoding="utf-8")

    def launch(self, *words: str) -> subprocess.CompletedProcess[str]:
        kept = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
        return subprocess.run(
            [str(self._python), "-m", "launcher", *words],
            check=False,
            capture_output=True,
            text=True,
            cwd=self.folder,
            env=kept,
            timeout=500,
        )


def wheel(folder: Path) -> Path:
    """Return a wheel of this checkout, built from a copy: a build leaves files beside its sources."""
    source = folder / "source"
    ignored = shutil.ignore_patterns("__pycache__")
    for name in ("agent", "launcher", "contract", "carla/lite"):
        if (REPOSITORY / name).is_dir():
            shutil.copytree(REPOSITORY / name, source / name, ignore=ignored)
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(REPOSITORY / name, source / name)
    build = "import setuptools.build_meta as build, sys; print(build.build_wheel(sys.argv[1]))"
    built = subprocess.run(
        [sys.executable, "-c", build, str(folder)],
        cwd=source,
        check=False,
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
    )
    assert built.returncode == 0, built.stderr
    return folder / built.stdout.split()[-1]


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Installed:
    return Installed(tmp_path_factory.mktemp("installed"))


def test_a_plan_and_an_examination_need_no_checkout(installed: Installed) -> None:
    plan = installed.launch("plan", "--simulator", "carla-lite", "--device", "cpu", "--config", "own.yaml", "--json")
    assert plan.returncode == 0, plan.stderr
    assert json.loads(plan.stdout)
    found = {row["check"]: row for row in json.loads(installed.launch("doctor", "--json").stdout)}
    assert found["Python"]["verdict"] == "ok"


def test_a_run_of_local_processes_needs_no_checkout(installed: Installed) -> None:
    options = ("--runtime", "process", "--simulator", "carla-lite", "--device", "cpu", "--config", "own.yaml")
    ended = installed.launch("up", *options, "--run-name", "away")
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert (installed.folder / "runs" / "away" / "report.html").is_file()


@pytest.mark.skipif(shutil.which("docker") is None, reason="no docker command here")
def test_containers_ask_for_a_checkout_in_one_sentence_and_take_the_one_that_is_named(installed: Installed) -> None:
    options = ("--runtime", "compose", "--simulator", "carla-lite", "--config", "own.yaml")
    ended = installed.launch("plan", *options)
    assert ended.returncode == 65
    assert ended.stderr == (
        f"launcher: {installed.folder} has no docker-compose.yml: the Compose stack needs a checkout of this project; "
        "name its folder with --stack, or take --runtime process.\n"
    )
    named = installed.launch("plan", *options, "--stack", str(REPOSITORY))
    assert "needs a checkout" not in named.stderr
