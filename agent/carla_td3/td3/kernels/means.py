"""Running means of an update's metrics, kept on the device; only reading them waits for the device.

Owns the sums. Knows no metric by name.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

import torch
from torch import Tensor


class Means:
    """Means over all updates since the last ``take``."""

    def __init__(self) -> None:
        self._totals: dict[str, Tensor] = {}
        self._counts: Counter[str] = Counter()

    def add(self, metrics: Mapping[str, Tensor]) -> None:
        """Add the metrics of one update."""
        self._counts.update(metrics.keys())
        for name, value in metrics.items():
            total = self._totals.get(name)
            self._totals[name] = value.clone() if total is None else total.add_(value.to(total.device))

    def take(self) -> dict[str, float]:
        """Return the means by name and start over; waits for the device."""
        means = {name: float(total) / self._counts[name] for name, total in self._totals.items()}
        self._totals.clear()
        self._counts.clear()
        return means

    def move(self, device: torch.device) -> None:
        """Move to another device."""
        self._totals = {name: total.to(device) for name, total in self._totals.items()}
