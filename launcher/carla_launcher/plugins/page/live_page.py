"""Starts the page's process with its port, its token, and a pipe whose end stops it.

A page that can't be served is reported in one sentence; the run starts anyway.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import importlib.util
import secrets
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from urllib.parse import urlsplit

from carla_launcher import ports
from carla_launcher.config import LauncherConfig
from carla_launcher.places import SHIPPED
from carla_run.exits import Exit, ExitError
from carla_run.files import open_to_append, read_whole, write_whole
from carla_run.paths import RunPaths
from carla_run.readers import read_text
from carla_run.signals import wait_or_kill

ADDRESS = "127.0.0.1"
NEEDED = ("starlette", "uvicorn", "jinja2", "matplotlib")
BACKLOG = 64
PATIENCE_S = 1.0
LAST_LOOK_S = 5.0
"""Time for the last pictures after the end of the run."""

Say = Callable[[str], None]


class NoPageError(ExitError):
    """The page can't be served. The message is one sentence for the user."""

    code = Exit.BAD_CONFIG


@contextlib.contextmanager
def serve_while_running(
    run: RunPaths, port: int, say: Say, launcher_config: Path = SHIPPED, *, to_terminal: bool = False
) -> Iterator[int | None]:
    """Serve the run's page from a child process while the block runs, and give its process id.

    Gives None if the page can't be served, which is printed.

    Args:
        launcher_config: used by the button that stops the run.
        to_terminal: ``say`` prints to a terminal, so it may print the address with the token.
    """
    with contextlib.ExitStack() as served:
        process = None
        try:
            process = served.enter_context(_started(run, port, launcher_config, say, to_terminal))
        except NoPageError as error:
            say(f"{error} The run continues without a page; `dashboard {run.path.name}` can serve it later.")
        yield process


def serve(run: RunPaths, port: int, limits: LauncherConfig, say: Say, *, to_terminal: bool = False) -> None:
    """Serve a run's page from this process until Ctrl-C or SIGTERM; see :func:`serve_while_running`.

    Raises:
        NoPageError: it can't be served.
    """
    listening = _listening(port)
    from carla_launcher.plugins.page import server  # needs packages that `up` goes without

    signal.signal(signal.SIGTERM, signal.default_int_handler)
    with _address(run, listening, say, to_terminal) as token, contextlib.suppress(KeyboardInterrupt):
        asyncio.run(server.serve(run, limits, listening, token))


@contextlib.contextmanager
def _address(run: RunPaths, listening: socket.socket, say: Say, to_terminal: bool) -> Iterator[str]:
    """Keep the page's address in a file that only its user can read while the block runs, and give its token.

    The address is printed to a terminal only: others may read a job's log, and with the token they could stop the run.

    Raises:
        NoPageError: the address can neither be printed nor written.
    """
    before = read_text(run.page_address)
    token = secrets.token_urlsafe(32)
    address = f"http://{ADDRESS}:{listening.getsockname()[1]}/?token={token}"
    try:
        write_whole(run.page_address, f"{address}\n", private=True)
    except OSError as error:
        if not to_terminal:
            raise NoPageError(
                f"{run.page_address}: can't be written ({error.strerror}), and the live page's address contains a "
                "token that must not be in any other file: serve the page from a terminal."
            ) from None
    say(f"live page: {address}" if to_terminal else f"live page: its address is in {run.page_address}")
    try:
        yield token
    finally:
        with contextlib.suppress(OSError):
            if read_whole(run.page_address).decode().strip() == address:  # not a later page's
                run.page_address.unlink()
                if before and _listens(before):
                    write_whole(run.page_address, before, private=True)


def _listens(address: str) -> bool:
    """Return whether a page is still served at its address."""
    try:
        socket.create_connection((ADDRESS, urlsplit(address.strip()).port or 0), PATIENCE_S).close()
    except (OSError, ValueError):
        return False
    return True


@contextlib.contextmanager
def _started(run: RunPaths, port: int, launcher_config: Path, say: Say, to_terminal: bool) -> Iterator[int]:
    with _listening(port) as listening, _address(run, listening, say, to_terminal) as token:
        process = _process(run, listening, token, launcher_config)
        listening.close()
        try:
            yield process.pid
        finally:
            assert process.stdin is not None
            with contextlib.suppress(BrokenPipeError):
                process.stdin.close()  # which stops it
            wait_or_kill(process, LAST_LOOK_S)


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


def _listening(port: int) -> socket.socket:
    """Return a listening socket; connections wait until the page answers."""
    if missing := [name for name in NEEDED if importlib.util.find_spec(name) is None]:
        raise NoPageError(
            f"The live page needs {', '.join(missing)}: `pip install '.[launcher,web]'`, or, if this is a container, "
            "`carla-launcher dashboard` on its host."
        )
    listening = socket.socket()
    try:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind((ADDRESS, port))
        listening.listen(BACKLOG)
    except OSError as error:
        listening.close()
        taken = error.errno == errno.EADDRINUSE
        why = f"is taken by {ports.holder(port)}" if taken else f"can't be used ({error.strerror})"
        raise NoPageError(f"Port {port} {why}: choose another for the live page, or 0 for a free one.") from None
    return listening
