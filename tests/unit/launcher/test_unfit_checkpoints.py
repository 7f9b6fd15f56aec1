"""Which checkpoint of a command is set aside: never the only one, few in a row, and no other program's files."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from carla_launcher.act.command import Command
from carla_launcher.act.journal import Journal
from carla_launcher.act.launcher_state import LauncherState
from carla_launcher.act.unfit_checkpoints import UnfitCheckpoints
from carla_run.configuration import program_file
from carla_run.paths import RunPaths


@dataclass
class Saved:
    """Checkpoints of a command, c-1 the oldest."""

    folder: Path
    said: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        run = RunPaths(self.folder / "run")
        file = program_file.validate({"resume": {"words": [], "checkpoint": "c-*"}}, "train.yaml")
        self.journal = Journal(run, LauncherState("test", {}, "127.0.0.1", 2000), lambda: 0.0)
        self.command = Command(("train",), file, self.folder)
        self.unfit = UnfitCheckpoints(run, self.command, self.journal, self.said.append)

    def write(self, number: int) -> None:
        path = self.folder / f"c-{number}"
        path.write_text("weights")
        os.utime(path, (number, number))

    def crash(self, times: int) -> list[str]:
        """Return the names of all checkpoints after so many crashes, sorted."""
        for _ in range(times):
            self.unfit.crashed("i1")
        return sorted(each.name for each in self.folder.glob("c-*"))


@pytest.fixture
def saved(tmp_path: Path) -> Saved:
    (tmp_path / "run").mkdir()
    return Saved(tmp_path)


def test_the_second_crash_with_the_same_one_sets_it_aside(saved: Saved) -> None:
    saved.write(1)
    saved.write(2)
    assert saved.crash(1) == ["c-1", "c-2"]
    saved.write(3)
    assert saved.crash(1) == ["c-1", "c-2", "c-3"]
    assert saved.crash(1) == ["c-1", "c-2", "c-3.unfit"]
    assert [each.name for each in saved.command.checkpoints(0.0)] == ["c-2", "c-1"]


def test_the_only_one_stays(saved: Saved) -> None:
    saved.write(1)
    assert saved.crash(9) == ["c-1"]


def test_few_are_set_aside_without_progress(saved: Saved) -> None:
    for number in range(1, 7):
        saved.write(number)
    assert saved.crash(99) == ["c-1", "c-2", "c-3", "c-4.unfit", "c-5.unfit", "c-6.unfit"]
    saved.unfit.worked()
    assert saved.crash(2) == ["c-1", "c-2", "c-3.unfit", "c-4.unfit", "c-5.unfit", "c-6.unfit"]


def test_none_that_was_set_aside_before_is_overwritten(saved: Saved) -> None:
    saved.write(1)
    saved.write(2)
    (saved.folder / "c-2.unfit").write_text("an earlier one")
    assert saved.crash(2) == ["c-1", "c-2.2.unfit", "c-2.unfit"]
    assert (saved.folder / "c-2.unfit").read_text() == "an earlier one"


def test_one_whose_new_name_is_too_long_is_named(saved: Saved) -> None:
    for number in (1, 2):
        saved.write(number)
    long = saved.folder / f"c-{'3' * 250}"
    long.write_text("weights")
    assert len(saved.crash(2)) == 3
    assert "can't be renamed (File name too long)" in saved.said[-1]


def test_one_that_cant_be_renamed_is_named(saved: Saved, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise PermissionError(13, "Permission denied")

    saved.write(1)
    saved.write(2)
    monkeypatch.setattr(Path, "rename", refuse)
    assert saved.crash(2) == ["c-1", "c-2"]
    assert not saved.unfit.crashed("i1"), "the next start is from the same one"
    assert "which can't be renamed (Permission denied): move it away" in saved.said[0]
