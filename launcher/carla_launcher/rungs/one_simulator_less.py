"""A rung that ends one of several simulators."""

from __future__ import annotations

from collections.abc import Mapping

from carla_launcher.observe.pools import PoolKind
from carla_launcher.rungs.apply import Apply
from carla_launcher.rungs.rung import InitialRun


class OneSimulatorLess(Apply):
    """The running agent drives in fewer simulators: each step ends one, and its collector pauses."""

    does: str = "one_simulator_less"

    def _ended_mib(self, start: InitialRun) -> Mapping[PoolKind, float]:
        runs = start.simulator
        peaks = {} if runs is None else {kind: runs.peak(runs.quality, kind).mib or 0.0 for kind in PoolKind}
        return {kind: round(mib / runs.count, 1) for kind, mib in peaks.items() if mib and runs is not None}
