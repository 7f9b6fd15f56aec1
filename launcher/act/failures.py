"""What interrupts the scripts of a run: a simulator that failed to start, and the end."""

from __future__ import annotations

from launcher.decide.ending import Ending
from launcher.observe.observation import Ended


class SimulatorFailedError(Exception):
    """A simulator that was started didn't get as far as answering and ticking."""

    def __init__(self, cause: str, ended: Ended | None, last_words: str) -> None:
        super().__init__(cause)
        self.cause, self.ended, self.last_words = cause, ended, last_words


class OverError(Exception):
    """The run is to end."""

    def __init__(self, ending: Ending) -> None:
        super().__init__(ending.reason)
        self.ending = ending
