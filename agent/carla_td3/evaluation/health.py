"""Whether a drive was healthy: ticks, pictures of the right frame, pixels that vary, memory under its limit.

Pure: readings in, sentences out. Drives nothing.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

FLAT_BELOW = 1.0
"""Standard deviation, of 255, below which a picture shows nothing; a black one has 0."""
MOVED_M = 0.1
"""A car that moves this far in a step must see another picture."""


@dataclass
class Health:
    """Counts problems during a drive.

    Args:
        wanted: steps that the drive should have.
        limit_mib: memory limit of each observed process.
    """

    wanted: int
    limit_mib: float
    steps: int = 0
    """Steps with a picture of their frame."""
    flat: list[int] = field(default_factory=list)
    """Steps whose picture shows nothing."""
    frozen: list[int] = field(default_factory=list)
    """Steps in which the car moved and its picture didn't change."""
    lost: str = ""
    """Why the simulator was lost or given up."""
    peak_mib: Counter[str] = field(default_factory=Counter)
    """Highest memory by process."""
    _last: NDArray[np.uint8] | None = None

    def see(self, picture: NDArray[np.uint8], metres: float, held_mib: Mapping[str, float]) -> None:
        """Add a step: the picture of its frame, the distance of the step in metres, and each process's memory."""
        self.steps += 1
        if float(picture.std(axis=(0, 1)).max()) < FLAT_BELOW:
            self.flat.append(self.steps)
        elif metres > MOVED_M and self._last is not None and np.array_equal(picture, self._last):
            self.frozen.append(self.steps)
        self._last = picture.copy()
        self.peak_mib |= Counter({who: round(mib) for who, mib in held_mib.items()})

    def problems(self) -> list[str]:
        """Return each problem as a sentence; empty for a healthy drive."""
        found = []
        if self.lost:
            found.append(self.lost)
        if self.steps < self.wanted:
            found.append(f"{self.steps} of {self.wanted} steps were driven.")
        if self.flat:
            found.append(f"The camera's picture showed nothing {_at(self.flat)}.")
        if self.frozen:
            found.append(f"The car moved and its picture did not change {_at(self.frozen)}.")
        for who, mib in self.peak_mib.items():
            if mib > self.limit_mib:
                found.append(f"The {who} held {mib:.0f} MiB, more than the limit of {self.limit_mib:.0f} MiB.")
        return found

    def plain(self) -> dict[str, Any]:
        """Return verdict and counts as plain data."""
        problems = self.problems()
        return {
            "healthy": not problems,
            "problems": problems,
            "steps_wanted": self.wanted,
            "steps": self.steps,
            "flat_pictures": len(self.flat),
            "frozen_pictures": len(self.frozen),
            "peak_mib": dict(self.peak_mib),
            "memory_limit_mib": self.limit_mib,
        }


def _at(steps: list[int]) -> str:
    first = f"at step {steps[0]}"
    return first if len(steps) == 1 else f"{len(steps)} times, first {first}"
