"""Parses ``scontrol show job``, ``sacct`` and a step's log into plain data. Pure."""

from __future__ import annotations

import re
import time
from dataclasses import dataclass

from carla_run.enums import StrEnum

FIELDS = "JobID,State,Start,End"
"""Fields for ``sacct --parsable2 --duplicates``."""
OOM_SIGNAL = 125
"""Signal in the exit code of a step that ran out of memory, which Slurm writes as 0:125."""


class End(StrEnum):
    """How a step of the job, with its launcher, ended."""

    FINISHED = "finished"
    STOPPED = "stopped"
    """The launcher ended in order, and reported the reason."""
    TIME_LIMIT = "time_limit"
    OUT_OF_MEMORY = "out_of_memory"
    NODE_FAILURE = "node_failure"
    PREEMPTED = "preempted"
    REQUEUED = "requeued"
    """By the user or an administrator."""
    CANCELLED = "cancelled"
    KILLED = "killed"
    """Only the step, by a signal."""
    CRASHED = "crashed"


@dataclass(frozen=True)
class Job:
    """A job in ``scontrol --details show job``.

    Attributes:
        state: RUNNING, PENDING, COMPLETING, …
        reason: why it waits or ended; empty for none.
        restarts: number of times that it was queued again.
        nodes: its nodes in Slurm's notation, such as n[1-3]; empty while it waits.
        until_s: end of its time limit, seconds since 1970; None if unknown.
        preempted: it must make room for another job.
        step_signal: the highest signal that ended one of its steps.
    """

    state: str
    reason: str = ""
    restarts: int = 0
    nodes: str = ""
    until_s: float | None = None
    preempted: bool = False
    step_signal: int = 0

    @property
    def is_over(self) -> bool:
        """Return whether it has ended and won't be started again."""
        return self.state in _OVER


@dataclass(frozen=True)
class Account:
    """A line of ``sacct``: a job, or a step of it, between two requeues."""

    name: str
    state: str
    from_s: float | None
    until_s: float | None


_STATES = {
    "TIMEOUT": End.TIME_LIMIT,
    "DEADLINE": End.TIME_LIMIT,
    "OUT_OF_MEMORY": End.OUT_OF_MEMORY,
    "NODE_FAIL": End.NODE_FAILURE,
    "BOOT_FAIL": End.NODE_FAILURE,
    "PREEMPTED": End.PREEMPTED,
    "REQUEUED": End.REQUEUED,
    "CANCELLED": End.CANCELLED,
}
"""How a job ended, by its final state."""
_OVER = {*_STATES, "COMPLETED", "FAILED", "REVOKED"} - {"REQUEUED"}
_DUE_TO = {
    "TIME LIMIT": End.TIME_LIMIT,
    "PREEMPTION": End.PREEMPTED,
    "NODE FAILURE": End.NODE_FAILURE,
    "JOB REQUEUE": End.REQUEUED,
}
"""How a job ended, by slurmstepd's notice."""


def job_of(text: str) -> Job | None:
    """Return the job in the output of ``scontrol --details show job``; None if there is none."""
    found = dict(re.findall(r"(?<!\S)(\w+)=(\S*)", text))
    if "JobState" not in found:
        return None
    reason, nodes = (found.get(name, "") for name in ("Reason", "NodeList"))
    return Job(
        found["JobState"],
        "" if reason == "None" else reason,
        int(found.get("Restarts", "0")),
        "" if nodes == "(null)" else nodes,
        moment(found.get("EndTime", "")),
        moment(found.get("PreemptTime", "")) is not None,
        _signal(found.get("DerivedExitCode", "")),
    )


def accounts_of(text: str) -> list[Account]:
    """Return the lines of ``sacct`` that have :data:`FIELDS`."""
    rows = [line.split("|") for line in text.splitlines()]
    return [
        Account(name, state.split(" ")[0], moment(start), moment(end))
        for name, state, start, end in (row for row in rows if len(row) == len(FIELDS.split(",")))
        if name != "JobID"
    ]


def by_accounts(accounts: list[Account], job: str, step: str, began_s: float) -> End | None:
    """Return how a step ended, by ``sacct``; None if it still runs, or if unknown.

    A job that was queued again has several lines, each with step numbers from 0; the start time distinguishes them.
    """
    then = {each.name: each for each in accounts if _covers(each, began_s)}
    whole, part = then.get(job), then.get(f"{job}.{step}")
    if part is not None and part.state == "OUT_OF_MEMORY":
        return End.OUT_OF_MEMORY
    return None if whole is None else _STATES.get(whole.state)


def by_state(job: Job | None) -> End | None:
    """Return how a job ended or is about to end, by its state; None if unknown."""
    if job is None:
        return None
    if job.preempted:
        return End.PREEMPTED
    return End.TIME_LIMIT if job.reason == "TimeLimit" else _STATES.get(job.state)


def by_log(text: str, job: str, step: str) -> End | None:
    """Return how a step ended, by notices of slurmstepd and srun in its output; None without any.

    Without slurmdbd these lines are the only record of some ends. The notice of a cancelled job is ignored, since Slurm
    writes the same one with its warning.
    """
    whose = rf"StepId={job}\.{step}\b"
    killed = rf"[Dd]etected \d+ oom[-_ ]kill events?(?:\(s\))? in {whose}|{whose} exceeded memory limit \(\d+ > \d+\)"
    if re.search(killed, text):
        return End.OUT_OF_MEMORY
    due = re.findall(rf"\*\*\* (?:JOB|STEP) {job}(?:\.{step})? ON \S+ CANCELLED AT \S+ DUE TO ([A-Z ]+) \*\*\*", text)
    if due:
        return _DUE_TO.get(due[-1])
    return End.NODE_FAILURE if re.search(r"^srun: error: Node failure on ", text, re.MULTILINE) else None


def moment(text: str) -> float | None:
    """Return a local time in Slurm's notation as seconds since 1970; None for Unknown, None and N/A."""
    try:
        return time.mktime(time.strptime(text, "%Y-%m-%dT%H:%M:%S"))
    except (ValueError, OverflowError):
        return None


def _covers(account: Account, moment_s: float) -> bool:
    """Return whether the job or step was running at a time; Slurm rounds to seconds."""
    from_s, until_s = account.from_s, account.until_s
    return from_s is not None and from_s <= moment_s and (until_s is None or moment_s <= until_s + 1)


def _signal(code: str) -> int:
    """Return the signal of an exit code in Slurm's notation, such as ``0:9``; 0 for none."""
    number = code.partition(":")[2]
    return int(number) if number.isdecimal() else 0
