"""Requests to stop: Ctrl-C, SIGTERM, and the terminal that closes.

Owns the handlers and the count; what a first and a second request mean is the supervisor's.
"""

from __future__ import annotations

import signal
import time
from types import FrameType

# `timeout` and some init systems signal a process and then its group: that is one request, not two.
SAME_REQUEST_S = 0.5


class StopRequests:
    """How often the launcher was asked to stop, and by what."""

    def __init__(self) -> None:
        self.count = 0
        self.cause = ""
        self._last_s = 0.0

    def install(self) -> None:
        """Take over the signals for this process, the closing terminal's unless it was started to ignore it (nohup).

        SIGINT even so: a script's background jobs start with it ignored, and ``kill -INT`` would do nothing.
        """
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, self._on_signal)
        if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:
            signal.signal(signal.SIGHUP, self._on_signal)

    def _on_signal(self, number: int, _frame: FrameType | None) -> None:
        now_s = time.monotonic()
        if self.count == 0 or now_s - self._last_s > SAME_REQUEST_S:
            self.count += 1
            self._last_s = now_s
        self.cause = self.cause or ("Ctrl-C" if number == signal.SIGINT else signal.Signals(number).name)
