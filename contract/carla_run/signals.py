"""Requests to stop: Ctrl-C, SIGTERM, and where it is asked for the terminal that closes.

The loop of the program reads :attr:`StopRequests.count` where stopping is safe; what a second one means is its own.
"""

from __future__ import annotations

import signal
import time
from types import FrameType

# `timeout` and some init systems signal a process and then its group: that is one request, not two.
SAME_REQUEST_S = 0.5


class StoppedAtOnce(BaseException):
    """A second request: raised in the main thread wherever it is. No Exception, so that nothing swallows it."""


class StopRequests:
    """How often this process was asked to stop, and by what first."""

    def __init__(self, *, raise_second: bool = False) -> None:
        """Count nothing yet; ``raise_second``: raise StoppedAtOnce on the second request."""
        self.count = 0
        self.signal: signal.Signals | None = None
        self._raise_second = raise_second
        self._last_s = 0.0

    @property
    def cause(self) -> str:
        """What asked first, for a person; empty while nothing has."""
        if self.signal is None:
            return ""
        return "Ctrl-C" if self.signal is signal.SIGINT else self.signal.name

    def install(self, *, interrupt: bool = True, closing_terminal: bool = False) -> None:
        """Take over SIGTERM for this process; call from the main thread.

        SIGINT even where it is ignored: a script's background jobs start so, and ``kill -INT`` would do nothing.

        Args:
            interrupt: SIGINT as well.
            closing_terminal: SIGHUP as well, unless the process was started to ignore it (nohup).
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
