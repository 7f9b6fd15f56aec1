"""The command: started in a session of its own, signalled as a whole, the end of its standard error kept.

What its end means for memory, :func:`out_of_memory` says, purely.
"""

from __future__ import annotations

import collections
import contextlib
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from typing import IO

from carla_run.cgroups import oom_kills
from carla_run.exits import Exit
from carla_run.memory_errors import surely_out_of_memory
from carla_run.processes import PROC, has_mapped, session_tree

SIGNS = ("out of memory", "MemoryError")
"""What any program may write, beside what ``carla_run.memory_errors`` knows."""
KILLED = 128 + signal.SIGKILL
# Ends that say what they are, whatever was written before: an agent gets over a shortage, and is stopped hours later.
MEANT = frozenset({*map(int, Exit), 128 + signal.SIGINT, 128 + signal.SIGTERM, KILLED} - {int(Exit.CRASH)})
LAST_WORDS = 64 * 1024
PATIENCE_S = 1.0
REFRESH_S = 0.1
KERNEL = PROC / "vmstat"


def out_of_memory(code: int, last_words: str, kernel_killed: bool) -> str:
    """Return why a command's end counts as running out of memory, in words; empty if it doesn't.

    Args:
        code: its exit code; 128 + n if signal n ended it.
        last_words: the end of what it wrote to standard error.
        kernel_killed: the kernel killed some process for memory while it ran.
    """
    if code == Exit.OUT_OF_MEMORY:  # the agent's and the launcher's
        return "exit code 71"
    if code == KILLED and kernel_killed:
        return "the kernel killed it for memory"
    said = next((sign for sign in SIGNS if sign in last_words), "") or surely_out_of_memory(last_words)
    return f"exit code {code} after `{said}`" if said and code not in MEANT else ""


class Command:
    """A command that was started."""

    def __init__(self, words: Sequence[str], environment: Mapping[str, str]) -> None:
        """Start it; standard error passes through here, everything else is as it was.

        Raises:
            OSError: it can't be started.
        """
        self._kills = oom_kills(KERNEL) or 0
        self._process = subprocess.Popen(words, env=environment, stderr=subprocess.PIPE, start_new_session=True)
        self._words: collections.deque[bytes] = collections.deque(maxlen=16)
        assert self._process.stderr is not None
        self._copier = threading.Thread(target=self._copy, args=(self._process.stderr,), daemon=True)
        self._copier.start()
        self._pids: frozenset[int] = frozenset({self._process.pid})
        self._looked_s = -REFRESH_S
        self._loaded: set[str] = set()

    @property
    def pid(self) -> int:
        """Return its process id."""
        return self._process.pid

    def poll(self) -> int | None:
        """Return None while it runs, then its exit code; 128 + n if signal n ended it."""
        code = self._process.poll()
        return code if code is None or code >= 0 else 128 - code

    def pids(self) -> frozenset[int]:
        """Return its processes: its descendants, and the others of its session; looked up ten times a second."""
        now_s = time.monotonic()
        if now_s - self._looked_s >= REFRESH_S:
            self._looked_s = now_s
            self._pids = session_tree(self._process.pid)
        return self._pids

    def has_loaded(self, library: str) -> bool:
        """Return whether one of them has mapped a file whose name begins so, or had; looked up until one has."""
        if library not in self._loaded and any(has_mapped(pid, library) for pid in self._pids):
            self._loaded.add(library)
        return library in self._loaded

    def signal(self, number: signal.Signals) -> None:
        """Send a signal to its process group, as a terminal does."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, number)

    def ran_out_of_memory(self, code: int) -> str:
        """Return why its end counts as running out of memory, in words; empty if it doesn't."""
        self._copier.join(PATIENCE_S)  # a process that it left behind may hold the pipe open
        said = b"".join(self._words).decode(errors="replace")
        return out_of_memory(code, said, (oom_kills(KERNEL) or 0) > self._kills)

    def _copy(self, source: IO[bytes]) -> None:
        while some := os.read(source.fileno(), LAST_WORDS // 16):
            self._words.append(some)
            with contextlib.suppress(OSError, ValueError):  # a terminal that was closed ends no command
                sys.stderr.buffer.write(some)
                sys.stderr.buffer.flush()
