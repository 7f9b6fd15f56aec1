"""A run as a job of a real Slurm, carla-lite in CARLA's place: ended in every way, it finishes with all its steps."""

from __future__ import annotations

import contextlib
import json
import math
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from carla_launcher.places import SHIPPED
from carla_launcher.plugins.slurm import record
from carla_launcher.plugins.slurm.answers import End
from carla_run.paths import RunPaths
from carla_run.readers import read_object
from tests.conftest import REPOSITORY, ports
from tests.faults import tell
from tests.slurm.cluster import Cluster, Memory, missing
from tests.wire.launched import OURS, QUICK
from tests.wire.trainee import rows

pytestmark = [pytest.mark.long, pytest.mark.timeout(2400)]
PATIENCE_S = 900.0
WARNED_S = 120


class Job:
    """A run that was submitted, and what becomes of it."""

    def __init__(self, cluster: Cluster, folder: Path) -> None:
        self.cluster, self.runs = cluster, folder / "runs"
        self.run = RunPaths(self.runs / "night")
        self.control = ports(1)
        self.config = folder / "quick.yaml"
        self.number = ""

    def submit(self, steps: int, *options: str, tick_ms: int = 80) -> None:
        self.config.write_text(QUICK % {"steps": steps}, encoding="utf-8")
        simulator = ("--tick-ms", str(tick_ms), "--control-port", str(self.control))
        launcher = yaml.safe_load(SHIPPED.read_text(encoding="utf-8"))
        launcher["memory"]["oom_step_mib"]["ram"] = 4  # of a run as small as this no rung frees more than a few MiB
        settings = self.config.with_name("launcher.yaml")
        settings.write_text(yaml.safe_dump(launcher), encoding="utf-8")
        words = ["--simulator", "carla-lite", "--device", "cpu", "--config", str(self.config)]
        words += ["--launcher-config", str(settings)]
        simulator_args = [f"--simulator-arg={word}" for word in simulator]
        agents = ("--", "--set", "td3.batch_size=64")
        self.hand_in(*options, "--", *words, *simulator_args, *agents)

    def hand_in(self, *words: str) -> None:
        """Submit the run with these words of ``submit``."""
        said = self.launch("submit", "--run-name", "night", *words)
        found = re.search(r"job (\d+) of run", said)
        assert found is not None, said
        self.number = found[1]

    def launch(self, *words: str) -> str:
        """Return what one of the launcher's commands prints."""
        name, *options = words
        program = (sys.executable, str(REPOSITORY / "scripts" / "launch.py"), name, "--runs-dir", str(self.runs))
        environment = {**self.cluster.environment, "PYTHONPATH": OURS}
        done = subprocess.run(
            (*program, *options),
            cwd=REPOSITORY,
            env=environment,
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    @property
    def beat(self) -> dict[str, Any]:
        try:
            found: dict[str, Any] = json.loads(self.run.heartbeat.read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return {}
        return found

    @property
    def steps(self) -> list[End | None]:
        return [step.end for step in record.steps(self.run)]

    @property
    def state(self) -> str:
        found = re.search(r"JobState=(\w+)", self.cluster.run("scontrol", "show", "job", self.number))
        return found[1] if found else ""

    @property
    def ran_s(self) -> int:
        """For how long this life of the job has run."""
        found = re.search(r"RunTime=(\d+):(\d+):(\d+)", self.cluster.run("scontrol", "show", "job", self.number))
        assert found is not None
        hours, minutes, seconds = map(int, found.groups())
        return (hours * 60 + minutes) * 60 + seconds

    def until(self, holds: Callable[[], object], what: str) -> None:
        until_s = time.monotonic() + PATIENCE_S
        while not holds():
            log = record.log_of(self.run, self.number)
            said = log.read_text(encoding="utf-8")[-3000:] if log.exists() else ""
            assert time.monotonic() < until_s, f"waited in vain for {what}: {self.state}, {self.steps}\n{said}"
            time.sleep(0.3)

    def until_driven(self, more: int = 40) -> None:
        """Return when a launcher's agent has driven so many steps more than any before it."""
        begun, before = len(self.steps), int(self.beat.get("step", 0))
        self.until(lambda: int(self.beat.get("step", 0)) >= before + more, f"{more} more steps in step {begun}")

    def change(self, **fields: str) -> None:
        said = self.cluster.run(
            "scontrol", "update", f"JobId={self.number}", *(f"{name}={value}" for name, value in fields.items())
        )
        assert not said.strip(), said


@contextlib.contextmanager
def submitting(folder: Path, nodes: int, memory: Memory) -> Iterator[Job]:
    """Give a run that can be submitted to a Slurm of its own."""
    if why := missing(memory):
        pytest.skip(why)
    (folder / "slurm").mkdir()
    cluster = Cluster(folder / "slurm", nodes=nodes, memory=memory)
    try:
        cluster.start()
        yield Job(cluster, folder)
    finally:
        cluster.stop()


def test_a_job_that_ends_in_every_way_finishes_with_all_its_steps_and_the_report_names_each(
    tmp_path: Path,
) -> None:
    with submitting(tmp_path, nodes=1, memory=Memory.POLLED) as job:
        ends_in_every_way(job)


def ends_in_every_way(job: Job) -> None:
    steps = 2100  # more than 12.5 a second make before the second time limit: 90 s, 60 s and what is killed
    job.submit(steps, "--time", "10", "--mem", "4000M", "--warn", str(WARNED_S))

    job.until_driven()
    job.cluster.run("scancel", "--signal=KILL", f"{job.number}.0")
    job.until(lambda: job.steps[:1] == [End.KILLED], "the kill")

    job.until_driven()
    assert tell(job.control, "fault hold:mib=5000") == "ok"
    job.until(lambda: job.steps[1:2] == [End.OUT_OF_MEMORY], "the memory limit")

    job.until_driven()
    job.change(TimeLimit=str(math.ceil((job.ran_s + WARNED_S + 30) / 60)))
    job.until(lambda: job.steps[2:3] == [End.TIME_LIMIT], "the first time limit")
    job.until(lambda: job.state == "PENDING", "the queue")
    job.change(TimeLimit="3", StartTime="now")  # Slurm leaves two minutes between
    job.until(lambda: job.steps[3:4] == [End.TIME_LIMIT], "the second time limit")
    job.until(lambda: job.state == "PENDING", "the queue")
    job.change(TimeLimit="20", StartTime="now")
    job.until(lambda: job.state == "COMPLETED", "the end")

    assert job.steps == [End.KILLED, End.OUT_OF_MEMORY, End.TIME_LIMIT, End.TIME_LIMIT, End.FINISHED]
    assert job.beat["step"] == steps
    (gave_way,) = rows(job.run.launcher_events, ("rung_taken",), {})
    assert "memory limit of 4,000 MiB" in gave_way["cause"], "host memory's ladder holds on the next start"
    report = job.run.report.with_suffix(".md").read_text(encoding="utf-8")
    for said in ("killed by a signal", "memory limit of 4,000 MiB", "time limit", "finished"):
        assert said in report
    found = json.loads(job.launch("status", "night", "--json"))["job"]
    assert (found["state"], found["restarts"], len(found["ends"])) == ("COMPLETED", 2, 5)


def test_where_the_kernel_keeps_the_limit_the_launcher_outlives_it_and_mends_what_was_killed(tmp_path: Path) -> None:
    with submitting(tmp_path, nodes=1, memory=Memory.CGROUP) as job:
        job.submit(600, "--time", "10", "--mem", "4000M")
        job.until_driven()
        assert tell(job.control, "fault hold:mib=5000") == "ok"
        job.until(lambda: job.state == "COMPLETED", "the end")
        assert job.steps == [End.FINISHED]
        assert job.beat["step"] == 600
        (finding,) = rows(job.run.launcher_events, ("finding",), {"diagnosis": "simulator_host_oom"})
        assert "killed the simulator for memory" in finding["cause"]


ASKED = {"--mem=900": 900.0, "--mem-per-cpu=450": 900.0, "--mem=0": None}
"""Memory that a job of two cores may take of its node, MiB."""


def test_a_step_knows_what_it_may_take_of_its_node_however_the_job_asked_for_it(tmp_path: Path) -> None:
    ask = "import os; from carla_launcher.plugins.slurm.allotment import allotted_mib; print(allotted_mib(os.environ))"
    with submitting(tmp_path, nodes=1, memory=Memory.POLLED) as job:
        job.cluster.environment |= {"PYTHONPATH": OURS}
        said = {}
        for option in ASKED:
            log = tmp_path / f"job{option}.log"
            step = f"srun --ntasks=1 --cpus-per-task=2 {sys.executable} -c '{ask}'"
            job.cluster.run("sbatch", "--wait", f"--output={log}", "--cpus-per-task=2", option, f"--wrap={step}")
            said[option] = log.read_text(encoding="utf-8").strip()
        assert said == {option: str(mib) for option, mib in ASKED.items()}


def test_a_cancelled_job_stays_cancelled_and_its_run_goes_on_when_it_is_submitted_again(tmp_path: Path) -> None:
    with submitting(tmp_path, nodes=1, memory=Memory.POLLED) as job:
        job.submit(400, "--time", "10", "--mem", "4000M")
        job.until_driven()
        first = job.number
        job.submit(400, "--time", "10", "--mem", "4000M")
        assert json.loads(job.launch("status", "night", "--json"))["job"]["job"] == first, "the other one waits for it"
        job.cluster.run("scancel", job.number)
        job.number = first
        job.cluster.run("scancel", first)
        job.until(lambda: job.state == "CANCELLED", "the cancellation")
        assert [step.end for step in record.recorded_steps(job.run)] == [End.CANCELLED]
        job.submit(400, "--time", "10", "--mem", "4000M")
        job.until(lambda: job.state == "COMPLETED", "the end")
        assert job.number != first
        assert [step.end for step in record.recorded_steps(job.run)] == [End.CANCELLED, End.FINISHED]


def test_a_command_is_resumed_in_its_job_after_its_launcher_was_killed(tmp_path: Path) -> None:
    file = tmp_path / "train.yaml"
    file.write_text(
        "{resume: {words: [--resume]}, alive: {log: 'step (\\d+)', within_s: 60}, done: {file: result.txt}}"
    )
    program = (sys.executable, str(REPOSITORY / "tests" / "wire" / "stepping_program.py"), "--steps", "200")
    with submitting(tmp_path, nodes=1, memory=Memory.POLLED) as job:
        where = ("--simulator", "none", "--cwd", str(tmp_path), "--program", str(file))
        job.hand_in("--time", "10", "--mem", "2000M", "--", "run", *where, "--", *program)
        job.until_driven()
        os.kill(read_object(job.run.launcher_state)["pid"], signal.SIGKILL)
        job.until(lambda: job.state == "COMPLETED", "the end")
        assert [step.end for step in record.recorded_steps(job.run)] == [End.KILLED, End.FINISHED]
        driven = [int(line) for line in (tmp_path / "driven.txt").read_text().split()]
        assert sorted(set(driven)) == list(range(1, 201))
        assert len(driven) < 210


APPTAINER = """#!/bin/bash
# In Apptainer's place, and in Ray's: writes down what it is told to run, and where.
printf '%s %s\\n' "$SLURMD_NODENAME" "$*" >>"$TOLD"
while [[ $1 != *.sif ]]; do shift; done
shift 2
case $2 in
  ray.*) sleep 600 ;;
  launcher) [[ $3 != up ]] || sleep 5 ;;
  *) exec "$REAL_PYTHON" "$@" ;;
esac
"""


def test_several_nodes_have_rays_head_and_workers_and_the_learner_on_the_first(tmp_path: Path) -> None:
    with submitting(tmp_path, nodes=3, memory=Memory.CGROUP) as job:
        told, programs = tmp_path / "told", tmp_path / "programs"
        programs.mkdir()
        (programs / "apptainer").write_text(APPTAINER, encoding="utf-8")
        (programs / "apptainer").chmod(0o755)
        job.cluster.environment |= {
            "PATH": f"{programs}:{job.cluster.environment['PATH']}",
            "TOLD": str(told),
            "REAL_PYTHON": sys.executable,
        }
        job.submit(1, "--nodes", "3", "--apptainer", "image.sif", "--mem", "1000M", "--collectors", "6")
        job.until(lambda: job.state in ("COMPLETED", "FAILED"), "the end")
        lines = told.read_text(encoding="utf-8").splitlines()
        heads = [line for line in lines if "--head" in line]
        workers = [line for line in lines if " --address=127.0.0.1:" in line]
        learners = [line for line in lines if " carla_launcher up " in line]
        assert [line.split()[0] for line in heads] == ["n1"]
        assert sorted(line.split()[0] for line in workers) == ["n2", "n3"]
        assert [line.split()[0] for line in learners][:1] == ["n1"]
        assert "--cluster auto --collectors 6" in learners[0]
        assert all("""--resources={"carla": 2}""" in line for line in heads + workers)
        token = job.run.path / "slurm" / "ray-token"
        assert (token.stat().st_mode & 0o777, len(token.read_text(encoding="utf-8"))) == (0o600, 64)
