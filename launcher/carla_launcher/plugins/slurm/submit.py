"""``submit``: writes the batch script of a run into its folder, and submits it to Slurm."""

from __future__ import annotations

import json
import math
import shlex
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

import jinja2

from carla_launcher.options import JobOptions, RefusedError
from carla_launcher.plugins.slurm import record, sbatch_options
from carla_launcher.plugins.slurm.answers import FIELDS
from carla_run import formats
from carla_run.files import write_whole
from carla_run.paths import RunPaths

DRIVER_FILE = Path(__file__).resolve().parents[2] / "nvidia_icd.json"
SUBMIT_S = 60.0


def runs_command(words: Sequence[str]) -> bool:
    """Return whether the job is a run of a command, ``run … -- COMMAND``."""
    return [*words[:1]] == ["run"]


def check(job: JobOptions, environment: Mapping[str, str], words: Sequence[str] = ()) -> None:
    """Refuse options that a run's job can't have, before anything is written.

    Raises:
        RefusedError: one sentence, with advice.
    """
    refused = sbatch_options.refusal(job.more, environment) or sbatch_options.time_refusal(job.time, job.warn_s)
    if refused:
        raise RefusedError(refused)
    if runs_command(words) and (job.nodes > 1 or job.collectors is not None):
        raise RefusedError("--nodes and --collectors are for the agent: a command runs on one node.")


def script(run: RunPaths, job: JobOptions, words: Sequence[str]) -> str:
    """Return the batch script of a run.

    Args:
        run: its folder need not exist.
        job: what it asks for.
        words: options of ``up``, and after ``--`` the agent's; or ``run``, its options, and after ``--`` a command.
    """
    folder, here = run.slurm.absolute(), Path.cwd()
    starts, words = ("run", words[1:]) if runs_command(words) else ("up", words)
    several = job.nodes > 1
    collectors = job.collectors or (job.nodes * max(1, job.gpus_per_node) if several else None)
    options = {
        "job-name": run.path.name,
        "chdir": here,
        "nodes": job.nodes,
        "ntasks-per-node": 1,
        "gpus-per-node": job.gpus_per_node or None,
        "cpus-per-task": job.cpus_per_node,
        "mem": job.memory,
        "time": job.time,
        "partition": job.partition,
        "signal": f"B:TERM@{job.warn_s}",
        "open-mode": "append",
        "dependency": "singleton",
        "output": str(folder).replace("%", "%%") + "/job-%j.log",
    }
    given = [f"--{name}={shlex.quote(str(value))}" for name, value in options.items() if value is not None]
    return (
        _templates()
        .get_template("job.sh")
        .render(
            sbatch=[*given, "--requeue", *(["--no-kill"] if several else []), *map(_directive, job.more)],
            run=str(run.path.absolute()),
            name=run.path.name,
            runs=str(run.path.parent.absolute()),
            python=_python(job, here, run.path.parent.absolute()),
            up=_up(starts, run, collectors, several),
            words=words,
            gpus=job.gpus_per_node,
            nodes=job.nodes,
            carla=math.ceil((collectors or 1) / job.nodes),
            warn_s=job.warn_s,
            fields=FIELDS,
        )
    )


def waits_for(run: RunPaths) -> str:
    """Return which job has this run already, as the end of a sentence; empty if none has."""
    if (found := record.active_job(run)) is None:
        return ""
    job, now = found
    return f", which waits until job {job} ({now.state}) of the same run has ended"


def submit(run: RunPaths, text: str) -> str:
    """Write the script, submit it to Slurm, and return the job's number.

    Raises:
        RefusedError: Slurm refuses it or isn't installed, or the run's folder can't be written.
        FormatError: a later version continued the run; nothing is written.
    """
    formats.require_readable(run)
    path = run.slurm / "job.sh"
    try:
        run.path.parent.mkdir(parents=True, exist_ok=True)
        run.path.mkdir(mode=0o755, exist_ok=True)
        run.slurm.mkdir(mode=0o755, exist_ok=True)
        write_whole(path, text)
    except OSError as error:
        raise RefusedError(f"{run.path}: can't be written ({error.strerror}); choose another --runs-dir.") from None
    try:
        done = subprocess.run(
            ("sbatch", "--parsable", str(path)), capture_output=True, text=True, timeout=SUBMIT_S, check=False
        )
    except FileNotFoundError:
        raise RefusedError(f"There is no sbatch here: use a machine of the cluster; the script is {path}.") from None
    except subprocess.TimeoutExpired:
        raise RefusedError(f"Slurm doesn't answer; the script is {path}.") from None
    if done.returncode:
        said = (done.stderr.strip().splitlines() or [f"exit code {done.returncode}"])[-1]
        raise RefusedError(f"Slurm refuses the job: {said.removeprefix('sbatch: error: ')}; the script is {path}.")
    job = done.stdout.strip().partition(";")[0]
    write_whole(run.slurm / "job.json", json.dumps({"job": job}))
    return job


def _directive(option: str) -> str:
    """Return an option of sbatch as the script has it: sbatch splits a line at spaces, as a shell does."""
    name, _, value = option.partition("=")
    quoted = value[:1] in ("", "'", '"')
    return option if quoted or " " in name else f"{name}={shlex.quote(value)}"


def _python(job: JobOptions, here: Path, runs: Path) -> list[str]:
    if job.apptainer is None:
        return [sys.executable]
    card = ["--nv"] if job.gpus_per_node else []
    if card:  # --nv provides NVIDIA's libraries, but not the file by which Vulkan finds them
        named = [
            word for name in ("VK_DRIVER_FILES", "VK_ICD_FILENAMES") for word in ("--env", f"{name}={DRIVER_FILE}")
        ]
        card += ["--bind", str(DRIVER_FILE), *named]
    where = ["--bind", f"{here},{runs}", "--pwd", str(here)]
    return ["apptainer", "exec", *card, *where, str(job.apptainer.absolute()), "python"]


def _up(starts: str, run: RunPaths, collectors: int | None, several: bool) -> list[str]:
    """Return the command that starts or resumes the run; with --resume a new run simply starts.

    Args:
        starts: up or run.
        several: whether there are several nodes, and so Ray.
    """
    where = ["--runs-dir", str(run.path.parent.absolute()), "--run-name", run.path.name, "--resume"]
    drive = [] if collectors is None else ["--collectors", str(collectors)]
    return [starts, *where, "--runtime", "process", *(["--cluster", "auto"] if several else []), *drive]


def _templates() -> jinja2.Environment:
    made = jinja2.Environment(
        loader=jinja2.FileSystemLoader(Path(__file__).parent / "templates"),
        trim_blocks=True,
        keep_trailing_newline=True,
        undefined=jinja2.StrictUndefined,
    )
    made.filters["q"] = shlex.quote
    return made
