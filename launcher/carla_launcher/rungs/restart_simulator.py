"""A rung that restarts the simulator."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

from carla_launcher.observe.pools import OwnerKind, PoolKind
from carla_launcher.rungs.rung import CurrentRun, Freed, InitialRun, Rung, RungStep


class FreshSimulator(Rung):
    """The simulator is restarted, which frees leaked memory for a while."""

    restarts: ClassVar[OwnerKind | None] = OwnerKind.SIMULATOR
    lasting: ClassVar[bool] = False
    does: str = "restart_simulator"

    def steps(self, kind: PoolKind, start: InitialRun) -> Iterator[RungStep]:
        """Yield a step if the launcher starts the simulator."""
        if start.simulator is not None:
            yield from super().steps(kind, start)

    @classmethod
    def frees(cls, step: RungStep, now: CurrentRun) -> Freed:  # noqa: ARG003 - the simulator's figures say it
        """Return the simulator's growth since its start."""
        simulator = OwnerKind.SIMULATOR
        return {simulator: {kind: max(0.0, now.held(kind, simulator) - mib) for kind, mib in now.fresh_mib.items()}}
