"""Moves the wall clock of each Python process that has this folder in PYTHONPATH, by the seconds in CLOCK_FILE.

The monotonic clock stays as it is, as it does when an administrator or NTP sets the time.
"""

from __future__ import annotations

import os
import time
from pathlib import Path

FILE = Path(os.environ["CLOCK_FILE"])
_time = time.time


def moved() -> float:
    """Return the time that a program reads."""
    return _time() + float(FILE.read_text())


time.time = moved
