"""How a step of Slurm's job ended, told apart with slurmdbd's accounts and without; what follows.

The texts in ``slurm_said`` are a real Slurm 22.05's: ``-term`` is what ``scontrol`` said when the batch script had
SIGTERM, ``-end`` when its step had ended, ``-now`` a while later; the logs are the jobs' output.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from carla_launcher.plugins.slurm import record
from carla_launcher.plugins.slurm.allotment import allotted_mib
from carla_launcher.plugins.slurm.answers import (
    FIELDS,
    Account,
    End,
    Job,
    accounts_of,
    by_accounts,
    by_log,
    job_of,
    moment,
)
from carla_launcher.plugins.slurm.ends import WITHOUT_PROGRESS, Evidence, JobStep, Next, end_of, next_of
from carla_launcher.plugins.slurm.submit import waits_for
from carla_launcher.show import report
from carla_launcher.show.dashboard import figures
from carla_launcher.show.status import status
from carla_run.exits import Exit
from carla_run.locks import Lock
from carla_run.paths import RunPaths
from carla_run.readers import read_lines
from tests.unit.beats import BEAT

SAID = Path(__file__).with_name("slurm_said")
STEPS = {"oom": "1", "limit": "2", "nodefail": "3", "cancel": "4", "killstep": "5", "preempted": "6"}
BEGAN = moment("2026-11-22T22:30:04")
assert BEGAN is not None


def said(name: str) -> str:
    path = SAID / name
    return path.read_text(encoding="utf-8") if path.exists() else ""


def step(name: str) -> JobStep:
    began_s = {"cancel": 6, "killstep": 6, "preempted": 12}.get(name, 0)
    assert BEGAN is not None
    return JobStep(STEPS[name], "0", 0, "n1", BEGAN + began_s + 0.4)


WITHOUT_SLURMDBD = {
    "oom": (Evidence(code=1, now=job_of(said("oom-end.txt")), log=said("oom.log")), End.OUT_OF_MEMORY),
    "killstep": (Evidence(code=137, now=job_of(said("killstep-end.txt")), log=said("killstep.log")), End.KILLED),
    "limit": (Evidence(at_signal=job_of(said("limit-term.txt")), log=said("limit.log")), End.TIME_LIMIT),
    "cancel": (Evidence(code=143, at_signal=job_of(said("cancel-term.txt")), log=said("cancel.log")), End.CANCELLED),
    "preempted": (Evidence(at_signal=job_of(said("preempted-term.txt")), log=said("preempted.log")), End.PREEMPTED),
    "nodefail": (Evidence(now=job_of(said("nodefail-now.txt"))), End.NODE_FAILURE),
}


@pytest.mark.parametrize("name", STEPS)
def test_ends_are_told_apart_without_slurmdbd(name: str) -> None:
    seen, end = WITHOUT_SLURMDBD[name]
    assert end_of(step(name), seen) is end


@pytest.mark.parametrize("name", ["oom", "cancel", "limit"])
def test_the_jobs_state_tells_them_apart_where_its_log_is_lost(name: str) -> None:
    seen, end = WITHOUT_SLURMDBD[name]
    assert end_of(step(name), replace(seen, log="")) is end


@pytest.mark.parametrize("name", [name for name in STEPS if name != "killstep"])
def test_slurmdbd_tells_an_end_the_script_missed(name: str) -> None:
    accounts = accounts_of(said("sacct.txt"))
    assert end_of(step(name), Evidence(accounts=accounts)) is WITHOUT_SLURMDBD[name][1]


def test_a_step_that_was_killed_is_none_of_slurmdbds_ends() -> None:
    accounts = accounts_of(said("sacct.txt"))
    assert by_accounts(accounts, "5", "0", step("killstep").began_s) is None
    assert end_of(step("killstep"), replace(WITHOUT_SLURMDBD["killstep"][0], accounts=accounts)) is End.KILLED


def test_requeued_jobs_line_of_that_time_counts() -> None:
    accounts = [
        Account("9", "PREEMPTED", 100.0, 200.0),
        Account("9.0", "CANCELLED", 101.0, 200.0),
        Account("9", "RUNNING", 320.0, None),
        Account("9.0", "OUT_OF_MEMORY", 322.0, 400.0),
    ]
    assert by_accounts(accounts, "9", "0", 150.0) is End.PREEMPTED
    assert by_accounts(accounts, "9", "0", 325.0) is End.OUT_OF_MEMORY
    assert by_accounts(accounts, "9", "1", 410.0) is None


def test_oom_far_above_the_sampled_peak() -> None:
    """Sampling saw at most 72.5 of 256 GB of a node: memory ran out between two samples, within seconds."""
    text = f"{FIELDS.replace(',', '|')}\n273202|OUT_OF_MEMORY|2025-10-16T14:10:00|2025-10-16T14:34:04\n"
    began_s = moment("2025-10-16T14:11:10")
    assert began_s is not None
    assert by_accounts(accounts_of(text), "273202", "0", began_s) is End.OUT_OF_MEMORY
    assert by_log("error: Detected 4 oom_kill events in StepId=273202.0", "273202", "0") is End.OUT_OF_MEMORY
    assert by_log("error: Detected 4 oom_kill events in StepId=273202.0", "273202", "1") is None


def test_slurms_own_oom_is_told_from_a_kill() -> None:
    seen = Evidence(code=137, log=said("polled-oom.log"))
    assert end_of(JobStep("5", "0", 0, "n2", 0.0), seen) is End.OUT_OF_MEMORY
    assert end_of(JobStep("5", "1", 0, "n2", 0.0), seen) is End.KILLED


def test_what_the_launcher_said_counts_first() -> None:
    warned = job_of(said("limit-term.txt"))
    assert end_of(step("oom"), Evidence(code=1, launcher_code=0, log=said("oom.log"))) is End.FINISHED
    assert end_of(step("limit"), Evidence(code=75, launcher_code=75, at_signal=warned)) is End.TIME_LIMIT
    assert end_of(step("limit"), Evidence(code=75, launcher_code=75)) is End.STOPPED, "a person's `down`"
    assert end_of(step("limit"), Evidence(code=70, launcher_code=70, at_signal=warned)) is End.STOPPED


def test_preemption_and_requeue_are_told_apart() -> None:
    leaving = Job("RUNNING", preempted=True)
    assert end_of(step("limit"), Evidence(code=75, launcher_code=75, at_signal=leaving)) is End.PREEMPTED
    assert end_of(step("limit"), Evidence(at_signal=Job("COMPLETING", restarts=1))) is End.REQUEUED


def test_srun_says_0_when_a_node_fails() -> None:
    assert end_of(step("nodefail"), Evidence(code=0, log=said("nodefail.log"))) is End.NODE_FAILURE


def ended(*ends: tuple[End, int | None]) -> list[JobStep]:
    return [JobStep("1", str(n), 0, "n1", 0.0, end=end, at_step=at, code=65) for n, (end, at) in enumerate(ends)]


@pytest.mark.parametrize(
    ("end", "then"),
    [
        (End.FINISHED, (Next.OVER, 0)),
        (End.STOPPED, (Next.OVER, 65)),
        (End.CANCELLED, (Next.OVER, 0)),
        (End.NODE_FAILURE, (Next.OVER, 0)),
        (End.TIME_LIMIT, (Next.REQUEUE, 75)),
        (End.PREEMPTED, (Next.REQUEUE, 75)),
        (End.OUT_OF_MEMORY, (Next.AGAIN, 0)),
        (End.KILLED, (Next.AGAIN, 0)),
        (End.CRASHED, (Next.AGAIN, 0)),
    ],
)
def test_each_end_has_its_consequence(end: End, then: tuple[Next, int]) -> None:
    assert next_of(ended((end, 10))) == then


def test_steps_that_fail_without_getting_anywhere_end_the_job() -> None:
    stuck = [(End.CRASHED, None)] * WITHOUT_PROGRESS
    assert next_of(ended(*stuck)) == (Next.OVER, Exit.BUDGET_SPENT)
    assert next_of(ended((End.KILLED, 5), *stuck[1:-1], (End.KILLED, 6))) == (Next.AGAIN, 0)


def test_time_limits_without_any_step_in_between_end_the_job() -> None:
    short = [(End.TIME_LIMIT, 0)] * WITHOUT_PROGRESS
    assert next_of(ended(*short)) == (Next.OVER, Exit.BUDGET_SPENT)
    assert next_of(ended(*short[:-1], (End.CRASHED, 0))) == (Next.OVER, Exit.BUDGET_SPENT)
    assert next_of(ended(*short[:-1], (End.TIME_LIMIT, 9))) == (Next.REQUEUE, Exit.STOPPED)
    untold = [(End.TIME_LIMIT, None)] * WITHOUT_PROGRESS
    assert next_of(ended(*untold)) == (Next.REQUEUE, Exit.STOPPED), "a command may be further without a step"
    assert next_of(ended(*[(End.PREEMPTED, 0)] * WITHOUT_PROGRESS)) == (Next.REQUEUE, Exit.STOPPED)


IN_A_STEP = {"SLURM_JOB_ID": "7", "SLURM_STEP_ID": "0", "SLURMD_NODENAME": "n1", "SLURM_MEM_PER_NODE": "2048"}


@pytest.fixture
def run(tmp_path: Path) -> RunPaths:
    run = RunPaths(tmp_path / "night")
    run.path.mkdir()
    return run


def begin(run: RunPaths, environment: dict[str, str], now_s: float) -> JobStep | None:
    """Record a launcher that the run's batch script starts."""
    return record.begin(run, {**environment, "CARLA_SLURM_RUN": str(run.path)}, now_s)


@pytest.mark.parametrize(
    ("environment", "mib"),
    [
        ({"SLURM_MEM_PER_NODE": "700"}, 700),
        ({"SLURM_MEM_PER_NODE": "0"}, None),
        ({"SLURM_MEM_PER_NODE": "2G"}, 2048),
        ({"SLURM_MEM_PER_CPU": "4000", "SLURM_CPUS_ON_NODE": "16"}, 64_000),
        ({"SLURM_MEM_PER_CPU": "4000"}, None),
        ({"SLURM_MEM_PER_CPU": "0", "SLURM_CPUS_ON_NODE": "16"}, None),
        ({"SLURM_MEM_PER_GPU": "40960", "SLURM_GPUS_ON_NODE": "2", "SLURM_CPUS_ON_NODE": "16"}, 81_920),
        ({"SLURM_MEM_PER_GPU": "40960", "SLURM_GPUS_ON_NODE": "0"}, None),
        ({"SLURM_MEM_PER_CPU": "much", "SLURM_CPUS_ON_NODE": "16"}, None),
        ({}, None),
    ],
)
def test_allotted_memory(environment: dict[str, str], mib: float | None, run: RunPaths) -> None:
    assert allotted_mib(environment) == mib
    step = {"SLURM_JOB_ID": "7", "SLURM_STEP_ID": "0", **environment}
    begin(run, step, 100.0)
    assert record.steps(run)[-1].memory_mib == mib


@pytest.mark.parametrize("environment", [{}, IN_A_STEP, {**IN_A_STEP, "CARLA_SLURM_RUN": "/runs/another"}])
def test_outside_of_the_runs_own_job_nothing_is_written(run: RunPaths, environment: dict[str, str]) -> None:
    assert record.begin(run, environment, 1.0) is None
    assert not list(run.path.iterdir())
    assert record.seen(run) is None


def test_step_without_an_end_is_judged_by_the_next(run: RunPaths) -> None:
    assert begin(run, IN_A_STEP, 100.0) is None
    log = record.log_of(run, "7")
    log.write_text("StepId=7.0 exceeded memory limit (3 > 2), being killed\n", encoding="utf-8")
    before = begin(run, {**IN_A_STEP, "SLURM_STEP_ID": "1"}, 200.0)
    assert before is not None
    assert (before.end, before.ended_s) == (End.OUT_OF_MEMORY, 200.0)
    assert before.sentence == "job 7, step 0 on n1: ended by the job's memory limit of 2,048 MiB"
    assert record.ended(run, 137, "7", 0, 300.0)[-1].end is End.KILLED, "the line is of the step before"
    assert [each.end for each in record.steps(run)] == [End.OUT_OF_MEMORY, End.KILLED]


def test_notice_at_the_end_of_a_huge_log_counts(run: RunPaths) -> None:
    begin(run, IN_A_STEP, 100.0)
    with record.log_of(run, "7").open("wb") as log:
        log.seek(2 << 30)
        log.write(b"\nStepId=7.0 exceeded memory limit (3 > 2), being killed\n")
    before = begin(run, {**IN_A_STEP, "SLURM_STEP_ID": "1"}, 200.0)
    assert before is not None
    assert before.end is End.OUT_OF_MEMORY


def test_a_step_in_which_no_launcher_began_counts_too(run: RunPaths) -> None:
    for _ in range(WITHOUT_PROGRESS):
        steps = record.ended(run, 1, "7", 0, 1.0)
    assert next_of(steps) == (Next.OVER, Exit.BUDGET_SPENT)
    assert len(read_lines(run.slurm / "steps.jsonl")) == 2 * WITHOUT_PROGRESS


def test_the_step_that_was_reached_is_0_before_the_first_start_and_unknown_of_a_program_that_tells_none(
    run: RunPaths,
) -> None:
    assert record.ended(run, 1, "7", 0, 1.0)[-1].at_step == 0
    run.heartbeat.write_text(replace(BEAT, step=0, total_steps=0).json(), encoding="utf-8")
    assert record.ended(run, 1, "7", 0, 2.0)[-1].at_step is None
    run.heartbeat.write_text(replace(BEAT, step=0, total_steps=9).json(), encoding="utf-8")
    assert record.ended(run, 1, "7", 0, 3.0)[-1].at_step == 0


def test_a_job_that_is_refused_ends_with_its_own_code_and_leaves_the_step_of_another_job_its_end(run: RunPaths) -> None:
    begin(run, IN_A_STEP, 100.0)
    record.log_of(run, "7").write_text("StepId=7.0 exceeded memory limit (3 > 2), being killed\n", encoding="utf-8")
    refused = record.ended(run, Exit.BAD_CONFIG, "8", 0, 200.0)
    assert [(each.job, each.end, each.code) for each in refused] == [
        ("7", End.OUT_OF_MEMORY, None),
        ("8", End.STOPPED, Exit.BAD_CONFIG),
    ]
    assert record.steps(run) == refused
    assert next_of(refused) == (Next.OVER, Exit.BAD_CONFIG)


def test_a_life_of_a_job_that_is_refused_leaves_the_step_of_the_life_before_its_end(run: RunPaths) -> None:
    begin(run, IN_A_STEP, 100.0)
    refused = record.ended(run, Exit.BAD_CONFIG, "7", 1, 200.0)
    assert [(each.restart, each.end) for each in refused] == [(0, End.NODE_FAILURE), (1, End.STOPPED)]


@pytest.mark.parametrize(
    "notice",
    [
        "slurmstepd-n1: error: *** JOB 7 ON n1 CANCELLED AT now DUE TO JOB REQUEUE ***",
        "srun: error: Node failure on n1",
    ],
)
def test_notices_of_the_life_before_say_nothing_of_one_that_is_refused(run: RunPaths, notice: str) -> None:
    begin(run, IN_A_STEP, 100.0)
    record.log_of(run, "7").write_text(f"{notice}\n", encoding="utf-8")
    refused = record.ended(run, Exit.BAD_CONFIG, "7", 1, 200.0)
    assert next_of(refused) == (Next.OVER, Exit.BAD_CONFIG)


def test_a_job_that_is_refused_while_another_drives_the_run_leaves_its_step_open(run: RunPaths) -> None:
    begin(run, IN_A_STEP, 100.0)
    driving = Lock(run.launcher_lock)
    refused = record.ended(run, Exit.BAD_CONFIG, "8", 0, 200.0)
    driving.release()
    assert [(each.job, each.end) for each in refused] == [("7", None), ("8", End.STOPPED)]
    killed = record.ended(run, 137, "7", 0, 300.0)
    assert next_of(killed) == (Next.AGAIN, 0)
    assert [(each.job, each.end) for each in record.steps(run)] == [("7", End.KILLED), ("8", End.STOPPED)]


def test_cancelled_job_is_told_by_what_it_left(run: RunPaths) -> None:
    begin(run, {**IN_A_STEP, "SLURM_JOB_ID": "4"}, 100.0)
    (run.slurm / "job-4-0-signal.txt").write_text(said("cancel-term.txt"), encoding="utf-8")
    assert record.steps(run)[-1].end is None
    assert record.recorded_steps(run)[-1].end is End.CANCELLED


def test_status_of_a_job_without_slurms_answer(run: RunPaths, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    begin(run, IN_A_STEP, 100.0)
    record.log_of(run, "7").write_text("one\ntwo\n", encoding="utf-8")
    seen = record.seen(run)
    assert seen is not None
    assert (seen["job"], seen["state"], seen["lines"]) == ("7", None, ["one", "two"])


Slurm = Callable[..., None]


@pytest.fixture
def slurm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Slurm:
    """Have Slurm say which state each of its jobs has: ``slurm(job_7="RUNNING")``."""
    monkeypatch.setenv("PATH", str(tmp_path))
    scontrol = tmp_path / "scontrol"

    def say(**states: str) -> None:
        cases = "".join(f"*' {job[4:]}') echo JobState={state} ;; " for job, state in states.items())
        scontrol.write_text(f'#!/bin/sh\ncase "$*" in {cases} esac\n', encoding="utf-8")
        scontrol.chmod(0o755)

    return say


def test_status_shows_the_job_that_drives_and_not_the_one_that_was_submitted_behind_it(
    run: RunPaths, slurm: Slurm
) -> None:
    def shown() -> tuple[str, str | None]:
        seen = record.seen(run)
        assert seen is not None
        return seen["job"], seen["state"]

    begin(run, IN_A_STEP, 100.0)
    (run.slurm / "job.json").write_text('{"job": "8"}', encoding="utf-8")
    slurm(job_7="RUNNING", job_8="PENDING")
    assert shown() == ("7", "RUNNING")
    slurm()
    assert shown() == ("7", None)
    record.ended(run, 75, "7", 0, 200.0)
    slurm(job_7="PENDING", job_8="PENDING")
    assert shown() == ("7", "PENDING")
    slurm(job_7="COMPLETED", job_8="PENDING")
    assert shown() == ("8", "PENDING")
    slurm(job_7="COMPLETED", job_8="COMPLETED")
    assert shown() == ("8", "COMPLETED")
    slurm()
    assert shown() == ("8", None)


def test_a_submission_says_which_job_has_the_run_already(run: RunPaths, slurm: Slurm) -> None:
    assert waits_for(run) == ""
    begin(run, IN_A_STEP, 100.0)
    slurm(job_7="RUNNING")
    assert waits_for(run) == ", which waits until job 7 (RUNNING) of the same run has ended"
    slurm(job_7="CANCELLED")
    assert waits_for(run) == ""


def test_status_and_report_name_each_end(run: RunPaths) -> None:
    begin(run, IN_A_STEP, 1_800_000_000.0)
    record.ended(run, 137, "7", 0, 1_800_000_061.0)
    begin(run, {**IN_A_STEP, "SLURM_STEP_ID": "1", "SLURMD_NODENAME": "n<2>"}, 1_800_000_070.0)
    told = figures(status(run, 1_800_000_071.0))["job"]
    assert "job 7, step 0 on n1: killed by a signal" in told
    page, text = (report.write(run).with_suffix(kind).read_text(encoding="utf-8") for kind in (".html", ".md"))
    for said in (page, text):
        assert "killed by a signal" in said
        assert "0:01:01" in said
        assert "its end is unknown" in said
    assert "n&lt;2&gt;" in page


def test_lines_that_others_wrote_are_left_out(run: RunPaths) -> None:
    begin(run, IN_A_STEP, 100.0)
    with (run.slurm / "steps.jsonl").open("a", encoding="utf-8") as file:
        file.write('{"job": 7}\n{"job": "7", "step": "0", "restart": 0, "end": "eaten"}\n{"torn')
    assert [(each.step, each.end) for each in record.steps(run)] == [("0", None)]
    assert report.write(run).exists()
