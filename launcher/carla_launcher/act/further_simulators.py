"""The simulators from the second collector on. Each is started, observed and restarted independently.

The run continues without one of them: nothing waits for it, no step down is taken for it, and it is restarted as long
as the run lasts, unless a restart won't help: its log says so, or it was never up and ends the same way each time.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from carla_launcher.act.effects import Effects, Watched
from carla_launcher.act.journal import Journal
from carla_launcher.act.program import ProgramState, Script, SupervisedProcess
from carla_launcher.act.runtime import Child, Role
from carla_launcher.config import LauncherConfig
from carla_launcher.decide import policy
from carla_launcher.decide.detectors.causes import Finding
from carla_launcher.observe.observation import Observation, SimulatorSeen
from carla_launcher.simulators import Simulator
from carla_run.events import LauncherEvent
from carla_run.heartbeat import CollectorState


class _FurtherSimulator:
    """One simulator: its program, its observer and detectors, and its open finding with the time of the wall clock."""

    def __init__(self, program: SupervisedProcess, watched: Watched) -> None:
        self.program, self.watched = program, watched
        self.found: Finding | None = None
        self.since_s = 0.0

    def look(self, seen: Observation, quality: str | None) -> ProgramState | Finding | None:
        """Advance the program's state by one transition."""

        def probe(now_s: float, child: Child | None) -> tuple[SimulatorSeen, Finding | None]:
            own = self.watched.monitor.look(now_s, child, in_use=seen.agent.running)
            findings = policy.gravest(tuple(self.watched.drive.look(replace(seen, simulator=own))))
            mine = (each for each in findings if each.cause in (*policy.FATAL, *policy.SIMULATOR_FAILED))
            return own, next(mine, None)

        return self.program.look(seen.time_s, quality, probe)


class FurtherSimulators:
    """All further simulators; none if there is one collector."""

    def __init__(self, simulator: Simulator, config: LauncherConfig, effects: Effects, journal: Journal) -> None:
        self._interval_s, self._journal, self._say = config.watch.interval_s, journal, effects.say
        limit = simulator.start_limit(config.simulator)
        self._all = [
            _FurtherSimulator(
                SupervisedProcess(
                    effects.runtime, Role.SIMULATOR, config.simulator, number, start_limit=limit, draw=effects.draw
                ),
                watched,
            )
            for number, watched in enumerate(effects.further, start=1)
        ]
        self._looked_s = float("-inf")

    def pids(self) -> frozenset[int]:
        """Return the ids of all their processes now."""
        return frozenset(pid for each in self._all for pid in each.program.pids())

    @property
    def findings(self) -> list[tuple[Finding, float]]:
        """Return the open findings, each with the time at which it was found, seconds since 1970."""
        return [(each.found, each.since_s) for each in self._all if each.found is not None]

    def up(self) -> tuple[int, ...] | None:
        """Return the process ids of those that are up; None while one of them starts."""
        programs = [each.program for each in self._all]
        if any(program.state is ProgramState.STARTING for program in programs):
            return None
        return tuple(program.child.pid for program in programs if program.is_up and program.child is not None)

    def restart(self, cause: str) -> None:
        """End those that run; the next look starts them again."""
        for each in self._all:
            self._drop(each, cause)

    def look(self, seen: Observation, quality: str | None, count: int) -> None:
        """Look at each once per interval: start those that are due, end those that aren't needed or have failed.

        Args:
            seen: the newest observation.
            quality: the simulators' quality.
            count: number of simulators that the run should have now, the first one included.
        """
        if seen.time_s - self._looked_s < self._interval_s:
            return
        self._looked_s = seen.time_s
        for each in self._all:
            program = each.program
            if program.child is not None and program.number >= count and _given_back(seen, program.number):
                self._drop(each, "its collector is paused")
            elif program.child is not None and program.last.quality != quality:
                self._drop(each, "its quality changes")
            if program.child is not None or program.number < count:
                self._record_change(each, each.look(seen, quality), seen.time_s)
            else:
                self._over(each)

    def _record_change(self, each: _FurtherSimulator, moved: ProgramState | Finding | None, now_s: float) -> None:
        program = each.program
        match moved:
            case Finding() as finding:
                self._failed(each, finding, program.fail(finding, now_s))
            case ProgramState.STARTING if program.child is not None:
                each.watched.drive.forget()  # the last simulator's failures don't count for this one
                self._tell(
                    LauncherEvent.FURTHER_SIMULATOR_STARTED, each, "", pid=program.child.pid, log=str(program.child.log)
                )
            case ProgramState.UP:
                took_s = round(now_s - program.started_s, 2)
                self._tell(LauncherEvent.FURTHER_SIMULATOR_HEALTHY, each, "", took_s=took_s)
                self._say(f"{program.name} answers and ticks after {took_s:.1f} s")
                self._over(each)

    def stop(self, now_s: Callable[[], float], cut_short: Callable[[], bool]) -> Script:
        """Stop all of them at the same time, within one grace period."""
        scripts = [each.program.stop(now_s, cut_short) for each in self._all]
        while [script for script in scripts if next(script, True) is None]:
            yield
        self.kill_all()

    def kill_all(self) -> None:
        """Kill all of them without recording it, and close their connections and logs."""
        for each in self._all:
            each.program.forget()
            each.watched.monitor.close()

    def _failed(self, each: _FurtherSimulator, finding: Finding, wait_s: float) -> None:
        """Record that it is restarted, or that a restart won't help."""
        program = each.program
        if each.found is None:
            named = f"{program.name}: {finding.sentence}"
            each.found = replace(finding, sentence=named, owner=program.name, incident=self._journal.open_incident())
            each.since_s = self._journal.time_s
            self._journal.open_finding(each.found)
        if program.state is ProgramState.GIVEN_UP:
            self._tell(LauncherEvent.FURTHER_SIMULATOR_STOPPED, each, finding.sentence)
            again = program.no_restart
            each.found = replace(each.found, sentence=f"{each.found.sentence}; {again}")
        else:
            restart, delay_s = LauncherEvent.FURTHER_SIMULATOR_RESTART, round(wait_s, 2)
            self._tell(restart, each, finding.sentence, failures=program.failures, delay_s=delay_s)
            again = f"it is restarted in {wait_s:.1f} s"
        self._say(f"{program.name}: {finding.sentence}; {again}, other collectors continue")

    def _over(self, each: _FurtherSimulator) -> None:
        if each.found is not None:
            self._journal.close_finding(each.found)
            each.found = None

    def _drop(self, each: _FurtherSimulator, cause: str) -> None:
        """Kill it if it runs, and record the cause."""
        lived = each.program.is_running
        each.program.forget()
        if lived:
            self._tell(LauncherEvent.FURTHER_SIMULATOR_STOPPED, each, cause)
            self._over(each)

    def _tell(self, event: LauncherEvent, each: _FurtherSimulator, cause: str, **fields: Any) -> None:
        incident = "" if each.found is None else each.found.incident
        self._journal.event(event, cause, incident=incident, simulator=each.program.number, **fields)


def _given_back(seen: Observation, collector: int) -> bool:
    """Return whether no collector uses the simulator."""
    beat = seen.agent.beat
    if beat is None or not seen.agent.running:
        return True
    return collector >= len(beat.collectors) or beat.collectors[collector].state is CollectorState.ABSENT
