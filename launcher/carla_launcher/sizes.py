"""Peak memory of simulator and agent, by pool: plain data, estimated or measured.

``footprint`` queries the agent, ``watermarks`` reads the measurements of earlier runs.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from carla_launcher.observe.pools import Figure, PoolKind, Provenance, estimated

Values = Mapping[str, Any]
"""Dotted keys of the agent's configuration to values."""

DEVICE, CUDA, CPU = "device", "cuda", "cpu"
"""The key that every set of values has, the agent's device, and its two values."""
NOTHING = estimated(0)


@dataclass(frozen=True)
class Sizes:
    """The agent's memory with one set of values.

    Attributes:
        values: values that override the configuration.
        mib: peak in each kind of pool, including the CUDA context; empty if there is a refusal.
        provenance: whether a pool's peak was measured; a pool that is left out was estimated.
        context: the CUDA context, a part of the VRAM.
        by_phase: peaks by kind of pool and phase.
        run: the earlier run whose measurement corrected these sizes.
        refusal: why the configuration is impossible, a sentence; empty if it is possible.
        refused_key: the key that causes the refusal; empty for several keys, or without a refusal.
        unknown: pools of which nothing says what it takes.
    """

    values: Values
    mib: Mapping[PoolKind, float] = field(default_factory=dict)
    provenance: Mapping[PoolKind, Provenance] = field(default_factory=dict)
    context: Figure = NOTHING
    by_phase: Mapping[PoolKind, Mapping[str, float]] = field(default_factory=dict)
    refusal: str = ""
    refused_key: str = ""
    unknown: frozenset[PoolKind] = frozenset()
    run: str = field(default="", compare=False)

    @property
    def context_mib(self) -> float:
        """The CUDA context in MiB; 0 without one."""
        return self.context.mib or 0.0

    def figure(self, kind: PoolKind) -> Figure:
        """Return the peak in a pool."""
        return Figure(self.mib.get(kind, 0.0), self.provenance.get(kind, Provenance.ESTIMATED), self.run)


SizesOf = Callable[[Sequence[Values]], Sequence[Sizes]]
"""Returns the sizes of several sets of values, in their order; each call may start a process."""


@dataclass(frozen=True)
class Simulator:
    """The memory of a run's simulator, or of all its simulators.

    Attributes:
        quality: the quality that it starts with, a key of ``peaks``.
        peaks: peaks of one simulator by quality, the finest first, and by pool kind; one key if it has no qualities.
        count: number of simulators; methods return the memory of all together.
        label: name of one simulator for messages.
        ram_key: key of the launcher's configuration for its estimated RAM.
    """

    quality: str
    peaks: Mapping[str, Mapping[PoolKind, Figure]]
    count: int = 1
    label: str = "CARLA"
    ram_key: str = "sizes.ram_mib"

    @property
    def name(self) -> str:
        """Name for messages."""
        return self.label if self.count == 1 else f"{self.count} × {self.label}"

    def at(self, quality: str) -> str:
        """Return the name for messages, with a quality."""
        return self.name if len(self.peaks) == 1 else f"{self.name} at {quality}"

    def shown(self, quality: str) -> str:
        """Return the quality, or the name if there are no qualities."""
        return self.label if len(self.peaks) == 1 else quality

    def setting(self, quality: str, kind: PoolKind) -> str:
        """Return the key of the launcher's configuration that holds its estimate."""
        return f"sizes.vram_mib.{quality}" if kind is PoolKind.VRAM else self.ram_key

    def peak(self, quality: str, kind: PoolKind) -> Figure:
        """Return its peak; 0 in a pool that it doesn't use."""
        one = self.peaks.get(quality, {}).get(kind, estimated(0))
        return one if self.count == 1 or one.mib is None else replace(one, mib=round(one.mib * self.count, 1))


def key_of(values: Values) -> str:
    """Return a key that is equal for equal values in any order."""
    return repr(sorted(values.items()))
