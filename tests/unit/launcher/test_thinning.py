"""A long run's history is read in parts, each line once, and what is kept of it is bounded and loses no figure."""

from __future__ import annotations

import json
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from random import Random
from typing import Any

import pytest

from carla_launcher.observe import tail
from carla_launcher.plugins.page.parts import charts_due_s
from carla_launcher.show.history import HistoryReader, examine
from carla_launcher.show.planned import Band, most_held
from carla_launcher.show.thinning import Thinned
from carla_launcher.show.timeline import AFTER_S, BEFORE_S, Timeline, highest
from carla_run.paths import RunPaths

START_S = 1_700_000_000.0
EVENTS_S = [START_S + 3_605.0, START_S + 20_000.0, START_S + 86_400.0 + 50_007.0]
ROWS = 6_000


def rows(count: int) -> Iterator[dict[str, Any]]:
    """Yield lines of memory, one each 10 s, with a pause of a day in the middle."""
    rng = Random(0)
    for number in range(count):
        owners = {"agent": rng.uniform(2000, 2200), "simulator": rng.uniform(2000, 2400), "X (7)": rng.uniform(1, 99)}
        pool = {"total": 6144.0, "free": 6144 - sum(owners.values()), "owners": owners}
        pause_s = 86_400 if number > count // 2 else 0
        step = None if number in (0, count - 1) else 100 * number
        phase = "evaluating" if number % 50 == 0 else "updating"
        yield {"time": START_S + 10 * number + pause_s, "phase": phase, "step": step, "pools": {"ram": pool}}


def course(most_rows: int) -> Timeline:
    thinned = Thinned(most_rows, parts=30)
    thinned.add(rows(ROWS), EVENTS_S)
    return thinned.timeline


@pytest.fixture(scope="module")
def whole() -> Timeline:
    return course(ROWS)


@pytest.fixture(scope="module")
def thinned() -> Timeline:
    return course(1_000)


def test_many_rows_are_thinned(whole: Timeline, thinned: Timeline) -> None:
    assert len(whole.progress) == ROWS
    assert len(thinned.progress) <= 1_000
    assert thinned.thinned_s < 86_400


def test_peaks_ends_and_steps_stay(whole: Timeline, thinned: Timeline) -> None:
    assert highest(thinned.pools["ram"]) == highest(whole.pools["ram"])
    assert (thinned.steps[0], thinned.steps[-1]) == (whole.steps[0], whole.steps[-1])
    assert (thinned.progress[0], thinned.progress[-1]) == (whole.progress[0], whole.progress[-1])
    for phase in ("", "evaluating", "updating"):
        band = Band("agent", "ram", phase, 2000.0)
        assert most_held(band, thinned) == most_held(band, whole)


@pytest.mark.parametrize("moment_s", EVENTS_S)
def test_the_tightest_moment_of_an_event_stays(moment_s: float, whole: Timeline, thinned: Timeline) -> None:
    assert thinned.tightest("ram", moment_s, BEFORE_S, AFTER_S) == whole.tightest("ram", moment_s, BEFORE_S, AFTER_S)


def test_a_pause_between_launchers_stays_a_gap(whole: Timeline, thinned: Timeline) -> None:
    def gaps(found: Timeline) -> list[tuple[float, float]]:
        times = [each.time_s for each in found.progress]
        return [(a, b) for a, b in pairwise(times) if b - a > max(120, found.thinned_s)]

    assert gaps(thinned) == gaps(whole) != []


def written(run: RunPaths, count: int) -> None:
    run.path.mkdir(parents=True)
    run.launcher_events.write_text(json.dumps({"time": START_S, "event": "run_started"}) + "\n")
    run.launcher_memory.write_text("".join(json.dumps(row) + "\n" for row in rows(count)))
    run.metrics.write_text("".join(json.dumps({"step": n, "time/fps": n, "other": n}) + "\n" for n in range(count)))


def test_a_second_look_reads_only_what_is_new(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run, read = RunPaths(tmp_path / "run"), list[int]()
    written(run, 600)
    original = tail.Tail._part
    monkeypatch.setattr(tail, "MAX_BYTES", 4_096)

    def counted(self: tail.Tail) -> bytes:
        part = original(self)
        read.append(len(part))
        return part

    monkeypatch.setattr(tail.Tail, "_part", counted)
    reader = HistoryReader(run, ["time/fps"])
    first = reader.look()
    size = sum(path.stat().st_size for path in (run.launcher_events, run.launcher_memory, run.metrics))
    assert (sum(read), max(read)) == (size, 4_096)
    assert first.metrics[-1] == {"step": 599, "time/fps": 599}
    read.clear()
    line = json.dumps({"time": START_S + 10**6, "step": 7, "pools": {}}) + "\n"
    with run.launcher_memory.open("a") as file:
        file.write(line[:9])
        assert reader.look().last_step != 7
        file.write(line[9:])
    assert reader.look().last_step == 7
    assert sum(read) == len(line)


def test_files_of_another_run_are_read_from_their_beginning(tmp_path: Path) -> None:
    run = RunPaths(tmp_path / "run")
    written(run, 300)
    reader = HistoryReader(run)
    reader.look()
    run.launcher_memory.write_text(json.dumps({"time": START_S, "step": 5, "pools": {}}) + "\n")
    assert reader.look() == examine(run)
    assert reader.look().last_step == 5


@pytest.mark.parametrize(("drawing_s", "due_s"), [(0.0, 10.0), (0.9, 10.0), (3.0, 30.0)])
def test_charts_that_take_long_are_drawn_less_often(drawing_s: float, due_s: float) -> None:
    assert charts_due_s(drawing_s) == pytest.approx(due_s)
