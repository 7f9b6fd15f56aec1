"""The report is written by a process of its own: what befalls that one is one line, and the launcher stays small."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from carla_launcher.show.report_process import write_report
from carla_run.paths import RunPaths


def test_page_and_text_are_written(tmp_path: Path) -> None:
    run = RunPaths(tmp_path)
    (tmp_path / "launcher.json").write_text('{"exit_code": 0, "reason": "done"}')
    assert write_report(run) == ""
    assert "The run ended: done. The launcher&#39;s exit code is 0." in run.report.read_text(encoding="utf-8")
    assert "The run ended: done. The launcher's exit code is 0." in (tmp_path / "report.md").read_text(encoding="utf-8")


def test_a_run_that_cant_be_written_to_is_one_line(tmp_path: Path) -> None:
    said = write_report(RunPaths(tmp_path / "missing"))
    assert "report.html: can't be written" in said
    assert "\n" not in said


@pytest.mark.parametrize(
    ("program", "expected"),
    [
        ("import sys; sys.exit('no room')", "no room"),
        ("raise RuntimeError('a library broke')", "RuntimeError: a library broke"),
        ("import os; os.kill(os.getpid(), 9)", "the report wasn't written (exit code -9)"),
    ],
)
def test_a_child_that_fails_in_any_way_is_one_line(tmp_path: Path, program: str, expected: str) -> None:
    assert write_report(RunPaths(tmp_path), (sys.executable, "-c", program)) == expected


def test_a_child_that_hangs_or_cant_start_is_one_line(tmp_path: Path) -> None:
    hangs = (sys.executable, "-c", "import time; time.sleep(3600)")
    expected = "the report took longer than 0.2 s and was cancelled"
    assert write_report(RunPaths(tmp_path), hangs, limit_s=0.2) == expected
    assert write_report(RunPaths(tmp_path), ("/no/such/python",)).startswith("the report can't be written: No such")


def test_the_launcher_never_loads_what_draws() -> None:
    packages = {"matplotlib", "jinja2", "numpy", "starlette", "uvicorn"}
    program = f"import sys, carla_launcher.cli, carla_launcher.up; print({packages} & set(sys.modules))"
    answer = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert answer.stdout.strip() == "set()"
