"""An evaluation's decisions: what an end means, which item is next, when one is left; and its journal after kills."""

from __future__ import annotations

import contextlib
import errno
import json
import os
import signal
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest
from typer.testing import CliRunner

from carla_launcher import cli
from carla_launcher.act.journal import Journal, JournalError
from carla_launcher.act.launcher_state import LauncherState
from carla_launcher.decide.decisions import Ending
from carla_launcher.decide.route_progress import Progress, Standing, progress_of
from carla_launcher.decide.route_verdict import DriveEnd, Outcome, Verdict, Why, judge, why_fresh
from carla_launcher.observe.memory import MemoryReader
from carla_launcher.observe.pools import Cards, Gpu, Reading
from carla_launcher.options import RefusedError, RunOptions
from carla_launcher.resolve.resuming import run_request
from carla_launcher.routes import evaluation, items
from carla_launcher.routes.desk import Assignment, Desk, file_name
from carla_launcher.routes.lane import Lane
from carla_launcher.show import routes
from carla_run.configuration import program_file
from carla_run.configuration.program_file import ProgramFileError
from carla_run.configuration.routes_section import DrivenSimulator, ItemSource, Routes
from carla_run.exits import Exit, ExitError
from carla_run.paths import RunPaths
from carla_run.readers import read_lines
from carla_run.signals import StopRequests
from tests.conftest import REPOSITORY

COMMAND = ("drive", "{item}", "{result}")
DONE = Verdict(Outcome.DONE, None, "it is done")
KILLED_IT = Verdict(Outcome.AGAIN, Why.SIMULATOR, "the simulator ended")
STOPPED = Verdict(Outcome.UNDONE, Why.STOPPED, "the evaluation was stopped")


def rules(**changes: Any) -> Routes:
    return Routes.model_validate({"items": {"names": ["a", "b", "c"]}, "command": COMMAND, **changes})


LEADERBOARD = rules(
    time_limit_s=60,
    done={"exit_codes": [0], "result_has": '"status": "(Perfect|Completed|Failed)'},
    failed={"result_has": "Failed - Agent crashed"},
    again={"result_has": "Simulation crashed"},
)


@pytest.mark.parametrize(
    ("end", "outcome", "why"),
    [
        (DriveEnd(0, result='"status": "Perfect"'), Outcome.DONE, None),
        (DriveEnd(0, result='"status": "Failed - Agent timed out"'), Outcome.DONE, None),
        (DriveEnd(0, result='"status": "Failed - Agent crashed"'), Outcome.FAILED, None),
        (DriveEnd(0, result='"status": "Failed - Simulation crashed"'), Outcome.AGAIN, Why.NOT_VALID),
        (DriveEnd(255, result='"status": "Perfect"'), Outcome.AGAIN, Why.EXIT),
        (DriveEnd(0), Outcome.AGAIN, Why.EXIT),
        (DriveEnd(139), Outcome.AGAIN, Why.EXIT),
        (DriveEnd(0, simulator="it ended", result='"status": "Perfect"'), Outcome.AGAIN, Why.SIMULATOR),
        (DriveEnd(143, Why.TIME_LIMIT), Outcome.AGAIN, Why.TIME_LIMIT),
        (DriveEnd(143, Why.TIME_LIMIT, "it hangs"), Outcome.AGAIN, Why.SIMULATOR),
        (DriveEnd(0, Why.STOPPED, "it ended", '"status": "Perfect"'), Outcome.UNDONE, Why.STOPPED),
        (DriveEnd(127, Why.NOT_STARTED), Outcome.AGAIN, Why.NOT_STARTED),
    ],
)
def test_what_an_end_means(end: DriveEnd, outcome: Outcome, why: Why | None) -> None:
    verdict = judge(end, LEADERBOARD)
    assert (verdict.outcome, verdict.why) == (outcome, why)


@pytest.mark.parametrize(
    ("shows", "end", "outcome"),
    [
        ({}, DriveEnd(0, result="x"), Outcome.DONE),
        ({}, DriveEnd(0), Outcome.AGAIN),
        ({"done": {"exit_codes": [0, 3]}}, DriveEnd(3), Outcome.DONE),
        ({"done": {"output_has": "^all good$"}}, DriveEnd(1, output="all good"), Outcome.DONE),
        ({"done": {"result": True}}, DriveEnd(134, result="{}"), Outcome.DONE),
        ({"done": {"result": True, "sure": True}}, DriveEnd(143, Why.TIME_LIMIT, result="{}"), Outcome.DONE),
        ({"done": {"result": True, "sure": True}}, DriveEnd(134, None, "it ended", "{}"), Outcome.DONE),
        ({"done": {"result": True, "sure": True}}, DriveEnd(143, Why.STOPPED, result="{}"), Outcome.UNDONE),
        ({"failed": {"exit_codes": [4], "sure": True}}, DriveEnd(4, None, "it ended", "{}"), Outcome.FAILED),
        ({"failed": {"exit_codes": [4], "sure": True}}, DriveEnd(0, None, "it ended", "{}"), Outcome.AGAIN),
        ({"failed": {"exit_codes": [4], "result": False}}, DriveEnd(4), Outcome.FAILED),
        ({"failed": {"exit_codes": [4], "result": False}}, DriveEnd(4, result="x"), Outcome.AGAIN),
    ],
)
def test_what_shows_an_end(shows: dict[str, Any], end: DriveEnd, outcome: Outcome) -> None:
    assert judge(end, rules(**shows)).outcome is outcome


def test_a_failed_program_is_quoted() -> None:
    said = judge(DriveEnd(1, output="Traceback\nKeyError: 'town'\n\n"), rules()).sentence
    assert said == "its program ended with exit code 1, without a result: KeyError: 'town'"


@pytest.mark.parametrize(
    ("changes", "drives", "result", "fresh"),
    [
        ({}, 1000, True, ""),
        ({}, 1, False, "the last drive in it left no result"),
        ({"after_failure": False}, 1, False, ""),
        ({"every": 3}, 2, True, ""),
        ({"every": 3}, 3, True, "it has served 3 drives (simulator.every is 3)"),
        ({"most_mib": {"ram": 900}}, 1, True, ""),
        ({"most_mib": {"ram": 700}}, 1, True, "it holds 800 MiB of ram (simulator.most_mib is 700)"),
        ({"most_mib": {"vram": 100}}, 1, True, ""),
    ],
)
def test_when_a_simulator_is_fresh(changes: dict[str, Any], drives: int, result: bool, fresh: str) -> None:
    assert why_fresh(DrivenSimulator.model_validate(changes), drives, result, {"ram": 800.0}) == fresh


class Office:
    """An evaluation's folder, and launchers that hold it one after another."""

    def __init__(self, folder: Path) -> None:
        self.run = RunPaths(folder)
        folder.mkdir(parents=True, exist_ok=True)
        self.stop = StopRequests()

    def open(self, names: tuple[str, ...] = ("a", "b", "c"), **changes: Any) -> Desk:
        journal = Journal(self.run, LauncherState("night", {}, "", 0, evaluation="night.yaml"), time.time)
        desk = Desk(self.run, names, rules(**changes), journal, self.stop, print)
        desk.begin()
        return desk

    def drive(self, desk: Desk, come_to: Callable[[Assignment], Verdict] = lambda _: DONE) -> list[str]:
        """Drive all that is given out; return the items in the order in which they were."""
        driven = []
        while (drive := desk.take(0)) is not None:
            driven.append(drive.item)
            drive.result.write_text(f"{drive.item}, drive {drive.number}")
            desk.give_back(drive, come_to(drive), 0, 1.0, {})
        return driven

    def progress(self) -> Progress:
        return progress_of(read_lines(self.run.launcher_events))

    def told(self) -> dict[str, Any]:
        return routes.told(self.run, self.progress())

    def standings(self) -> list[Standing]:
        return [self.progress().standing(item) for item in self.progress().items]


@pytest.fixture
def office(tmp_path: Path) -> Office:
    return Office(tmp_path / "night")


def test_each_item_is_driven_once_and_its_result_is_kept(office: Office) -> None:
    assert office.drive(office.open()) == ["a", "b", "c"]
    assert office.standings() == [Standing.DONE] * 3
    assert {path.name: path.read_text() for path in office.run.results.iterdir()} == {
        "a.json": "a, drive 1",
        "b.json": "b, drive 1",
        "c.json": "c, drive 1",
    }
    assert office.drive(office.open()) == []


def test_what_fails_comes_after_the_others_and_is_left(office: Office) -> None:
    driven = office.drive(office.open(), lambda drive: KILLED_IT if drive.item == "b" else DONE)
    assert driven == ["a", "b", "c", "b"]
    assert office.standings() == [Standing.DONE, Standing.LEFT, Standing.DONE]
    assert not (office.run.results / "b.json").exists()
    assert routes.left(office.told()) == [
        "b: left after 2 drives (drive 1: the simulator ended; drive 2: the simulator ended)"
    ]
    assert office.drive(office.open(drives=3)) == ["b"]  # more is allowed now
    assert office.standings() == [Standing.DONE] * 3


def test_a_stop_counts_for_nothing(office: Office) -> None:
    for _ in range(3):
        desk = office.open()
        drive = desk.take(0)
        assert drive is not None
        desk.give_back(drive, STOPPED, 143, 1.0, {})
    assert office.standings() == [Standing.OPEN] * 3
    assert office.drive(office.open()) == ["a", "b", "c"]
    assert office.told()["driven_again"] == {"stopped": 3}


def test_a_killed_launcher_costs_its_drive_once(office: Office) -> None:
    for item in ("a", "b", "c", "a"):  # one that kills each launcher holds up nothing
        taken = office.open().take(0)
        assert taken is not None
        assert taken.item == item
        assert Standing.UNDER_WAY in office.standings()
    assert office.drive(office.open()) == ["b", "c", "a"]
    assert office.told()["driven_again"] == {"launcher_killed": 4}


def test_two_simulators_never_share_an_item(office: Office) -> None:
    desk = office.open()
    taken = [desk.take(number) for number in (0, 1, 2, 3)]
    assert [drive and drive.item for drive in taken] == ["a", "b", "c", None]
    assert desk.may_have_work


def test_drives_in_a_row_without_a_result_end_it(office: Office) -> None:
    desk = office.open(give_up_after=2)
    assert office.drive(desk, lambda _: KILLED_IT) == ["a", "b"]
    assert desk.over is not None
    assert desk.over.code == Exit.BUDGET_SPENT
    assert desk.over.reason.startswith("2 drives in a row left no result, the last one (b, drive 1) because")


def test_a_changed_list_keeps_the_results_that_there_are(office: Office) -> None:
    office.drive(office.open())
    assert office.drive(office.open(("c", "d", "a"))) == ["d"]
    assert office.progress().items == ("c", "d", "a")


def cuts(written: bytes) -> list[int]:
    """Return where a launcher may have been killed: before, within and after each row, and before its line's end."""
    ends = [at + 1 for at, byte in enumerate(written) if byte == 10]
    starts = [0, *ends[:-1]]
    return sorted({cut for a, b in zip(starts, ends, strict=True) for cut in (a, a + 1, (a + b) // 2, b - 2, b - 1, b)})


def test_a_kill_between_any_two_writes_loses_nothing(office: Office, tmp_path: Path) -> None:
    office.drive(office.open(), lambda drive: KILLED_IT if (drive.item, drive.number) == ("b", 1) else DONE)
    written = office.run.launcher_events.read_bytes()
    for cut in cuts(written):
        later = Office(tmp_path / f"cut-{cut}")
        later.run.launcher_events.write_bytes(written[:cut])
        before = later.progress()
        done = [item for item in before.items if before.standing(item) is Standing.DONE]
        driven = later.drive(later.open())
        assert sorted(driven + done) == ["a", "b", "c"], cut
        assert later.standings() == [Standing.DONE] * 3, cut


def test_a_row_that_the_disk_refuses_ends_it(office: Office, monkeypatch: pytest.MonkeyPatch) -> None:
    desk = office.open()

    def full(_: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(JournalError, match=r"No space left on device.*make room") as refused:
        desk.take(0)
    assert refused.value.code == Exit.OUT_OF_MEMORY


def test_a_result_that_the_disk_refuses_ends_it(office: Office, monkeypatch: pytest.MonkeyPatch) -> None:
    desk = office.open()
    drive = desk.take(0)
    assert drive is not None
    drive.result.write_text("x")
    full = OSError(errno.ENOSPC, "No space left on device")
    monkeypatch.setattr("carla_launcher.routes.desk.write_whole", Mock(side_effect=full))
    with pytest.raises(JournalError, match=r"a.json can't be written \(No space left on device\)") as refused:
        desk.give_back(drive, DONE, 0, 1.0, {})
    assert refused.value.code == Exit.OUT_OF_MEMORY


@pytest.mark.parametrize(
    "row", [{}, {"event": "drive_ended", "item": "a"}, {"event": "items"}, {"item": []}, {"event": 3}]
)
def test_an_odd_row_changes_no_item(row: dict[str, Any]) -> None:
    assert progress_of([row]).drives == {}


def test_what_was_known_before_stays_as_it_was() -> None:
    rows = [
        {"event": "drive_starts", "item": "a", "folder": "1"},
        {"event": "drive_ended", "item": "a", "outcome": "done"},
        {"event": "drive_starts", "item": "b", "folder": "2"},
    ]
    known = progress_of(rows[:1])
    whole = progress_of(rows[1:], known)
    assert whole == progress_of(rows) == progress_of(rows[2:], progress_of(rows[1:2], known))
    assert (len(known.drives), len(whole.drives)) == (1, 2)


@pytest.mark.parametrize(
    ("item", "name"),
    [("3", "3"), ("Town01_7.xml", "Town01_7.xml"), ("../x", "x-"), ("a b", "a-b-"), ("ä", ""), (".x", "x-")],
)
def test_an_item_makes_a_safe_file_name(item: str, name: str) -> None:
    assert file_name(item).startswith(name)
    assert "/" not in file_name(item)
    assert not file_name(item).startswith(".")


def test_items_of_different_names_have_different_files() -> None:
    assert len({file_name(item) for item in ("a b", "a  b", "a/b", "a-b", "ä", "ö")}) == 6


@pytest.mark.parametrize(
    ("source", "text", "found"),
    [
        ({"names": [0, "x"]}, "", ("0", "x")),
        ({"routes_xml": "r.xml"}, '<routes><route id="3"/><group><route id="1"/></group></routes>', ("3", "1")),
        ({"lines_of": "r.xml"}, "\ufeff one \n\ntwo\n", ("one", "two")),
        ({"command": ["cat", "r.xml"]}, "1\n2\n", ("1", "2")),
    ],
)
def test_where_items_come_from(tmp_path: Path, source: dict[str, Any], text: str, found: tuple[str, ...]) -> None:
    (tmp_path / "r.xml").write_text(text)
    assert items.read(ItemSource.model_validate(source), tmp_path) == found


@pytest.mark.parametrize(
    ("source", "said"),
    [
        ({"names": []}, "items.names has no items"),
        ({"names": [1, "1"]}, "has the item '1' twice"),
        ({"names": ["a\nb"]}, "expected printable text"),
        ({"routes_xml": "none.xml"}, "the items can't be read (No such file or directory)"),
        ({"routes_xml": "odd"}, "isn't XML"),
        ({"routes_xml": "no_id"}, "a route without an id"),
        ({"command": ["false"]}, "`false`, asked for the items, ended with 1: it said nothing"),
        ({"command": ["no-such-program"]}, "can't be started for the items"),
    ],
)
def test_items_that_cant_be_had_are_refused(tmp_path: Path, source: dict[str, Any], said: str) -> None:
    (tmp_path / "odd").write_text("<routes>")
    (tmp_path / "no_id").write_text("<routes><route/></routes>")
    with pytest.raises(ProgramFileError) as refused:
        items.read(ItemSource.model_validate(source), tmp_path)
    assert said in str(refused.value)


def test_ctrl_c_while_the_items_are_asked_for_is_a_stop(tmp_path: Path) -> None:
    asking = {
        "items": {"command": ["sh", "-c", "kill -INT $PPID; exit 130"]},
        "command": ("true", "{item}", "{result}"),
    }
    (tmp_path / "r.yaml").write_text(json.dumps({"routes": asking}))
    names = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    before = [signal.getsignal(name) for name in names]
    try:
        with pytest.raises(ExitError, match="Stopped on request") as over:
            evaluation.run(RunPaths(tmp_path / "run"), tmp_path / "r.yaml", RunOptions(), 1, print)
    finally:
        for name, handler in zip(names, before, strict=True):
            signal.signal(name, handler)
    assert over.value.code == Exit.STOPPED


EXAMPLE = program_file.load(REPOSITORY / "examples" / "programs" / "leaderboard.yaml").routes


@pytest.mark.parametrize(
    ("status", "end", "outcome"),
    [
        ("Perfect", DriveEnd(0), Outcome.DONE),
        ("Completed", DriveEnd(255, None, "the simulator ended"), Outcome.DONE),
        ("Completed", DriveEnd(143, Why.TIME_LIMIT), Outcome.DONE),
        ("Failed", DriveEnd(0), Outcome.DONE),
        ("Failed - Agent got blocked", DriveEnd(0), Outcome.DONE),
        ("Failed - Agent crashed", DriveEnd(0), Outcome.FAILED),
        ("Failed - Agent crashed", DriveEnd(0, None, "the simulator ended"), Outcome.AGAIN),
        ("Failed - Agent couldn't be set up", DriveEnd(0), Outcome.AGAIN),
        ("Failed - Simulation crashed", DriveEnd(255), Outcome.AGAIN),
        ("Started", DriveEnd(0), Outcome.AGAIN),
    ],
)
def test_what_the_leaderboards_words_mean(status: str, end: DriveEnd, outcome: Outcome) -> None:
    assert EXAMPLE is not None
    assert judge(replace(end, result=f'{{"status": "{status}"}}'), EXAMPLE).outcome is outcome


@pytest.fixture
def begin(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Ending]:
    """Begin an evaluation in this process, by a program file's text and options: ``begin(text, **options)``."""
    monkeypatch.setattr(StopRequests, "install", lambda *_, **__: None)  # this process's signals are pytest's
    monkeypatch.setattr(evaluation, "write_report", lambda _: "")

    def start(text: str, simulators: int = 1, **options: Any) -> Ending:
        (tmp_path / "program.yaml").write_text(text, encoding="utf-8")
        asked = RunOptions.model_validate(options)
        return evaluation.run(
            RunPaths(tmp_path / "night"), tmp_path / "program.yaml", asked, simulators, lambda _: None
        )

    return start


LEAST = "routes: {items: {names: [1]}, command: [%s, '{item}'], %s}"


@pytest.mark.parametrize(
    ("text", "options", "said", "code"),
    [
        (LEAST % ("no-such-program", ""), {}, "begins with 'no-such-program', which is no program here", 65),
        (LEAST % ("./drive.py", ""), {}, "begins with './drive.py', which is no program here", 65),
        (LEAST % ("cat", "folder: nowhere"), {}, "nowhere, expected a folder that is there", 65),
        (LEAST % ("cat", ""), {"simulators": 2, "simulator_host": "h"}, "--simulators is 2; expected 1", 65),
        (LEAST % ("cat", ""), {"simulator": "carla"}, "Nothing here says how CARLA is started", 65),
        (LEAST % ("cat", ""), {"simulator": "elsewhere"}, "needs the simulator's address: give --simulator-host", 65),
        (LEAST % ("cat", ""), {"gpu": Cards(0)}, "--gpu 0: there is no GPU here: leave it out.", 65),
        (LEAST % ("cat", "items: {}"), {}, "stands twice", 65),
        (LEAST % ("cat", "lanes: 2"), {}, "unknown key `routes.lanes`; known here", 65),
        (LEAST % ("cat", "drives: 0"), {}, "`routes.drives` is 0; expected at least 1", 65),
        (LEAST % ("cat", "simulator: {every: 0}"), {}, "`routes.simulator.every` is 0; expected at least 1", 65),
        ("routes: {items: {names: []}, command: [cat, '{item}']}", {}, "has no items, expected at least one", 65),
        ("routes: {items: {names: [1, 1]}, command: [cat, '{item}']}", {}, "has the item '1' twice", 65),
        ("", {}, "has no `routes`: examples/programs/leaderboard.yaml has it", 65),
        ("routes: {items: {names: [1]}}", {}, "`routes.command` is missing", 65),
    ],
)
def test_what_cant_be_driven_is_refused_and_leaves_no_folder(
    begin: Callable[..., Ending], tmp_path: Path, text: str, options: dict[str, Any], said: str, code: int
) -> None:
    with pytest.raises(ExitError) as refused:
        begin(text, **options)
    assert said in str(refused.value)
    assert refused.value.code == code
    assert not (tmp_path / "night").exists()


@pytest.mark.parametrize(("simulator", "refused"), [("auto", True), ("carla-lite", False)])
def test_a_card_isnt_left_unused_unasked(
    begin: Callable[..., Ending], monkeypatch: pytest.MonkeyPatch, simulator: str, refused: bool
) -> None:
    monkeypatch.setattr(MemoryReader, "read", lambda *_: Reading((), Gpu.OK))
    monkeypatch.setattr(Lane, "run", lambda *_: iter(()))
    with pytest.raises(RefusedError, match="Nothing here says how CARLA") if refused else contextlib.nullcontext():
        begin(LEAST % ("cat", ""), simulator=simulator)


def test_without_a_simulator_items_run_side_by_side(begin: Callable[..., Ending]) -> None:
    together = "touch $0; until test -e a && test -e b; do sleep 0.01; done"
    text = json.dumps({"routes": {"items": {"names": ["a", "b"]}, "command": ["sh", "-c", together, "{item}"]}})
    assert begin(text, 2, simulator="none") == Ending(Exit.FINISHED, "all items have a result")


def test_a_run_of_up_is_refused(begin: Callable[..., Ending], tmp_path: Path) -> None:
    (tmp_path / "night").mkdir()
    run = RunPaths(tmp_path / "night")
    Journal(run, LauncherState("night", {}, "", 0), time.time).save()
    with pytest.raises(RefusedError, match=r"is a run of `up`: choose another --run-name"):
        begin(LEAST % ("cat", ""))


def test_another_program_of_the_same_name_is_refused(
    begin: Callable[..., Ending], office: Office, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Their results would be mixed. A program file that was moved continues."""
    monkeypatch.chdir(tmp_path)
    office.drive(office.open(("1",)))
    Path("night.yaml").touch()
    with pytest.raises(RefusedError, match=r"night is the evaluation of night\.yaml, not of .*program\.yaml: choose"):
        begin(LEAST % ("cat", ""))
    Path("night.yaml").unlink()
    assert begin(LEAST % ("cat", "")).code == Exit.FINISHED


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--simulators", "0", "--program", "x.yaml"], "should be greater than or equal to 1"),
        ([], "--program is missing"),
    ],
)
def test_a_wrong_command_line_is_refused(words: list[str], said: str) -> None:
    ended = CliRunner().invoke(cli.app, ["routes", *words])
    assert ended.exit_code == Exit.USAGE
    assert said in " ".join(ended.output.replace("│", " ").split())


def test_an_evaluations_folder_is_no_run_of_up(office: Office) -> None:
    Journal(office.run, LauncherState("night", {}, "", 0, evaluation="night.yaml"), time.time).save()
    with pytest.raises(RefusedError, match="is an evaluation by `routes`: choose another --run-name"):
        run_request(office.run, RunOptions())


def test_what_is_driven_already_starts_nothing(begin: Callable[..., Ending], tmp_path: Path) -> None:
    office = Office(tmp_path / "night")
    office.drive(office.open(("1",)))
    assert begin(LEAST % ("cat", "")) == Ending(Exit.FINISHED, "all items have a result")


def test_a_damaged_line_is_said_and_its_item_driven_again(office: Office, capsys: pytest.CaptureFixture[str]) -> None:
    assert office.drive(office.open()) == ["a", "b", "c"]
    lines = office.run.launcher_events.read_bytes().splitlines(keepends=True)
    at = next(number for number, line in enumerate(lines) if b'"drive_ended"' in line)
    office.run.launcher_events.write_bytes(b"".join([*lines[:at], lines[at][1:], *lines[at + 1 :]]))
    desk = office.open()
    said = f"1 line of launcher-events.jsonl is damaged (first: line {at + 1}) and left out"
    assert said in capsys.readouterr().out
    assert office.drive(desk) == ["a"]


def test_a_journal_too_large_to_be_read_is_refused(office: Office) -> None:
    office.drive(office.open())
    os.truncate(office.run.launcher_events, 1 << 40)
    with pytest.raises(ExitError, match=r"launcher-events\.jsonl has more than 1024 MiB and is left out, and with it"):
        office.open()
