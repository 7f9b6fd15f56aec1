"""A command that is ``docker run`` or ``podman run``: its container is observed beside its client, and ends with it.

A container of Docker is no descendant of its client, so it would outlive a client that is killed. One of Podman is.
"""

from __future__ import annotations

import contextlib
import time
from dataclasses import replace
from pathlib import Path

from carla_launcher.act.compose.engine import Container, Engine, EngineError
from carla_launcher.act.container_words import ContainerWords
from carla_launcher.act.local.process_shim import end_container
from carla_launcher.act.local.processes import Program, ShimmedProcess, Shims
from carla_launcher.observe.observation import Ended
from carla_launcher.observe.oom_kills import OomKills
from carla_launcher.observe.ram import container_id, is_in_container
from carla_run.memory.processes import tree

LOOK_S = 0.25
NOT_PASSED = ("CARLA_RUN_DIR",)
"""Variables of the command that hold a path of this machine, which the container need not have."""


def start(shims: Shims, program: Program, words: ContainerWords) -> ContainerClient:
    """Start a program whose words run a container.

    Raises:
        OSError: as ``Shims.start``.
    """
    id_file = program.log.absolute().with_suffix(".container")
    end_container(id_file, [*words.ending])  # of a start whose shim was killed
    passed = (name for name in program.environment if name not in NOT_PASSED)
    command = words.start(id_file, passed)
    client = shims.start(replace(program, command=command, id_file=id_file, ending=words.ending))
    return ContainerClient(client, id_file, Engine() if words.engine == "docker" else None)


class ContainerClient:
    """A client that runs a container in the foreground, and this container; implements ``runtime.Child``.

    Args:
        client: under its shim, which ends the container at last.
        id_file: to which the client writes the container's id.
        engine: Docker's; None for Podman, whose containers descend from the shim.
    """

    def __init__(self, client: ShimmedProcess, id_file: Path, engine: Engine | None) -> None:
        self._client, self._id_file, self._engine = client, id_file, engine
        self._id = ""
        self._first = 0
        self._seen: Container | None = None
        self._oom_kills: OomKills | None = None
        self._ended: Ended | None = None
        self._looked_s = float("-inf")

    @property
    def pid(self) -> int:
        """Return the client's process id: it passes signals on to the container."""
        return self._client.pid

    @property
    def log(self) -> Path:
        """Return the file to which its output is appended."""
        return self._client.log

    def poll(self) -> Ended | None:
        """Return None while the client runs, then how the container ended."""
        if self._ended is None:
            self._look()
            ended = self._client.poll()
            self._ended = None if ended is None else self._with_container(ended)
        return self._ended

    def pids(self) -> frozenset[int]:
        """Return the ids of the processes of client and container on this host."""
        return self._client.pids() | tree(self._first) if self.poll() is None else frozenset()

    def terminate(self) -> None:
        """Send SIGTERM to the client, which passes it on."""
        self._client.terminate()

    def kill(self) -> None:
        """Kill container and client, and wait until both have ended."""
        self._kill_container()
        self._client.kill()

    def _look(self) -> None:
        """Find the container once it runs; then read the counter of its group, which vanishes with it."""
        if self._oom_kills is not None:
            self._oom_kills.look()
        elif time.monotonic() - self._looked_s >= LOOK_S:
            self._looked_s = time.monotonic()
            with contextlib.suppress(OSError, EngineError):  # not yet there; or an engine that may answer later
                self._id = self._id_file.read_text().strip()
                if first := self._first_process():
                    self._first, self._oom_kills = first, OomKills(first, own_group=True)

    def _first_process(self) -> int:
        """Return the container's first process on this host; 0 if there is none, or if it runs on another kernel."""
        if not self._id:
            return 0
        if self._engine is None:
            # By control group only: every user sees the mounts of Podman's containers.
            return min((pid for pid in self._client.pids() if container_id(pid) == self._id), default=0)
        self._seen = self._engine.container(self._id)
        pid = 0 if self._seen is None else self._seen.pid
        return pid if pid and is_in_container(pid, self._id) else 0

    def _with_container(self, ended: Ended) -> Ended:
        """Return the client's end with what became of the container; end the container if it outlived the client."""
        killed = ended.oom_killed or (self._oom_kills is not None and self._oom_kills.rose)
        with contextlib.suppress(EngineError):
            if self._engine is not None and self._seen is not None:
                last = self._engine.container(self._id) or self._seen
                killed = killed or last.oom_killed or self._engine.saw_oom_kill(self._seen)
        self._kill_container()  # its shim may have been killed, too
        return replace(ended, oom_killed=killed)

    def _kill_container(self) -> None:
        if self._engine is not None and self._id:
            with contextlib.suppress(EngineError):
                self._engine.signal(self._id, "SIGKILL")
