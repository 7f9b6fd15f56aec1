"""The record of a job in ``runs/<name>/slurm/``: the steps in which launchers ran, with a line at start and end.

The batch script writes Slurm's output on the job into the same folder, as text, since that may be its last action.
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter, ValidationError

from carla_launcher.act.launcher_state import read_with_end
from carla_launcher.hooks import StepBefore
from carla_launcher.observe.tail import MAX_BYTES
from carla_launcher.plugins.slurm.allotment import allotted_mib
from carla_launcher.plugins.slurm.answers import End, Job, accounts_of, job_of
from carla_launcher.plugins.slurm.ends import Evidence, JobStep, end_of
from carla_run.files import append_line, bytes_in
from carla_run.heartbeat import read_heartbeat
from carla_run.locks import is_held
from carla_run.paths import RunPaths
from carla_run.readers import LinesRead, last_lines, number, read_lines, read_object, tail

ASK_S = 5.0
STEPS = "steps.jsonl"
LOG_LINES = 5
WHO = ("job", "step", "restart")
_STEP = TypeAdapter(JobStep)


def log_of(run: RunPaths, job: str) -> Path:
    """Return the log of a job, with the output of all its instances."""
    return run.slurm / f"job-{job}.log"


def begin(run: RunPaths, environment: Mapping[str, str], now_s: float) -> JobStep | None:
    """Record that a launcher starts in a Slurm step; return the step before, with its end.

    Outside of a step of the run's batch script, write nothing and return None.
    """
    job, name = environment.get("SLURM_JOB_ID"), environment.get("SLURM_STEP_ID")
    if not job or not name or environment.get("CARLA_SLURM_RUN") != str(run.path.absolute()):
        return None
    before = _closed(run, now_s)
    log = log_of(run, job)
    restart, node = int(environment.get("SLURM_RESTART_COUNT") or 0), environment.get("SLURMD_NODENAME", "?")
    step = JobStep(job, name, restart, node, now_s, allotted_mib(environment), bytes_in(log))
    _write(run, {name: value for name, value in asdict(step).items() if value is not None})
    return before[-1] if before else None


def step_before(run: RunPaths, environment: Mapping[str, str], now_s: float) -> StepBefore | None:
    """Call :func:`begin`, and return what the launcher needs to know of the step before."""
    before = begin(run, environment, now_s)
    return None if before is None else StepBefore(before.sentence, before.code, before.end is End.OUT_OF_MEMORY)


def end(run: RunPaths, step: JobStep, now_s: float, seen: Evidence) -> JobStep:
    """Record how a step ended, and return the step with its end."""
    code = seen.code if seen.launcher_code is None else seen.launcher_code
    beat = read_heartbeat(run.heartbeat)
    at_step = 0 if beat is None else beat.step if beat.step or beat.total_steps else None
    ended = replace(step, ended_s=now_s, end=end_of(step, seen), code=code, at_step=at_step)
    _write(run, {name: getattr(ended, name) for name in (*WHO, "ended_s", "end", "code", "at_step")})
    return ended


def ended(run: RunPaths, code: int, job: str, restart: int, now_s: float) -> list[JobStep]:
    """Record that the present step ended with srun's exit code; return all steps of the run.

    A step in which no launcher started, for example since its node failed or the run was refused, counts as well. What
    is returned has the present step last, whatever another job of this run recorded meanwhile.
    """
    known = steps(run)
    own = [each for each in known if each.end is None and (each.job, each.restart) == (job, restart)]
    if not own:
        if not is_held(run.launcher_lock):  # else it may be that another job's step still runs
            known = _closed(run, now_s)
        own = [JobStep(job, "?", restart, "?", now_s)]
        _write(run, {name: value for name, value in asdict(own[0]).items() if value is not None})
    others = [each for each in known if each is not own[-1]]
    return [*others, end(run, own[-1], now_s, _evidence(run, own[-1], code))]


def _closed(run: RunPaths, now_s: float) -> list[JobStep]:
    """Record how each step ended whose end nothing recorded; return all steps."""
    return [each if each.end is not None else end(run, each, now_s, _evidence(run, each)) for each in steps(run)]


def recorded_steps(run: RunPaths) -> list[JobStep]:
    """Return the steps in order, with their ends, even if the script had no time to record one."""
    found = steps(run)
    for place, each in enumerate(found):
        evidence = None if each.end is not None else _evidence(run, each)
        if evidence is not None and evidence.at_signal is not None and evidence.at_signal.state != "RUNNING":
            found[place] = replace(each, end=end_of(each, evidence))
    return found


def damaged(run: RunPaths) -> list[str]:
    """Return what of the record was left out, as sentences without full stop."""
    read = LinesRead(STEPS)
    steps(run, read)
    return [str(read)] if read.damaged or read.unread else []


def steps(run: RunPaths, read: LinesRead | None = None) -> list[JobStep]:
    """Return the recorded steps in order; one without an end may still run. ``read`` counts lines that are no step."""
    found: list[JobStep] = []
    read = read or LinesRead(STEPS)
    for row in read_lines(run.slurm / STEPS, read):
        ended = [n for n, each in enumerate(found) if all(row.get(name) == getattr(each, name) for name in WHO)]
        try:
            if ended and "began_s" not in row:
                found[ended[-1]] = _STEP.validate_python({**asdict(found[ended[-1]]), **row})
            else:
                found.append(_STEP.validate_python(row))
        except ValidationError:
            read.damaged += 1
    return found


def seen(run: RunPaths) -> dict[str, Any] | None:
    """Return the state of the run's job, for ``status``; None for a run without a Slurm job.

    The keys are ``job``, its ``state``, ``reason``, ``restarts``, ``nodes`` and ``until_s`` (None if Slurm doesn't
    answer or no longer knows the job), ``ends`` (a sentence per step), ``log``, and its last ``lines``.
    """
    known = recorded_steps(run)
    jobs, running = _jobs(run, known), [each.job for each in known if each.end is None]
    if not jobs:
        return None
    job = next(iter(_active(jobs)), (running or [*jobs])[-1])
    now = jobs[job]
    log = log_of(run, job)
    return {
        "job": job,
        **{name: getattr(now, name, None) for name in ("state", "reason", "restarts", "nodes", "until_s")},
        "ends": [step.sentence for step in known if step.end is not None],
        "log": str(log),
        "lines": last_lines(log, LOG_LINES).splitlines(),
    }


def active_job(run: RunPaths) -> tuple[str, Job] | None:
    """Return a run's job that Slurm has, and its state; the one that drives before one that waits. None without any."""
    return next(iter(_active(_jobs(run, recorded_steps(run))).items()), None)


def waiting_job(run: RunPaths) -> str:
    """Return a run's job that Slurm will start; empty if there is none, or if Slurm doesn't answer."""
    active = _active(_jobs(run, recorded_steps(run)))
    return next((job for job, now in active.items() if now.state == "PENDING"), "")


def _jobs(run: RunPaths, known: Sequence[JobStep]) -> dict[str, Job | None]:
    """Return the jobs that may have the run now, with their state as ``ask`` gives it.

    They are that of an open step, of the last step, and the one submitted last.
    """
    submitted = str(read_object(run.slurm / "job.json").get("job") or "")
    named = [*(each.job for each in known if each.end is None), *(each.job for each in known[-1:]), submitted]
    return {job: ask(job) for job in dict.fromkeys(filter(None, named))}


def _active(jobs: Mapping[str, Job | None]) -> dict[str, Job]:
    """Return those of the jobs that haven't ended."""
    return {job: now for job, now in jobs.items() if now is not None and not now.is_over}


def ask(job: str) -> Job | None:
    """Return a job's state in Slurm; None if Slurm doesn't answer or doesn't know the job."""
    try:
        done = subprocess.run(
            ("scontrol", "--details", "show", "job", job), capture_output=True, text=True, timeout=ASK_S, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return job_of(done.stdout)


def _evidence(run: RunPaths, step: JobStep, code: int | None = None) -> Evidence:
    """Return the evidence on a step that has ended, with srun's exit code if known."""
    at = run.slurm / f"job-{step.job}-{step.restart}"
    launcher = read_with_end(run)
    exit_code = launcher.get("exit_code")
    said = isinstance(exit_code, int) and (number(launcher.get("updated")) or 0.0) >= step.began_s
    return Evidence(
        code,
        exit_code if said else None,
        job_of(tail(at.with_name(f"{at.name}-signal.txt"), MAX_BYTES)),
        job_of(tail(run.slurm / f"job-{step.job}.txt", MAX_BYTES)),
        accounts_of(tail(run.slurm / f"job-{step.job}-accounts.txt", MAX_BYTES)),
        tail(log_of(run, step.job), MAX_BYTES, after=step.log_at),
    )


def _write(run: RunPaths, row: Mapping[str, Any]) -> None:
    run.slurm.mkdir(exist_ok=True)
    append_line(run.slurm / STEPS, json.dumps(row).encode())
