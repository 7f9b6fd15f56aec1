"""``python -m carla_td3 evaluate`` against a real simulator: stopped, killed, and gone on with."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path
from typing import Any

import pytest

from carla_run.exits import Exit
from carla_run.readers import read_lines
from tests.conftest import REPOSITORY, Server, StartServer
from tests.crowd import until
from tests.wire.forked import ForkedAgent

ROUTES, MARK = 3, 4321.0
ASKED = ("evaluate", "--routes", str(ROUTES), "--drivers", "pid,stop")
QUICK = ("environment.route.min_length_m=60", "environment.route.max_length_m=120", "environment.blocked_s=2")


class Evaluations:
    """Evaluations in one folder, whose drives are kept there."""

    def __init__(self, server: Server, folder: Path) -> None:
        self._server, self._folder = server, folder
        self.json, self.csv = folder / "e.json", folder / "e.csv"

    def start(self, *more: str) -> ForkedAgent:
        settings = [word for setting in QUICK for word in ("--set", setting)]
        words = [*ASKED, *settings, "--json", str(self.json), "--csv", str(self.csv), *more]
        environment = {**os.environ, "CARLA_HOST": "127.0.0.1", "CARLA_PORT": str(self._server.port)}
        return ForkedAgent(words, REPOSITORY, environment)

    def finish(self, *more: str) -> str:
        process = self.start(*more)
        said, _ = process.communicate(300)
        assert process.returncode == Exit.FINISHED, said
        return said

    def kept(self) -> list[Path]:
        return sorted(self._folder.glob("e.drives-*.jsonl"))

    def drives(self) -> list[dict[str, Any]]:
        return [row for path in self.kept() for row in read_lines(path) if "route" in row]

    def ended_by(self, number: signal.Signals, after: int) -> tuple[int | None, str]:
        """Start one, and end it by a signal once so many drives are kept; return its exit code and what it said."""
        process = self.start()
        until(lambda: len(self.drives()) >= after)
        process.send_signal(number)
        said, _ = process.communicate(120)
        return process.returncode, said

    def rows(self) -> list[tuple[str, str, float]]:
        found = json.loads(self.json.read_text())
        return [(each["name"], row["route"], row["reward"]) for each in found for row in each["routes"]]


@pytest.fixture
def evaluations(module_server: Server, tmp_path: Path) -> Evaluations:
    return Evaluations(module_server, tmp_path)


def marked(path: Path) -> str:
    """Change what a kept drive says, so that it can be told from one that is driven again; return its route."""
    lines = path.read_text().splitlines()
    row = json.loads(lines[1])
    lines[1] = json.dumps({**row, "reward": MARK})
    path.write_text("\n".join(lines) + "\n")
    return str(row["route"])


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_what_was_driven_before_a_signal_is_not_driven_again(evaluations: Evaluations, number: signal.Signals) -> None:
    code, said = evaluations.ended_by(number, after=1)
    (path,) = evaluations.kept()
    kept = len(evaluations.drives())
    assert 1 <= kept < 2 * ROUTES
    if number is signal.SIGTERM:
        assert code == Exit.STOPPED
        assert f"Stopped by SIGTERM after {kept} of {2 * ROUTES} drives, which {path} keeps" in said
        assert "driving score" in said, "the table so far"
        assert len(evaluations.rows()) == len(evaluations.csv.read_text().splitlines()) - 1 == kept
    route = marked(path)
    assert f"{path} keeps {kept} of {2 * ROUTES} drives: resumes" in " ".join(evaluations.finish().split())
    rows = evaluations.rows()
    assert len({(driver, route) for driver, route, _ in rows}) == len(rows) == 2 * ROUTES
    assert ("pid", route, MARK) in rows
    assert evaluations.kept() == [], "all is driven and written"


def test_drives_with_other_settings_are_left_and_named(evaluations: Evaluations) -> None:
    code, _ = evaluations.ended_by(signal.SIGINT, after=1)
    assert code == Exit.STOPPED
    (path,) = evaluations.kept()
    before = path.read_bytes()
    said = " ".join(evaluations.finish("--seed", "1", "--drivers", "pid").split())
    assert f"{path} keeps {len(evaluations.drives())} drives with another seed; they don't count here." in said
    assert path.read_bytes() == before
    # More routes, and another driver beside: what is driven by now counts among these.
    said = " ".join(evaluations.finish("--routes", str(ROUTES + 1), "--drivers", "pid,random").split())
    assert f"{path} keeps" in said
    assert "drives: resumes after them" in said
    assert evaluations.kept() == []


@pytest.mark.parametrize("cars", [0, 3])
def test_a_simulator_gone_for_good_leaves_the_table(start_server: StartServer, tmp_path: Path, cars: int) -> None:
    server = start_server()
    evaluations = Evaluations(server, tmp_path)
    process = evaluations.start(
        *("--set", f"environment.traffic.vehicles={cars}", "--set", "simulator.patience_s=1", "--drivers", "pid")
    )
    until(lambda: evaluations.drives() != [])
    server.kill()
    said, _ = process.communicate(120)
    assert process.returncode == Exit.NO_SIMULATOR, said
    assert len(evaluations.rows()) == len(evaluations.drives()) >= 1
    assert "driving score" in said
    assert "Traceback" not in said
