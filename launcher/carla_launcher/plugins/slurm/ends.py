"""Decides how a step ended, from all evidence, and what its job does next. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from carla_launcher.plugins.slurm.answers import OOM_SIGNAL, Account, End, Job, by_accounts, by_log, by_state
from carla_run.enums import StrEnum
from carla_run.exits import Exit, exit_in_words

WITHOUT_PROGRESS = 5
"""Number of steps in a row that failed or met the time limit without progress, after which the job ends."""
FAILED = (End.OUT_OF_MEMORY, End.KILLED, End.CRASHED)
"""Ends after which the job keeps its nodes, and the run resumes at once."""

REFUSED = (Exit.USAGE, Exit.BAD_CONFIG, Exit.NO_SIMULATOR, Exit.BUDGET_SPENT, Exit.OUT_OF_MEMORY)
"""Exit codes that only a launcher gives, also before it has recorded anything."""


@dataclass(frozen=True)
class JobStep:
    """A step of a job, with a launcher in it.

    Attributes:
        job: Slurm's number of the job; ``step`` is that of the step.
        restart: number of times that the job had been queued again.
        node: node of the launcher.
        began_s: seconds since 1970, like ``ended_s``, which is None while no end is recorded.
        memory_mib: the job's memory limit on that node; None without a limit.
        log_at: length of the job's log when the step began.
        at_step: training step that was reached at the end; None if the program tells of none.
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
        """Return its duration; 0 if unknown."""
        return max(0.0, (self.ended_s or self.began_s) - self.began_s)

    @property
    def sentence(self) -> str:
        """Return which step ended how, for the user."""
        return f"job {self.job}, step {self.step} on {self.node}: {self.said}"

    @property
    def said(self) -> str:
        """Return how it ended, for the user."""
        limit = f" of {self.memory_mib:,.0f} MiB" if self.memory_mib else ""
        return {
            End.FINISHED: "finished",
            End.STOPPED: f"the launcher ended it ({exit_in_words(self.code or 0)})",
            End.TIME_LIMIT: "ended by the job's time limit",
            End.OUT_OF_MEMORY: f"ended by the job's memory limit{limit}",
            End.NODE_FAILURE: "the node failed",
            End.PREEMPTED: "preempted for another job",
            End.REQUEUED: "the job was requeued by a user",
            End.CANCELLED: "the job was cancelled",
            End.KILLED: "killed by a signal",
            End.CRASHED: f"the launcher crashed ({exit_in_words(self.code or 0)})",
            None: "its end is unknown",
        }[self.end]


@dataclass(frozen=True)
class Evidence:
    """The evidence on a step that has ended.

    Attributes:
        code: srun's exit code; None if the batch script ended with the step.
        launcher_code: exit code in the launcher's record of the run's end; None if there is none.
        at_signal: the job when the batch script got SIGTERM; None if it got none.
        now: the job now; after a requeue its present instance.
        accounts: the job's records in slurmdbd; empty without slurmdbd.
        log: the end of the job's output since the step began: Slurm's notices are among the last lines.
    """

    code: int | None = None
    launcher_code: int | None = None
    at_signal: Job | None = None
    now: Job | None = None
    accounts: Sequence[Account] = ()
    log: str = ""


class Next(StrEnum):
    """Action of the batch script after a step."""

    AGAIN = "again"
    """Starts the next step on the same nodes."""
    REQUEUE = "requeue"
    OVER = "over"


def end_of(step: JobStep, seen: Evidence) -> End:
    """Return how a step ended.

    The launcher's record counts first, then slurmdbd, slurmstepd's notices, the job's state, and the exit code. srun's
    exit code is 0 when a node fails, and 1 or 137 when memory runs out, depending on how the limit is enforced.
    """
    asked = seen.at_signal is not None
    if seen.launcher_code == Exit.FINISHED:
        return End.FINISHED
    if seen.launcher_code is not None and not (asked and seen.launcher_code == Exit.STOPPED):
        return End.STOPPED
    if seen.launcher_code is None and seen.code in REFUSED:  # the log and slurmdbd may tell of the job's life before
        return End.STOPPED
    known = by_accounts(list(seen.accounts), step.job, step.step, step.began_s) or by_log(seen.log, step.job, step.step)
    return known or _by_job(step, seen) or _by_code(seen.code)


def _by_job(step: JobStep, seen: Evidence) -> End | None:
    at, now = seen.at_signal, seen.now
    if at is not None:
        if found := by_state(at):
            return found
        if at.state == "RUNNING":
            return End.TIME_LIMIT  # Slurm's warning
        return End.REQUEUED if at.restarts > step.restart else End.CANCELLED
    if now is None or now.restarts > step.restart:
        # Ended without SIGTERM: only the failure of a node ends the batch script as well.
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
        return End.STOPPED  # before the launcher recorded anything
    return End.KILLED if _by_signal(code) else End.CRASHED


def next_of(steps: Sequence[JobStep]) -> tuple[Next, int]:
    """Return what the job does after the last step, and its exit code if it ends."""
    last = steps[-1]
    if is_stuck(steps):
        return Next.OVER, int(Exit.BUDGET_SPENT)
    if last.end in (End.TIME_LIMIT, End.PREEMPTED):
        return Next.REQUEUE, int(Exit.STOPPED)
    if last.end in FAILED:
        return Next.AGAIN, 0
    return Next.OVER, int(last.code or 0) if last.end is End.STOPPED else 0


def is_stuck(steps: Sequence[JobStep]) -> bool:
    """Return whether the last steps failed or met the time limit, again and again without progress.

    A time limit doesn't count if the program tells of no steps.
    """
    last, tried = steps[-1], 0
    for each in reversed(steps):
        limited = each.end is End.TIME_LIMIT and each.at_step is not None
        if not (limited or each.end in FAILED) or each.at_step != last.at_step:
            break
        tried += 1
    return tried >= WITHOUT_PROGRESS
