"""Running means of an update's metrics: they stay on the device, and the device isn't waited for until they are read.

Owns the sums. Knows no metric by name.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor


class Means:
    """Of all updates since they were last taken."""

    def __init__(self) -> None:
        self._sums: dict[str, _Sum] = {}

    def add(self, metrics: Mapping[str, Tensor]) -> None:
        """Take in one update's."""
        for name, value in metrics.items():
            self._sums.setdefault(name, _Sum()).add(value)

    def take(self) -> dict[str, float]:
        """Return the means by name and start over; waits for the device."""
        means = {name: each.mean() for name, each in self._sums.items()}
        self._sums.clear()
        return means

    def move(self, device: torch.device) -> None:
        """Go on on another device."""
        for each in self._sums.values():
            each.move(device)


@dataclass
class _Sum:
    total: torch.Tensor | None = None
    count: int = 0

    def add(self, value: torch.Tensor) -> None:
        self.total = value.clone() if self.total is None else self.total.add_(value.to(self.total.device))
        self.count += 1

    def move(self, device: torch.device) -> None:
        if self.total is not None:
            self.total = self.total.to(device)

    def mean(self) -> float:
        assert self.total is not None
        return float(self.total) / self.count
