"""The Compose stack as its users run it: one project, one folder of runs, on the engine of this machine.

Owns the project's name, its variables and its end. A caller's own ``.env`` and variables are left out, for a test must
not depend on them.
"""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from tests.conftest import REPOSITORY, ports
from tests.crowd import PATIENCE_S
from tests.soak import census
from tests.wire.trainee import Run

GPU = ("docker-compose.yml",)
LITE = (*GPU, "docker-compose.lite.yml")
RUN_NAME = "struck"
CALLER = os.getuid() or 1000
"""Whose the files shall be; root's stacks run as 1000 too."""


def docker(*arguments: str, check: bool = True, timeout_s: float = 120.0) -> subprocess.CompletedProcess[str]:
    """Run one docker command; fail with what it said."""
    ended = subprocess.run(["docker", *arguments], check=False, capture_output=True, text=True, timeout=timeout_s)
    assert not check or ended.returncode == 0, f"docker {' '.join(arguments)}: {ended.stderr}"
    return ended


def compose(
    files: Sequence[str],
    *arguments: str,
    variables: Mapping[str, str] | None = None,
    check: bool = True,
    timeout_s: float = 180.0,
) -> subprocess.CompletedProcess[str]:
    """Run one Compose command with these variables and no other."""
    kept = {name: value for name, value in os.environ.items() if name in ("PATH", "HOME") or name.startswith("DOCKER_")}
    named = [part for file in files for part in ("-f", file)]
    ended = subprocess.run(
        ["docker", "compose", "--env-file", "/dev/null", *named, *arguments],
        check=False,
        capture_output=True,
        text=True,
        cwd=REPOSITORY,
        env={**kept, **(variables or {})},
        timeout=timeout_s,
    )
    assert not check or ended.returncode == 0, f"compose {' '.join(arguments)}: {ended.stdout}{ended.stderr}"
    return ended


class Stack:
    """A project that isn't there before :meth:`up` and after :meth:`down`.

    Args:
        folder: for runs; it exists.
        settings: the agent's configuration, over the defaults.
        files: Compose files.
        variables: over those that every test needs.
    """

    def __init__(
        self, folder: Path, settings: Mapping[str, Any], files: Sequence[str] = LITE, **variables: str
    ) -> None:
        self.runs = folder / "runs"
        self.runs.mkdir()
        self.port = ports(3)
        self.project = f"carla-td3-test-{uuid.uuid4().hex[:8]}"
        self.run = Run(self.runs / RUN_NAME, self.port, settings)
        for path in (self.runs, self.run.path):
            os.chown(path, CALLER, CALLER)
        self._files = files
        self._variables = {
            "COMPOSE_PROJECT_NAME": self.project,
            "RUNS_DIR": str(self.runs),
            "RUN_NAME": RUN_NAME,
            "AGENT_CONFIG": f"runs/{self.run.config.name}",
            "CARLA_PORTS": f"{self.port}-{self.port + 2}",
            "RUN_UID": str(CALLER),
            "RUN_GID": str(CALLER),
            "AGENT_MEMORY": "2g",
            "CARLA_MEMORY": "1g",
            **variables,
        }

    def compose(self, *arguments: str, check: bool = True) -> subprocess.CompletedProcess[str]:
        return compose(self._files, *arguments, variables=self._variables, check=check)

    def up(self, *services: str) -> None:
        """Return once the services run, those with a health check healthily."""
        self.compose("up", "--detach", "--wait", "--no-build", *services)

    def down(self) -> None:
        self.compose("down", "--timeout", "2", "--remove-orphans", check=False)

    def container(self, service: str) -> str:
        return self.compose("ps", "--all", "--quiet", service).stdout.strip()

    def state(self, service: str) -> dict[str, Any]:
        """Return Docker's State of a service's container, with RestartCount."""
        found = json.loads(docker("inspect", self.container(service)).stdout)[0]
        return {**found["State"], "RestartCount": found["RestartCount"]}

    def logs(self, service: str) -> str:
        ended = docker("logs", self.container(service), check=False)
        return ended.stdout + ended.stderr

    def left(self) -> list[str]:
        """Return what is there of the project: containers and networks."""
        label = f"label=com.docker.compose.project={self.project}"
        found = [docker(*words, "--quiet", "--filter", label).stdout for words in (("ps", "-a"), ("network", "ls"))]
        return "".join(found).split()

    def count_actors(self) -> int:
        """Return how many actors of any kind the simulator has, as another client sees them."""
        counted = subprocess.run(
            [sys.executable, census.__file__, str(self.port), "*"],
            capture_output=True,
            text=True,
            timeout=PATIENCE_S,
            check=True,
        )
        return int(counted.stdout)

    def wait(self, condition: Callable[[], bool], timeout_s: float = 60.0) -> None:
        """Return when the condition holds; fail with what the agent says if it doesn't in time."""
        deadline = time.monotonic() + timeout_s
        while not condition():
            assert time.monotonic() < deadline, self._story()
            time.sleep(0.05)

    def wait_for_updates(self, more: int = 20) -> None:
        """Return when so many more updates are made than the last heartbeat tells of."""
        before = int(self.run.beat.get("updates", 0))
        self.wait(lambda: int(self.run.beat.get("updates", 0)) >= before + more)

    def _story(self) -> str:
        with contextlib.suppress(AssertionError):
            return f"{self.run.beat}\n{self.run.collector_log}\n{self.logs('agent')}\n{self.logs('carla')}"
        return str(self.run.beat)
