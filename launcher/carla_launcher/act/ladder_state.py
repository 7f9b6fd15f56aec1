"""The run's position on the ladder: takes, adopts and restores steps, and times the next change.

Every change is recorded with its cause before it is carried out.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from itertools import groupby
from typing import Any

from carla_launcher.act.effects import Forecast
from carla_launcher.act.run import Run
from carla_launcher.act.simulator_figures import SimulatorFigures
from carla_launcher.decide import policy
from carla_launcher.decide.adoption import cpu_reason, lowered_values, rung_with
from carla_launcher.decide.choose import Context
from carla_launcher.decide.decisions import Degrade
from carla_launcher.decide.detectors.causes import Finding
from carla_launcher.decide.detectors.expectations import BandKey
from carla_launcher.decide.ladder import AppliedRung, LadderPosition, RungStep, kind_of, overrides
from carla_launcher.decide.restore import Hold, fits_without_last
from carla_launcher.observe.observation import Observation
from carla_launcher.observe.pools import OwnerKind, PoolKind
from carla_launcher.rungs.rung import summed
from carla_launcher.sizes import CPU, CUDA, DEVICE
from carla_run.events import LauncherEvent
from carla_run.heartbeat import Heartbeat

CHANGED_MIB = 16.0
"""Change at which the MiB that the rungs would free are saved again."""
BEATS_SETTLE_S = 5.0
"""Time after a change in which a heartbeat may still be of the time before."""


_Frees = Mapping[str, Mapping[str, Mapping[str, float]]]


class LadderState:
    """The run's position on the ladder.

    Attributes:
        forecast: what the plan predicts for each rung; another one once the agent computes on the CPU.
    """

    def __init__(self, run: Run, forecast: Forecast, simulator: SimulatorFigures) -> None:
        self.forecast = forecast
        self._run, self._spec, self._config, self._simulator = run, run.spec, run.config, simulator
        self._effects, self._journal = run.effects, run.journal
        self._bands: Mapping[BandKey, float] = {}
        self._hold = Hold(run.journal.state.hold_s or run.config.restore.hold_s)
        self._changed_s = float("-inf")
        self._saved_s = float("-inf")

    @property
    def overrides(self) -> dict[str, Any]:
        """The values that the taken steps set."""
        return overrides(self._journal.state.taken)

    @property
    def expected(self) -> dict[str, Any]:
        """The values of the agent's configuration on the present rung, by dotted key."""
        return {**self.forecast.base, **self.overrides}

    @property
    def simulators(self) -> int:
        """Number of simulators on the present rung."""
        return int(self.overrides.get(self.forecast.program.keys.simulators_at_work, self._spec.simulators))

    def context(self, seen: Observation) -> Context:
        """Return the state of the run for a choice of steps."""
        return Context(
            self.forecast.ladder,
            self._journal.state.taken,
            self.forecast.needs,
            seen.memory,
            self._config.memory.reserve_mib,
            {kind: mib * self._simulator.up for kind, mib in self._simulator.fresh_mib.items()},
            self._spec.simulator.ours,
            self._spec.cards,
        )

    def take(self, decision: Degrade) -> None:
        """Record steps down: the state before the events, since the launcher may be killed between two events."""
        taken, rows = list(self._journal.state.taken), []
        for step in decision.steps:
            stands = LadderPosition(self.forecast.ladder, taken, self.forecast.needs)
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
        return taken, {key: left.get(key, self.forecast.base.get(key)) for key in taken.values}

    def lowered_values(self, seen: Observation) -> dict[str, Any]:
        """Return the values that the agent lowered by itself to save memory, by dotted key; empty if none are new."""
        beat = self._present_heartbeat(seen)
        return {} if beat is None else lowered_values(beat, self.expected, self.forecast.program)

    def adopt(self, values: dict[str, Any], step: int) -> AppliedRung:
        """Record values that the agent lowered by itself, at this training step, as a rung."""
        kind = PoolKind.VRAM if self.expected.get(DEVICE) == CUDA else PoolKind.RAM
        rung = rung_with(values, self._steps(), self.forecast.program)
        taken = AppliedRung(rung, kind.value, "the agent ran out of memory", values)
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
        why = None if beat is None else cpu_reason(beat, self.expected, self.forecast.program)
        if beat is None or why is None:
            return None
        cause = f"the agent computes on the CPU: {why}"
        self._journal.event(LauncherEvent.PLANNED_WITHOUT_CUDA, cause, reason=beat.cuda)
        lasting = replace(self.forecast, base={**self.forecast.base, DEVICE: CPU})
        self.forecast = lasting if self.forecast.on_cpu is None else self.forecast.on_cpu()
        self.request_sizes()
        return why

    @property
    def _position(self) -> LadderPosition:
        return LadderPosition(self.forecast.ladder, self._journal.state.taken, self.forecast.needs)

    def _present_heartbeat(self, seen: Observation) -> Heartbeat | None:
        """Return the heartbeat if it is of a started agent on the present rung."""
        beat = seen.agent.beat
        current = beat is not None and self.heartbeats_are_current and beat.started
        return beat if current else None

    def changed(self) -> None:
        """Record a change: memory is judged again once it has settled."""
        self._changed_s = self._run.now_s
        self._hold.reset()
        self._journal.save()
        self.request_sizes()

    def request_sizes(self, wait: bool = False) -> None:
        """Request the agent's sizes for the next steps, before a decision needs them."""
        self.forecast.request_sizes(self._position.within_reach(), wait)

    def plan_bands(self) -> None:
        """Set the bands of simulator and agent for the present rung."""
        planned = self.forecast.bands(self.overrides, self._run.quality)
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
    def unchanged_s(self) -> float:
        """Seconds since the last change."""
        return self._run.now_s - self._changed_s

    @property
    def heartbeats_are_current(self) -> bool:
        """Return whether heartbeats are surely newer than the last change."""
        return self.unchanged_s >= BEATS_SETTLE_S

    @property
    def settled(self) -> bool:
        """Return whether memory has settled since the last change."""
        return self.unchanged_s >= self._config.restore.settle_s

    def restarted_to_restore(self, taken: AppliedRung) -> OwnerKind | None:
        """Return which program's restart restores a step; the ladder may have changed since the step was taken."""
        found = next((step for step in self._steps() if step.rung == taken.rung and step.lasting), None)
        if found is None:
            return OwnerKind.SIMULATOR if taken.quality else OwnerKind.AGENT
        return found.does.restarts

    def agent_needs(self) -> Mapping[PoolKind, float]:
        """Return the agent's predicted peak on the present rung, MiB by pool kind."""
        return self._position.predicted()

    def may_restore(self, seen: Observation, findings: tuple[Finding, ...]) -> bool:
        """Return whether the hold time is over in which memory sufficed without the last step."""
        if self._hold.passed_probation(self._run.now_s, self._config.restore):
            self._remember_hold()
            self._journal.event(LauncherEvent.RESTORE_STANDS, hold_s=self._hold.hold_s)
        taken, beat = self._journal.state.taken, seen.agent.beat
        if not taken or beat is None or not beat.started:
            return False
        short = any(finding.cause in policy.SHORT for finding in findings)
        fits = not short and fits_without_last(self.context(seen), self._config.restore)
        self._hold.look(self._run.now_s, fits)
        return self._hold.is_over(self._run.now_s)

    def _remember_hold(self) -> None:
        self._journal.change(hold_s=self._hold.hold_s)

    def _steps(self) -> list[RungStep]:
        return [step for steps in self.forecast.ladder.values() for step in steps]


def _changed(now: _Frees, before: _Frees) -> bool:
    if {kind: list(steps) for kind, steps in now.items()} != {kind: list(steps) for kind, steps in before.items()}:
        return True
    pairs = [(freed, before[kind][step]) for kind, steps in now.items() for step, freed in steps.items()]
    return any(abs(a.get(pool, 0.0) - b.get(pool, 0.0)) >= CHANGED_MIB for a, b in pairs for pool in {*a, *b})
