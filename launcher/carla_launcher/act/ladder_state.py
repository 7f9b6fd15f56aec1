"""The run's position on the ladder: takes, adopts and restores steps, and times the next change.

Every change is recorded with its cause before it is carried out.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from itertools import chain, groupby
from typing import Any

from carla_launcher.act.effects import Forecast
from carla_launcher.act.run import Run
from carla_launcher.decide import policy
from carla_launcher.decide.adoption import cpu_reason, lowered_values
from carla_launcher.decide.choose import Context
from carla_launcher.decide.decisions import Degrade
from carla_launcher.decide.detectors.causes import Finding
from carla_launcher.decide.detectors.expectations import BandKey
from carla_launcher.decide.ladder import AppliedRung, LadderPosition, RungStep, kind_of, overrides
from carla_launcher.decide.phase_peak import PhasePeak, lasting_phase
from carla_launcher.decide.restore import Hold, fits_without_last
from carla_launcher.decide.room import taken_from_simulator
from carla_launcher.observe.observation import Observation
from carla_launcher.observe.pools import OwnerKind, PoolKind, Provenance
from carla_launcher.rungs.rung import RungAction, summed
from carla_launcher.sizes import CPU, CUDA, DEVICE
from carla_run.events import LauncherEvent
from carla_run.heartbeat import Heartbeat

CHANGED_MIB = 16.0
"""Change at which the MiB that the rungs would free are saved again."""
BEATS_SETTLE_S = 5.0
"""Time after a change in which a heartbeat may still be of the time before."""


def context_mib(seen: Observation) -> float | None:
    """Return the agent's CUDA context: its GPU memory beyond its allocator's; None if unknown.

    The driver counts memory per process id of this machine, so an agent in a container couldn't find itself. Measured
    only while the agent learns, when its allocator's size is stable.
    """
    beat = seen.agent.beat
    if beat is None or beat.phase not in ("collecting", "updating") or not beat.device_reserved_mib:
        return None
    held = [own.held for pool in seen.memory.of(PoolKind.VRAM) for own in pool.owners if own.kind is OwnerKind.AGENT]
    if not held or any(each.provenance is not Provenance.MEASURED for each in held):
        return None
    beyond = sum(each.mib or 0.0 for each in held) - beat.device_reserved_mib
    return round(beyond, 1) if beyond > 0 else None


_Frees = Mapping[str, Mapping[str, Mapping[str, float]]]


class LadderState:
    """The run's position on the ladder."""

    def __init__(self, run: Run, forecast: Forecast) -> None:
        self._run, self._spec, self._forecast, self._config = run, run.spec, forecast, run.config
        self._effects, self._journal = run.effects, run.journal
        self._bands: Mapping[BandKey, float] = {}
        self._hold = Hold(run.journal.state.hold_s or run.config.restore.hold_s)
        self._changed_s = float("-inf")
        self._fresh_mib: dict[PoolKind, float] = {}
        self._fresh_known = False
        self._up = 1
        self._young_mib: dict[PoolKind, float] = {}
        self._doubted = False
        self._saved_s = float("-inf")
        self._ran_out_in = ""
        self._phase_peak = PhasePeak()

    @property
    def overrides(self) -> dict[str, Any]:
        """The values that the taken steps set."""
        return overrides(self._journal.state.taken)

    @property
    def simulators(self) -> int:
        """Number of simulators on the present rung."""
        return int(self.overrides.get(self._forecast.program.keys.simulators_at_work, self._spec.simulators))

    def context(self, seen: Observation) -> Context:
        """Return the state of the run for a choice of steps."""
        return Context(
            self._forecast.ladder,
            self._journal.state.taken,
            self._forecast.needs,
            seen.memory,
            self._config.memory.reserve_mib,
            {kind: mib * self._up for kind, mib in self._fresh_mib.items()},
            self._spec.simulator.ours,
            self._spec.cards,
        )

    # Changes

    def take(self, decision: Degrade) -> None:
        """Record steps down: the state before the events, since the launcher may be killed between two events."""
        taken, rows = list(self._journal.state.taken), []
        for step in decision.steps:
            stands = LadderPosition(self._forecast.ladder, taken, self._forecast.needs)
            by_values = stands.relief([step]) if step.values else step.frees_mib
            freed = summed(by_values, stands.freed_by_simulators([step]))
            kind = kind_of(step, stands.ladder, decision.kind).value
            rows.append((str(step), kind, {each.value: round(mib, 1) for each, mib in freed.items()}))
            if step.lasting:
                taken.append(AppliedRung(step.rung, kind, decision.cause, dict(step.values), step.quality))
        self._journal.change(taken=tuple(taken))
        for rung, kind, freed_mib in rows:
            self._journal.event(LauncherEvent.RUNG_TAKEN, decision.cause, rung=rung, kind=kind, frees_mib=freed_mib)

    def degraded(self) -> None:
        """Record a step down, and whether it means that the last restore failed."""
        if self._hold.degraded(self._run.now_s, self._config.restore):
            self._journal.event(LauncherEvent.RESTORE_FAILED, hold_s=self._hold.hold_s)
        self._remember_hold()

    def restore(self) -> tuple[AppliedRung, dict[str, Any]]:
        """Restore the last step; return it, and its keys' values without it."""
        *before, taken = self._journal.state.taken
        self._journal.change(taken=tuple(before))
        left = self.overrides
        self._hold.restored(self._run.now_s)
        self._journal.event(LauncherEvent.RUNG_LEFT, f"{taken} fitted for {self._hold.hold_s:.0f} s", rung=str(taken))
        return taken, {key: left.get(key, self._forecast.base.get(key)) for key in taken.values}

    def lowered_values(self, seen: Observation) -> dict[str, Any]:
        """Return the values that the agent lowered by itself to save memory, by dotted key; empty if none are new."""
        beat = self._present_heartbeat(seen)
        return {} if beat is None else lowered_values(beat, self._expected, self._forecast.program)

    def adopt(self, values: dict[str, Any], step: int) -> AppliedRung:
        """Record values that the agent lowered by itself, at this training step, as a rung."""
        kind = PoolKind.VRAM if self._expected.get(DEVICE) == CUDA else PoolKind.RAM
        taken = AppliedRung(self._rung_with(values), kind.value, "the agent ran out of memory", values)
        self._journal.change(taken=(*self._journal.state.taken, taken))
        self.degraded()
        self._journal.event(LauncherEvent.RUNG_ADOPTED, taken.cause, rung=str(taken), kind=taken.kind, step=step)
        self.changed()
        return taken

    def plan_without_cuda(self, seen: Observation) -> str | None:
        """If the agent runs on the CPU for another reason than memory, plan for the CPU from now on; return the reason.

        This is no rung: it can't be restored, and the next launcher plans with the GPU again.
        """
        beat = self._present_heartbeat(seen)
        why = None if beat is None else cpu_reason(beat, self._expected, self._forecast.program)
        if beat is None or why is None:
            return None
        cause = f"the agent computes on the CPU: {why}"
        self._journal.event(LauncherEvent.PLANNED_WITHOUT_CUDA, cause, reason=beat.cuda)
        lasting = replace(self._forecast, base={**self._forecast.base, DEVICE: CPU})
        self._forecast = lasting if self._forecast.on_cpu is None else self._forecast.on_cpu()
        self.request_sizes()
        return why

    @property
    def _position(self) -> LadderPosition:
        return LadderPosition(self._forecast.ladder, self._journal.state.taken, self._forecast.needs)

    @property
    def _expected(self) -> dict[str, Any]:
        return {**self._forecast.base, **self.overrides}

    def _present_heartbeat(self, seen: Observation) -> Heartbeat | None:
        """Return the heartbeat if it is of a started agent on the present rung."""
        beat = seen.agent.beat
        current = beat is not None and self.heartbeats_are_current and beat.phase != "starting"
        return beat if current else None

    def changed(self) -> None:
        """Record a change: memory is judged again once it has settled."""
        self._changed_s = self._run.now_s
        self._hold.reset()
        self._journal.save()
        self.request_sizes()

    def request_sizes(self, wait: bool = False) -> None:
        """Request the agent's sizes for the next steps, before a decision needs them."""
        self._forecast.request_sizes(self._position.within_reach(), wait)

    def plan_bands(self) -> None:
        """Set the bands of simulator and agent for the present rung."""
        planned = self._forecast.bands(self.overrides, self._run.quality)
        if not planned or planned == self._bands:
            return
        self._bands = planned
        self._effects.expect(planned)
        shown: dict[str, dict[str, dict[str, float]]] = {}
        for (owner, pool, phase), mib in planned.items():
            shown.setdefault(owner, {}).setdefault(pool, {})[phase] = mib
        self._journal.change(planned_bands_mib=shown)
        self._journal.event(LauncherEvent.PLANNED_BANDS, "planned for the present rung", bands_mib=shown)

    def save_possible_savings(self, seen: Observation) -> None:
        """Save at intervals what each rung would free, for status and page: its next step, and its last one."""
        if self._run.now_s - self._saved_s < self._config.memory.timeline_s:
            return
        self._saved_s = self._run.now_s
        context = self.context(seen)
        frees: dict[str, dict[str, dict[str, float]]] = {}
        here = {pool.kind for pool in seen.memory.pools}
        for kind, steps in ((kind, steps) for kind, steps in context.open_steps().items() if kind in here):
            for _, same in groupby(steps, key=lambda step: step.rung):
                rung = list(same)
                for step in (rung[0], rung[-1]):
                    freed = {
                        each.value: float(round(mib)) for each, mib in context.frees((step,)).items() if round(mib)
                    }
                    frees.setdefault(kind.value, {})[str(step)] = freed
        if _changed(frees, self._journal.state.rungs_free_mib):
            self._journal.change(rungs_free_mib=frees)
            self._journal.save()

    @property
    def heartbeats_are_current(self) -> bool:
        """Return whether heartbeats are surely newer than the last change."""
        return self._run.now_s - self._changed_s >= BEATS_SETTLE_S

    @property
    def settled(self) -> bool:
        """Return whether memory has settled since the last change."""
        return self._run.now_s - self._changed_s >= self._config.restore.settle_s

    def acts_to_restore(self, taken: AppliedRung) -> tuple[RungAction, ...]:
        """Return the actions that restore a step; the ladder may have changed since the step was taken."""
        found = next((step for step in self._steps() if step.rung == taken.rung and step.lasting), None)
        if found is None:
            return (RungAction.FRESH_SIMULATOR,) if taken.quality else (RungAction.FRESH_AGENT,)
        return found.does.acts

    def agent_needs(self) -> Mapping[PoolKind, float]:
        """Return the agent's predicted peak on the present rung, MiB by pool kind."""
        return self._position.predicted()

    # Measures

    def reset_simulator_figures(self, fresh: bool = True) -> None:
        """Forget the last simulator's figures. An adopted simulator isn't fresh."""
        self._fresh_known = False
        self._young_mib, self._doubted = {}, not fresh

    def verified(self, seen: Observation, incident: str) -> None:
        """Record the memory of all owners once the agent is warm, which ends ``incident``."""
        free = {pool.name: pool.free.mib for pool in seen.memory.pools}
        held = {
            pool.name: {whose.value: round(pool.held_by(whose), 1) for whose in OwnerKind} for pool in seen.memory.pools
        }
        self._journal.event(LauncherEvent.VERIFIED, incident=incident, free_mib=free, held_mib=held)

    def measure(self, seen: Observation) -> None:
        """Measure one simulator's watermark, and its memory when it is fresh and the agent drives in it.

        The watermark is that of its first minutes, since later growth is a leak that later runs must not plan with. It
        is saved once a leak in these minutes would have been found.
        """
        age_s = self._run.simulator.up_for_s(self._run.now_s)
        if seen.further is not None:  # the memory of one that starts still grows
            self._up = 1 + len(seen.further)
            self._measure_simulators(seen, age_s <= self._config.simulator.restarts.stable_after_s)
        self._measure_command(seen)
        if (context := context_mib(seen)) and not self._journal.state.agent_figures_doubted:
            self._journal.change(agent_context_mib=context)
        if age_s > self._config.simulator.restarts.stable_after_s + self._config.memory.slope_window_s:
            self.keep_simulator_peak()

    def _measure_simulators(self, seen: Observation, young: bool) -> None:
        for kind in (PoolKind.VRAM, PoolKind.RAM):
            one_mib = max((pool.held_by(OwnerKind.SIMULATOR) for pool in seen.memory.of(kind)), default=0.0) / self._up
            if young:
                self._young_mib[kind] = max(one_mib, self._young_mib.get(kind, 0.0))
            if not self._fresh_known and one_mib > 0:
                self._fresh_mib[kind] = one_mib
        beat = seen.agent.beat
        drives = beat is not None and beat.phase in ("collecting", "updating")
        self._fresh_known = self._fresh_known or drives

    def _measure_command(self, seen: Observation) -> None:
        """Keep the most that the program held with the values that hold, where nothing else says what it takes."""
        settled_s = min(self._run.agent.up_for_s(self._run.now_s), self._run.now_s - self._changed_s)
        if self._forecast.measured is None or not self._run.warm or settled_s < self._config.restore.settle_s:
            self._phase_peak = PhasePeak()  # what was held with other values doesn't count
            return
        pools = {kind: seen.memory.of(kind) for kind in (PoolKind.VRAM, PoolKind.RAM)}
        held = {kind: max(pool.held_by(OwnerKind.AGENT) for pool in read) for kind, read in pools.items() if read}
        self._keep_peak(self._phase_peak.look(seen.agent.beat, held), seen)

    def _keep_peak(self, held: Mapping[PoolKind, float], seen: Observation) -> None:
        """Keep what the program holds, or wants, if that is more than it was seen to hold in its present phase."""
        phase = lasting_phase(seen.agent.beat)
        values, rows = self._expected, self._journal.state.command_peaks_mib
        row: Mapping[str, Any] = next((row for row in rows if row["values"] == values), {})
        known: Mapping[str, Mapping[str, float]] = row.get("by_phase", {})
        more = {
            kind: round(mib, 1) for kind, mib in held.items() if mib > known.get(kind.value, {}).get(phase, -1.0) + 0.1
        }
        if self._forecast.measured is None or not more:
            return
        fresh = {kind.value: {**known.get(kind.value, {}), phase: mib} for kind, mib in more.items()}
        by_phase = {**known, **fresh}
        mib = {kind: max(each.values()) for kind, each in by_phase.items()}
        others = (each for each in rows if each["values"] != values)
        self._journal.change(command_peaks_mib=(*others, {"values": values, "mib": mib, "by_phase": by_phase}))
        self._forecast.measured(values, phase, more)

    def _wanted_more(self, findings: tuple[Finding, ...], seen: Observation) -> None:
        """Take note that a program that ran out of memory takes more than it was seen to hold, while it can take less.

        Where it can't, a start with the same values is tried as often as the budget allows, and waits for nothing.
        """
        for finding in findings:
            kind = policy.RAN_OUT.get(finding.cause)
            if finding.owner != "agent" or kind is None or finding.incident == self._ran_out_in:
                continue
            self._ran_out_in = finding.incident
            wanted_mib = max(finding.deficit_mib, self._config.memory.oom_step_mib[kind])
            known_mib = self.agent_needs().get(kind)
            if known_mib and any(step.values for step in self.context(seen).open_steps().get(kind, ())):
                self._keep_peak({kind: known_mib + wanted_mib}, seen)

    def doubt(self, findings: tuple[Finding, ...], seen: Observation | None = None) -> None:
        """Mark the figures of a program that leaked, grew or ran out of memory: later runs don't plan with them."""
        self._doubted = self._doubted or any(policy.invalidates_figures(each, "simulator") for each in findings)
        if self._forecast.measured is not None:
            if seen is not None:
                self._wanted_more(findings, seen)
            return
        for finding in (each for each in findings if policy.invalidates_figures(each, "agent")):
            if not self._journal.state.agent_figures_doubted:
                self._journal.change(agent_figures_doubted=finding.sentence)
                self._journal.save()

    def keep_simulator_peak(self) -> None:
        """Save the simulator's watermark if the agent drove in it and nothing was wrong."""
        if self._fresh_known and not self._doubted:
            name = self._run.quality or self._spec.simulator.figures_as
            peaks = {**self._journal.state.simulator_peak_mib}
            for kind, mib in self._young_mib.items():
                of_kind = peaks.get(kind.value, {})
                if mib > of_kind.get(name, 0.0):
                    peaks[kind.value] = {**of_kind, name: round(mib, 1)}
            self._journal.change(simulator_peak_mib=peaks)

    def blocking_foreign_process(self, seen: Observation) -> Finding | None:
        """Return a finding if a foreign process took the memory that a new simulator needs; otherwise None."""
        return taken_from_simulator(self._fresh_mib, seen.memory, self._effects.holders, self._spec.cards)

    def may_restore(self, seen: Observation, findings: tuple[Finding, ...]) -> bool:
        """Return whether the hold time is over in which memory sufficed without the last step."""
        if self._hold.passed_probation(self._run.now_s, self._config.restore):
            self._remember_hold()
            self._journal.event(LauncherEvent.RESTORE_STANDS, hold_s=self._hold.hold_s)
        taken, beat = self._journal.state.taken, seen.agent.beat
        if not taken or beat is None or beat.phase == "starting":
            return False
        short = any(finding.cause in policy.SHORT for finding in findings)
        fits = not short and fits_without_last(self.context(seen), self._config.restore)
        self._hold.look(self._run.now_s, fits)
        return self._hold.is_over(self._run.now_s)

    def _remember_hold(self) -> None:
        self._journal.change(hold_s=self._hold.hold_s)

    def _steps(self) -> list[RungStep]:
        return [step for steps in self._forecast.ladder.values() for step in steps]

    def _rung_with(self, values: dict[str, Any]) -> str:
        """Return the name of a rung with these values, of the ladder or of those that the agent takes by itself."""
        steps = (step.rung for step in self._steps() if dict(step.values) == values)
        by_itself = (rung for rung in self._forecast.program.rungs if rung.by_itself)
        return next(chain(steps, (rung.name for rung in by_itself if rung.values.keys() == values.keys())))


def _changed(now: _Frees, before: _Frees) -> bool:
    if {kind: list(steps) for kind, steps in now.items()} != {kind: list(steps) for kind, steps in before.items()}:
        return True
    pairs = [(freed, before[kind][step]) for kind, steps in now.items() for step, freed in steps.items()]
    return any(abs(a.get(pool, 0.0) - b.get(pool, 0.0)) >= CHANGED_MIB for a, b in pairs for pool in {*a, *b})
