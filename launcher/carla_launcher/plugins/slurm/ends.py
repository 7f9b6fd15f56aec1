"""How a step ended, from all that is known of it, and what its job does next. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from carla_launcher.plugins.slurm.answers import OOM_SIGNAL, Account, End, Job, by_accounts, by_log, by_state
from carla_run.enums import StrEnum
from carla_run.exits import Exit, exit_in_words

FRUITLESS = 5
"""Steps in a row that failed and brought the run nowhere: one more start wouldn't help."""
FAILED = (End.OUT_OF_MEMORY, End.KILLED, End.CRASHED)
"""Ends that leave the job its nodes: the run goes on at once."""


@dataclass(frozen=True)
class Step:
    """A step of a job, with a launcher in it.

    Attributes:
        job: Slurm's number of it; ``step`` likewise.
        restart: how often the job had been queued again.
        node: on which the launcher ran.
        began_s: seconds since 1970; ``ended_s`` likewise, None while nobody has told its end.
        memory_mib: that the job was given on that node; None where Slurm sets no limit.
        log_at: how long the job's log was when it began.
        at_step: how far training had come when it ended.
    """

    job: str
    step: str
    restart: int
    node: str
    began_s: float
    memory_mib: float | None = None
    log_at: int = 0
    ended_s: float | None = None
    end: End | None = None
    code: int | None = None
    at_step: int | None = None

    @property
    def lasted_s(self) -> float:
        """Return how long it took, as far as that is known."""
        return max(0.0, (self.ended_s or self.began_s) - self.began_s)

    @property
    def sentence(self) -> str:
        """Return which step ended how, for a person."""
        return f"job {self.job}, step {self.step} on {self.node}: {self.said}"

    @property
    def said(self) -> str:
        """Return how it ended, for a person."""
        limit = f" of {self.memory_mib:,.0f} MiB" if self.memory_mib else ""
        return {
            End.FINISHED: "finished",
            End.STOPPED: f"the launcher ended it ({exit_in_words(self.code or 0)})",
            End.TIME_LIMIT: "ended by the job's time limit",
            End.OUT_OF_MEMORY: f"ended by the job's memory limit{limit}",
            End.NODE_FAILURE: "the node failed",
            End.PREEMPTED: "preempted for another job",
            End.REQUEUED: "the job was queued again from outside",
            End.CANCELLED: "the job was cancelled",
            End.KILLED: "killed by a signal",
            End.CRASHED: f"the launcher ended without a word ({exit_in_words(self.code or 0)})",
            None: "no end is known",
        }[self.end]


@dataclass(frozen=True)
class Evidence:
    """What is known of a step that has ended.

    Attributes:
        code: srun's exit code; None where the batch script ended with the step.
        launcher_code: with which the launcher said that the run ended; None where it said nothing.
        at_signal: the job when the batch script had SIGTERM; None if it had none.
        now: the job now; of a job that was queued again, its present life.
        accounts: what slurmdbd has of the job; empty where there is none.
        log: what the job's output has since the step began.
    """

    code: int | None = None
    launcher_code: int | None = None
    at_signal: Job | None = None
    now: Job | None = None
    accounts: Sequence[Account] = ()
    log: str = ""


class Next(StrEnum):
    """What the batch script does when a step has ended."""

    AGAIN = "again"
    """Starts the next step, on the nodes that it has."""
    REQUEUE = "requeue"
    OVER = "over"


def end_of(step: Step, seen: Evidence) -> End:
    """Return how a step ended.

    What the launcher said counts first, then slurmdbd, then slurmstepd's notices, the job's state, and the exit code;
    srun's is 0 when a node fails, and 1 or 137 when memory runs out, depending on who enforces the limit.
    """
    asked = seen.at_signal is not None
    if seen.launcher_code == Exit.FINISHED:
        return End.FINISHED
    if seen.launcher_code is not None and not (asked and seen.launcher_code == Exit.STOPPED):
        return End.STOPPED
    known = by_accounts(list(seen.accounts), step.job, step.step, step.began_s) or by_log(seen.log, step.job, step.step)
    return known or _by_job(step, seen) or _by_code(seen.code)


def _by_job(step: Step, seen: Evidence) -> End | None:
    at, now = seen.at_signal, seen.now
    if at is not None:
        if found := by_state(at):
            return found
        if at.state == "RUNNING":
            return End.TIME_LIMIT  # Slurm's warning
        return End.REQUEUED if at.restarts > step.restart else End.CANCELLED
    if now is None or now.restarts > step.restart:
        # Gone without SIGTERM: only a node takes its batch script with it.
        return End.NODE_FAILURE if seen.code is None else None
    if now.step_signal == OOM_SIGNAL and not _by_signal(seen.code):
        return End.OUT_OF_MEMORY
    return by_state(now)


def _by_signal(code: int | None) -> bool:
    return code is not None and code > 128


def _by_code(code: int | None) -> End:
    if code is None:
        return End.NODE_FAILURE
    if code in set(Exit) - {Exit.CRASH}:
        return End.STOPPED  # a refusal, before the launcher had anything to write down
    return End.KILLED if _by_signal(code) else End.CRASHED


def next_of(steps: Sequence[Step]) -> tuple[Next, int]:
    """Return what follows the last of the steps, and the job's exit code where nothing does."""
    last = steps[-1]
    if last.end in (End.TIME_LIMIT, End.PREEMPTED):
        return Next.REQUEUE, int(Exit.STOPPED)
    if last.end in FAILED:
        tried = 0
        for each in reversed(steps):
            if each.end not in FAILED or each.at_step != last.at_step:
                break
            tried += 1
        return (Next.OVER, int(Exit.BUDGET_SPENT)) if tried >= FRUITLESS else (Next.AGAIN, 0)
    return Next.OVER, int(last.code or 0) if last.end is End.STOPPED else 0
