"""What ``scontrol show job``, ``sacct`` and a step's log say, as plain data. Pure: text in, data out."""

from __future__ import annotations

import re
import time
from dataclasses import dataclass

from carla_run.enums import StrEnum

FIELDS = "JobID,State,Start,End"
"""What ``sacct --parsable2 --duplicates`` is asked for."""
OOM_SIGNAL = 125
"""The signal that Slurm writes into the exit code of a step in which memory ran out: 0:125."""


class End(StrEnum):
    """How a step of the job, and the launcher in it, ended."""

    FINISHED = "finished"
    STOPPED = "stopped"
    """The launcher ended in order, for a reason of its own."""
    TIME_LIMIT = "time_limit"
    OUT_OF_MEMORY = "out_of_memory"
    NODE_FAILURE = "node_failure"
    PREEMPTED = "preempted"
    REQUEUED = "requeued"
    """By a person or an administrator."""
    CANCELLED = "cancelled"
    KILLED = "killed"
    """The step alone, by a signal."""
    CRASHED = "crashed"


@dataclass(frozen=True)
class Job:
    """``scontrol --details show job``.

    Attributes:
        state: RUNNING, PENDING, COMPLETING, …
        reason: why it waits or ended; empty for none.
        restarts: how often it was queued again.
        nodes: as Slurm writes lists: n[1-3]; empty while it waits.
        until_s: when its time is over, seconds since 1970; None where that isn't known.
        preempted: it is to leave for another job.
        step_signal: the highest signal that has ended a step of it.
    """

    state: str
    reason: str = ""
    restarts: int = 0
    nodes: str = ""
    until_s: float | None = None
    preempted: bool = False
    step_signal: int = 0


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
"""A job's states in which it was ended."""
_DUE_TO = {
    "TIME LIMIT": End.TIME_LIMIT,
    "PREEMPTION": End.PREEMPTED,
    "NODE FAILURE": End.NODE_FAILURE,
    "JOB REQUEUE": End.REQUEUED,
}
"""Of slurmstepd's notice."""


def job_of(text: str) -> Job | None:
    """Return the job that ``scontrol --details show job`` tells of; None where it tells of none."""
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
    """Return the lines of ``sacct`` whose fields are :data:`FIELDS`; others are left out."""
    rows = [line.split("|") for line in text.splitlines()]
    return [
        Account(name, state.split(" ")[0], moment(start), moment(end))
        for name, state, start, end in (row for row in rows if len(row) == len(FIELDS.split(",")))
        if name != "JobID"
    ]


def by_accounts(accounts: list[Account], job: str, step: str, began_s: float) -> End | None:
    """Return how a step that began then ended, by ``sacct``; None where it goes on, or nothing is said.

    A job that was queued again has several lines, and its steps' numbers begin again with each: the time tells them
    apart.
    """
    then = {each.name: each for each in accounts if _covers(each, began_s)}
    whole, part = then.get(job), then.get(f"{job}.{step}")
    if part is not None and part.state == "OUT_OF_MEMORY":
        return End.OUT_OF_MEMORY
    return None if whole is None else _STATES.get(whole.state)


def by_state(job: Job | None) -> End | None:
    """Return how a job ended, by its own state, or why it is about to."""
    if job is None:
        return None
    if job.preempted:
        return End.PREEMPTED
    return End.TIME_LIMIT if job.reason == "TimeLimit" else _STATES.get(job.state)


def by_log(text: str, job: str, step: str) -> End | None:
    """Return how a step ended, by slurmstepd's and srun's notices in its output; None without any.

    Where there is no slurmdbd these lines are the only record of some ends. The notice of a cancelled job is left out:
    Slurm writes the same one when it sends the warning.
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
    """Return a time as Slurm writes it, local, in seconds since 1970; None for Unknown, None and N/A."""
    try:
        return time.mktime(time.strptime(text, "%Y-%m-%dT%H:%M:%S"))
    except (ValueError, OverflowError):
        return None


def _covers(account: Account, moment_s: float) -> bool:
    """Return whether it had begun and not ended; Slurm writes whole seconds."""
    from_s, until_s = account.from_s, account.until_s
    return from_s is not None and from_s <= moment_s and (until_s is None or moment_s <= until_s + 1)


def _signal(code: str) -> int:
    """Return the signal of an exit code as Slurm writes it, ``0:9``; 0 for none."""
    number = code.partition(":")[2]
    return int(number) if number.isdecimal() else 0
