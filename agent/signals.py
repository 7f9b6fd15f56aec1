"""Ctrl-C and SIGTERM: the first asks the run to end well, the second ends it at once.

Owns the two handlers. Whoever runs the loop reads :attr:`StopRequest.signal` where stopping is safe.
"""

from __future__ import annotations

import signal
from types import FrameType


class StoppedAtOnce(BaseException):
    """A second signal: raised in the main thread wherever it is. No Exception, so that nobody swallows it."""


class StopRequest:
    """Whether somebody wants the run to end."""

    def __init__(self) -> None:
        self.signal: signal.Signals | None = None

    def install(self) -> None:
        """Take over SIGINT and SIGTERM for this process; call from the main thread."""
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, self._on_signal)

    def _on_signal(self, number: int, _frame: FrameType | None) -> None:
        if self.signal is not None:
            raise StoppedAtOnce
        self.signal = signal.Signals(number)
