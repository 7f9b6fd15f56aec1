"""A run under the launcher with containers; what it left is taken down however a test ends.

The caller's own variables stay as they are, for that is how a person sets AGENT_MEMORY.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from carla_launcher.act.compose import project
from carla_run.paths import RunPaths
from tests.stack.stack import docker
from tests.wire.launched import Launched, own_limits

# The same command where no torch is installed, as `pip install .[launcher]` leaves it, and with a Compose file over the
# stack's: a program of the test in the place of a service's own.
WITH_ANOTHER_PROGRAM = """
import sys
from pathlib import Path
from carla_launcher import cli, up
from carla_launcher.resolve import machine
from carla_launcher.act.compose.runtime import ComposeRuntime
sys.modules["torch"] = None
over = (Path(sys.argv.pop(1)),)
def compose_of(spec, limits):
    return ComposeRuntime(spec, limits, over=over)
up.compose_of = machine.compose_of = compose_of
cli.app()
"""


class Contained(Launched):
    """A run and its containers.

    Args:
        folder: for the folder of runs.
        settings: the agent's configuration.
        limits: of the launcher's configuration, by dotted key, over the shipped values.
        over: a Compose file to lay over the stack's; with one, the launcher has no torch and asks the image's.
        variables: of the launchers' environment, as .env.example names them.
    """

    def __init__(
        self,
        folder: Path,
        settings: Mapping[str, Any],
        limits: Mapping[str, Any] | None = None,
        over: str = "",
        **variables: str,
    ) -> None:
        super().__init__(folder, "run", variables)
        self.runs.mkdir()
        self.project = project.name_of(RunPaths(self.run))
        self.configure(settings)
        files = ("--config", str(self.runs / "agent.yaml"), *own_limits(self.runs, limits or {}))
        self._first = ("--runtime", "compose", "--simulator", "carla-lite", *files)
        if over:
            (self.runs / "over.yml").write_text(over)
            self.program = (sys.executable, "-c", WITH_ANOTHER_PROGRAM, str(self.runs / "over.yml"))

    def configure(self, settings: Mapping[str, Any]) -> None:
        """Write the agent's configuration, which its next start reads."""
        (self.runs / "agent.yaml").write_text(yaml.safe_dump(dict(settings)))

    def begin(self, *options: str) -> None:
        """Start the run's first launcher."""
        self.up(*self._first, *options)

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

    def end(self) -> None:
        """End whatever is left, without asking the launcher."""
        super().end()
        label = f"label=com.docker.compose.project={self.project}"
        if containers := docker("ps", "-aq", "--filter", label).stdout.split():
            docker("rm", "-f", "-v", *containers)
        if networks := docker("network", "ls", "-q", "--filter", label).stdout.split():
            docker("network", "rm", *networks)
