"""What a disk changed in a run's files is counted and named by status, report and ``routes``, and the rest is used."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from carla_launcher.observe import tail
from carla_launcher.show import dashboard, report
from carla_run.paths import RunPaths
from tests.conftest import REPOSITORY

KEPT = REPOSITORY / "tests" / "kept" / "run-0.2"
FILES = ("launcher-events.jsonl", "launcher-memory.jsonl", "agent-events.jsonl", "metrics.jsonl")


@pytest.fixture
def run(tmp_path: Path) -> RunPaths:
    found = RunPaths(tmp_path / "run")
    shutil.copytree(KEPT, found.path)
    for path in (found.launcher_memory, found.metrics):
        path.write_text(
            "".join(json.dumps({"time": 1e9 + step, "step": step, "pools": {}}) + "\n" for step in range(3))
        )
    return found


def damage(path: Path, line: int) -> None:
    """Put a byte that JSON never has into a line."""
    lines = path.read_bytes().splitlines(keepends=True)
    lines[line - 1] = b"\x1f" + lines[line - 1][1:]
    path.write_bytes(b"".join(lines))


@pytest.mark.parametrize("name", FILES)
def test_a_report_names_damaged_lines(run: RunPaths, name: str) -> None:
    damage(run.path / name, 2)
    text = report.write(run).with_suffix(".md").read_text()
    assert f"1 line of {name} is damaged (first: line 2) and left out." in plain(text)


def test_a_sound_run_names_none(run: RunPaths) -> None:
    assert "damaged" not in report.write(run).read_text()
    assert status(run) == []


@pytest.mark.parametrize("name", FILES[:2])
def test_status_names_damaged_lines(run: RunPaths, name: str) -> None:
    damage(run.path / name, 1)
    assert status(run) == [f"1 line of {name} is damaged (first: line 1) and left out"]


@pytest.mark.parametrize("name", ["agent.json", "launcher.json"])
def test_a_state_file_that_cant_be_read_is_named(run: RunPaths, name: str) -> None:
    path = run.path / name
    path.write_bytes(path.read_bytes()[:-20])
    assert status(run) == [f"{name} can't be read and is left out"]
    assert f"{name} can't be read" in plain(report.write(run).with_suffix(".md").read_text())


@pytest.mark.parametrize("name", ["config.yaml", "evaluation.json"])
def test_a_report_names_a_file_that_cant_be_read(run: RunPaths, name: str) -> None:
    (run.path / name).write_text("{")
    assert f"{name} can't be read and is left out." in plain(report.write(run).with_suffix(".md").read_text())


def test_of_a_long_file_only_what_was_read_is_counted(run: RunPaths, monkeypatch: pytest.MonkeyPatch) -> None:
    row = run.launcher_memory.read_bytes().splitlines()[-1]
    run.launcher_memory.write_bytes(b"\n".join([b"{", *[row] * 50, b"{", *[row] * 10, b""]))
    monkeypatch.setattr(tail.Tail.__init__, "__defaults__", (30 * len(row),))
    assert status(run) == [f"1 line of {run.launcher_memory.name} is damaged and left out"]


@pytest.mark.parametrize(
    ("line", "where"), [(b'\x1f"job": "7"}', " (first: line 2)"), (b'{"job": "7", "step": [], "restart": "x"}', "")]
)
def test_the_record_of_a_batch_job_is_named_too(run: RunPaths, line: bytes, where: str) -> None:
    run.slurm.mkdir()
    step = {"job": "7", "step": "0", "restart": 0, "node": "n1", "began_s": 1e9}
    (run.slurm / "steps.jsonl").write_bytes(json.dumps(step).encode() + b"\n" + line + b"\n")
    sentence = f"1 line of steps.jsonl is damaged{where} and left out"
    assert status(run) == [sentence]
    assert plain(report.write(run).with_suffix(".md").read_text()).count(sentence) == 1


def status(run: RunPaths) -> list[str]:
    """Return what status says of damage, as JSON and in its table."""
    found: dict[str, Any] = dashboard.status(run, 1e9)
    json.dumps(found)
    assert dashboard.figures(found).get("damaged", "") == "\n".join(found["damaged"])
    return list(found["damaged"])


def plain(text: str) -> str:
    return text.replace("\\", "")
