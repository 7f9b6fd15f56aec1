"""The run from its first start to its end: what was seen is judged, what was decided is carried out.

Owns the run's state and the order of things. What is wrong, and what follows from it, is ``decide``'s to say, how it is
done ``repairs``'s; everything that it touches is injected, so the same code runs hours of simulated time in tests.
"""

from __future__ import annotations

import contextlib
from typing import Any

from carla_launcher.act.agent_figures import AgentFigures
from carla_launcher.act.effects import Forecast, State
from carla_launcher.act.episode_gate import EpisodeGate
from carla_launcher.act.ladder_state import LadderState
from carla_launcher.act.monitor import Monitor
from carla_launcher.act.program import Script, Waiting
from carla_launcher.act.repairs import Repairs, RunOverError
from carla_launcher.act.run import Run
from carla_launcher.act.runtime import StartError
from carla_launcher.act.simulator_figures import SimulatorFigures
from carla_launcher.decide import policy
from carla_launcher.decide.decisions import Decision, Ending, Nothing, RestartAgent, RestartSimulator, Restore, Stop
from carla_launcher.decide.detectors.agent import AT_ONCE_S
from carla_launcher.decide.detectors.causes import Cause, Finding
from carla_launcher.decide.restarts import MOST_IN_VAIN, StartsInVain
from carla_launcher.observe.observation import Ended, Observation
from carla_launcher.observe.pools import OwnerKind
from carla_run.configuration.program_life import End
from carla_run.events import LauncherEvent
from carla_run.exits import KILLED, TERMINATED, Exit, exit_in_words

ENDS = {
    End.FINISHED: (Exit.FINISHED, "the agent finished"),
    End.BAD_ARGUMENTS: (Exit.USAGE, "the agent doesn't know one of its arguments"),
    End.BAD_CONFIGURATION: (Exit.BAD_CONFIG, "the agent refused its configuration, or a disk refused its files"),
    End.STOPPED: (Exit.STOPPED, "the agent stopped on request and wrote its checkpoint"),
}
"""Ends of the agent after which the run is over, each with the launcher's exit code and a sentence."""


class Supervisor:
    """Supervises one run to its end."""

    def __init__(self, run: Run, forecast: Forecast) -> None:
        self.ending: Ending | None = None
        self._run, self._effects, self._journal = run, run.effects, run.journal
        self._monitor = Monitor(run)
        self._simulator_figures = SimulatorFigures(run)
        self._ladder = LadderState(run, forecast, self._simulator_figures)
        self._agent_figures = AgentFigures(run, self._ladder)
        self._exits = forecast.program.exits
        self._repairs = Repairs(run, self._monitor, self._ladder, self._simulator_figures)
        self._gate = EpisodeGate()
        self._starts = StartsInVain()
        self._driven, self._drove_s = (0, 0, 0), float("-inf")
        self._script: Script = self._main_script()

    @property
    def state(self) -> State:
        """State of the run."""
        return self._run.state

    @property
    def progressed(self) -> bool:
        """Return whether an agent that ended had made progress in this start of the run."""
        return self._starts.progressed

    def run(self) -> Ending:
        """Run to the end and return it. All programs have ended then, even after an exception."""
        try:
            while self.state is not State.STOPPED:
                self.step()
                self._effects.clock.sleep(self._run.config.poll_s)
        finally:
            self._run.kill_all()
        assert self.ending is not None
        return self.ending

    def step(self) -> None:
        """Look if it is time, and make one move; blocks at most for a health check or a kill."""
        if self.state is State.STOPPED:
            return
        if self._effects.stop.count > 0 and self.ending is None:
            self._journal.handle("")
            self._begin_shutdown(Ending(Exit.STOPPED, f"stopped on request ({self._effects.stop.cause})"))
        self._monitor.look_if_due()
        if self.ending is None and self.state is not State.INIT:
            self._run.further.look(self._monitor.last, self._run.quality, self._ladder.simulators)
        try:
            next(self._script)
        except StopIteration:
            self._stopped()
        except RunOverError as over:
            self._begin_shutdown(over.ending)

    def _main_script(self) -> Script:
        self._run.adopt()
        self._ladder.request_sizes(wait=True)
        before = self._run.spec.step_before
        if before is not None and before.out_of_memory:
            self._repairs.degrade_before_start(
                Finding(Cause.AGENT_HOST_OOM, before.sentence, owner="agent", exit_code=before.code)
            )
        self._ladder.plan_bands()
        yield from self._repairs.ensure_simulator()
        if self._run.agent.child is None:
            yield from self._repairs.ensure_memory()
            self._repairs.start_agent(self._run.spec.resume)
        elif self._effects.requests.started_with() != self._ladder.overrides:
            yield from self._repairs.replace_agent("the agent that still ran was started with other steps")
        self._journal.handle("")  # the killed launcher's incident is over, except for the agent's report
        while True:
            if self._monitor.fresh:
                yield from self._decide_by(self._monitor.take())
            yield

    def _decide_by(self, seen: Observation) -> Script:
        self._simulator_figures.doubt(self._monitor.findings)
        self._agent_figures.doubt(self._monitor.findings, seen)
        if seen.agent.ended is not None:
            yield from self._agent_ended(seen.agent.ended)
            return
        if (done := seen.agent.done) is not None and done.limit_s is not None:
            if done.for_s >= done.limit_s:
                words = f"it had shown {done.sign}, and didn't exit within {done.limit_s:g} s"
                raise RunOverError(Ending(Exit.FINISHED, f"the agent finished; {words}"))
            return  # its work is done, whatever its simulator does now
        if (beat := seen.agent.beat) is not None and (beat.pid, beat.ticks, beat.step) != self._driven:
            self._driven, self._drove_s = (beat.pid, beat.ticks, beat.step), seen.time_s
        self._set_state(seen)
        self._simulator_figures.measure(seen)
        self._agent_figures.measure(seen)
        self._effects.holders.note_driving()
        self._ladder.plan_bands()
        if why := self._ladder.plan_without_cuda(seen):
            self._effects.say(f"the agent computes on the CPU, since {why}; the plan now expects that")
        if values := self._ladder.lowered_values(seen):
            self._adopt(values, 0 if seen.agent.beat is None else seen.agent.beat.step)
        self._ladder.save_possible_savings(seen)
        rests = self._ladder.heartbeats_are_current and _is_drained(seen)
        if rests and not self._effects.requests.drained_by_person():
            yield from self._run.resume()
            return
        decision, incident = self._decision(seen)
        if isinstance(decision, Nothing) or not self._gate_opens_for(decision, seen):
            return
        self._gate.close()
        yield from self._repairs.perform(decision, incident)

    def _adopt(self, values: dict[str, Any], step: int) -> None:
        """Record values that the agent lowered by itself, under the present or a new incident."""
        short = (*policy.RAN_OUT, *policy.SHORT)
        found = next((each.incident for each in self._monitor.findings if each.cause in short), "")
        self._journal.handle(self._journal.under_repair or found or self._journal.open_incident())
        adopted = self._ladder.adopt(values, step)
        with contextlib.suppress(StartError):  # it is journalled; the agent's next start tries again
            self._run.write_overrides()
        self._journal.handle("")
        self._effects.say(f"the agent lowered its memory by itself: {adopted}")

    def _decision(self, seen: Observation) -> tuple[Decision, str]:
        """Return the first decision about the findings and its incident, else a restore if it is time."""
        for finding in policy.gravest(self._monitor.findings):
            decision = self._repairs.decide(finding, seen)
            if not isinstance(decision, Nothing):
                return decision, finding.incident
            if decision.reason:
                self._monitor.remark(finding, decision.reason)
        if self._ladder.may_restore(seen, self._monitor.findings):
            return Restore(), ""
        return Nothing(), ""

    def _gate_opens_for(self, decision: Decision, seen: Observation) -> bool:
        waits = isinstance(decision, Restore) or (
            isinstance(decision, RestartSimulator | RestartAgent) and decision.waits
        )
        return not waits or self._gate.is_open(self._run.now_s, seen.agent)

    def _set_state(self, seen: Observation) -> None:
        """Set the run's state by the agent's phase and the findings."""
        beat, run, limit_s = seen.agent.beat, self._run, self._run.config.agent.warming_limit_s
        if run.warm:
            short = any(finding.cause in policy.SHORT for finding in self._monitor.findings)
            run.enter(State.PRESSURE if short else State.RUNNING)
        elif beat is not None and beat.started:
            run.enter(State.VERIFYING)
            run.warm = True
            run.checkpoints.worked()
            self._verified(seen)
            words = f"is warm: {beat.device}, micro-batch {beat.micro_batch}" if beat.micro_batch else "makes progress"
            self._effects.say(f"the agent {words}")
        elif run.agent.up_for_s(run.now_s) > limit_s:
            self._monitor.add(Finding(Cause.AGENT_HANG, f"the agent isn't warm after {limit_s:.0f} s"))

    def _verified(self, seen: Observation) -> None:
        """Record the memory of all owners once the agent is warm, which ends an incident."""
        free = {pool.name: pool.free.mib for pool in seen.memory.pools}
        held = {
            pool.name: {whose.value: round(pool.held_by(whose), 1) for whose in OwnerKind} for pool in seen.memory.pools
        }
        incident, self._journal.unverified = self._journal.unverified, ""
        self._journal.event(LauncherEvent.VERIFIED, incident=incident, free_mib=free, held_mib=held)

    def _ending_of(self, ended: Ended) -> Ending | None:
        """Return the ending that an end of the agent means; None if it is started again."""
        if ended.done:
            said = f"it had shown {ended.done} before it ended ({exit_in_words(ended.code)})"
            return Ending(Exit.FINISHED, f"the agent finished; {said}")
        end = self._exits.get(ended.code)
        return None if end is None or end not in ENDS else Ending(*ENDS[end])

    def _agent_ended(self, ended: Ended) -> Script:
        self._starts.progressed |= self._made_progress()
        over = self._ending_of(ended)
        causes = policy.AGENT_FAILED if over else (Cause.GPU_LOST, *policy.AGENT_FAILED)
        failed = [each for each in policy.gravest(self._monitor.findings) if each.cause in causes]
        if not self._run.spec.reconnects and not ended.done and (failed or not over):
            failed = (yield from self._simulator_failed_first(ended)) or failed
        no_simulator = self._exits.get(ended.code) is End.NO_SIMULATOR
        in_vain = no_simulator and not failed and self._waited_for_simulator()
        if in_vain:
            failed = [each for each in self._monitor.findings if each.cause is Cause.SIMULATOR_NOT_READY]
        incident = failed[0].incident if failed else ""
        self._journal.event(
            LauncherEvent.AGENT_ENDED, incident=incident, exit_code=ended.code, oom_killed=ended.oom_killed
        )
        if not failed and over:
            named = [each for each in self._monitor.findings if each.owner == "agent" and _explains(each, over)]
            self._journal.handle(named[0].incident if named else "")
            code = Exit.BAD_CONFIG if named and over.code == Exit.FINISHED else over.code
            raise RunOverError(Ending(code, named[0].sentence if named else over.reason))
        if no_simulator and not self._run.spec.simulator.ours:
            reason = "the agent found no simulator in time"
            raise RunOverError(Ending(Exit.NO_SIMULATOR, reason))
        if not failed:
            self._monitor.add(
                Finding(Cause.AGENT_CRASH, f"the agent ended ({exit_in_words(ended.code)})", owner="agent")
            )
            failed = [self._monitor.findings[-1]]
        # An agent that waited in vain hasn't failed: it saved, and resumes beside the simulator.
        found, seen = failed[0], self._monitor.last
        decision = RestartAgent(found.sentence) if in_vain else self._repairs.decide(found, seen)
        if not self._crashed_by_itself(found, ended):
            self._starts.ended(None)
        elif isinstance(decision, RestartAgent):
            decision = self._unless_in_vain(decision, found, ended)
        yield from self._repairs.perform(decision, found.incident)

    def _waited_for_simulator(self) -> bool:
        """Return whether an agent that ended was started, and drove last, before its simulator was up again."""
        run = self._run
        without_s = run.now_s - max(run.agent.started_s, self._drove_s)
        return without_s > run.simulator.up_for_s(run.now_s)

    def _made_progress(self) -> bool:
        """Return whether an agent that ended had made progress; of one that shows none, whether it ran for a while."""
        run, beat = self._run, self._monitor.last.agent.beat
        command = run.spec.command
        if command is not None and command.file.alive is None and not self._effects.requests.tells_how_it_ended:
            return run.agent.up_for_s(run.now_s) >= AT_ONCE_S
        return run.warm or (beat is not None and beat.started)

    def _crashed_by_itself(self, finding: Finding, ended: Ended) -> bool:
        simulator_failed = any(each.cause in policy.SIMULATOR_FAILED for each in self._monitor.findings)
        by_itself = finding.cause is Cause.AGENT_CRASH and ended.code not in (KILLED, TERMINATED)
        return by_itself and not simulator_failed and not finding.numbers.get("no_simulator")

    def _unless_in_vain(self, decision: RestartAgent, crash: Finding, ended: Ended) -> RestartAgent | Stop:
        """Return the restart after a crash; the run's end if the next start would end the same way."""
        began = self._run.agent.last.resume and not self._run.warm
        starts_from_another = began and self._run.checkpoints.crashed(crash.incident)
        code = None if starts_from_another else ended.code
        if not self._starts.ended(code):
            return decision
        self._repairs.show_log(self._run.agent)
        words = f"{crash.sentence}, {MOST_IN_VAIN} times in a row before any progress: no restart mends that"
        return Stop(Ending(Exit.USAGE if code == Exit.USAGE else Exit.BAD_CONFIG, words))

    def _simulator_failed_first(self, ended: Ended) -> Waiting[list[Finding]]:
        """Return what is wrong with the simulator of a program that failed: it may show a moment later, or if asked."""
        causes, limits = (*policy.FATAL, *policy.SIMULATOR_FAILED), self._run.config.watch
        until_s = self._run.now_s + limits.dying_s + limits.interval_s
        while not (found := [each for each in policy.gravest(self._monitor.findings) if each.cause in causes]):
            if self._run.now_s >= until_s:
                break
            yield
        if not found and (problem := self._effects.check(True).problem):
            words = f"the agent ended ({exit_in_words(ended.code)}), and its simulator doesn't come on: {problem}"
            self._monitor.add(Finding(Cause.SIMULATOR_HANG, words, owner="simulator"))
            found = [self._monitor.findings[-1]]
        return found

    # The way out

    def _begin_shutdown(self, ending: Ending) -> None:
        self._run.standstills.over = True
        self.ending = ending
        self._script = self._shutdown_script(ending)

    def _shutdown_script(self, ending: Ending) -> Script:
        run = self._run
        lived = run.agent.is_running
        if lived:
            grace_s = run.config.agent.stop_grace_s
            what = "writes its checkpoint" if run.spec.resumes and ending.code != Exit.FINISHED else "ends"
            self._effects.say(f"{ending.reason}: the agent {what} (up to {grace_s:g} s; Ctrl-C again ends at once)")
            yield from run.stop_agent(ending.reason)
        if (ended := self._agents_end()) is not None:
            self.ending = self._final_ending(ended, ending, lived)
        self._simulator_figures.doubt(self._monitor.findings)
        self._agent_figures.doubt(self._monitor.findings)
        if ending.code != Exit.OUT_OF_MEMORY and run.simulator.is_running:
            self._simulator_figures.keep_peak()
        yield from run.further.stop(lambda: run.now_s, self._effects.stop.cut_short)
        yield from run.stop_simulator()

    def _agents_end(self) -> Ended | None:
        """Return how the agent ended, with what it showed of its work."""
        if self._run.agent.ended is None:
            return None
        return self._monitor.last.agent.ended or self._monitor.look().agent.ended

    def _final_ending(self, ended: Ended, wanted: Ending, lived: bool) -> Ending:
        """Return how the run ends once the agent has ended; ``lived``: it did when the run was to end.

        One that had failed before was about to be started again: what ends the run is the request, not that failure.
        """
        if wanted.code != Exit.STOPPED:
            return wanted
        of_command = self._run.spec.command is not None
        if ended.code in (KILLED, TERMINATED) and not of_command:  # a command may have saved in its own handler
            return Ending(Exit.STOPPED, f"{wanted.reason}; the agent wrote no new checkpoint, the last one is valid")
        if (over := self._ending_of(ended)) and not self._may_mean_stopped(ended):
            return over
        if not lived:
            before = f"the agent had ended before ({exit_in_words(ended.code)})"
            before += "" if of_command else ", its last checkpoint is valid"  # a command's isn't checked
            return Ending(Exit.STOPPED, f"{wanted.reason}; {before}")
        if of_command:
            return Ending(Exit.STOPPED, f"{wanted.reason}; the agent ended ({exit_in_words(ended.code)})")
        return Ending(ended.code, f"the agent crashed ({exit_in_words(ended.code)})")

    def _may_mean_stopped(self, ended: Ended) -> bool:
        """Return whether a program may say by its code that it was stopped, and not that it has finished."""
        command = self._run.spec.command
        if command is None or self._exits.get(ended.code) is not End.FINISHED:
            return False
        if command.file.done is not None:
            return bool(ended.undone)
        return not self._effects.requests.tells_how_it_ended

    def _stopped(self) -> None:
        assert self.ending is not None
        self._run.standstills.end()
        self._run.enter(State.STOPPED)
        self._journal.change(exit_code=int(self.ending.code), reason=self.ending.reason)
        self._journal.event(LauncherEvent.RUN_ENDED, self.ending.reason, exit_code=int(self.ending.code))


def _explains(finding: Finding, over: Ending) -> bool:
    """Return whether a finding says why the run is over by this end; of one that finished, that it hasn't."""
    return over.code != Exit.FINISHED or finding.cause is Cause.MISCONFIGURATION


def _is_drained(seen: Observation) -> bool:
    """Return whether the agent is drained, as after a launcher that died between drain and resume."""
    return seen.agent.beat is not None and seen.agent.beat.phase == "drained"
