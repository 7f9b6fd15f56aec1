"""What the agent is measured to take, for this run's decisions and the plans of later runs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from carla_launcher.act.ladder_state import LadderState
from carla_launcher.act.run import Run
from carla_launcher.decide import policy
from carla_launcher.decide.detectors.causes import Finding
from carla_launcher.decide.phase_peak import PhasePeak, lasting_phase
from carla_launcher.observe.observation import Observation
from carla_launcher.observe.pools import PROCESS_POOLS, OwnerKind, PoolKind, Provenance


def context_mib(seen: Observation) -> float | None:
    """Return the agent's CUDA context: its GPU memory beyond its allocator's; None if unknown.

    The driver counts memory per process id of this machine, so an agent in a container couldn't find itself. Measured
    only while the agent learns, when its allocator's size is stable.
    """
    beat = seen.agent.beat
    if beat is None or not beat.learns or not beat.device_reserved_mib:
        return None
    held = [own.held for pool in seen.memory.of(PoolKind.VRAM) for own in pool.owners if own.kind is OwnerKind.AGENT]
    if not held or any(each.provenance is not Provenance.MEASURED for each in held):
        return None
    beyond = sum(each.mib or 0.0 for each in held) - beat.device_reserved_mib
    return round(beyond, 1) if beyond > 0 else None


class AgentFigures:
    """The agent's memory: its CUDA context, and the peaks of a command, which only measuring tells."""

    def __init__(self, run: Run, ladder: LadderState) -> None:
        self._run, self._journal, self._ladder = run, run.journal, ladder
        self._phase_peak = PhasePeak()
        self._ran_out_in = ""

    def measure(self, seen: Observation) -> None:
        """Keep the context, and the most that a command held with the values that hold."""
        if (context := context_mib(seen)) and not self._journal.state.agent_figures_doubted:
            self._journal.change(agent_context_mib=context)
        forecast, settle_s = self._ladder.forecast, self._run.config.restore.settle_s
        settled_s = min(self._run.agent.up_for_s(self._run.now_s), self._ladder.unchanged_s)
        if forecast.measured is None or not self._run.warm or settled_s < settle_s:
            self._phase_peak = PhasePeak()  # what was held with other values doesn't count
            return
        pools = {kind: seen.memory.of(kind) for kind in PROCESS_POOLS}
        held = {kind: max(pool.held_by(OwnerKind.AGENT) for pool in read) for kind, read in pools.items() if read}
        self._keep_peak(self._phase_peak.look(seen.agent.beat, held), seen)

    def doubt(self, findings: tuple[Finding, ...], seen: Observation | None = None) -> None:
        """Mark the figures of an agent that leaked, grew or ran out of memory. A command's are raised instead."""
        if self._ladder.forecast.measured is not None:
            if seen is not None:
                self._want_more(findings, seen)
            return
        for finding in (each for each in findings if policy.invalidates_figures(each, "agent")):
            if not self._journal.state.agent_figures_doubted:
                self._journal.change(agent_figures_doubted=finding.sentence)
                self._journal.save()

    def _want_more(self, findings: tuple[Finding, ...], seen: Observation) -> None:
        """Record that a command that ran out of memory takes more than it was seen to hold, while it can take less.

        Where it can't, a start with the same values is tried as often as the budget allows, and waits for nothing.
        """
        for finding in findings:
            kind = policy.RAN_OUT.get(finding.cause)
            if finding.owner != "agent" or kind is None or finding.incident == self._ran_out_in:
                continue
            self._ran_out_in = finding.incident
            wanted_mib = max(finding.deficit_mib, self._run.config.memory.oom_step_mib[kind])
            known_mib = self._ladder.agent_needs().get(kind)
            open_steps = self._ladder.context(seen).open_steps().get(kind, ())
            if known_mib and any(step.values for step in open_steps):
                self._keep_peak({kind: known_mib + wanted_mib}, seen)

    def _keep_peak(self, held: Mapping[PoolKind, float], seen: Observation) -> None:
        """Keep what the command holds, or wants, if that is more than it was seen to hold in its present phase."""
        phase, measured = lasting_phase(seen.agent.beat), self._ladder.forecast.measured
        values, rows = self._ladder.expected, self._journal.state.command_peaks_mib
        row: Mapping[str, Any] = next((row for row in rows if row["values"] == values), {})
        known: Mapping[str, Mapping[str, float]] = row.get("by_phase", {})
        more = {
            kind: round(mib, 1) for kind, mib in held.items() if mib > known.get(kind.value, {}).get(phase, -1.0) + 0.1
        }
        if measured is None or not more:
            return
        fresh = {kind.value: {**known.get(kind.value, {}), phase: mib} for kind, mib in more.items()}
        by_phase = {**known, **fresh}
        mib = {kind: max(each.values()) for kind, each in by_phase.items()}
        others = (each for each in rows if each["values"] != values)
        self._journal.change(command_peaks_mib=(*others, {"values": values, "mib": mib, "by_phase": by_phase}))
        measured(values, phase, more)
