"""Fixtures of the stack's tests: Compose, an engine that answers, images built once a session, stacks that end."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.gpu_stub.stub import build_vulkan
from tests.stack.compose_run import ComposeRun
from tests.stack.stack import LITE, Stack, compose, docker
from tests.stack.stand_in import build_simulator, remove
from tests.wire.trainee import SMALL

BASE = "python:3.11-slim-bookworm"

StartStack = Callable[..., Stack]
Launch = Callable[..., ComposeRun]


def _answers(*command: str) -> bool:
    return (
        shutil.which("docker") is not None and subprocess.run(command, check=False, capture_output=True).returncode == 0
    )


@pytest.fixture(scope="session")
def compose_plugin() -> None:
    """Skip where there is no Compose v2; what only reads the files needs no engine."""
    if not _answers("docker", "compose", "version"):
        pytest.skip("docker has no Compose plugin here; .ci/engine fetches one on Debian")


@pytest.fixture(scope="session")
def base_image() -> str:
    """Return the image that ours are built on; skip where there is no engine, or the image can't be had."""
    if not _answers("docker", "version"):
        pytest.skip("no Docker engine answers; .ci/engine starts one on Debian")
    if not (_answers("docker", "image", "inspect", BASE) or _answers("docker", "pull", "-q", BASE)):
        pytest.skip(f"{BASE} isn't here and can't be pulled; .ci/engine makes a stand-in on Debian")
    return BASE


@pytest.fixture(scope="session")
def images(compose_plugin: None, base_image: str) -> None:
    """Build the images of the CPU stack, once."""
    compose(LITE, "build", "--quiet", timeout_s=1200)
    docker("image", "inspect", "carla-td3-agent:latest", "carla-td3-lite:latest", "td3-av-system:latest")


@pytest.fixture
def start_stack(images: None, tmp_path: Path) -> Iterator[StartStack]:
    """Make a stack in the test's folder; it is taken down after the test, however that ends."""
    made: list[Stack] = []

    def make(*arguments: object, **named: object) -> Stack:
        made.append(Stack(tmp_path, *arguments, **named))  # type: ignore[arg-type]
        return made[-1]

    yield make
    for stack in made:
        stack.down()


@pytest.fixture
def launch(images: None, tmp_path: Path) -> Iterator[Launch]:
    """Make runs under the Compose runtime; they are taken down after the test, however that ends."""
    made: list[ComposeRun] = []

    def make(name: str = "run", settings: Mapping[str, Any] = SMALL, **programs: str) -> ComposeRun:
        made.append(ComposeRun(tmp_path / "runs" / name, settings, programs))
        return made[-1]

    yield make
    for each in made:
        each.runtime.clear()
        each.runtime.close()


@pytest.fixture(scope="session")
def stand_in(images: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Build the simulator's image on a stand-in for CARLA's; return a driver for its card."""
    build_simulator(tmp_path_factory.mktemp("stand-in"))
    yield build_vulkan(tmp_path_factory.mktemp("driver"))
    remove()
