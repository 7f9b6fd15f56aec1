"""``routes``: a foreign evaluation, given out item by item, under kills of simulator and launcher, hangs and stops."""

from __future__ import annotations

import functools
import json
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
import yaml

from tests.crowd import PATIENCE_S
from tests.wire.launched import Launched, gone
from tests.wire.trainee import rows

SCRIPT = Path(__file__).with_name("foreign_evaluation.py")


class Evaluation(Launched):
    """An evaluation, and the launchers that hold it one after another."""

    def __init__(self, folder: Path, *items: str, **keys: Any) -> None:
        super().__init__(folder, "night")
        self.notes, self._program = folder / "notes", folder / "night.yaml"
        self.notes.mkdir()
        self._routes = {"items": {"names": items}, "stop_grace_s": 2, **keys}
        self.uses(str(SCRIPT))

    def uses(self, *script: str) -> None:
        """Have items driven by Python with these words."""
        command = [sys.executable, *script, "{item}", "{port}", "{result}", str(self.notes)]
        self._program.write_text(yaml.safe_dump({"routes": {**self._routes, "command": command}}), encoding="utf-8")

    def begin(self, *options: str) -> None:
        """Start a launcher."""
        where = ("--program", str(self._program), "--runs-dir", str(self.runs))
        self.process = self._start("routes", *where, "--simulator", "carla-lite", *options)

    def until_driving(self, item: str, drives: int = 1) -> list[psutil.Process]:
        """Return all that runs for it, once an item's program has ticked in so many drives."""
        self.until(lambda: self.drives_of(item) >= drives)
        return self.programs

    def drives_of(self, item: str) -> int:
        """Return how often an item's program came as far as its ticks, by its own notes."""
        note = self.notes / item
        return len(note.read_text(encoding="utf-8").splitlines()) if note.exists() else 0

    def ends(self, *options: str) -> str:
        """Run it to the end of a launcher; return all that it printed."""
        self.begin(*options)
        return self.output()

    def table(self) -> dict[str, Any]:
        """Return what ``routes --json`` tells, without the drives of each item."""
        process = self._start(
            *("routes", "--run-name", "night", "--runs-dir", str(self.runs), "--json"), stderr=subprocess.PIPE
        )
        found: dict[str, Any] = json.loads(process.communicate(timeout=PATIENCE_S)[0])["routes"]
        return {name: value for name, value in found.items() if name not in ("run", "routes") and value}

    def results(self) -> dict[str, Any]:
        """Return what each item that has a result has left."""
        return {path.stem: json.loads(path.read_text(encoding="utf-8")) for path in (self.run / "results").iterdir()}

    def ended(self, **fields: Any) -> list[dict[str, Any]]:
        """Return the journal's ends of drives with these values."""
        return rows(self.run / "launcher-events.jsonl", ("drive_ended",), fields)


STARTS_ITS_OWN = f"""
import runpy, socket, subprocess, sys, time
subprocess.Popen([sys.executable, "-m", "carla_lite", "--port", sys.argv[2]])
while socket.socket().connect_ex(("127.0.0.1", int(sys.argv[2]))):
    time.sleep(0.1)
runpy.run_path({str(SCRIPT)!r}, run_name="__main__")
"""


@pytest.fixture
def evaluation(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Evaluation]:
    names, keys = request.param
    made = Evaluation(tmp_path, *names, **keys)
    yield made
    made.end()


@pytest.mark.parametrize("evaluation", [(("1", "waits", "kills", "4"), {})], indirect=True)
def test_it_outlives_its_launcher_and_a_route_that_kills(evaluation: Evaluation) -> None:
    evaluation.begin()
    processes = evaluation.until_driving("waits")
    evaluation.process.kill()
    gone(processes)
    output = evaluation.ends()
    assert evaluation.process.returncode == 70, output
    assert evaluation.table() == {
        "items": 4,
        "done": 3,
        "left": 1,
        "drives": 6,
        "driven_again": {"launcher_killed": 1, "simulator": 1},
    }
    assert evaluation.results() == {item: {"route": item, "ticks": 10} for item in ("1", "waits", "4")}
    assert [evaluation.drives_of(item) for item in ("1", "waits", "kills", "4")] == [1, 2, 2, 1]
    assert [row["cause"] for row in evaluation.ended(item="kills")] == ["the simulator ended by itself (signal 9)"] * 2
    assert "kills: left after 2 drives" in output
    assert "Traceback" not in output


@pytest.mark.long
@pytest.mark.parametrize(
    "evaluation", [(("1", "2", "kills", "4", "hangs"), {"time_limit_s": 30, "simulator": {"every": 2}})], indirect=True
)
def test_a_route_that_hangs_and_one_that_kills_are_left(evaluation: Evaluation) -> None:
    output = evaluation.ends()
    assert evaluation.process.returncode == 70, output
    assert evaluation.table()["driven_again"] == {"simulator": 1, "time_limit": 1}
    assert [evaluation.drives_of(item) for item in ("1", "2", "kills", "4", "hangs")] == [1, 1, 2, 1, 2]
    assert [row["why"] for row in evaluation.ended(outcome="again")] == ["simulator", "time_limit"] * 2
    causes = [row["cause"] for row in rows(evaluation.run / "launcher-events.jsonl", ("simulator_restart",), {})]
    assert "it has served 2 drives (simulator.every is 2)" in causes
    evaluation.ends()
    assert evaluation.process.returncode == 70
    assert evaluation.table()["drives"] == 7  # what is left stays left


@pytest.mark.long
@pytest.mark.parametrize("evaluation", [(("lies", "2"), {})], indirect=True)
def test_a_score_of_a_lost_simulator_is_none(evaluation: Evaluation) -> None:
    output = evaluation.ends()
    assert evaluation.process.returncode == 70, output
    assert [*evaluation.results()] == ["2"]
    assert [row["why"] for row in evaluation.ended(item="lies")] == ["simulator"] * 2


@pytest.mark.long
@pytest.mark.parametrize("evaluation", [(("1", "waits"), {})], indirect=True)
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_stop_leaves_the_item_undone(evaluation: Evaluation, number: signal.Signals) -> None:
    evaluation.begin()
    processes = evaluation.until_driving("waits")
    evaluation.process.send_signal(number)
    output = evaluation.output()
    assert evaluation.process.returncode == 75, output
    gone(processes)
    assert evaluation.table() == {"items": 2, "done": 1, "open": 1, "drives": 2}
    evaluation.ends()
    assert evaluation.process.returncode == 0
    assert evaluation.table()["driven_again"] == {"stopped": 1}


@pytest.mark.long
@pytest.mark.parametrize("evaluation", [(("1", "waits", "3"), {})], indirect=True)
def test_a_hung_simulator_is_replaced(evaluation: Evaluation) -> None:
    evaluation.begin()
    processes = evaluation.until_driving("waits")
    (simulator,) = (
        each for each in processes if "carla_lite" in each.cmdline() and "--lifeline" not in str(each.cmdline())
    )
    simulator.suspend()
    output = evaluation.output()
    assert evaluation.process.returncode == 0, output
    (lost,) = evaluation.ended(outcome="again")
    assert (lost["item"], lost["why"]) == ("waits", "simulator")
    assert "health checks in a row failed" in lost["cause"]
    gone(processes)


@pytest.mark.long
@pytest.mark.parametrize("evaluation", [([f"r{number}" for number in range(6)], {})], indirect=True)
def test_two_simulators_share_the_items(evaluation: Evaluation) -> None:
    output = evaluation.ends("--simulators", "2")
    assert evaluation.process.returncode == 0, output
    assert evaluation.table() == {"items": 6, "done": 6, "drives": 6}
    started = rows(evaluation.run / "launcher-events.jsonl", ("drive_starts",), {})
    assert {row["simulator"] for row in started} == {0, 1}
    assert len({note.read_text() for note in evaluation.notes.iterdir()}) == 2


@pytest.mark.long
@pytest.mark.parametrize("evaluation", [(("1", "2"), {"simulator": {"by_program": True}})], indirect=True)
def test_a_program_may_start_its_simulator_itself(evaluation: Evaluation) -> None:
    evaluation.uses("-c", STARTS_ITS_OWN)
    output = evaluation.ends("--simulators", "2")
    assert evaluation.process.returncode == 0, output
    assert [*evaluation.results()] == ["1", "2"]
    assert all(row["peak_mib"]["program"] for row in evaluation.ended())
    ports = [int(note.read_text()) for note in evaluation.notes.iterdir()]
    assert not [each for each in psutil.net_connections("tcp") if each.laddr and each.laddr.port in ports]


@pytest.mark.long
@pytest.mark.parametrize("evaluation", [([f"r{number}" for number in range(5)], {})], indirect=True)
def test_launchers_killed_between_writes_lose_nothing(evaluation: Evaluation) -> None:
    """Kill one launcher after its first row, the next one after its second, and so on."""
    journal = evaluation.run / "launcher-events.jsonl"

    def written() -> int:
        return journal.read_bytes().count(b"\n") if journal.exists() else 0

    def reached(count: int) -> bool:
        return written() >= count

    kills = range(1, 7)
    for more in kills:
        until = functools.partial(reached, written() + more)
        evaluation.begin()
        evaluation.until(until)
        processes = evaluation.programs
        evaluation.process.kill()
        gone(processes)
    output = evaluation.ends()
    assert evaluation.process.returncode == 0, output
    assert sorted(evaluation.results()) == [f"r{number}" for number in range(5)]
    assert len(evaluation.ended(outcome="done")) == 5
    assert evaluation.table()["drives"] <= 5 + len(kills)
    started = rows(journal, ("drive_starts",), {})
    assert len(started) == len(evaluation.ended())


@pytest.mark.long
@pytest.mark.parametrize("evaluation", [(("1", "2"), {"simulator": {"most_mib": {"ram": 10}}})], indirect=True)
def test_a_simulator_that_holds_too_much_is_replaced(evaluation: Evaluation, tmp_path: Path) -> None:
    heard = tmp_path / "heard"
    output = evaluation.ends("--on-event", f"cat >> {heard}")
    assert evaluation.process.returncode == 0, output
    (restart,) = rows(evaluation.run / "launcher-events.jsonl", ("simulator_restart",), {})
    assert re.fullmatch(r"it holds \d+ MiB of ram \(simulator.most_mib is 10\)", restart["cause"])
    assert [row["item"] for row in rows(heard, ("drive_ended",), {})] == ["1", "2"]
