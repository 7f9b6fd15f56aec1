"""Docker's engine through its SDK: the state, end and output of containers.

Turns every error of the connection into one sentence. Compose creates containers (``project``); this module only
signals them, and removes those that don't run.
"""

from __future__ import annotations

import contextlib
import functools
import os
import subprocess
import time
from calendar import timegm
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import docker
from docker.errors import APIError, DockerException, NotFound
from urllib3.exceptions import HTTPError

from carla_launcher.observe.container_engine import ContainerEngine, engine_of

TIMEOUT_S = 10.0
LABELS = "com.docker.compose"


class EngineError(Exception):
    """The engine doesn't answer. The message is one sentence for the user."""


@dataclass(frozen=True)
class Container:
    """A container's state.

    Attributes:
        pid: id of its first process on this host; 0 unless it runs.
        running: it was started and hasn't ended; also true if it is paused.
        started: time of its start, as the engine writes it.
        finished: it was started and has ended. If neither this nor ``running`` is true, it never started.
        oom_killed: the engine's report, which isn't always right (docs/facts.md, section 6).
    """

    id: str
    pid: int
    running: bool
    finished: bool
    started: str
    exit_code: int
    oom_killed: bool


class Engine:
    """The engine that the ``docker`` command uses. Every method raises EngineError if it doesn't answer."""

    @functools.cached_property
    def _client(self) -> Any:
        return _connection()

    def kind(self) -> ContainerEngine | None:
        """Return its product and features; None if its answer is of no known form."""
        with _sentences():
            return engine_of(self._client.info(), self._client.version())

    def ids(self, project: str, service: str, *, running: bool = False) -> tuple[str, ...]:
        """Return the containers of a project's service, newest first; with ``running`` only those that run."""
        labels = [f"{LABELS}.project={project}", f"{LABELS}.service={service}", f"{LABELS}.oneoff=False"]
        with _sentences():
            found = self._client.containers(all=not running, filters={"label": labels})
        return tuple(each["Id"] for each in sorted(found, key=lambda each: -each["Created"]))

    def container(self, container: str) -> Container | None:
        """Return a container's state; None if it was removed."""
        with _sentences():
            try:
                state = self._client.inspect_container(container)["State"]
            except NotFound:
                return None
        return Container(
            id=container,
            pid=int(state["Pid"]),
            running=bool(state["Running"]),
            finished=state["Status"] in ("exited", "dead"),
            started=str(state["StartedAt"]),
            exit_code=int(state["ExitCode"]),
            oom_killed=bool(state["OOMKilled"]),
        )

    def name_of(self, container: str) -> str | None:
        """Return the name of any container of this machine; None for one that the engine doesn't know."""
        with _sentences():
            try:
                return str(self._client.inspect_container(container)["Name"]).lstrip("/")
            except NotFound:
                return None

    def signal(self, container: str, name: str) -> None:
        """Signal a container's first process; harmless when it has ended or was removed."""
        with _sentences(), contextlib.suppress(APIError):  # NotFound, or a conflict: it doesn't run
            self._client.kill(container, name)

    def remove(self, container: str) -> None:
        """Remove a container that doesn't run; harmless when it was removed, and when it runs."""
        with _sentences(), contextlib.suppress(APIError):  # NotFound, or a conflict: it runs, or is being removed
            self._client.remove_container(container)

    def has_image(self, name: str) -> bool:
        """Return whether this machine has an image of that name."""
        with _sentences():
            try:
                self._client.inspect_image(name)
            except NotFound:
                return False
        return True

    def saw_oom_kill(self, container: Container) -> bool:
        """Return whether the engine has reported an OOM kill in the container since its start."""
        with _sentences():
            only = {"container": container.id, "event": "oom"}
            # The API reads seconds only: for a time as it writes it, it returns nothing.
            since_s = seconds(container.started)
            events = self._client.events(since=since_s, until=f"{time.time():.6f}", filters=only)
            return any(True for _ in events)

    @contextlib.contextmanager
    def output(self, container: str, since_s: int) -> Iterator[Any]:
        """Give a stream of a container's output since a time, until it ends: bytes, each line after its time.

        Another thread can end the stream by its ``close()``. It has its own connection.
        """
        with _sentences():
            client = _connection()
            try:
                since = {"since": since_s} if since_s else {}
                yield client.logs(container, stream=True, follow=True, timestamps=True, **since)
            finally:
                client.close()


def _connection() -> Any:
    if "DOCKER_HOST" in os.environ:
        return docker.APIClient(**docker.utils.kwargs_from_env(), timeout=TIMEOUT_S)
    return docker.APIClient(base_url=_current_context(), timeout=TIMEOUT_S)


def seconds(moment: str) -> int:
    """Return the whole seconds since 1970 of ``2026-01-31T23:59:59.123456789Z``; 0 for none."""
    return timegm(time.strptime(moment[:19], "%Y-%m-%dT%H:%M:%S")) if moment else 0


def _current_context() -> str:
    """Return the address that the ``docker`` command uses; the SDK doesn't read contexts (rootless, Desktop)."""
    shown = ("docker", "context", "inspect", "--format", "{{.Endpoints.docker.Host}}")
    ended = subprocess.run(shown, capture_output=True, text=True, check=False, timeout=TIMEOUT_S)
    return ended.stdout.strip() or docker.constants.DEFAULT_UNIX_SOCKET


@contextlib.contextmanager
def _sentences() -> Iterator[None]:
    try:
        yield
    except FileNotFoundError:
        raise EngineError("There is no `docker` command here: install Docker, or use --runtime process.") from None
    except (DockerException, HTTPError, OSError, subprocess.TimeoutExpired) as error:
        reason = " ".join(str(error).split())[:200]
        raise EngineError(
            f"Docker's engine doesn't answer ({reason}): check that `docker version` shows a server, "
            "or use --runtime process."
        ) from None
