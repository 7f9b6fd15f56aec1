"""The state of a run while it goes: the only place that changes ``launcher.json``.

The supervisor owns it and hands it to its parts, which read ``now`` and change it by the methods here. Part of it are
the incidents (``i1``, ``i2``, …): findings, decisions, actions and outcome of one trouble carry one id, and while one
is at hand, the journal writes its id into every event.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from carla_launcher.act.effects import State
from carla_launcher.act.journal import Journal
from carla_launcher.act.launcher_state import LauncherState, ProcessState
from carla_launcher.act.runtime import Child, Role
from carla_launcher.config import LeakRestarts, Restarts
from carla_launcher.decide.decisions import Ending
from carla_launcher.decide.ladder import Taken
from carla_launcher.decide.restarts import failures_in_a_row
from carla_launcher.observe.pools import PoolKind


class RunState:
    """Where the run stands. Nothing is written before the journal's next event, except where a method says so."""

    def __init__(self, journal: Journal) -> None:
        self._journal = journal
        self._unverified = journal.state.incident

    @property
    def now(self) -> LauncherState:
        """Return the state as it is."""
        return self._journal.state

    def _change(self, **changes: Any) -> None:
        self._journal.state = replace(self._journal.state, **changes)

    # Where the run stands

    def enter(self, state: State, simulator: Child | None, agent: Child | None) -> None:
        """Say where the run stands, and in which processes (a container's is known only after its start); write it."""
        self._change(
            state=state.value,
            simulator=_with_pid(self.now.simulator, simulator),
            agent=_with_pid(self.now.agent, agent),
        )
        self._journal.save()  # nothing else may happen to it for hours

    def end(self, ending: Ending) -> None:
        """Say how the run ended."""
        self._change(exit_code=int(ending.code), reason=ending.reason)

    # Processes

    def program(self, role: Role, child: Child | None, quality: str | None = None) -> None:
        """Say what a program is; without a child, that one is about to be started."""
        shown = ProcessState(quality=quality) if child is None else ProcessState(child.pid, str(child.log), quality)
        self._change(**{role.value: shown})

    def count_restart(self, role: Role) -> None:
        """Count a restart."""
        name = f"{role.value}_restarts"
        self._change(**{name: getattr(self.now, name) + 1})

    def count_failure(self, role: Role, well_for_s: float, limits: Restarts) -> int:
        """Count a failure, and return how many there were in a row."""
        name = f"{role.value}_failures"
        failures = failures_in_a_row(getattr(self.now, name), well_for_s, limits)
        self._change(**{name: failures})
        return failures

    def leak_restarts(self, program: str, well_for_s: float, limits: LeakRestarts) -> int:
        """Return the restarts for leaks in a row, were it started again now; the same at every look until it is."""
        return failures_in_a_row(self.now.leak_restarts.get(program, 0), well_for_s, limits)

    def count_leak_restart(self, program: str, well_for_s: float, limits: LeakRestarts) -> None:
        """Count a restart because of a leak."""
        counted = self.leak_restarts(program, well_for_s, limits)
        self._change(leak_restarts={**self.now.leak_restarts, program: counted})

    # The rung

    def stand_on(self, taken: Sequence[Taken]) -> None:
        """Say which steps hold now."""
        self._change(taken=tuple(taken))

    def hold(self, hold_s: float) -> None:
        """Say what a restore waits for."""
        self._change(hold_s=hold_s)

    def plan_bands(self, bands_mib: Mapping[str, Mapping[str, Mapping[str, float]]]) -> None:
        """Say what simulator and agent should hold on this rung, by owner, pool and phase."""
        self._change(planned_bands_mib=bands_mib)

    def foresee(self, frees_mib: Mapping[str, Mapping[str, Mapping[str, float]]]) -> None:
        """Say what each rung would free, by ladder, step and kind of pool; write it."""
        self._change(rungs_free_mib=frees_mib)
        self._journal.save()

    # Measures

    def simulator_held(self, kind: PoolKind, quality: str | None, mib: float) -> None:
        """Raise the simulator's watermark if this is more."""
        peaks = self.now.simulator_peak_mib
        of_kind, name = peaks.get(kind.value, {}), quality or "lite"
        if mib > of_kind.get(name, 0.0):
            self._change(simulator_peak_mib={**peaks, kind.value: {**of_kind, name: round(mib, 1)}})

    def agent_context(self, mib: float | None) -> None:
        """Keep the CUDA context that was measured, if it was, of an agent whose figures hold."""
        if mib and not self.now.agent_figures_doubted:
            self._change(agent_context_mib=mib)

    def doubt_agent(self, why: str) -> None:
        """Have no later run plan by the figures of the agent that runs now; write it."""
        if not self.now.agent_figures_doubted:
            self._change(agent_figures_doubted=why)
            self._journal.save()

    # Incidents

    @property
    def under_repair(self) -> str:
        """Return the incident that is being repaired; what fails meanwhile belongs to it. Empty if none is."""
        return self.now.incident or self._unverified

    def open_incident(self) -> str:
        """Return a new id; it is on the disk before anything carries it."""
        self._change(incidents=self.now.incidents + 1)
        self._journal.save()
        return f"i{self.now.incidents}"

    def handle(self, incident: str) -> str:
        """Have all events carry this id from now on; empty for none. Return the one before."""
        before = self.now.incident
        self._change(incident=incident)
        return before

    def agent_starts(self) -> None:
        """Take note that the agent is started again for the incident at hand, if one is."""
        self._unverified = self.now.incident
        self._change(agent_figures_doubted="")

    def verified(self) -> str:
        """Return the incident after which the agent has come back; empty if there was none, and from now on."""
        incident, self._unverified = self._unverified, ""
        return incident


def _with_pid(shown: ProcessState | None, child: Child | None) -> ProcessState | None:
    return shown if shown is None or child is None else replace(shown, pid=child.pid or shown.pid)
