"""One container of the stack, from the command that creates it to its end.

Asks the engine only when there may be news; whether its process exists, /proc says faster. While the engine doesn't
answer, the container's state is unknown, which is no error.
"""

from __future__ import annotations

import contextlib
import time
from dataclasses import dataclass
from pathlib import Path

from carla_launcher.act.compose.container_log import ContainerLog
from carla_launcher.act.compose.daemon_errors import explanation
from carla_launcher.act.compose.engine import Container, Engine, EngineError
from carla_launcher.act.local.processes import ShimmedProcess
from carla_launcher.observe.observation import Ended
from carla_launcher.observe.oom_kills import OomKills
from carla_launcher.observe.ram import is_in_container
from carla_run.files import open_to_append, open_to_read
from carla_run.memory.processes import PROC, tree

NEAR_S = 0.25
FAR_S = 10.0
LAST_WORDS_S = 2.0
KILL_PATIENCE_S = 10.0
ENGINE_PATIENCE_S = 60.0
LOST = 255
"""Exit code of a container that was removed, or whose engine is gone: its real exit code is unknown."""


@dataclass(frozen=True)
class Creation:
    """The Compose command that creates a container.

    Attributes:
        earlier: the service's containers before it.
        log: the file to which its output is appended.
        log_begin: length of that file before the command.
    """

    command: ShimmedProcess
    earlier: frozenset[str]
    log: Path
    log_begin: int

    def words(self) -> str:
        """Return the last line of the command's output, with its meaning."""
        try:
            with open_to_read(self.log) as file:
                file.seek(self.log_begin)
                return explanation(file.read().decode(errors="replace"))
        except OSError as error:
            return f"{self.log} can't be read ({error.strerror})"


class ComposeChild:
    """A service's container; implements ``runtime.Child``.

    Args:
        creation: None for a container that an earlier launcher created.
        container: its id; empty if not known yet.
    """

    def __init__(
        self, engine: Engine, project: str, service: str, log: Path, creation: Creation | None, container: str = ""
    ) -> None:
        self._engine, self._project, self._service = engine, project, service
        self._log, self._creation, self._id = log, creation, container
        self._pid = self._reported_pid = 0
        self._output: ContainerLog | None = None
        self._oom_kills: OomKills | None = None
        self._ended: Ended | None = None
        self._looked_s = self._answered_s = time.monotonic()

    @property
    def pid(self) -> int:
        """Return the id of its first process on this host; 0 while there is none, or if it runs on another kernel."""
        return self._pid

    @property
    def log(self) -> Path:
        """Return the file to which its output is appended."""
        return self._log

    def poll(self) -> Ended | None:
        """Return None while it is being created or runs, or while the engine doesn't answer; then how it ended."""
        if self._oom_kills is not None:
            self._oom_kills.look()
        if self._ended is None and self._is_due():
            self.look()
        return self._ended

    def pids(self) -> frozenset[int]:
        """Return the ids of its processes on this host, without those of ``docker exec`` and health checks."""
        return tree(self._pid) if self._pid and self.poll() is None else frozenset()

    def terminate(self) -> None:
        """Send SIGTERM to its first process, or stop its creation."""
        self._signal("SIGTERM")

    def kill(self) -> None:
        """End it with all its processes, and wait until they have ended."""
        self._signal("SIGKILL")
        deadline_s = time.monotonic() + KILL_PATIENCE_S
        while self._ended is None and time.monotonic() < deadline_s:
            time.sleep(0.02)
            self.look()

    def detach(self) -> None:
        """Stop reading its output."""
        if self._output is not None:
            self._output.finish(0.0)

    def look(self) -> None:
        """Ask the engine for its state."""
        self._looked_s = time.monotonic()
        try:
            self._ended = self._asked()
            self._answered_s = self._looked_s
        except EngineError:
            self._ended = self._without_an_answer()
        if self._ended is not None:
            self._finish()

    def _is_due(self) -> bool:
        waited_s = time.monotonic() - self._looked_s
        return waited_s >= (FAR_S if self._process_is_there() else NEAR_S)

    def _process_is_there(self) -> bool:
        return self._pid > 0 and (PROC / str(self._pid)).exists()

    def _asked(self) -> Ended | None:
        if not self._id and self._creation is not None:
            created = self._engine.ids(self._project, self._service)
            self._id = next((each for each in created if each not in self._creation.earlier), "")
        found = self._engine.container(self._id) if self._id else None
        if found is not None and (found.running or found.finished):
            return self._seen(found)
        if self._creation is None or self._output is not None:  # it ran, and was removed
            return Ended(LOST)
        return self._never_ran(self._creation)

    def _seen(self, container: Container) -> Ended | None:
        if self._output is None:
            self._output = ContainerLog(self._engine, container.id, self._log)
        if container.running:
            if container.pid != self._reported_pid:
                self._reported_pid = container.pid
                self._pid = container.pid if is_in_container(container.pid, container.id) else 0
                self._oom_kills = OomKills(self._pid, own_group=True) if self._pid else None
            return None
        counted = self._oom_kills is not None and self._oom_kills.rose
        oom_killed = container.oom_killed or counted or self._engine.saw_oom_kill(container)
        return Ended(container.exit_code, oom_killed)

    def _never_ran(self, creation: Creation) -> Ended | None:
        """Return None while Compose creates it; then its failure, whose reason is written into the log."""
        ended = creation.command.poll()
        if ended is None:
            return None
        with contextlib.suppress(OSError), open_to_append(self._log) as file:
            file.write(f"launcher: docker compose up {self._service}: {creation.words()}\n".encode())
        return Ended(ended.code or LOST)

    def _without_an_answer(self) -> Ended | None:
        if self._creation is not None and not self._id:
            return self._never_ran(self._creation)
        silent_s = time.monotonic() - self._answered_s
        return Ended(LOST) if silent_s > ENGINE_PATIENCE_S and not self._process_is_there() else None

    def _signal(self, name: str) -> None:
        self._stop_creating()
        if self._ended is None:
            self.look()
        if self._ended is None:
            with contextlib.suppress(EngineError):  # poll() knows what becomes of it
                self._engine.signal(self._id, name)

    def _stop_creating(self) -> None:
        if self._creation is not None and self._creation.command.poll() is None:
            self._creation.command.kill()

    def _finish(self) -> None:
        self._stop_creating()
        if self._output is not None:
            self._output.finish(LAST_WORDS_S)
