"""How the learner starts a program of its own, which speaks with it over a socket and ends with it."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path


def spawned(
    module: str, theirs: socket.socket, log: Path, environment: Mapping[str, str], *words: str
) -> subprocess.Popen[bytes]:
    """Start ``python -m module SOCKET PARENT words…`` and return the process.

    Call from the main thread: the kernel ends the child when the thread that started it ends.

    Args:
        module: the program.
        theirs: its end of the socket.
        log: gets what it says.
        environment: beside this process's.
        words: further arguments.
    """
    with log.open("ab") as out:
        # A session of its own: Ctrl-C is for the learner, which then stops it in order.
        return subprocess.Popen(
            [sys.executable, "-m", module, str(theirs.fileno()), str(os.getpid()), *words],
            pass_fds=(theirs.fileno(),),
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=out,
            env={**os.environ, **environment},
            start_new_session=True,
        )
