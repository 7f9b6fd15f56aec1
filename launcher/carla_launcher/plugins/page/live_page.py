"""The page's process, as the launcher has it: its port, its token, and the pipe with whose end it ends.

A page that can't be served is one sentence and never a reason for a run not to start.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import importlib.util
import secrets
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

from carla_launcher import ports
from carla_launcher.config import SHIPPED, LauncherConfig
from carla_run.exits import Exit, ExitError
from carla_run.files import open_to_append, read_whole, write_whole
from carla_run.paths import RunPaths

ADDRESS = "127.0.0.1"
NEEDED = ("starlette", "uvicorn", "jinja2", "matplotlib")
BACKLOG = 64
LAST_LOOK_S = 5.0
"""For the last pictures to go out once the run has ended."""

Say = Callable[[str], None]


class NoPageError(ExitError):
    """The page can't be served; the message is one sentence for a person."""

    code = Exit.BAD_CONFIG


@contextlib.contextmanager
def beside(
    run: RunPaths, port: int | None, say: Say, launcher_config: Path = SHIPPED, *, to_terminal: bool = False
) -> Iterator[int | None]:
    """Serve the run's page from a child process while the block lasts, and give its process id.

    None where no port is given, or the page can't be served, which is said.

    Args:
        launcher_config: by which the page's button stops the run.
        to_terminal: what is said goes to a terminal, and so the address with its token may be.
    """
    with contextlib.ExitStack() as served:
        process = None
        try:
            if port is not None:
                process = served.enter_context(_started(run, port, launcher_config, say, to_terminal))
        except NoPageError as error:
            say(f"{error} The run goes on without its page; `dashboard {run.path.name}` serves it later.")
        yield process


def serve(run: RunPaths, port: int, limits: LauncherConfig, say: Say, *, to_terminal: bool = False) -> None:
    """Serve a run's page from this process until Ctrl-C; the arguments are those of :func:`beside`.

    Raises:
        NoPageError: it can't be served.
    """
    listening = _listening(port)
    from carla_launcher.plugins.page import server  # needs packages that `up` goes without

    with _address(run, listening, say, to_terminal) as token, contextlib.suppress(KeyboardInterrupt):
        asyncio.run(server.serve(run, limits, listening, token))


@contextlib.contextmanager
def _address(run: RunPaths, listening: socket.socket, say: Say, to_terminal: bool) -> Iterator[str]:
    """Keep the page's address in a file that only its user can read while the block lasts, and give its token.

    It is said on a terminal only: a file or a job's log may be open to others, and the token lets them stop the run.

    Raises:
        NoPageError: it can neither be said nor written.
    """
    token = secrets.token_urlsafe(32)
    address = f"http://{ADDRESS}:{listening.getsockname()[1]}/?token={token}"
    try:
        write_whole(run.page_address, f"{address}\n", private=True)
    except OSError as error:
        if not to_terminal:
            raise NoPageError(
                f"{run.page_address}: can't be written ({error.strerror}), and the live page's address has a token "
                "that belongs on no other file: serve the page from a terminal."
            ) from None
    say(f"live page: {address}" if to_terminal else f"live page: its address is in {run.page_address}, for you only")
    try:
        yield token
    finally:
        with contextlib.suppress(OSError):
            if read_whole(run.page_address).decode().strip() == address:  # not a later page's
                run.page_address.unlink()


@contextlib.contextmanager
def _started(run: RunPaths, port: int, launcher_config: Path, say: Say, to_terminal: bool) -> Iterator[int]:
    with _listening(port) as listening, _address(run, listening, say, to_terminal) as token:
        process = _process(run, listening, token, launcher_config)
        listening.close()
        try:
            yield process.pid
        finally:
            _end(process)


def _process(run: RunPaths, listening: socket.socket, token: str, launcher_config: Path) -> subprocess.Popen[str]:
    words = [str(run.path), str(listening.fileno()), str(launcher_config)]
    try:
        with open_to_append(run.logs / "page.log") as log:
            process = subprocess.Popen(
                [sys.executable, "-m", "carla_launcher.plugins.page", *words],
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=log,
                text=True,
                pass_fds=(listening.fileno(),),
                start_new_session=True,  # Ctrl-C is for the launcher
            )
    except OSError as error:
        raise NoPageError(f"The live page can't be started ({error.strerror}).") from None
    assert process.stdin is not None
    with contextlib.suppress(BrokenPipeError):
        process.stdin.write(f"{token}\n")
        process.stdin.flush()
    return process


def _end(process: subprocess.Popen[str]) -> None:
    try:
        process.communicate(timeout=LAST_LOOK_S)  # its input ends, and with it the page
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
