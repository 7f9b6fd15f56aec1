"""One run under the Compose runtime: launchers that come and go, and programs in the places of the services' own.

Owns the run's folder and project, and their end.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from carla_launcher import config
from carla_launcher.act.compose.container import ComposeChild
from carla_launcher.act.compose.runtime import ComposeRuntime
from carla_launcher.act.run_spec import RunSpec
from carla_launcher.act.runtime import Role, Start
from carla_launcher.observe.observation import Ended
from carla_launcher.simulators import CarlaLite
from carla_run.paths import RunPaths
from carla_run.readers import read_object
from tests.conftest import REPOSITORY, ports
from tests.crowd import until
from tests.stack.stack import docker

LIMITS = config.load()
SIMULATOR, AGENT = Start(Role.SIMULATOR, "Low"), Start(Role.AGENT)
# A launcher that starts the simulator, listens to it, and waits to be killed.
LAUNCHER = """
import sys, time
from pathlib import Path
from carla_launcher import config
from carla_run.locks import Lock
from carla_run.paths import RunPaths
from carla_run.readers import read_object
from carla_launcher.act.compose.runtime import ComposeRuntime
from carla_launcher.act.runtime import Role, Start
from carla_launcher.act.run_spec import RunSpec
from carla_launcher.simulators import CarlaLite
run = RunPaths(Path(sys.argv[1]))
held = (Lock(run.launcher_lock).descriptor,)
spec = RunSpec(run, CarlaLite(), int(sys.argv[3]), config=Path(sys.argv[2]), inherited=held)
runtime = ComposeRuntime(spec, config.load(), over=(Path(sys.argv[4]),))
print("here", flush=True)
left = None if "anew" in sys.argv else runtime.left(Role.SIMULATOR)
child = left or runtime.start(Start(Role.SIMULATOR, "Low"))
while True: child.poll(); time.sleep(0.02)
"""


class ComposeRun:
    """A run and the runtimes, one after another, that hold it.

    Args:
        folder: of the run.
        settings: the agent's configuration.
        programs: Python, by service, that a container runs in place of its own program.
    """

    def __init__(self, folder: Path, settings: Mapping[str, Any], programs: Mapping[str, str]) -> None:
        self.run = RunPaths(folder)
        self.run.logs.mkdir(parents=True)
        self.config = folder.with_suffix(".yaml")
        self.config.write_text(yaml.safe_dump(dict(settings)))
        self.port, self.over = ports(3), folder.with_suffix(".over.yml")
        services: dict[str, Any] = {name: {"entrypoint": ["python", "-c", text]} for name, text in programs.items()}
        # carla-lite knows no quality; here its environment tells with which one it was made.
        services.setdefault("carla", {})["environment"] = {"CARLA_QUALITY": "${CARLA_QUALITY}"}
        self.over.write_text(yaml.safe_dump({"services": services}))
        self.runtime = self.another()

    def another(self, **variables: str) -> ComposeRuntime:
        """Return a runtime as the next launcher of this run makes it."""
        spec = RunSpec(self.run, CarlaLite(), self.port, config=self.config)
        limits = {"AGENT_MEMORY": "1g", "CARLA_MEMORY": "1g", **variables}
        return ComposeRuntime(spec, LIMITS, variables=limits, over=(self.over,))

    def launcher(self, *options: str) -> subprocess.Popen[str]:
        """Return a launcher in a process of its own, once it holds the run."""
        arguments = [str(self.run.path), str(self.config), str(self.port), str(self.over), *options]
        command = [sys.executable, "-c", LAUNCHER, *arguments]
        process = subprocess.Popen(command, cwd=REPOSITORY, stdout=subprocess.PIPE, text=True)
        assert process.stdout is not None
        assert process.stdout.readline() == "here\n"
        return process

    def containers(self, *options: str) -> list[str]:
        """Return the containers of the run that run; with ``--all`` the others, too."""
        label = f"label=com.docker.compose.project={self.runtime.project}"
        return docker("ps", *options, "--quiet", "--filter", label).stdout.split()

    def container(self, service: str) -> str:
        """Return the id of a service's only container."""
        label = f"label=com.docker.compose.service={service}"
        (found,) = docker("ps", "--quiet", "--filter", f"name={self.runtime.project}", "--filter", label).stdout.split()
        return found

    @property
    def beat(self) -> dict[str, Any]:
        return read_object(self.run.heartbeat)

    def log(self, role: Role) -> list[str]:
        return (self.run.logs / f"{role.value}.log").read_text().splitlines()


def running(child: ComposeChild) -> ComposeChild:
    until(lambda: child.poll() or child.pid)
    assert child.poll() is None, child.log.read_text()
    return child


def end_of(child: ComposeChild) -> Ended:
    until(child.poll)
    ended = child.poll()
    assert ended is not None
    return ended
