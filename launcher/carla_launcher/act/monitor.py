"""The run's monitor: makes an observation every second, and records findings and the timeline of memory.

Knows when to look and which findings are new. Decides nothing.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from carla_launcher.act.run import Run
from carla_launcher.decide import policy
from carla_launcher.decide.detectors.causes import Cause, Finding
from carla_launcher.observe.observation import Observation
from carla_launcher.observe.pools import Gpu, PoolKind, Reading
from carla_run.events import LauncherEvent

MOVED_MIB = 64.0
"""Change of a pool's free memory that adds a line to the timeline at once."""

FAILED = (*policy.FATAL, *policy.SIMULATOR_FAILED, *policy.AGENT_FAILED)
STAND_STILL = (*FAILED, Cause.COLLECTOR_HANG)
"""Causes that stop training."""


class Monitor:
    """Observes one run and records its findings."""

    def __init__(self, run: Run) -> None:
        self.findings: tuple[Finding, ...] = ()
        self.fresh = False
        self._run, self._effects, self._journal = run, run.effects, run.journal
        self._seen: Observation | None = None
        self._looked_s = self._drawn_s = float("-inf")
        self._drawn: dict[str, float | None] = {}
        self._held: dict[tuple[str, str, str], tuple[Finding, float]] = {}
        self._found_now = ""
        self._remarks: set[tuple[str, str]] = set()
        self._cards: set[str] = set()
        self._unreadable: set[str] = set()

    def look_if_due(self) -> None:
        """Look if the interval has passed, or if a program has ended."""
        ended = self._run.simulator.ended is not None or self._run.agent.ended is not None
        unseen_end = ended and not self._end_was_seen()
        if unseen_end or self._run.now_s - self._looked_s >= self._run.config.watch.interval_s:
            self.look()

    def look(self) -> Observation:
        """Observe now, and update ``findings``."""
        run = self._run
        seen = self._effects.observer.look(run.now_s, run.simulator.child, run.agent.child, run.further.pids())
        seen = replace(seen, further=run.further.up())
        self._looked_s, self._seen, self.fresh = run.now_s, seen, True
        self._found_now = ""
        self._look_at_cards(seen.memory)
        self.findings = tuple(map(self._identified, self._effects.diagnose(seen)))
        self._journal_findings()
        self._look_at_training(seen)
        self._draw_timeline(seen)
        return seen

    def _look_at_cards(self, memory: Reading) -> None:
        """Say once that GPUs can't be read any more, and once that they can; a lost one is a finding."""
        readable = {pool.name for pool in memory.of(PoolKind.VRAM)}
        self._cards |= readable
        unreadable = self._cards - readable
        if memory.gpu is Gpu.LOST or unreadable == self._unreadable:
            return
        event = LauncherEvent.MEMORY_UNREADABLE if unreadable else LauncherEvent.MEMORY_READABLE
        said = memory.problem.rstrip(".") if unreadable else "the GPU's memory can be read again"
        self._journal.event(event, said, incident="", pools=sorted(unreadable or self._unreadable))
        self._effects.say(f"{said}: the run goes on without the GPU's figures" if unreadable else said)
        self._unreadable = unreadable

    def _look_at_training(self, seen: Observation) -> None:
        failed = [each for each in self.findings if each.cause in STAND_STILL]
        hung = ["collector" for each in failed if each.cause is Cause.COLLECTOR_HANG]
        incident = self._journal.under_repair or next((each.incident for each in failed), "")
        run = self._run
        run.standstills.look(seen.agent.beat, run.agent.started_s, [*run.missing, *hung], incident)

    @property
    def last(self) -> Observation:
        """Return the last observation."""
        assert self._seen is not None
        return self._seen

    def take(self) -> Observation:
        """Return the last observation, and mark it as handled."""
        self.fresh = False
        return self.last

    def add(self, finding: Finding) -> None:
        """Add a finding of the supervisor."""
        self.findings = (*self.findings, self._identified(finding))
        self._journal_findings()

    def remark(self, finding: Finding, reason: str) -> None:
        """Record why a finding leads to no action, once while it lasts."""
        if (finding.cause.value, reason) not in self._remarks:
            self._remarks.add((finding.cause.value, reason))
            self._journal.event(
                LauncherEvent.WAITING,
                finding.sentence,
                incident=finding.incident or None,
                diagnosis=finding.cause.value,
                reason=reason,
            )
            self._effects.say(f"{finding.sentence}: {reason}")

    def _end_was_seen(self) -> bool:
        seen = self._seen
        return seen is not None and (seen.agent.ended is not None or seen.simulator.ended is not None)

    def incident_of(self, finding: Finding) -> str:
        """Return the incident of the same problem if its finding still holds; empty if not."""
        return self._held[finding.key][0].incident if finding.key in self._held else ""

    def _identified(self, finding: Finding) -> Finding:
        """Return a finding with its incident: the earlier one if it still holds; new findings of a look share one."""
        failed = finding.cause in FAILED
        incident = self.incident_of(finding) or (self._journal.under_repair if failed else "")
        if not incident:
            incident = self._found_now = self._found_now or self._journal.open_incident()
        return replace(finding, incident=incident)

    def _journal_findings(self) -> None:
        now = {each.key: each for each in self.findings}
        over = [self._held.pop(key)[0] for key in [*self._held] if key not in now]
        fresh = [found for key, found in now.items() if key not in self._held]
        self._held |= {found.key: (found, self._journal.time_s) for found in fresh}
        held = (*self._held.values(), *self._run.further.findings)
        self._journal.change(findings=tuple(_held(*each) for each in held))
        for found in over:
            self._journal.close_finding(found)
            self._remarks = {remark for remark in self._remarks if remark[0] != found.cause.value}
        for found in fresh:
            self._journal.open_finding(found)

    def _draw_timeline(self, seen: Observation) -> None:
        free = {pool.name: pool.free.mib for pool in seen.memory.pools}
        moved = any(abs((mib or 0.0) - (self._drawn.get(name) or 0.0)) > MOVED_MIB for name, mib in free.items())
        if not free or not (moved or self._run.now_s - self._drawn_s >= self._run.config.memory.timeline_s):
            return
        self._drawn, self._drawn_s = free, self._run.now_s
        beat = seen.agent.beat
        self._journal.memory(
            {
                "state": self._run.state.value,
                "phase": None if beat is None else beat.phase,
                "step": None if beat is None else beat.step,
                "updates": None if beat is None else beat.updates,
                "taken": [str(taken) for taken in self._journal.state.taken],
                "pools": pools_plain(seen.memory),
            }
        )


def _held(found: Finding, since_s: float) -> dict[str, Any]:
    about = {"incident": found.incident, "cause": found.cause.value, "sentence": found.sentence}
    return {**about, "pool": found.pool, "owner": found.owner, "since": since_s}


def pools_plain(reading: Reading) -> dict[str, Any]:
    """Return all pools as plain data: total, free and each owner's memory, MiB."""
    return {
        pool.name: {
            "total": pool.total.mib,
            "free": pool.free.mib,
            "owners": {owner.name: owner.held.mib for owner in pool.owners},
        }
        for pool in reading.pools
    }
