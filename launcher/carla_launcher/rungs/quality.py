"""A rung that lowers the simulator's rendering quality."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

from carla_launcher.observe.pools import OwnerKind, PoolKind
from carla_launcher.rungs.rung import CurrentRun, Freed, InitialRun, Rung, RungStep


class Quality(Rung):
    """The simulator is restarted with another quality, which changes the agent's pictures."""

    restarts: ClassVar[OwnerKind | None] = OwnerKind.SIMULATOR
    sets_quality: ClassVar[bool] = True
    does: str = "quality"

    def steps(self, kind: PoolKind, start: InitialRun) -> Iterator[RungStep]:  # noqa: ARG002 - it is the same for every pool
        """Yield a step if the simulator has this quality and starts with another one."""
        runs, quality = start.simulator, self.quality
        if runs is None or quality is None or quality == runs.quality or quality not in runs.peaks:
            return
        peaks = {each: (runs.peak(runs.quality, each).mib, runs.peak(quality, each).mib) for each in PoolKind}
        coarser = {each: round((fine or 0.0) - (coarse or 0.0), 1) for each, (fine, coarse) in peaks.items()}
        frees = {**{each: mib for each, mib in coarser.items() if mib}, **self.frees_mib}
        yield RungStep(self.name, type(self), self.cost, quality=quality, frees_mib=frees)

    @classmethod
    def frees(cls, step: RungStep, now: CurrentRun) -> Freed:  # noqa: ARG003 - both peaks say it
        """Return the difference of the peaks of both qualities."""
        return {OwnerKind.SIMULATOR: step.frees_mib}
