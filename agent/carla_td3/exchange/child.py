"""A program that the learner starts and talks to over a socket: how both sides start and end."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import traceback
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import NoReturn

from carla_run.exits import Exit


def spawned(
    module: str, theirs: socket.socket, log: Path, environment: Mapping[str, str], *words: str
) -> subprocess.Popen[bytes]:
    """Start ``python -m module SOCKET PARENT words…`` and return the process.

    Call from the main thread: the kernel ends the child when the thread that started it ends.

    Args:
        module: the program.
        theirs: the child's end of the socket.
        log: gets its output.
        environment: added to this process's environment.
        words: further arguments.
    """
    with log.open("ab") as out:
        # In a separate session: Ctrl-C goes only to the learner, which then stops it in order.
        return subprocess.Popen(
            [sys.executable, "-m", module, str(theirs.fileno()), str(os.getpid()), *words],
            pass_fds=(theirs.fileno(),),
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=out,
            env={**os.environ, **environment},
            start_new_session=True,
        )


def run_spawned(program: Callable[[socket.socket], Exit]) -> NoReturn:
    """Run a program that :func:`spawned` has started, with its end of the socket.

    Exits by ``os._exit``: at interpreter exit a sensor that was just stopped can abort (protocol section 5.5).
    """
    code = Exit.CRASH
    try:
        code = program(socket.socket(fileno=int(sys.argv[1])))
    except Exception:
        traceback.print_exc()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)
