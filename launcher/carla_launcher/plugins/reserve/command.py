"""The command: started in its own session, signalled as a whole. The end of its standard error is kept.

:func:`out_of_memory` decides whether it ran out of memory.
"""

from __future__ import annotations

import collections
import contextlib
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from typing import IO

from carla_run.exits import KILLED, TERMINATED, Exit
from carla_run.memory.cgroups import oom_kills
from carla_run.memory.errors import surely_out_of_memory
from carla_run.memory.processes import PROC
from carla_run.signals import StopRequests

SIGNS = ("out of memory", "MemoryError")
"""Messages of any program, in addition to those of ``carla_run.memory.errors``."""
# Exit codes with another meaning: an agent may survive a shortage and be stopped hours later.
MEANT = frozenset({*map(int, Exit), 128 + signal.SIGINT, TERMINATED, KILLED} - {int(Exit.CRASH)})
LAST_WORDS = 64 * 1024
PATIENCE_S = 1.0
POLL_S = 0.1
KERNEL = PROC / "vmstat"


def out_of_memory(code: int, last_words: str, kernel_killed: bool) -> str:
    """Return why a command counts as out of memory, as text; empty if it doesn't.

    Args:
        code: its exit code; 128 + n if signal n ended it.
        last_words: the end of its standard error.
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
        """Start it. Only its standard error passes through this process.

        Raises:
            OSError: it can't be started.
        """
        self._kills = oom_kills(KERNEL) or 0
        self._process = subprocess.Popen(words, env=environment, stderr=subprocess.PIPE, start_new_session=True)
        self._words: collections.deque[bytes] = collections.deque(maxlen=16)
        assert self._process.stderr is not None
        self._copier = threading.Thread(target=self._copy, args=(self._process.stderr,), daemon=True)
        self._copier.start()

    def wait(self, requests: StopRequests) -> int:
        """Wait for its end, passing requests to stop on to it; return its exit code, 128 + n if signal n ended it."""
        passed_on = 0
        while True:
            with contextlib.suppress(subprocess.TimeoutExpired):
                code = self._process.wait(POLL_S)
                return code if code >= 0 else 128 - code
            if requests.count > passed_on:
                passed_on = requests.count
                number = signal.SIGINT if requests.signal is signal.SIGINT else signal.SIGTERM
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(self._process.pid, number)  # the whole group, like a terminal

    def ran_out_of_memory(self, code: int) -> str:
        """Return why it counts as out of memory, as text; empty if it doesn't."""
        self._copier.join(PATIENCE_S)  # a process that outlives it may hold the pipe open
        said = b"".join(self._words).decode(errors="replace")
        return out_of_memory(code, said, (oom_kills(KERNEL) or 0) > self._kills)

    def _copy(self, source: IO[bytes]) -> None:
        while some := os.read(source.fileno(), LAST_WORDS // 16):
            self._words.append(some)
            with contextlib.suppress(OSError, ValueError):  # a closed terminal ends no command
                sys.stderr.buffer.write(some)
                sys.stderr.buffer.flush()
