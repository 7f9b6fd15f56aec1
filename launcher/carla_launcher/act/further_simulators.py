"""The simulators of the second collector on: started, watched, started again and stopped, each by itself.

The agent goes on without one of them: so nothing waits for it, no step down is taken for it, and it is tried again for
as long as the run lasts, unless its log says that no restart mends it. Owns these children and what is told of them;
the first simulator is ``managed_processes``'.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from dataclasses import replace

from carla_launcher.act.effects import Watched
from carla_launcher.act.journal import Journal
from carla_launcher.act.run_state import RunState
from carla_launcher.act.runtime import Child, Role, Runtime, Start, StartError
from carla_launcher.config import LauncherConfig
from carla_launcher.decide import policy
from carla_launcher.decide.detectors.causes import Cause, Finding
from carla_launcher.decide.restarts import Tries
from carla_launcher.observe.observation import Observation
from carla_run.events import LauncherEvent
from carla_run.heartbeat import CollectorState


class _Further:
    """One of them."""

    def __init__(self, number: int, watched: Watched) -> None:
        self.number, self.watched = number, watched
        self.child: Child | None = None
        self.quality: str | None = None
        self.tries = Tries()
        self.found: Finding | None = None

    @property
    def name(self) -> str:
        return f"simulator {self.number}"


class FurtherSimulators:
    """All of them; none where there is one collector."""

    def __init__(
        self,
        watched: tuple[Watched, ...],
        config: LauncherConfig,
        runtime: Runtime,
        journal: Journal,
        run_state: RunState,
        draw: Callable[[], float],
        say: Callable[[str], None],
    ) -> None:
        self._all = [_Further(number, each) for number, each in enumerate(watched, start=1)]
        self._config, self._runtime, self._draw, self._say = config, runtime, draw, say
        self._journal, self._run_state = journal, run_state
        self._looked_s = float("-inf")

    def pids(self) -> frozenset[int]:
        """Return the ids of all their processes now."""
        return frozenset(pid for each in self._all if each.child is not None for pid in each.child.pids())

    def look(self, seen: Observation, quality: str | None, count: int) -> None:
        """Look at each once an interval; start what is due, and end what is of no use.

        Args:
            seen: the newest look at the run.
            quality: that they are to have.
            count: how many simulators the run is to have now, the first one included.
        """
        if seen.time_s - self._looked_s < self._config.watch.interval_s:
            return
        self._looked_s = seen.time_s
        for each in self._all:
            if each.child is not None and each.number >= count and _given_back(seen, each.number):
                self._drop(each, "its collector is at rest")
            elif each.child is not None and each.quality != quality:
                self._drop(each, "its quality changes")
            if each.child is not None:
                self._watch(each, each.child, seen)
            elif each.number < count and seen.time_s >= each.tries.due_s:
                self._start(each, seen.time_s, quality)

    def stop(self, now_s: Callable[[], float], cut_short: Callable[[], bool]) -> Generator[None, None, None]:
        """End them, all with one grace."""
        living = [each.child for each in self._all if each.child is not None and each.child.poll() is None]
        for child in living:
            child.terminate()
        until_s = now_s() + self._config.simulator.stop_grace_s
        while any(child.poll() is None for child in living) and now_s() < until_s and not cut_short():
            yield
        self.kill_all()

    def kill_all(self) -> None:
        """End them at once, without a word, and let go of their connections and logs."""
        for each in self._all:
            self._drop(each)
            each.watched.monitor.close()

    def _start(self, each: _Further, now_s: float, quality: str | None) -> None:
        each.quality = quality
        each.tries.start(now_s)
        each.watched.drive.forget()  # what the last one did has no bearing on this one
        try:
            each.child = self._runtime.start(Start(Role.SIMULATOR, quality=quality, number=each.number))
        except StartError as error:
            self._failed(each, Finding(Cause.SIMULATOR_CRASH, str(error)), now_s)
            return
        self._tell(LauncherEvent.FURTHER_SIMULATOR_STARTED, each, "", pid=each.child.pid, log=str(each.child.log))

    def _watch(self, each: _Further, child: Child, seen: Observation) -> None:
        own = each.watched.monitor.look(seen.time_s, child, in_use=seen.agent.running)
        found = [
            finding
            for finding in policy.gravest(tuple(each.watched.drive.look(replace(seen, simulator=own))))
            if finding.cause in (*policy.FATAL, *policy.SIMULATOR_FAILED)
        ]
        if own.healthy and each.tries.healthy_s is None:
            each.tries.healthy_s = seen.time_s
            took_s = round(seen.time_s - each.tries.started_s, 2)
            self._tell(LauncherEvent.FURTHER_SIMULATOR_HEALTHY, each, "", took_s=took_s)
            self._say(f"{each.name} answers and ticks after {took_s:.1f} s")
            self._over(each)
        _, limit_s = self._config.simulator.ready_within(True, lite=each.quality is None)
        if found:
            self._failed(each, found[0], seen.time_s)
        elif each.tries.is_late(seen.time_s, limit_s):
            late = Finding(Cause.SIMULATOR_NOT_READY, f"it isn't ready after {limit_s:g} s: {own.problem}")
            self._failed(each, late, seen.time_s)

    def _failed(self, each: _Further, finding: Finding, now_s: float) -> None:
        """Have it started again, after the delay that its failures call for; not one that no restart mends."""
        waits_s = each.tries.fail(now_s, self._config.simulator.restarts, self._draw())
        self._drop(each)
        if each.found is None:
            each.found = replace(finding, owner=each.name, incident=self._run_state.open_incident())
            self._of_incident(LauncherEvent.FINDING, each.found, exit_code=finding.exit_code)
        if finding.cause is Cause.MISCONFIGURATION:
            each.tries.due_s = float("inf")
            self._tell(LauncherEvent.FURTHER_SIMULATOR_STOPPED, each, finding.sentence)
            self._say(f"{each.name}: {finding.sentence}; it isn't started again, other collectors go on")
            return
        self._tell(
            LauncherEvent.FURTHER_SIMULATOR_RESTART,
            each,
            finding.sentence,
            failures=each.tries.failures,
            delay_s=round(waits_s, 2),
        )
        self._say(f"{each.name}: {finding.sentence}; it is started again in {waits_s:.1f} s, other collectors go on")

    def _over(self, each: _Further) -> None:
        if each.found is not None:
            self._of_incident(LauncherEvent.FINDING_OVER, each.found)
            each.found = None

    def _drop(self, each: _Further, cause: str = "") -> None:
        """Forget it; what still runs of it is killed."""
        if each.child is not None and each.child.poll() is None:
            each.child.kill()
            if cause:
                self._tell(LauncherEvent.FURTHER_SIMULATOR_STOPPED, each, cause)
                self._over(each)
        each.child = None

    def _tell(self, event: LauncherEvent, each: _Further, cause: str, **fields: object) -> None:
        incident = "" if each.found is None else each.found.incident
        self._journal.event(event, cause, incident=incident, simulator=each.number, **fields)

    def _of_incident(self, event: LauncherEvent, found: Finding, **fields: object) -> None:
        about = {"diagnosis": found.cause.value, "pool": found.pool, "owner": found.owner}
        self._journal.event(event, found.sentence, incident=found.incident, **about, **fields)


def _given_back(seen: Observation, collector: int) -> bool:
    """Return whether no collector of the agent's is in a simulator."""
    beat = seen.agent.beat
    if beat is None or not seen.agent.running:
        return True
    return collector >= len(beat.collectors) or beat.collectors[collector].state is CollectorState.ABSENT
