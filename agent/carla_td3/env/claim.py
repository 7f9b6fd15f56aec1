"""A claim on a simulator, so that no two environments tick the same world.

It locks a file in the folder for temporary files, named after the simulator's address. The lock holds among all
processes and users of a machine, and ends with its process. Containers with another folder, and other machines, don't
see it.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import socket
import tempfile
import weakref
from functools import partial
from pathlib import Path

from carla_run.exits import Exit, ExitError
from carla_run.locks import HeldError, Lock

FILE = "carla-td3-simulator-{host}-{port}.lock"


class SimulatorOccupied(ExitError):  # noqa: N818 (a state of the world, not a mistake)
    """Another environment drives this simulator; the message is one sentence for a person (exit code 69)."""

    code = Exit.NO_SIMULATOR

    def __init__(self, host: str, port: int, holder: str) -> None:
        whose = "this process" if holder == str(os.getpid()) else f"process {holder}"
        super().__init__(
            f"The simulator at {host}:{port} is driven by another environment, in {whose}: close that one, or give "
            "each environment a simulator (gymnasium.make's ports=[...])."
        )


class Claim:
    """A claim that is held until ``release``, until nothing refers to it any more, or until its process ends.

    Raises:
        SimulatorOccupied: another environment has the simulator.
    """

    def __init__(self, host: str, port: int) -> None:
        try:
            lock: Lock | None = Lock(_path(host, port), of_all_users=True)
        except HeldError as held:
            raise SimulatorOccupied(host, port, held.holder) from None
        except OSError:  # without a writable folder there can be no lock
            lock = None
        self._giving_back = weakref.finalize(self, partial(_release, lock, os.getpid()))

    def release(self) -> None:
        """Release the claim; a second call does nothing."""
        self._giving_back()


def _path(host: str, port: int) -> Path:
    """Return the path of the lock file: the same for all names of a host."""
    with contextlib.suppress(OSError):
        host = socket.gethostbyname(host)
    return Path(tempfile.gettempdir()) / FILE.format(host=host.replace("/", "_"), port=port)


def _release(lock: Lock | None, owner: int) -> None:
    """Release the lock, even if a child process that was forked meanwhile has inherited its descriptor."""
    if lock is not None and os.getpid() == owner:
        fcntl.flock(lock.descriptor, fcntl.LOCK_UN)
        lock.release()
