"""One simulator and what is driven in it, one item after another; both are programs that others start and watch.

Owns the order of these: a simulator that answers, a drive, what its end means, and whether the simulator serves on.
"""

from __future__ import annotations

import random
import time
from dataclasses import replace
from typing import Any

from carla_launcher import wiring
from carla_launcher.act.program import ProgramState, Script, SupervisedProcess
from carla_launcher.act.runtime import Child, Role, StartError
from carla_launcher.decide.decisions import Ending
from carla_launcher.decide.detectors.causes import Cause, Finding
from carla_launcher.decide.detectors.kills import RecentOomKills
from carla_launcher.decide.detectors.simulator import SimulatorDetector
from carla_launcher.decide.policy import SIMULATOR_REFUSALS
from carla_launcher.decide.route_progress import Standing
from carla_launcher.decide.route_verdict import KEPT, Outcome, Why, judge, why_fresh
from carla_launcher.observe.observation import AgentSeen, Observation, SimulatorSeen
from carla_launcher.observe.pools import PROCESS_POOLS, OwnerKind, Pool, PoolKind, Reading
from carla_launcher.routes.desk import Assignment, Desk
from carla_launcher.routes.setting import Setting
from carla_run.events import LauncherEvent
from carla_run.exits import Exit

OWNERS = {OwnerKind.SIMULATOR: "simulator", OwnerKind.AGENT: "program"}


class Lane:
    """One simulator, and the drives in it."""

    def __init__(self, number: int, desk: Desk, setting: Setting) -> None:
        """Start nothing yet."""
        self._number, self._desk, self._set = number, desk, setting
        spec, config, spread = setting.spec, setting.config, random.Random()
        self._address, self._ours = spec.address_of(number), spec.simulator.ours
        self._simulator = SupervisedProcess(
            setting.runtime if self._ours else None,
            Role.SIMULATOR,
            config.simulator,
            number,
            start_limit=spec.simulator.start_limit(config.simulator),
            draw=lambda: spread.uniform(-1.0, 1.0),
        )
        self._program = SupervisedProcess(setting.runtime, Role.AGENT, config.agent, number)
        self._ask = wiring.questions(self._address, config, ours=self._ours)
        self._monitor = wiring.monitor_of(spec, self._ask, number)
        self._kills = RecentOomKills(config.watch.sign_s)
        self._detector = SimulatorDetector(config, self._kills)
        self._looked_s = float("-inf")
        self._served, self._left_a_result = 0, True
        self._lost: Finding | None = None
        self._held: dict[str, dict[str, float]] = {}
        self._peaks: dict[str, dict[str, float]] = {}

    def run(self) -> Script:
        """Drive what is given out until nothing is left, or a stop is asked for; the simulator ends after that."""
        while self._desk.has_work or self._desk.may_have_work:
            if not self._desk.has_work:
                yield
                continue
            yield from self._have_simulator()
            if self._simulator.is_up and (drive := self._desk.take(self._number)) is not None:
                yield from self._drive(drive)
        yield from self._simulator.stop(time.monotonic, self._set.stop.cut_short)
        self.close()

    def pids(self) -> tuple[frozenset[int], frozenset[int]]:
        """Return the ids of all processes of the simulator, and of what drives in it."""
        return self._simulator.pids(), self._program.pids()

    def close(self) -> None:
        """End both at once, if they live."""
        self._program.forget()
        self._simulator.forget()
        self._monitor.close()

    # The simulator

    def _have_simulator(self) -> Script:
        """Have one that answers, a fresh one where that is due."""
        if not self._set.has_simulator:
            self._simulator.mark_up(time.monotonic())
            return
        if self._simulator.state is ProgramState.UP:
            why = "" if self._lost else self._why_fresh()
            if not why:
                yield from self._find_lost()
                if self._lost is None:
                    return
                why = self._lost.sentence
            yield from self._put_away(why)
        while not self._desk.stopping:
            match self._simulator.look(time.monotonic(), self._quality, self._starts):
                case ProgramState.STARTING if (child := self._simulator.child) is not None:
                    self._tell(LauncherEvent.SIMULATOR_STARTED, pid=child.pid, log=str(child.log))
                case ProgramState.UP:
                    self._is_up()
                    return
                case Finding() as finding:
                    self._start_failed(finding)
            yield

    @property
    def _quality(self) -> str | None:
        return self._set.spec.simulator.quality(self._set.config.simulator)

    def _starts(self, now_s: float, _child: Child | None) -> tuple[SimulatorSeen, Finding | None]:
        return self._look(now_s, in_use=not self._ours)

    def _is_up(self) -> None:
        took_s = time.monotonic() - self._simulator.started_s
        self._simulator.failures, self._served, self._left_a_result = 0, 0, True
        self._tell(LauncherEvent.SIMULATOR_HEALTHY, took_s=round(took_s, 2))
        if self._lost is not None:
            self._set.journal.close_finding(self._lost)
            self._lost = None
        self._set.say(f"{self._simulator.name} at {self._address} answers and ticks after {took_s:.1f} s")

    def _start_failed(self, finding: Finding) -> None:
        name, budget = self._simulator.name, self._set.config.simulator.restarts.budget
        said = ": ".join(filter(None, (finding.sentence, self._simulator.last_output())))
        wait_s = self._simulator.fail(finding, time.monotonic())
        self._lose(finding)
        given_up = self._simulator.state is ProgramState.GIVEN_UP
        if finding.cause is Cause.MISCONFIGURATION:
            self._desk.over = Ending(Exit.BAD_CONFIG, f"{name}: {finding.sentence}")
        elif given_up or finding.exit_code in SIMULATOR_REFUSALS or self._simulator.failures > budget:
            self._desk.over = Ending(Exit.NO_SIMULATOR, f"{name}: {said}")
        else:
            self._restarts(finding.sentence, delay_s=round(wait_s, 2))
            again = "started" if self._ours else "asked"
            self._set.say(f"{name}: {finding.sentence}; it is {again} again in {wait_s:.1f} s")

    def _why_fresh(self) -> str:
        if not self._ours:
            return ""
        return why_fresh(self._set.rules.simulator, self._served, self._left_a_result, self._held.get("simulator", {}))

    def _find_lost(self) -> Script:
        """Find out whether the simulator is lost, by its process and its answers."""
        if self._lost is not None or not self._set.has_simulator:
            return
        for _ in range(self._set.config.watch.checks_failed):
            _, found = self._look(time.monotonic(), in_use=True)
            if found is not None:
                self._lose(found)
                return
            health = self._ask.ready(True)
            if health.ok:
                return
            until_s = time.monotonic() + self._set.config.watch.dying_s
            while time.monotonic() < until_s and self._simulator.ended is None:
                yield
        _, found = self._look(time.monotonic(), in_use=True)
        said = f"the simulator doesn't answer any more: {health.problem}"
        self._lose(found or Finding(Cause.SIMULATOR_HANG, said))

    def _lose(self, found: Finding) -> None:
        """Record that the simulator is lost: an incident, until another one answers."""
        if self._lost is None:
            incident = self._set.journal.open_incident()
            self._lost = replace(found, owner=self._simulator.name, incident=incident)
            self._set.journal.open_finding(self._lost)

    def _put_away(self, why: str) -> Script:
        self._restarts(why)
        self._set.say(f"{self._simulator.name} is {'started again' if self._ours else 'waited for'}: {why}")
        if not self._lost:
            yield from self._simulator.stop(time.monotonic, self._set.stop.cut_short)
        self._simulator.forget()
        if self._lost:
            self._simulator.back_off(time.monotonic() + self._set.config.simulator.restarts.first_delay_s)

    # A drive

    def _drive(self, drive: Assignment) -> Script:
        """Drive an item once, and give back what came of it."""
        self._peaks, started_s = {}, time.monotonic()
        cut = self._start(drive)
        while cut is None and self._program.is_running and self._lost is None:
            yield
            cut = self._cut(started_s) if self._program.is_running else None
            if cut is None:
                self._look_for_loss()
        yield from self._end_program()
        if cut is not Why.STOPPED:  # it may have written a score for what it couldn't drive
            yield from self._find_lost()
        end = drive.end(self._program.ended, cut, "" if self._lost is None else self._lost.sentence)
        verdict = judge(end, self._set.rules)
        self._served, self._left_a_result = self._served + 1, verdict.outcome in KEPT
        took_s, incident = time.monotonic() - started_s, "" if self._lost is None else self._lost.incident
        stands = self._desk.give_back(drive, verdict, end.exit_code, took_s, self._peaks, incident)
        follows = {Standing.OPEN: ": it is driven again", Standing.LEFT: f": left; its log is {drive.log}"}
        again = follows.get(stands, "") if verdict.outcome is Outcome.AGAIN else ""
        self._set.say(f"{drive}: {verdict.sentence}{again}")

    def _start(self, drive: Assignment) -> Why | None:
        self._set.drives[self._number] = self._set.program(drive, self._address)
        self._program.forget()
        try:
            self._program.start(time.monotonic())
        except StartError as error:
            self._set.say(str(error))
            return Why.NOT_STARTED
        self._set.say(f"{drive} starts at {self._address}, log {drive.log}")
        return None

    def _end_program(self) -> Script:
        """End what drives; one that may have come to a result before its simulator was lost has time to write it."""
        waits_s = self._set.rules.stop_grace_s if self._lost and self._set.rules.ends_by_itself else 0.0
        until_s = time.monotonic() + waits_s
        while self._program.is_running and time.monotonic() < until_s and not self._desk.stopping:
            yield
        yield from self._program.stop(time.monotonic, self._set.stop.cut_short)

    def _cut(self, started_s: float) -> Why | None:
        limit_s = self._set.rules.time_limit_s
        if self._desk.stopping:
            return Why.STOPPED
        return Why.TIME_LIMIT if limit_s is not None and time.monotonic() - started_s >= limit_s else None

    def _look_for_loss(self) -> None:
        """Look once an interval, and at the simulator's end, whether it is lost."""
        due = time.monotonic() - self._looked_s >= self._set.config.watch.interval_s
        if due or self._simulator.ended is not None:
            _, found = self._look(time.monotonic(), in_use=True)
            if found is not None:
                self._lose(found)

    def _look(self, now_s: float, in_use: bool) -> tuple[SimulatorSeen, Finding | None]:
        """Look at the simulator and at memory; a world that others tick is never ticked."""
        self._looked_s = now_s
        reading = self._set.memory.read(self._simulator.pids(), self._program.pids())
        self._note(reading)
        if not self._set.has_simulator:
            return SimulatorSeen(False), None
        seen = self._monitor.look(now_s, self._simulator.child, in_use)
        self._kills.look(now_s, reading)
        observed = Observation(now_s, reading, seen, AgentSeen(self._program.is_running))
        found = next(iter(self._detector.look(observed, ticks_go_on=False)), None)
        if found is None and seen.ended is not None:
            found = Finding(Cause.SIMULATOR_CRASH, f"the simulator ended ({seen.ended})", exit_code=seen.ended.code)
        return seen, found

    def _note(self, reading: Reading) -> None:
        for kind, name in OWNERS.items():
            held = {of.value: sum(pool.held_by(kind) for pool in _machines(reading, of)) for of in PROCESS_POOLS}
            self._held[name] = {of: round(mib, 1) for of, mib in held.items() if mib}
            peaks = self._peaks.setdefault(name, {})
            peaks |= {of: max(peaks.get(of, 0.0), mib) for of, mib in self._held[name].items()}

    def _restarts(self, cause: str, **fields: Any) -> None:
        journal = self._set.journal
        journal.change(simulator_restarts=journal.state.simulator_restarts + 1)
        self._tell(LauncherEvent.SIMULATOR_RESTART, cause, **fields)

    def _tell(self, event: LauncherEvent, cause: str = "", **fields: Any) -> None:
        incident = "" if self._lost is None else self._lost.incident
        self._set.journal.event(event, cause, incident, simulator=self._number, **fields)


def _machines(reading: Reading, kind: PoolKind) -> list[Pool]:
    """Return the pools of one kind, without those of single containers, which are counted in the machine's."""
    return [pool for pool in reading.of(kind) if not pool.name.startswith("ram:")]
