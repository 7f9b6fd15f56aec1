"""Programs at their terminal: Ctrl-C at any moment, an encoding without our characters, a reader that closes."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import psutil
import pytest
from typer.testing import CliRunner

from carla_launcher.cli import MOST_NAME_BYTES, app
from carla_run.exits import Exit
from carla_run.paths import RunPaths
from tests.conftest import REPOSITORY
from tests.crowd import until
from tests.unit.launcher.test_dashboard import FILES

LAUNCHER, AGENT = ("-m", "carla_launcher"), ("-m", "carla_td3")
LOCAL = ("--runtime", "process", "--simulator", "carla-lite")


def run(*words: str, limit_s: float = 120.0, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *words],
        check=False,
        capture_output=True,
        text=True,
        errors="surrogateescape",
        cwd=REPOSITORY,
        env={**os.environ, **environment},
        timeout=limit_s,
    )


WHILE_IT_LOADS = """
import os, runpy, signal, sys
module, program, sys.argv = sys.argv[1], sys.argv[2], sys.argv[2:]
class Interrupt:
    def find_spec(self, name, *rest):
        if name == module:
            os.kill(os.getpid(), signal.SIGINT)
sys.meta_path.insert(0, Interrupt())
run = runpy.run_path if program.endswith(".py") else runpy.run_module
run(program, run_name="__main__")
"""


@pytest.mark.parametrize(
    ("program", "module", "said"),
    [
        ("carla_launcher", "carla_launcher.signature", "launcher: interrupted.\n"),
        ("scripts/launch.py", "carla_launcher.options", "launcher: interrupted.\n"),
        ("carla_td3", "carla_td3.memory.allocator", "agent: interrupted.\n"),
        ("scripts/train_td3.py", "carla_td3.memory.allocator", "agent: interrupted.\n"),
        ("scripts/evaluate_td3.py", "carla_td3.memory.allocator", "agent: interrupted.\n"),
        ("carla_lite", "carla_lite.towns.generator", ""),
    ],
)
def test_ctrl_c_while_a_program_loads_is_a_word(program: str, module: str, said: str) -> None:
    ended = run("-c", WHILE_IT_LOADS, module, program, "--help")
    assert (ended.returncode, ended.stderr) == (Exit.INTERRUPTED, said)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("plan", *LOCAL), "launcher: interrupted."),
        (("up", *LOCAL), "launcher: Stopped by Ctrl-C while it planned; nothing was started."),
    ],
    ids=["plan", "up"],
)
def test_ctrl_c_while_the_launcher_plans_is_a_word_and_starts_nothing(
    tmp_path: Path, words: tuple[str, ...], said: str
) -> None:
    command = [sys.executable, *LAUNCHER, *words, "--runs-dir", str(tmp_path)]
    planning = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=REPOSITORY, start_new_session=True
    )
    try:
        until(lambda: any("footprint" in child.cmdline() for child in psutil.Process(planning.pid).children()))
        os.killpg(planning.pid, signal.SIGINT)  # as a terminal does: the launcher, and what it asks
        _, printed = planning.communicate(timeout=60)
    finally:
        planning.kill()
    assert planning.returncode == Exit.INTERRUPTED, printed
    assert printed.splitlines()[-1] == said
    assert "Traceback" not in printed
    assert not [*tmp_path.glob("*/launcher.json")]


@pytest.mark.parametrize(
    ("words", "asked"),
    [
        (["doctor"], "carla_launcher.show.doctor.run"),
        (["report", "night"], "carla_launcher.show.report_process.write_report"),
        (["report", "--compare", "night", "night"], "carla_launcher.show.report_process.write_comparison"),
        (["submit"], "carla_launcher.plugins.slurm.submit.submit"),
        (["down", "night"], "carla_launcher.down.run"),
    ],
    ids=lambda part: part[0] if isinstance(part, list) else None,
)
def test_ctrl_c_in_each_of_the_launcher_s_commands_is_a_word(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: list[str], asked: str
) -> None:
    night(tmp_path)

    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt  # as Python's own handler does; pytest's process may have another one

    monkeypatch.setattr(asked, interrupted)
    ended = CliRunner().invoke(app, [words[0], "--runs-dir", str(tmp_path), *words[1:]])
    assert (ended.exit_code, ended.stderr) == (Exit.INTERRUPTED, "launcher: interrupted.\n")


@pytest.mark.parametrize("wrapped", ["error_sentences", "hard_exit"])
def test_ctrl_c_in_each_of_the_agent_s_commands_is_a_word(wrapped: str) -> None:
    body = f"""
import signal, typer
from carla_td3.cli import commands
def command():
    with commands.{wrapped}(False):
        signal.raise_signal(signal.SIGINT)
typer.run(command)
"""
    ended = run("-c", body)
    assert (ended.returncode, ended.stderr) == (Exit.INTERRUPTED, "Interrupted.\n")


def night(folder: Path, files: Mapping[str, str] = FILES) -> RunPaths:
    made = RunPaths(folder / "night")
    made.path.mkdir()
    for name, text in files.items():
        (made.path / name).write_text(text, encoding="utf-8")
    return made


@pytest.mark.parametrize(
    "words",
    [
        (*LAUNCHER, "status", "night", "--once", "--runs-dir"),
        (*LAUNCHER, "status", "night", "--json", "--runs-dir"),
        (*LAUNCHER, "report", "night", "--runs-dir"),
        (*LAUNCHER, "plan", *LOCAL, "--runs-dir"),
        (*LAUNCHER, "doctor", "--runs-dir"),
        (*AGENT, "footprint", "--run-dir"),
    ],
    ids=lambda words: words[2],
)
def test_a_terminal_that_knows_ascii_only_is_told_in_ascii(tmp_path: Path, words: tuple[str, ...]) -> None:
    night(tmp_path)
    ended = run(*words, str(tmp_path), PYTHONIOENCODING="ascii", COLUMNS="200")
    assert ended.returncode in (Exit.FINISHED, Exit.CRASH), ended.stderr  # a doctor finds what it finds
    assert "Traceback" not in ended.stderr
    assert (ended.stdout + ended.stderr).isascii()
    assert ended.stdout.strip()


def test_a_bar_has_a_sign_for_each_owner_in_ascii_too(tmp_path: Path) -> None:
    night(tmp_path)
    ended = run(*LAUNCHER, "status", "night", "--once", "--runs-dir", str(tmp_path), PYTHONIOENCODING="ascii")
    assert "# simulator 4800" in ended.stdout
    assert "= agent 490" in ended.stdout
    assert "- blender 200" in ended.stdout
    assert ". free 70" in ended.stdout


def test_help_with_signs_that_ascii_lacks_is_shown() -> None:
    ended = run(*LAUNCHER, "up", "--help", PYTHONIOENCODING="ascii", LC_ALL="C")
    assert (ended.returncode, ended.stderr) == (Exit.FINISHED, "")


@pytest.mark.parametrize("form", ["--json", "--once"])
def test_a_reader_that_goes_is_no_error(tmp_path: Path, form: str) -> None:
    night(tmp_path)
    reader, writer = os.pipe()
    os.close(reader)
    try:
        ended = subprocess.run(
            [sys.executable, *LAUNCHER, "status", "night", form, "--runs-dir", str(tmp_path)],
            check=False,
            stdout=writer,
            stderr=subprocess.PIPE,
            text=True,
            cwd=REPOSITORY,
            timeout=120,
        )
    finally:
        os.close(writer)
    assert ended.returncode in (Exit.FINISHED, Exit.CRASH)
    assert ended.stderr == ""


LONG = "n" * 300


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        ((*LAUNCHER, "up", "--run-name", LONG), 2, f"300 bytes are too long: expected at most {MOST_NAME_BYTES}"),
        ((*LAUNCHER, "submit", "--dry-run", "--run-name", LONG), 2, "300 bytes are too long"),
        ((*LAUNCHER, "status", LONG), 65, "has no run"),
        ((*LAUNCHER, "report", LONG), 65, "has no run"),
        ((*LAUNCHER, "down", LONG), 65, "has no run"),
        ((*LAUNCHER, "up", *LOCAL, "--runs-dir", LONG), 65, "File name too long"),
        ((*AGENT, "train", "--run-name", LONG), 65, "File name too long"),
        ((*AGENT, "record", "--out", LONG), 65, "File name too long"),
        ((*AGENT, "evaluate", "--checkpoint", LONG), 65, "File name too long"),
        ((*AGENT, "footprint", "--run-dir", LONG), 65, "File name too long"),
        ((*AGENT, "request", "stop", "--run-name", LONG), 65, "no agent runs there"),
    ],
    ids=lambda part: "-".join(part[2:4])[:20] if isinstance(part, tuple) else None,
)
def test_a_name_that_no_file_can_have_is_refused_in_a_sentence(words: tuple[str, ...], code: int, said: str) -> None:
    ended = run(*words, COLUMNS="1000")
    assert ended.returncode == code, ended.stderr
    assert said in ended.stderr
    assert "Traceback" not in ended.stderr


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("record", "--driver", "td3"), "Driver 'td3' needs --checkpoint or --pretrained."),
        (("record", "--driver", "pilot"), "Driver 'pilot' is unknown, expected one of td3, "),
        (("evaluate", "--drivers", "pid,pilot"), "Driver 'pilot' is unknown, expected one of td3, "),
    ],
)
def test_a_wrong_driver_is_refused_before_anything(tmp_path: Path, words: tuple[str, ...], said: str) -> None:
    out = ("--out", str(tmp_path / "shown")) if words[0] == "record" else ("--json", str(tmp_path / "kept.json"))
    ended = run(*AGENT, *words, *out, CARLA_PORT="1", COLUMNS="1000")
    assert ended.returncode == Exit.USAGE, ended.stderr
    assert ended.stderr.startswith(said)
    assert not any(tmp_path.iterdir())


def test_two_runs_of_the_longest_names_can_be_compared(tmp_path: Path) -> None:
    names = [letter * MOST_NAME_BYTES for letter in "ab"]
    for name in names:
        (tmp_path / name).mkdir()
        (tmp_path / name / "launcher.json").write_text(json.dumps({"state": "stopped"}), encoding="utf-8")
    ended = run(*LAUNCHER, "report", "--compare", *names, "--runs-dir", str(tmp_path))
    assert ended.returncode == Exit.FINISHED, ended.stderr
    assert Path(ended.stdout.strip()).is_file()
