"""When training stood still, for want of what, and what that cost, as the looks of a run tell it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from carla_launcher.act.journal import Journal
from carla_launcher.act.launcher_state import LauncherState, Standstill
from carla_launcher.act.standstills import Standstills
from carla_run.heartbeat import Heartbeat, Phase
from carla_run.paths import RunPaths
from carla_run.readers import read_lines
from tests.unit.beats import BEAT

Look = tuple[Heartbeat | None, Sequence[str]]


def beat(done: int, pid: int = 1, phase: Phase = Phase.UPDATING, updates: int | None = None) -> Heartbeat:
    return replace(BEAT, pid=pid, step=done, updates=done if updates is None else updates, ticks=done, phase=phase)


def well(first: int, last: int, pid: int = 1) -> list[Look]:
    return [(beat(done, pid), ()) for done in range(first, last)]


class Looks:
    """A look a second."""

    def __init__(self, folder: Path, standstill: Standstill | None = None) -> None:
        self.now_s = 0.0
        self.run = RunPaths(folder)
        state = LauncherState("test", {}, "127.0.0.1", 2000, standstill=standstill)
        self.journal = Journal(self.run, state, lambda: self.now_s)
        self.standstills = Standstills(self.journal)
        self.agent = 0.0

    def take(self, looks: Sequence[Look], incident: str = "i1") -> list[dict[str, Any]]:
        """Return the rows of standstills that are over after these looks."""
        for seen, missing in looks:
            self.now_s += 1.0
            self.agent = self.agent if seen is None else float(seen.pid)
            self.standstills.look(seen, self.agent, missing, incident)
        return read_lines(self.run.launcher_events)


STOOD: dict[str, tuple[list[Look], dict[str, Any]]] = {
    "simulator": (
        [*well(0, 5), *[(beat(4), ["simulator"])] * 6, *well(5, 7)],
        {"until_s": 12, "from_s": 5, "down": {"simulator": [6, 11]}, "steps_lost": 0, "updates_repeated": 0},
    ),
    "agent": (
        [
            *well(0, 9),
            *[(None, ["agent"])] * 4,
            (beat(0, 2, Phase.STARTING), ["agent"]),
            (beat(8, 2, Phase.WARMING, updates=5), []),
            *well(9, 11, pid=2),
        ],
        {"until_s": 16, "from_s": 9, "down": {"agent": [10, 14]}, "steps_lost": 0, "updates_repeated": 3},
    ),
    "both": (
        [*well(0, 9), *[(None, ["simulator", "agent"])] * 4, (beat(6, 2), ["simulator"]), *well(6, 9, pid=2)],
        {"from_s": 9, "down": {"simulator": [10, 14], "agent": [10, 13]}, "steps_lost": 2, "updates_repeated": 2},
    ),
    "it drives though nothing answers": (
        [*well(0, 5), *[(beat(4), ["simulator"])] * 6, *[(beat(each), ["simulator"]) for each in range(5, 20)]],
        {"from_s": 5, "until_s": 12},
    ),
    "a restart that is soon over": (
        [*well(0, 5), (beat(4), ["simulator"]), *[(beat(4), [])] * 3, *well(5, 9)],
        {"from_s": 5, "until_s": 10, "down": {"simulator": [6, 6]}},
    ),
    "while it only learns": ([*well(0, 5), *[(beat(each), ["simulator"]) for each in range(5, 20)], *well(20, 22)], {}),
    "an evaluation": ([*well(0, 5), *[(beat(4, phase=Phase.EVALUATING), [])] * 60, *well(5, 7)], {}),
    "before it begins": ([(None, ["simulator", "agent"])] * 9 + well(0, 5), {}),
    "too short to be seen": ([*well(0, 5), (beat(4), ["simulator"]), *well(5, 9)], {}),
}


@pytest.mark.parametrize("case", STOOD)
def test_standstill(tmp_path: Path, case: str) -> None:
    looks, expected = STOOD[case]
    rows = Looks(tmp_path).take(looks)
    assert len(rows) == bool(expected)
    for row in rows:
        assert (row["event"], row["incident"], row["goes_on"]) == ("stood_still", "i1", True)
        assert {key: row[key] for key in expected} == expected


@pytest.mark.parametrize(("resumes", "first", "lost"), [(False, 3, 8), (True, 3, 5), (False, 20, 8)])
@pytest.mark.parametrize("down", [4, 1])  # one that is soon over costs as many
def test_a_program_that_begins_again_loses_every_step(
    tmp_path: Path, resumes: bool, first: int, lost: int, down: int
) -> None:
    """Whichever step it shows first."""
    looks = Looks(tmp_path)
    looks.standstills = Standstills(looks.journal, resumes)
    (row,) = looks.take([*well(3, 9), *[(None, ["agent"])] * down, *well(first, first + 3, pid=2)])
    assert (row["steps_lost"], looks.journal.state.steps_lost) == (lost, lost)


def test_standstill_that_lasts_is_in_the_state(tmp_path: Path) -> None:
    looks = Looks(tmp_path)
    looks.take([*well(0, 5), *[(beat(4), ["resume"])] * 3], incident="")
    looks.take([(beat(4), ["resume"])], incident="i2")
    assert looks.journal.state.standstill == Standstill(("i2",), 5, {"resume": (6, 9)}, 1, 4, 4)
    looks.standstills.over = True
    looks.take([(beat(4), ["resume", "agent"])])
    looks.standstills.end()
    (row,) = read_lines(looks.run.launcher_events)
    assert (row["from_s"], row["until_s"], row["down"], row["goes_on"]) == (5, 10, {"resume": [6, 9]}, False)
    assert looks.journal.state.standstill is None
    looks.standstills.end()
    assert len(read_lines(looks.run.launcher_events)) == 1


def test_end_of_a_standstill_in_which_training_moved(tmp_path: Path) -> None:
    looks = Looks(tmp_path)
    looks.take([*well(0, 5), *[(beat(4), ["simulator"])] * 3, *[(beat(each), ["simulator"]) for each in range(5, 9)]])
    looks.standstills.end()
    (row,) = read_lines(looks.run.launcher_events)
    assert (row["from_s"], row["until_s"], row["time"], row["goes_on"]) == (5, 9, 12, True)


def test_killed_launchers_standstill_ends_with_the_next_one(tmp_path: Path) -> None:
    standstill = Standstill(("i3",), -50.0, {}, 0, 90, 80)
    (row,) = Looks(tmp_path, standstill).take([*[(None, ["simulator", "agent"])] * 3, *well(85, 88)], incident="i4")
    assert (row["incident"], row["incidents"], row["from_s"]) == ("i4", ["i3", "i4"], -50)
    assert (row["steps_lost"], row["updates_repeated"]) == (5, 0)


def test_loss_is_unknown_if_the_agent_never_came_back(tmp_path: Path) -> None:
    looks = Looks(tmp_path)
    looks.take([*well(0, 5), *[(None, ["agent"])] * 3])
    looks.standstills.end()
    (row,) = read_lines(looks.run.launcher_events)
    assert (row["steps_lost"], row["updates_repeated"]) == (None, None)


@pytest.mark.parametrize(("incident", "stays"), [("i3", False), ("i2", True)])
def test_adopted_agent_never_stood(tmp_path: Path, incident: str, stays: bool) -> None:
    looks = Looks(tmp_path, Standstill((incident,), 1.0))
    looks.standstills.training_resumed("i3")
    assert (looks.journal.state.standstill is not None) is stays
