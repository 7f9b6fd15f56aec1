"""What one simulator is measured to take, for this run's decisions and the plans of later runs."""

from __future__ import annotations

from carla_launcher.act.run import Run
from carla_launcher.decide import policy
from carla_launcher.decide.detectors.causes import Finding
from carla_launcher.decide.room import taken_from_simulator
from carla_launcher.observe.observation import Observation
from carla_launcher.observe.pools import PROCESS_POOLS, OwnerKind, PoolKind


class SimulatorFigures:
    """One simulator's memory.

    Attributes:
        fresh_mib: what one takes when it is fresh and the agent drives in it, by pool; before the agent drives, what
            it takes so far.
        up: the number of simulators at the last look.
    """

    def __init__(self, run: Run) -> None:
        self.fresh_mib: dict[PoolKind, float] = {}
        self.up = 1
        self._run, self._journal = run, run.journal
        self._fresh_known = False
        self._young_mib: dict[PoolKind, float] = {}
        self._doubted = False

    def reset(self, fresh: bool = True) -> None:
        """Forget the last simulator's figures. An adopted simulator isn't fresh."""
        self._fresh_known = False
        self._young_mib, self._doubted = {}, not fresh

    def measure(self, seen: Observation) -> None:
        """Measure the watermark, and the memory of a fresh simulator.

        The watermark is that of its first minutes, since later growth is a leak that later runs must not plan with. It
        is saved once a leak in these minutes would have been found.
        """
        age_s, limits = self._run.simulator.up_for_s(self._run.now_s), self._run.config
        if seen.further is not None:  # the memory of one that starts still grows
            self.up = 1 + len(seen.further)
            self._measure(seen, age_s <= limits.simulator.restarts.stable_after_s)
        if age_s > limits.simulator.restarts.stable_after_s + limits.memory.slope_window_s:
            self.keep_peak()

    def _measure(self, seen: Observation, young: bool) -> None:
        for kind in PROCESS_POOLS:
            one_mib = max((pool.held_by(OwnerKind.SIMULATOR) for pool in seen.memory.of(kind)), default=0.0) / self.up
            if young:
                self._young_mib[kind] = max(one_mib, self._young_mib.get(kind, 0.0))
            if not self._fresh_known and one_mib > 0:
                self.fresh_mib[kind] = one_mib
        beat = seen.agent.beat
        self._fresh_known = self._fresh_known or (beat is not None and beat.learns)

    def doubt(self, findings: tuple[Finding, ...]) -> None:
        """Mark the figures of a simulator that leaked, grew or ran out of memory: later runs don't plan with them."""
        self._doubted = self._doubted or any(policy.invalidates_figures(each, "simulator") for each in findings)

    def taken_by_others(self, seen: Observation) -> Finding | None:
        """Return a finding if a foreign process took the memory that a new simulator needs; otherwise None."""
        return taken_from_simulator(self.fresh_mib, seen.memory, self._run.effects.holders, self._run.spec.cards)

    def keep_peak(self) -> None:
        """Save the watermark if the agent drove in the simulator and nothing was wrong."""
        if self._fresh_known and not self._doubted:
            name = self._run.quality or self._run.spec.simulator.figures_as
            peaks = {**self._journal.state.simulator_peak_mib}
            for kind, mib in self._young_mib.items():
                of_kind = peaks.get(kind.value, {})
                if mib > of_kind.get(name, 0.0):
                    peaks[kind.value] = {**of_kind, name: round(mib, 1)}
            self._journal.change(simulator_peak_mib=peaks)
