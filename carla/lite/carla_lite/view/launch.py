"""The window's process from the server's side: its port, its token, and the pipe whose end also ends the process."""

from __future__ import annotations

import contextlib
import secrets
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator

from carla_lite.protocol.channel import listen

LOOPBACK = "127.0.0.1"
END_S = 3.0


def bind(port: int) -> socket.socket:
    """Return the socket on which the window will be served.

    Raises:
        OSError: the port is in use.
    """
    return listen(LOOPBACK, port)


@contextlib.contextmanager
def window(listening: socket.socket, server: tuple[str, int], seed: int) -> Iterator[str]:
    """Serve the window of a server while the block runs, and yield its address with the token.

    Args:
        listening: as :func:`bind` returned it; closed here.
        server: host and RPC port of the server.
        seed: for houses and trees beside the road.
    """
    host = LOOPBACK if server[0] in ("0.0.0.0", "") else server[0]
    token = secrets.token_urlsafe(32)
    with listening:
        address = f"http://{LOOPBACK}:{listening.getsockname()[1]}/?token={token}"
        process = subprocess.Popen(
            [sys.executable, "-m", "carla_lite.view", str(listening.fileno()), host, str(server[1]), str(seed)],
            stdin=subprocess.PIPE,
            pass_fds=(listening.fileno(),),
            start_new_session=True,  # Ctrl-C is for the server
            text=True,
        )
    assert process.stdin is not None
    try:
        with contextlib.suppress(BrokenPipeError):
            process.stdin.write(f"{token}\n")
            process.stdin.flush()
        yield address
    finally:
        with contextlib.suppress(OSError):
            process.stdin.close()
        try:
            process.wait(END_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


@contextlib.contextmanager
def announcement(address: str, to_terminal: bool) -> Iterator[str]:
    """Yield the text that tells the window's address, while the block runs.

    On a terminal this is the address itself. A log may be open to other users, so there it is the name of a private
    file.
    """
    if to_terminal:
        yield f"window at {address}"
        return
    with contextlib.ExitStack() as kept:
        try:  # readable by this user only
            file = kept.enter_context(tempfile.NamedTemporaryFile("w", prefix="carla-lite-window-", suffix=".url"))
        except OSError as error:
            yield f"window: no file can hold its address ({error.strerror}): set TMPDIR, or start it in a terminal"
            return
        file.write(f"{address}\n")
        file.flush()
        yield f"window: its address is in {file.name}, for you only"
