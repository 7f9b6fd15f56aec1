"""How long something may take where others crowd this machine: waiting for it, and limits that they stretch.

Owns the loop, the stretching, and what a failure says of it.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable


def until(condition: Callable[[], object], limit_s: float = 60.0) -> float:
    """Return how long it took until something was so."""
    began_s = time.monotonic()
    while not condition():
        assert time.monotonic() - began_s < limit_s, f"waited in vain for {limit_s:g} s"
        time.sleep(0.02)
    return time.monotonic() - began_s


def assert_within(limit_s: float, took_s: float) -> None:
    """Require that something took no longer than its limit, stretched by this machine's load of the last minute."""
    load, cores = os.getloadavg()[0], os.cpu_count() or 1
    factor = max(1.0, load / cores)
    assert took_s <= limit_s * factor, (
        f"it took {took_s:.1f} s; {limit_s * factor:.1f} s are allowed, {limit_s:g} s stretched {factor:.2f} times "
        f"for a load of {load:.1f} on {cores} cores"
    )
