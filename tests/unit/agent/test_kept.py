"""Drives that are kept while an evaluation goes on: read again by a later start, whatever ended the one before."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from carla_run.event_log import JsonLines
from carla_td3.evaluation.kept import KeptDrives
from tests.unit.agent.test_evaluation import result

SETTINGS: dict[str, Any] = {"map": "Town", "seed": 0, "environment": {"traffic": {"vehicles": 3}}}
ROUTES: Any = [SimpleNamespace(name=name) for name in ("a", "b", "c")]


def test_a_later_start_with_the_same_settings_has_them_all(tmp_path: Path) -> None:
    beside = tmp_path / "new" / "e.json"
    first = KeptDrives(beside, SETTINGS)
    assert not first.path.exists()
    first.add("pid", result(route="b", reward=0.1 + 0.2))
    first.add("td3", result(route="a"))
    again = KeptDrives(beside, SETTINGS)
    assert again.of("pid") == first.of("pid") == {"b": result(route="b", reward=0.1 + 0.2)}
    (so_far,) = again.so_far(["pid", "stop"], ROUTES, "Town", 7)
    assert (so_far.name, so_far.map, so_far.seed, len(so_far.routes)) == ("pid", "Town", 7, 1)
    again.remove()
    again.remove()
    assert list(beside.parent.iterdir()) == []


def test_a_drive_is_in_the_table_by_the_time_the_file_has_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another thread may write the table and end the process at any moment."""
    kept, append = KeptDrives(tmp_path / "e.json", SETTINGS), JsonLines.append
    counted: list[int] = []

    def appended(lines: JsonLines, row: dict[str, Any]) -> None:
        append(lines, row)
        if "driver" in row:
            counted.append(len(kept))

    monkeypatch.setattr(JsonLines, "append", appended)
    kept.add("pid", result(route="a"))
    kept.add("pid", result(route="b"))
    assert counted == [1, 2]


def test_other_settings_have_another_file(tmp_path: Path) -> None:
    beside = tmp_path / "e.json"
    one = KeptDrives(beside, SETTINGS)
    one.add("pid", result(route="a"))
    other = KeptDrives(beside, {**SETTINGS, "seed": 1, "environment": {"traffic": {"vehicles": 4}}})
    assert other.of("pid") == {}
    assert list(other.others()) == [(one.path, 1, ["seed", "environment.traffic.vehicles"])]
    assert list(one.others()) == []
    assert list(KeptDrives(tmp_path / "f.json", SETTINGS).others()) == []


def test_a_torn_line_and_one_of_another_version_are_no_drives(tmp_path: Path) -> None:
    kept = KeptDrives(tmp_path / "e.json", SETTINGS)
    kept.add("pid", result(route="a"))
    older = json.loads(kept.path.read_text().splitlines()[-1])
    del older["stop_signs"]
    with kept.path.open("a") as file:
        file.write(json.dumps({**older, "route": "b"}) + "\n" + json.dumps(older)[:40])
    KeptDrives(tmp_path / "e.json", SETTINGS).add("pid", result(route="c"))
    assert KeptDrives(tmp_path / "e.json", SETTINGS).of("pid").keys() == {"a", "c"}


def test_where_nothing_can_be_kept_the_drives_still_count(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "file").touch()
    kept = KeptDrives(tmp_path / "file" / "e.json", SETTINGS)
    kept.add("pid", result(route="a"))
    kept.add("pid", result(route="b"))
    assert len(kept.so_far(["pid"], ROUTES, "Town", 0)[0].routes) == 2
    assert capsys.readouterr().err.count("lines are being lost (Not a directory)") == 1
