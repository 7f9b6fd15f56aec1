"""The batch script of a run, and how it is handed to Slurm."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import pytest
from typer.testing import CliRunner

from carla_launcher.act.journal import Journal
from carla_launcher.act.launcher_state import LauncherState, ProcessState
from carla_launcher.cli import app
from carla_launcher.options import JobOptions, RefusedError
from carla_launcher.plugins.slurm.submit import script, submit
from carla_run.exits import Exit
from carla_run.formats import FormatError
from carla_run.paths import RunPaths
from tests.conftest import REPOSITORY

OPTIONS = {
    "one node": JobOptions(time="24:00:00", partition="gpu", memory="400G", more=("--account=me",)),
    "cards": JobOptions(gpus_per_node=2, cpus_per_node=16, collectors=3),
    "nodes": JobOptions(nodes=4, gpus_per_node=4, apptainer=Path("image.sif")),
}


@pytest.fixture
def run(tmp_path: Path) -> RunPaths:
    return RunPaths(tmp_path / "my runs" / "night")


def lines(run: RunPaths, options: JobOptions, *words: str) -> list[str]:
    return [line.strip() for line in script(run, options, words).splitlines()]


@pytest.mark.parametrize("name", OPTIONS)
def test_a_shell_takes_the_script(run: RunPaths, name: str, tmp_path: Path) -> None:
    path = tmp_path / "job.sh"
    path.write_text(script(run, OPTIONS[name], ["--map", "it's"]), encoding="utf-8")
    checked = subprocess.run(
        (str(Path(sys.executable).with_name("shellcheck")), "--severity=warning", str(path)),
        capture_output=True,
        text=True,
        check=False,
    )
    assert checked.returncode == 0, checked.stdout


def test_it_asks_for_what_was_asked_for_and_for_what_it_goes_on_by(run: RunPaths) -> None:
    found = lines(run, OPTIONS["one node"])
    for option in ("--time=24:00:00", "--partition=gpu", "--mem=400G", "--account=me", "--requeue", "--nodes=1"):
        assert f"#SBATCH {option}" in found
    for option in ("--signal=B:TERM@300", "--open-mode=append", "--dependency=singleton", "--job-name=night"):
        assert f"#SBATCH {option}" in found
    assert f"#SBATCH --output='{run.path}/slurm/job-%j.log'" in found
    assert "export PYTHONUNBUFFERED=1 CARLA_SLURM_RUN=$run" in found, "by which the launcher knows that it is the job's"
    assert not any("gpus-per-node" in line or "ray" in line for line in found)


def test_one_node_is_a_run_of_local_processes(run: RunPaths) -> None:
    found = "\n".join(lines(run, OPTIONS["cards"], "--seed", "3", "--", "--set", "a=1"))
    assert "--resume --runtime process --collectors 3)" in found
    assert "words=(--seed 3 -- --set a=1)" in found
    assert "#SBATCH --gpus-per-node=2" in found
    assert "#SBATCH --cpus-per-task=16" in found


def test_several_nodes_have_ray_with_a_place_for_each_simulator(run: RunPaths) -> None:
    found = "\n".join(lines(run, OPTIONS["nodes"]))
    assert "--runtime process --cluster auto --collectors 16)" in found
    assert """--resources='{"carla": 4}'""" in found
    assert "#SBATCH --no-kill" in found
    file = REPOSITORY / "launcher" / "carla_launcher" / "nvidia_icd.json"
    vulkan = f"--bind {file} --env VK_DRIVER_FILES={file} --env VK_ICD_FILENAMES={file}"
    assert f"python=(apptainer exec --nv {vulkan} --bind" in found
    assert "PYTHONPATH" not in found, "the image has its own"


COMMAND = ("run", "--simulator", "none", "--program", "train.yaml", "--", "python", "train.py", "--name", "it's {gpu}")


def test_a_command_is_run_in_a_job(run: RunPaths, tmp_path: Path) -> None:
    text = script(run, OPTIONS["one node"], COMMAND)
    path = tmp_path / "job.sh"
    path.write_text(text, encoding="utf-8")
    subprocess.run(("bash", "-n", str(path)), check=True)
    assert "\nup=(run --runs-dir " in text
    assert "--run-name night --resume --runtime process)\n" in text
    read = subprocess.run(
        [
            "bash",
            "-c",
            f"{next(line for line in text.splitlines() if line.startswith('words='))}; printf '%s\n' \"${{words[@]}}\"",
        ],
        capture_output=True,
        text=True,
        check=True,
    )
    assert read.stdout.splitlines() == [*COMMAND[1:]]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--nodes", "2", "--", *COMMAND), "a command runs on one node"),
        (("--collectors", "2", "--", *COMMAND), "a command runs on one node"),
        (("--", "run", "--simulator", "none"), "expected a command after a second --"),
        (("--", "run", "--device", "cpu", "--", "train"), "No such option"),
        (("--", "run", "--run-name", "a", "--", "train"), "--run-name and --runs-dir are"),
    ],
)
def test_a_mistake_in_a_commands_job_is_refused(tmp_path: Path, words: tuple[str, ...], said: str) -> None:
    refused = CliRunner().invoke(app, ["submit", "--dry-run", "--runs-dir", str(tmp_path / "runs"), *words])
    assert refused.exit_code in (Exit.USAGE, Exit.BAD_CONFIG)
    assert said in " ".join(refused.output.split())


def test_a_dry_run_prints_and_writes_nothing(tmp_path: Path) -> None:
    said = CliRunner().invoke(app, ["submit", "--dry-run", "--runs-dir", str(tmp_path / "runs"), "--", "--seed", "3"])
    assert said.exit_code == 0
    assert said.stdout.startswith("#!/bin/bash\n")
    assert not list(tmp_path.iterdir())


REFUSED = {
    "--array=0-3": "--run-name",
    "-a0-3": "--run-name",
    "-a 0-3": "--run-name",
    "--ntasks=4": "--cpus-per-node",
    "-n4": "--cpus-per-node",
    "--ntasks-per-node=2": "--cpus-per-node",
    "--ntasks-per-gpu=2": "--cpus-per-node",
    "hetjob": "--nodes",
    "--nodes=2": "--nodes",
    "-N2": "--nodes",
    "--job-name=other": "--run-name",
    "-Jother": "--run-name",
    "--output=my.log": "the run's folder",
    "--open-mode=truncate": "the run's folder",
    "--no-requeue": "queued again",
    "--signal=USR1@60": "--warn",
}


@pytest.mark.parametrize("dry", [["--dry-run"], []])
@pytest.mark.parametrize("option", REFUSED)
def test_an_option_of_sbatchs_that_a_runs_job_cannot_have_is_refused_in_one_sentence_and_nothing_is_written(
    tmp_path: Path, option: str, dry: list[str]
) -> None:
    said = CliRunner().invoke(app, ["submit", *dry, "--runs-dir", str(tmp_path / "runs"), f"--sbatch={option}"])
    assert said.exit_code == Exit.BAD_CONFIG
    assert said.stdout == ""
    assert f"--sbatch={option}: " in said.stderr
    assert REFUSED[option] in said.stderr
    assert len(said.stderr.splitlines()) == 1
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("time", "seconds"), [("4", 240), ("5", 300), ("4:30", 270), ("0:04:00", 240), ("0-0:05", 300), ("0-0:0:30", 30)]
)
def test_a_time_limit_that_leaves_no_time_before_the_warning_is_refused(time: str, seconds: int) -> None:
    said = CliRunner().invoke(app, ["submit", "--dry-run", "--time", time])
    assert said.exit_code == Exit.BAD_CONFIG
    assert f"--time {time} is {seconds} s, expected more than the 300 s of --warn" in said.stderr
    assert len(said.stderr.splitlines()) == 1


@pytest.mark.parametrize("time", ["6", "5:01", "24:00:00", "0:05:01", "1-0", "0-1", "1-2:03:04", "0", "UNLIMITED"])
def test_a_longer_time_limit_and_none_are_taken(time: str) -> None:
    assert CliRunner().invoke(app, ["submit", "--dry-run", "--time", time]).exit_code == 0


def test_an_array_that_sbatch_would_read_from_the_environment_is_refused_as_well(tmp_path: Path) -> None:
    said = CliRunner().invoke(app, ["submit", "--dry-run"], env={"SBATCH_ARRAY_INX": "0-3"})
    assert said.exit_code == Exit.BAD_CONFIG
    assert "SBATCH_ARRAY_INX is '0-3'" in said.stderr


@pytest.mark.parametrize(
    "option", ["--account=me", "-Ame", "--mem-per-cpu=4G", "--mem-per-gpu=40G", "--constraint=a100", "--gres=tmpfs:9G"]
)
def test_other_options_are_handed_on_as_they_are(option: str) -> None:
    said = CliRunner().invoke(app, ["submit", "--dry-run", f"--sbatch={option}"])
    assert said.exit_code == 0
    assert f"#SBATCH {option}\n" in said.stdout


@pytest.mark.parametrize(
    ("option", "line"),
    [
        ("--comment=my first run", "--comment='my first run'"),
        ("--comment='my first run'", "--comment='my first run'"),
        ('--comment="my first run"', '--comment="my first run"'),
        ("--exclude=n[1-3]", "--exclude='n[1-3]'"),
        ("-A me", "-A me"),
        ("--exclusive", "--exclusive"),
    ],
)
def test_a_value_with_spaces_stays_one_word_for_sbatch(option: str, line: str) -> None:
    said = CliRunner().invoke(app, ["submit", "--dry-run", f"--sbatch={option}"])
    assert f"#SBATCH {line}\n" in said.stdout


@pytest.mark.parametrize(("words", "expected"), [(["--confg", "x"], "No such option"), (["--run-name", "x"], "submit")])
def test_a_mistake_in_the_options_of_up_is_said_now_and_not_in_the_night(words: list[str], expected: str) -> None:
    said = CliRunner().invoke(app, ["submit", "--dry-run", "--", *words])
    assert said.exit_code == 2
    assert expected in said.output


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["--config", "nosuch.yaml"], "nosuch.yaml: there is no such file; name the agent's YAML file"),
        (["--launcher-config", "nosuch.yaml"], "nosuch.yaml"),
        (["run", "--program", "nosuch.yaml", "--", "train"], "nosuch.yaml"),
    ],
)
def test_what_the_launcher_would_refuse_before_it_writes_anything_isnt_submitted(
    words: list[str], expected: str, tmp_path: Path
) -> None:
    said = CliRunner().invoke(app, ["submit", "--runs-dir", str(tmp_path / "runs"), "--", *words])
    assert said.exit_code == Exit.BAD_CONFIG
    assert expected in said.stderr
    assert len(said.stderr.splitlines()) == 1
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    "words",
    [
        ["--gpu", "0,1", "--simulator", "carla-lite", "--simulator-arg=--tick-ms=3", "--", "--set", "seed=1"],
        ["--config", "lowmem", "--policy", "allow:smaller_batch"],
    ],
)
def test_what_the_launcher_takes_is_submitted(words: list[str]) -> None:
    said = CliRunner().invoke(app, ["submit", "--dry-run", "--", *words])
    assert said.exit_code == 0, said.output


def test_a_run_of_a_command_is_submitted_again_with_the_command_that_it_has(run: RunPaths) -> None:
    run.path.mkdir(parents=True)
    state = LauncherState("night", {"command": ["train"], "simulator": "none"}, "", 0, agent=ProcessState(1))
    Journal(run, state, time.time).save()
    where = ("--run-name", "night", "--runs-dir", str(run.path.parent))
    said = CliRunner().invoke(app, ["submit", "--dry-run", *where, "--", "run"])
    assert said.exit_code == 0, said.output


def test_what_slurm_says_against_it_is_one_sentence(
    run: RunPaths, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(RefusedError, match="There is no sbatch here"):
        submit(run, "#!/bin/bash\n")
    sbatch = tmp_path / "sbatch"
    sbatch.write_text(
        "#!/bin/sh\necho 'sbatch: error: invalid partition specified: gpu' >&2\nexit 1\n", encoding="utf-8"
    )
    sbatch.chmod(0o755)
    with pytest.raises(RefusedError, match=r"^Slurm refuses the job: invalid partition specified: gpu; the script"):
        submit(run, "#!/bin/bash\n")
    sbatch.write_text("#!/bin/sh\necho '12;cluster'\n", encoding="utf-8")
    assert submit(run, "#!/bin/bash\n") == "12"


def test_a_run_of_a_later_version_is_refused_and_nothing_is_written(run: RunPaths) -> None:
    run.path.mkdir(parents=True, exist_ok=True)
    run.version.write_text('{"format": 99, "version": "9.0.0"}', encoding="utf-8")
    before = sorted(run.path.rglob("*"))
    with pytest.raises(FormatError, match="written by version 9"):
        submit(run, "#!/bin/bash\n")
    assert sorted(run.path.rglob("*")) == before
