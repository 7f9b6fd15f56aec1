"""The page's process, as the launcher has it: its port, its token, and the pipe with whose end it ends.

A page that can't be served is one sentence and never a reason for a run not to start.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import importlib.util
import os
import secrets
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

from contract.exits import Exit, ExitError
from contract.paths import RunPaths
from launcher import ports

ADDRESS = "127.0.0.1"
NEEDED = ("starlette", "uvicorn", "jinja2", "matplotlib")
BACKLOG = 64
LAST_LOOK_S = 5.0
"""For the last pictures to go out once the run has ended."""
PACKAGES = Path(__file__).resolve().parents[2]

Say = Callable[[str], None]


class NoPageError(ExitError):
    """The page can't be served; the message is one sentence for a person."""

    code = Exit.BAD_CONFIG


@contextlib.contextmanager
def beside(run: RunPaths, port: int | None, say: Say) -> Iterator[int | None]:
    """Serve the run's page from a child process while the block lasts, and give its process id.

    None where no port is given, or the page can't be served, which is said.
    """
    process = None
    if port is not None:
        try:
            process = _started(run, port, say)
        except NoPageError as error:
            say(f"{error} The run goes on without its page; `dashboard {run.path.name}` serves it later.")
    try:
        yield None if process is None else process.pid
    finally:
        if process is not None:
            _end(process)


def serve(run: RunPaths, port: int, say: Say) -> None:
    """Serve a run's page from this process until Ctrl-C.

    Raises:
        NoPageError: it can't be served.
    """
    listening = _listening(port)
    from launcher.page import server  # needs packages that `up` goes without

    token = secrets.token_urlsafe(32)
    say(f"live page: {_url(listening, token)} (Ctrl-C ends it)")
    with contextlib.suppress(KeyboardInterrupt):
        asyncio.run(server.serve(run, listening, token))


def _started(run: RunPaths, port: int, say: Say) -> subprocess.Popen[str]:
    paths = os.pathsep.join(filter(None, (str(PACKAGES), os.environ.get("PYTHONPATH", ""))))
    with _listening(port) as listening:
        token = secrets.token_urlsafe(32)
        try:
            with (run.logs / "page.log").open("ab") as log:
                process = subprocess.Popen(
                    [sys.executable, "-m", "launcher.page", str(run.path), str(listening.fileno())],
                    stdin=subprocess.PIPE,
                    stdout=log,
                    stderr=log,
                    text=True,
                    env={**os.environ, "PYTHONPATH": paths},
                    pass_fds=(listening.fileno(),),
                    start_new_session=True,  # Ctrl-C is for the launcher
                )
        except OSError as error:
            raise NoPageError(f"The live page can't be started ({error.strerror}).") from None
        assert process.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            process.stdin.write(f"{token}\n")
            process.stdin.flush()
        say(f"live page: {_url(listening, token)}")
    return process


def _end(process: subprocess.Popen[str]) -> None:
    assert process.stdin is not None
    with contextlib.suppress(OSError):
        process.stdin.close()
    try:
        process.wait(LAST_LOOK_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def _listening(port: int) -> socket.socket:
    """Return a socket that takes connections from now on; they wait until the page answers."""
    if missing := [name for name in NEEDED if importlib.util.find_spec(name) is None]:
        raise NoPageError(f"The live page needs {', '.join(missing)}: `pip install '.[launcher,web]'`.")
    listening = socket.socket()
    try:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind((ADDRESS, port))
        listening.listen(BACKLOG)
    except OSError as error:
        listening.close()
        taken = error.errno == errno.EADDRINUSE
        why = f"is taken by {ports.holder(port)}" if taken else f"can't be had ({error.strerror})"
        raise NoPageError(f"Port {port} {why}: choose another for the live page, or 0 for a free one.") from None
    return listening


def _url(listening: socket.socket, token: str) -> str:
    return f"http://{ADDRESS}:{listening.getsockname()[1]}/?token={token}"
