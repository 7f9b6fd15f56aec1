"""How a test waits: for a condition, with a patience that no busy machine exhausts. How long it took is no verdict."""

from __future__ import annotations

import time
from collections.abc import Callable

PATIENCE_S = 300.0
"""Ends what hangs, and nothing else."""


def until(condition: Callable[[], object]) -> None:
    """Return once something is so."""
    deadline_s = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < deadline_s, f"waited in vain for {PATIENCE_S:g} s"
        time.sleep(0.02)
