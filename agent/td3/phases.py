"""How an update is cut: in phases, each of which may be tried again, and a phase's batch in micro-batches.

Owns the words for it and the sums over micro-batches. Knows no network, no optimizer and no memory.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Protocol, TypeVar

from torch import Tensor

Metrics = dict[str, Tensor]
T = TypeVar("T")


class Attempt(Protocol):
    """How a phase is run, and what is done when it raises."""

    def __call__(self, phase: str, run: Callable[[int], T], rows: int) -> T:
        """Return ``run(micro_batch)``; any micro-batch from 1 to ``rows`` does, and after a failed try another one."""


def at_once(phase: str, run: Callable[[int], T], rows: int) -> T:  # noqa: ARG001 – the name is for those who report it
    """Run a phase on the whole batch."""
    return run(rows)


def micro_batches(size: int, micro_batch: int) -> Iterator[slice]:
    """Return the rows of each micro-batch; the last may be smaller."""
    return (slice(begin, begin + micro_batch) for begin in range(0, size, micro_batch))


def added(sums: Metrics, part: Metrics) -> Metrics:
    """Return the sums with a micro-batch's part; ``sums`` is empty before the first."""
    return {name: sums[name] + value if sums else value for name, value in part.items()}
