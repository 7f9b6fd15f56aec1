"""What simulator and agent take at most, by pool: plain data, estimated or measured.

Reads nothing: ``footprint`` asks the agent, ``watermarks`` reads what earlier runs measured.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from carla_launcher.observe.pools import Figure, PoolKind, Provenance, estimated

Values = Mapping[str, Any]
"""Dotted keys of the agent's configuration to values."""

DEVICE, CUDA, CPU = "device", "cuda", "cpu"
"""The key that every set of values has, and its two values: where the agent computes."""
NOTHING = estimated(0)


@dataclass(frozen=True)
class Sizes:
    """What the agent takes with one set of values.

    Attributes:
        values: laid over the configuration.
        mib: its peak in each pool, a CUDA context included; empty if there is a refusal.
        provenance: whether a pool's peak was measured; estimated where it isn't named.
        context: of the VRAM, the CUDA context.
        by_phase: by pool and phase.
        run: the earlier run by whose peak these are corrected.
        refusal: why no such configuration can be, a sentence; empty if it can.
        refused_key: the key that the refusal is of; empty for several, and without one.
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
        """The CUDA context; 0 where there is none."""
        return self.context.mib or 0.0

    def figure(self, kind: PoolKind) -> Figure:
        """Return the peak in a pool."""
        return Figure(self.mib.get(kind, 0.0), self.provenance.get(kind, Provenance.ESTIMATED), self.run)


SizesOf = Callable[[Sequence[Values]], Sequence[Sizes]]
"""Answers for many sets of values at once, in their order; each call may start a process."""


@dataclass(frozen=True)
class Simulator:
    """The simulator of a run, or all of them.

    Attributes:
        quality: that it starts with: a key of ``peaks``.
        peaks: by quality, the finest first, and pool, of one; one that knows no quality has a single word for it.
        count: how many; all that is said of their memory is of all together.
        label: what people call one.
        ram_key: of the launcher's configuration, its first figure of RAM.
    """

    quality: str
    peaks: Mapping[str, Mapping[PoolKind, Figure]]
    count: int = 1
    label: str = "CARLA"
    ram_key: str = "sizes.ram_mib"

    @property
    def name(self) -> str:
        """What people call it."""
        return self.label if self.count == 1 else f"{self.count} × {self.label}"

    def at(self, quality: str) -> str:
        """Return what people call it at a quality."""
        return self.name if len(self.peaks) == 1 else f"{self.name} at {quality}"

    def shown(self, quality: str) -> str:
        """Return the quality, or what people call one that knows none."""
        return self.label if len(self.peaks) == 1 else quality

    def setting(self, quality: str, kind: PoolKind) -> str:
        """Return the key of the launcher's configuration that holds its first figure."""
        return f"sizes.vram_mib.{quality}" if kind is PoolKind.VRAM else self.ram_key

    @property
    def qualities(self) -> tuple[str, ...]:
        """All that it can be started with, the finest first."""
        return tuple(self.peaks)

    def peak(self, quality: str, kind: PoolKind) -> Figure:
        """Return what it takes at most; nothing of a pool that it doesn't use."""
        one = self.peaks.get(quality, {}).get(kind, estimated(0))
        return one if self.count == 1 or one.mib is None else replace(one, mib=round(one.mib * self.count, 1))


def key_of(values: Values) -> str:
    """Return the same word for the same values, in whichever order."""
    return repr(sorted(values.items()))
