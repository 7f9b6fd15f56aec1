"""The shell script of docs/run-files.md, started as it stands, against what the launcher reads and writes."""

from __future__ import annotations

import os
import re
import subprocess
from dataclasses import fields
from pathlib import Path

import pytest

from carla_run import run
from carla_run.heartbeat import Heartbeat, Phase, read_heartbeat
from carla_run.locks import is_held
from carla_run.paths import RunPaths
from carla_run.readers import read_lines
from carla_run.records import record
from carla_run.requests import answer_to, send, write_request
from tests.conftest import REPOSITORY
from tests.crowd import PATIENCE_S, until

PAGE = (REPOSITORY / "docs" / "run-files.md").read_text(encoding="utf-8")


def test_a_shell_script_reports_and_obeys(tmp_path: Path) -> None:
    (script,) = re.findall(r"```sh\n(.*?)```", PAGE, re.S)
    folder, path = RunPaths(tmp_path / "run"), tmp_path / "train.sh"
    folder.path.mkdir()
    path.write_text(script)
    early = write_request(folder, "stop")
    process = subprocess.Popen(["sh", str(path)], env={**os.environ, run.FOLDER: str(folder.path)})
    until(lambda: is_held(folder.learner_lock) and answer_to(folder, early) is not None)
    answers = [answer_to(folder, early)]
    for kind in ("checkpoint", "drain", "stop"):
        number = send(folder, kind, {})
        until(lambda number=number: answer_to(folder, number) is not None)  # type: ignore[misc]
        answers.append(answer_to(folder, number))
    assert process.wait(PATIENCE_S) == 75
    assert [each and (each.kind, each.ok) for each in answers] == [
        *(("stop", False), ("checkpoint", True), ("drain", False), ("stop", True))
    ]
    beat = read_heartbeat(folder.heartbeat)
    assert beat is not None
    assert (beat.phase, beat.pid, beat.total_steps, beat.exit_code) == (Phase.STOPPED, process.pid, 600, 75)
    assert [row["step"] for row in read_lines(folder.metrics)] == [*range(1, beat.step + 1)]


def test_the_page_names_the_keys_and_phases_that_there_are() -> None:
    rows = re.findall(r"^\| (`[^|]+) \|", PAGE.partition("## Figures")[0], re.M)
    keys = {name for row in rows for name in re.findall(r"`(\w+)`", row)}
    assert keys <= {field.name for field in fields(Heartbeat)}
    (phases,) = re.findall(r"\| `phase` \| string \| (.*) \|", PAGE)
    assert sorted(re.findall(r"`(\w+)`", phases)) == sorted(Phase)


@pytest.mark.parametrize("missing", ["time", "pid", "phase", "step"])
def test_a_heartbeat_needs_four_keys(missing: str) -> None:
    values = {"time": 1.5, "pid": 7, "phase": "updating", "step": 3}
    assert record(Heartbeat, values).step == 3
    del values[missing]
    with pytest.raises(ValueError, match=f"`{missing}` is missing"):
        record(Heartbeat, values)
