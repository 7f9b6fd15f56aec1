"""Servers in child processes that end with this process, on ports that each server chooses.

Imports neither the server's code nor the ``carla`` client.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

LOOPBACK = "127.0.0.1"
START_LIMIT_S, STOP_LIMIT_S, ANSWER_LIMIT_S = 120.0, 10.0, 10.0
_LOOK_S = 0.01


def free_port() -> int:
    """Return a loopback port that is free now, for example for a Traffic Manager."""
    with socket.socket() as probe:
        probe.bind((LOOPBACK, 0))
        return int(probe.getsockname()[1])


def tell(control_port: int, line: str, limit_s: float = ANSWER_LIMIT_S) -> str:
    """Send a line to a control port and return its answer: ``ok``, ``ok frame=…``, or ``error`` and a sentence.

    Raises:
        OSError: no answer came within ``limit_s``.
    """
    with socket.create_connection((LOOPBACK, control_port), timeout=limit_s) as control:
        control.sendall(f"{line}\n".encode())
        with control.makefile(encoding="utf-8") as answers:
            return answers.readline().rstrip("\n")


class ServerError(Exception):
    """A server didn't start, or refused a command; the message says why."""


class LiteServer:
    """One carla-lite on the loopback. Create it with :func:`server` or :func:`servers`."""

    def __init__(self, folder: Path, words: Sequence[str], environment: Mapping[str, str]) -> None:
        self._ready, self._output = folder / "ready.json", folder / "output.txt"
        self._words = [*words, "--control-port", "0", "--ready-file", str(self._ready), "--end-with-input"]
        self._environment = {**os.environ, "PYTHONUNBUFFERED": "1", **environment}
        self._at: dict[str, Any] = {"port": 0}
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def host(self) -> str:
        """Address on which it listens."""
        return LOOPBACK

    @property
    def port(self) -> int:
        """The RPC port, for ``carla.Client(host, port)``; it stays the same after a restart."""
        return int(self._at["port"])

    @property
    def pid(self) -> int:
        """Id of the present process."""
        return self._running().pid

    @property
    def alive(self) -> bool:
        """Whether the process runs; it doesn't after a crash fault."""
        return self._process is not None and self._process.poll() is None

    @property
    def output(self) -> str:
        """Everything that it has printed."""
        return self._output.read_text(encoding="utf-8", errors="replace") if self._output.exists() else ""

    def start(self) -> None:
        """Start the process, on its earlier port if it had one; :meth:`wait` returns once it listens."""
        self._ready.unlink(missing_ok=True)
        command = [sys.executable, "-m", "carla_lite", "--host", LOOPBACK, "--port", str(self.port), *self._words]
        with self._output.open("ab") as output:
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,  # Ctrl-C is for the test, which ends its servers last
                env=self._environment,
            )

    def wait(self, limit_s: float = START_LIMIT_S) -> None:
        """Return once it listens.

        Raises:
            ServerError: it ended, or didn't listen within ``limit_s``; the message has its output.
        """
        until_s = time.monotonic() + limit_s
        while not self._ready.exists():
            if not self.alive:
                raise ServerError(f"carla-lite ended with {self._running().returncode}: {self._last_words()}")
            if time.monotonic() > until_s:
                self.kill()
                raise ServerError(f"carla-lite did not listen within {limit_s:g} s: {self._last_words()}")
            time.sleep(_LOOK_S)
        self._at = json.loads(self._ready.read_text(encoding="utf-8"))

    def restart(self) -> None:
        """End it if it runs, start it again on the same port, and return once it listens."""
        self.end()
        self.start()
        self.wait()

    def end(self) -> None:
        """End it in order, or by force if that takes too long; does nothing if it has ended."""
        if not self.alive:
            return
        self._running().terminate()
        try:
            self._running().wait(STOP_LIMIT_S)
        except subprocess.TimeoutExpired:
            self.kill()

    def kill(self) -> None:
        """Kill it, as a crash does."""
        self._running().kill()
        self._running().wait()

    @contextlib.contextmanager
    def paused(self) -> Iterator[None]:
        """Stop the process while the block runs, like a simulator that hangs."""
        self._running().send_signal(signal.SIGSTOP)
        try:
            yield
        finally:
            self._running().send_signal(signal.SIGCONT)

    def fault(self, spec: str) -> None:
        """Begin a fault now, as with ``carla-lite --fault``: ``"crash"``, ``"slow:ms=200"``, …

        Raises:
            ServerError: there is no such fault.
        """
        try:
            self._command(f"fault {spec}")
        except ServerError as error:
            if not isinstance(error.__cause__, ConnectionResetError):  # it may end before it answers
                raise

    def clear_faults(self) -> None:
        """End all active faults, and forget waiting ones."""
        self._command("clear")

    def status(self) -> str:
        """Return the control port's line on frame, faults and calls without effect."""
        return self._command("status")

    def _command(self, line: str) -> str:
        try:
            word, _, rest = tell(int(self._at["control_port"]), line).partition(" ")
        except OSError as error:
            raise ServerError(f"carla-lite on port {self.port} did not answer {line!r} ({error})") from error
        if word == "error":
            raise ServerError(rest)
        return rest

    def _running(self) -> subprocess.Popen[bytes]:
        if self._process is None:
            raise ServerError("this carla-lite was not started")
        return self._process

    def _last_words(self) -> str:
        return self.output.strip().rpartition("\n")[2] or "it said nothing"


@contextlib.contextmanager
def servers(
    count: int,
    map: str = "Lite01",
    *,
    map_dir: str | Path | None = None,
    seed: int = 0,
    tick_ms: float = 0.0,
    faults: Sequence[str] = (),
    options: Sequence[str] = (),
    environment: Mapping[str, str] | None = None,
) -> Iterator[list[LiteServer]]:
    """Run ``count`` servers while the block runs; they start in parallel.

    Args:
        count: number of servers.
        map: a town of carla-lite, a map of ``map_dir``, or the path of an .xodr file.
        map_dir: a folder of .xodr files that clients can load by name.
        seed: for houses and trees beside the road.
        tick_ms: shortest duration of a tick, in milliseconds.
        faults: faults, as for ``--fault``.
        options: further arguments of the command ``carla-lite``.
        environment: variables added to this process's environment.

    Raises:
        ServerError: one did not start.
    """
    words = ["--map", map, "--seed", str(seed), "--tick-ms", str(tick_ms), *options]
    words += [] if map_dir is None else ["--map-dir", str(Path(map_dir).absolute())]
    words += [word for fault in faults for word in ("--fault", fault)]
    with contextlib.ExitStack() as ends:
        folder = Path(ends.enter_context(tempfile.TemporaryDirectory(prefix="carla-lite-")))
        made = []
        for number in range(count):
            (folder / str(number)).mkdir()
            made.append(LiteServer(folder / str(number), words, environment or {}))
            made[-1].start()
            ends.callback(made[-1].end)
        for each in made:
            each.wait()
        yield made


@contextlib.contextmanager
def server(map: str = "Lite01", **more: Any) -> Iterator[LiteServer]:
    """Run one server while the block runs; the arguments are those of :func:`servers`."""
    with servers(1, map, **more) as (only,):
        yield only
