"""The sweeps: a real training against a real carla-lite is struck again and again, and has to lose nothing.

Owns one run directory, its simulator and its processes while it is struck; ends no others. ``instants`` says when,
``witness`` what must not be lost. Bounds of time here are patience, never a measurement.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from carla_run.exits import Exit
from carla_run.heartbeat import CollectorState
from tests.conftest import serve
from tests.soak import census
from tests.soak.instants import Instant, Moment, Victim, chain
from tests.soak.run_monitor import RunMonitor
from tests.soak.settings import CHECKPOINT_EVERY, LONG, SEED, SHORT, TRAFFIC, WARM_UP_STEPS, settings
from tests.soak.witness import Witness
from tests.wire.trainee import Run, running

PATIENCE_S = 90.0
STARTED = ("started", "resumed")


class SweepError(Exception):
    """The run didn't do what the next instant waits for."""


@dataclass
class Outcome:
    """Effects of one fault."""

    victim: str
    seed: int
    moment: str
    delay_s: float
    death: str
    phase: str = ""
    """The heartbeat's last report at the fault; it is written once a second."""
    collector: str = ""
    """State of the collector then."""
    saving: bool = False
    """Whether a checkpoint was half written just after the fault; a dead learner leaves it so."""
    steps_before: int = 0
    """Finished transitions, seen just before the fault."""
    steps_after: int = 0
    lost: int = 0
    """Transitions seen before and missing after."""
    updates_before: int = 0
    """The last ones whose weights were published; in lockstep all that were made."""
    updates_saved: int = 0
    """Those in the last checkpoint."""
    updates_repeated: int | None = None
    """Updates that the killed learner had made since the checkpoint from which the next one continued."""
    again_s: float | None = None
    """From the fault to the next finished step (to the end of the run where none was missing)."""
    ghosts: int = 0
    """Vehicles in the simulator then, by a client of its own, beyond the driver's and the traffic's."""
    problems: list[str] = field(default_factory=list)

    @classmethod
    def of(cls, instant: Instant) -> Outcome:
        """Return the record of an instant that hasn't come yet."""
        death = instant.death.name.removeprefix("SIG")
        return cls(instant.victim.value, instant.seed, instant.moment.word, instant.delay_s, death)


class Struck:
    """One run, from its first start to its end after the last fault."""

    def __init__(self, folder: Path, victim: Victim, ends: bool, undisturbed: Witness | None = None) -> None:
        self.total_steps = SHORT if ends else LONG
        self.server = serve(seed=SEED)
        self.run = Run(folder, self.server.port, settings(self.total_steps, lockstep=victim is Victim.LEARNER))
        self.witness = Witness(folder / "replay")
        self.monitor = RunMonitor(self.run)
        self._ends = ends
        self._undisturbed = undisturbed

    def __enter__(self) -> Struck:
        self._start(Victim.LEARNER)
        return self

    def __exit__(self, *_: object) -> None:
        self.run.kill()
        self.server.end()

    def inject(self, instant: Instant) -> Outcome:
        """Wait for the instant, let the victim die, wait until training goes on; return what was seen."""
        outcome = Outcome.of(instant)
        try:
            self._wait_for(instant)
            struck_s = time.monotonic()
            self._look(instant, outcome)
            self._kill(instant.victim, instant.death)
            self._compare_rows(outcome)
            self._recover(instant, outcome)
            outcome.again_s = round(time.monotonic() - struck_s, 2)
            self._count_ghosts(outcome)
        except (SweepError, AssertionError, subprocess.SubprocessError) as error:
            outcome.problems.append(f"{error}: {self.run.beat} {self.run.collector_log[-2000:]}")
        return outcome

    def end(self) -> list[str]:
        """Let the run end, or stop it; return what is wrong with what it left."""
        process = self.run.process
        assert process is not None
        if not self._ends:
            process.send_signal(signal.SIGTERM)
        try:
            code = process.wait(PATIENCE_S)
        except subprocess.TimeoutExpired:
            return ["the run didn't end"]
        found = self.witness.problems()
        if code != (Exit.FINISHED if self._ends else Exit.STOPPED):
            found.append(f"the run ended with {code}")
        saved = self.monitor.saved_updates
        if self._ends and (self.witness.steps, saved) != (SHORT, SHORT - WARM_UP_STEPS):
            found.append(f"the run finished with {self.witness.steps} steps and {saved} updates")
        if not self._ends and saved != self.run.beat["updates"]:
            found.append(f"the run stopped at update {self.run.beat['updates']}, its checkpoint holds {saved}")
        return found

    def _wait_for(self, instant: Instant) -> None:
        condition = {
            Moment.START: lambda: True,
            Moment.WARMING: lambda: 0 < self.witness.steps < WARM_UP_STEPS,
            Moment.SAVING: lambda: self.monitor.saving,
            Moment.UPDATING: lambda: (
                self.witness.steps > WARM_UP_STEPS and self.monitor.state is CollectorState.STEPPING
            ),
            Moment.EVALUATING: lambda: self.monitor.state is CollectorState.EVALUATING,
            Moment.ENDING: lambda: self.witness.steps >= self.total_steps,
        }[instant.moment]
        if instant.moment is Moment.START and self.witness.steps > 0:
            self._kill(instant.victim, signal.SIGKILL)
            self._start(instant.victim)
        until(condition, self._alive, pause_s=0.0 if instant.moment is Moment.SAVING else 0.002)
        time.sleep(instant.delay_s)

    def _look(self, instant: Instant, outcome: Outcome) -> None:
        """Note what is finished; the last thing before the fault."""
        if instant.victim is Victim.LEARNER and self.run.process is not None:
            # Some moments are over before they can be looked at: it is stopped where it is, and SIGKILL ends it there.
            self.run.process.send_signal(signal.SIGSTOP)
        outcome.phase = str(self.run.beat["phase"])
        outcome.collector = self.monitor.state
        outcome.updates_before = self.monitor.published_updates
        outcome.steps_before = self.witness.look()

    def _compare_rows(self, outcome: Outcome) -> None:
        outcome.saving, outcome.updates_saved = self.monitor.saving, self.monitor.saved_updates
        outcome.steps_after = self.witness.steps
        outcome.lost = max(0, outcome.steps_before - outcome.steps_after)
        outcome.problems += self.witness.problems()
        if self._undisturbed is not None:
            outcome.problems += self.witness.unlike(self._undisturbed)
            self._undisturbed = None  # from here on this run goes its own way

    def _recover(self, instant: Instant, outcome: Outcome) -> None:
        if instant.victim is not Victim.COLLECTOR:
            self._start(instant.victim)
        if instant.victim is Victim.LEARNER:
            self._compare_counters(outcome)
        if outcome.steps_after < self.total_steps:
            until(lambda: self.witness.steps > outcome.steps_after, self._alive)
        elif self.run.process is not None:
            self.run.process.wait(PATIENCE_S)

    def _kill(self, victim: Victim, death: signal.Signals) -> None:
        self.witness.look()
        if victim is Victim.SIMULATOR:
            self.server.kill()
        elif victim is Victim.COLLECTOR:
            os.kill(self._collector(), death)
        else:
            collectors = self.monitor.collectors
            self.run.kill()
            until(lambda: not any(map(running, collectors)), _nobody)  # it dies with its learner

    def _start(self, victim: Victim) -> None:
        """Start again what a person or the launcher would; a collector is its learner's business."""
        if victim is Victim.SIMULATOR:
            self.server = serve(seed=SEED, port=self.server.port)
        elif victim is Victim.LEARNER:
            started = len(self.run.events(*STARTED))
            self.run.start("--resume")
            self._started = lambda: len(self.run.events(*STARTED)) > started
        else:
            killed = self.monitor.collectors
            until(lambda: bool(set(self.monitor.collectors) - set(killed)), self._alive)

    def _compare_counters(self, outcome: Outcome) -> None:
        """Compare what the new learner says that it goes on from with what lies on disk and what was seen before."""
        until(lambda: self._started() or self._finished(), _nobody)
        if not self._started():  # struck after its last checkpoint: nothing was left to do
            return
        event, on_disk = self.run.events(*STARTED)[-1], (outcome.steps_after, outcome.updates_saved)
        if (event["steps"], event["updates"]) != on_disk:
            outcome.problems.append(f"resumed at {event['steps']}, {event['updates']}; steps, updates were {on_disk}")
        outcome.updates_repeated = max(0, outcome.updates_before - outcome.updates_saved)
        if outcome.updates_repeated > CHECKPOINT_EVERY:
            outcome.problems.append(f"{outcome.updates_repeated} updates are to be repeated")

    def _count_ghosts(self, outcome: Outcome) -> None:
        if outcome.steps_after >= self.total_steps:
            return  # the run has given the simulator back
        outcome.ghosts = vehicles(self.server.port) - 1 - TRAFFIC
        if outcome.ghosts != 0:
            outcome.problems.append(f"{outcome.ghosts} vehicles beyond {1 + TRAFFIC}")

    def _alive(self) -> None:
        process = self.run.process
        if process is None or process.poll() is not None:
            raise SweepError(f"the learner ended with {None if process is None else process.returncode}")

    def _finished(self) -> bool:
        process = self.run.process
        return process is not None and process.poll() == Exit.FINISHED and self.witness.steps >= self.total_steps

    def _collector(self) -> int:
        until(lambda: bool(self.monitor.collectors), self._alive)
        return self.monitor.collectors[0]


def sweep(
    victim: Victim, number: int, folder: Path, reference: Witness | None = None
) -> tuple[list[Outcome], list[str]]:
    """Let one run live through the instants of a chain.

    Args:
        victim: who is struck.
        number: of the chain.
        folder: where the run directory is made.
        reference: the rows of an undisturbed run; those before a learner's first fault are compared with them.

    Returns:
        What each fault did, and what was wrong at the run's end; a chain breaks off at a run that doesn't go on.
    """
    instants = chain(victim, number)
    outcomes: list[Outcome] = []
    with Struck(folder / "struck", victim, instants[-1].moment is Moment.ENDING, reference) as struck:
        for instant in instants:
            outcomes.append(struck.inject(instant))
            if outcomes[-1].again_s is None:
                return outcomes, ["the run didn't go on after the last fault"]
        return outcomes, struck.end()


def undisturbed(folder: Path, steps: int) -> Witness:
    """Return the steps that an undisturbed learner's run finishes, at least its first ``steps``."""
    with Struck(folder, Victim.LEARNER, ends=False) as run:
        while (seen := run.witness.steps) < steps:  # a busy machine takes its time, one that stands still doesn't
            until(lambda: run.witness.steps > seen, run._alive)
        run.run.kill()
        run.witness.look()
        return run.witness


def _nobody() -> None:
    """Nothing has to live while this is waited for."""


def vehicles(port: int) -> int:
    """Return the number of vehicles in a simulator, by a client of its own."""
    asked = [sys.executable, census.__file__, str(port)]
    counted = subprocess.run(asked, capture_output=True, text=True, timeout=2 * census.TICK_S + PATIENCE_S, check=False)
    if counted.returncode != 0:
        raise SweepError(f"the vehicles of the simulator on port {port} can't be counted: {counted.stderr}")
    return int(counted.stdout)


def until(
    condition: Callable[[], bool], check: Callable[[], None], pause_s: float = 0.002, patience_s: float = PATIENCE_S
) -> None:
    """Return when the condition holds, and call ``check`` until then.

    Raises:
        SweepError: it doesn't hold in time.
    """
    deadline = time.monotonic() + patience_s
    while not condition():
        check()
        if time.monotonic() > deadline:
            raise SweepError("what was waited for didn't happen")
        time.sleep(pause_s)
