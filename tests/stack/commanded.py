"""`scripts/launch.py up` as a person calls it, with containers; what it left is taken down however a test ends.

Owns the command, the run's folder and what is read of it. The caller's own variables stay as they are, for that is how
a person sets AGENT_MEMORY.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import yaml

from contract.paths import RunPaths
from contract.readers import read_object
from launcher import config
from launcher.runtimes import project
from tests.conftest import REPOSITORY
from tests.stack.stack import docker

PATIENCE_S = 120.0
COMMAND = (sys.executable, str(REPOSITORY / "scripts" / "launch.py"))
# The same command where no torch is installed, as `pip install .[launcher]` leaves it, and with a Compose file over the
# stack's: a program of the test in the place of a service's own.
WITH_ANOTHER_PROGRAM = """
import sys
from pathlib import Path
from launcher import __main__, basis, up
from launcher.planning import Simulates
from launcher.runtimes.compose import ComposeRuntime
sys.modules["torch"] = None
over = (Path(sys.argv.pop(1)),)
def compose_of(setup, limits, choice):
    return ComposeRuntime(setup, limits, lite=choice.simulator is Simulates.LITE, over=over)
up.compose_of = basis.compose_of = compose_of
__main__.app()
"""


class Commanded:
    """One run, and the launchers that hold it one after another.

    Args:
        runs: the folder of runs; it exists.
        settings: the agent's configuration.
        limits: of the launcher's configuration, by section, over the shipped values.
        over: a Compose file to lay over the stack's; with one, the launcher has no torch and asks the image's.
        variables: of the launchers' environment, as .env.example names them.
    """

    def __init__(
        self,
        runs: Path,
        settings: Mapping[str, Any],
        limits: Mapping[str, Mapping[str, Any]] | None = None,
        over: str = "",
        **variables: str,
    ) -> None:
        self.run = RunPaths(runs / "run")
        self.project = project.name_of(self.run)
        self.launcher: subprocess.Popen[str] | None = None
        self._runs, self._variables = runs, variables
        (runs / "agent.yaml").write_text(yaml.safe_dump(dict(settings)))
        shipped = yaml.safe_load(config.SHIPPED.read_text())
        changed = {section: {**shipped[section], **values} for section, values in (limits or {}).items()}
        (runs / "launcher.yaml").write_text(yaml.safe_dump({**shipped, **changed}))
        self._command: tuple[str, ...] = COMMAND
        if over:
            (runs / "over.yml").write_text(over)
            self._command = (sys.executable, "-c", WITH_ANOTHER_PROGRAM, str(runs / "over.yml"))

    def up(self, *options: str) -> subprocess.Popen[str]:
        """Start a launcher; the first one is told what to run, later ones only the run's name."""
        files = ("--config", str(self._runs / "agent.yaml"), "--launcher-config", str(self._runs / "launcher.yaml"))
        first = ("--runtime", "compose", "--simulator", "carla-lite", *files)
        told = () if self.run.launcher_state.exists() else first
        where = ("--runs-dir", str(self._runs), "--run-name", "run")
        self.launcher = self._start("up", *told, *where, *options)
        return self.launcher

    def command(self, *arguments: str) -> tuple[int, str]:
        """Return exit code and output of another command on the run."""
        process = self._start(*arguments, "run", "--runs-dir", str(self._runs))
        return process.wait(PATIENCE_S), process.communicate()[0]

    def end(self) -> str:
        """Return what the launcher said, once it has ended."""
        assert self.launcher is not None
        return self.launcher.communicate(timeout=PATIENCE_S)[0]

    def until(self, condition: Callable[[], object]) -> None:
        deadline_s = time.monotonic() + PATIENCE_S
        while not condition():
            assert self.launcher is not None
            assert self.launcher.poll() is None, f"ended early: {self.end()}"
            assert time.monotonic() < deadline_s, f"waited in vain: {self.beat}\n{self.events()}"
            time.sleep(0.05)

    def until_updates(self, more: int = 3) -> None:
        """Return when so many more updates are made than the last heartbeat tells of."""
        before = int(self.beat.get("updates", 0))
        self.until(lambda: int(self.beat.get("updates", 0)) >= before + more)

    @property
    def beat(self) -> dict[str, Any]:
        return read_object(self.run.heartbeat)

    @property
    def state(self) -> dict[str, Any]:
        return read_object(self.run.launcher_state)

    def events(self, *names: str) -> list[dict[str, Any]]:
        """Return the launcher's events, all or those of these names."""
        try:
            lines = self.run.launcher_events.read_text().splitlines()
        except OSError:
            return []
        return [row for row in map(json.loads, lines) if not names or row["event"] in names]

    def findings(self) -> list[dict[str, Any]]:
        """Return what was found wrong; what others do on this machine is left out."""
        return [row for row in self.events("finding") if row["diagnosis"] != "foreign_process"]

    def container(self, service: str) -> str:
        """Return the id of a service's running container; empty if it has none."""
        label = f"label=com.docker.compose.service={service}"
        return docker("ps", "-q", "--no-trunc", "--filter", f"name={self.project}", "--filter", label).stdout.strip()

    def left(self) -> list[str]:
        """Return what is there of the run: containers and networks."""
        label = f"label=com.docker.compose.project={self.project}"
        found = [docker(*words, "-q", "--filter", label).stdout for words in (("ps", "-a"), ("network", "ls"))]
        return "".join(found).split()

    def close(self) -> None:
        """End whatever is left, without asking the launcher."""
        if self.launcher is not None and self.launcher.poll() is None:
            self.launcher.kill()
            self.launcher.communicate()
        label = f"label=com.docker.compose.project={self.project}"
        if containers := docker("ps", "-aq", "--filter", label).stdout.split():
            docker("rm", "-f", "-v", *containers)
        if networks := docker("network", "ls", "-q", "--filter", label).stdout.split():
            docker("network", "rm", *networks)

    def _start(self, *arguments: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [*self._command, *arguments],
            cwd=REPOSITORY,
            env={**os.environ, **self._variables},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )
