"""Requests to stop: Ctrl-C, SIGTERM, and optionally a closing terminal; and the end of a child that was asked to stop.

The program's loop reads :attr:`StopRequests.count` where it can stop safely, and decides what a second request means.
"""

from __future__ import annotations

import signal
import subprocess
import time
from types import FrameType
from typing import Any

# `timeout` and some init systems signal a process and then its group: that is one request, not two.
SAME_REQUEST_S = 0.5


def wait_or_kill(child: subprocess.Popen[Any], grace_s: float) -> None:
    """Return when a child process has ended; it is killed after its grace."""
    try:
        child.wait(grace_s)
    except subprocess.TimeoutExpired:
        child.kill()
        child.wait()


class StoppedAtOnce(BaseException):
    """Raised in the main thread at the second request. It is no Exception, so that no handler swallows it."""


class StopRequests:
    """Number of requests to stop this process, and the first signal."""

    def __init__(self, *, raise_second: bool = False) -> None:
        """Count nothing yet. ``raise_second``: raise StoppedAtOnce at the second request."""
        self.count = 0
        self.signal: signal.Signals | None = None
        self._raise_second = raise_second
        self._last_s = 0.0

    @property
    def cause(self) -> str:
        """Name of the first request; empty if there was none."""
        if self.signal is None:
            return ""
        return "Ctrl-C" if self.signal is signal.SIGINT else self.signal.name

    def cut_short(self) -> bool:
        """Return whether there was a second request, which ends every grace period."""
        return self.count > 1

    def install(self, *, interrupt: bool = True, closing_terminal: bool = False) -> None:
        """Handle SIGTERM; call from the main thread.

        SIGINT is handled even if it is ignored, as in a script's background jobs, so that ``kill -INT`` works.

        Args:
            interrupt: SIGINT as well.
            closing_terminal: handle SIGHUP as well, unless the process was started to ignore it (nohup).
        """
        for number in (signal.SIGTERM, signal.SIGINT) if interrupt else (signal.SIGTERM,):
            signal.signal(number, self._on_signal)
        if closing_terminal and signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:
            signal.signal(signal.SIGHUP, self._on_signal)

    def _on_signal(self, number: int, _frame: FrameType | None) -> None:
        now_s = time.monotonic()
        if self.count and now_s - self._last_s <= SAME_REQUEST_S:
            return
        self.count, self._last_s = self.count + 1, now_s
        if self.signal is None:
            self.signal = signal.Signals(number)
        elif self._raise_second:
            raise StoppedAtOnce
