"""``up`` lets a run go only when its report exists, so that ``down`` doesn't say more than is so."""

from __future__ import annotations

import contextlib
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from carla_launcher import down, up
from carla_launcher.config import load
from carla_launcher.decide.decisions import Ending
from carla_launcher.options import RunOptions
from carla_run.locks import is_held
from carla_run.paths import RunPaths
from carla_run.signals import StopRequests

LIMITS = load()


def test_the_run_is_held_until_its_report_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = RunPaths(tmp_path / "runs" / "night")
    held: list[bool] = []

    def report(written: RunPaths) -> str:
        held.append(is_held(written.launcher_lock))
        return ""

    prepared: Any = SimpleNamespace(
        planned=SimpleNamespace(notes=()),
        resolved=SimpleNamespace(note="", memory=None),
        cards=(),
        spec=None,
    )
    runtime = SimpleNamespace(clear=lambda: None, close=lambda: None)
    monkeypatch.setattr(StopRequests, "install", lambda *_, **__: None)  # this process's signals are pytest's
    monkeypatch.setattr(up, "prepare", lambda *_: prepared)
    monkeypatch.setattr(up, "refuse_taken_ports", lambda *_, **__: None)
    monkeypatch.setattr(up, "cards_held", lambda *_: contextlib.nullcontext(()))
    monkeypatch.setattr(up, "_runtime", lambda *_: runtime)
    monkeypatch.setattr(up, "_supervise", lambda *_: Ending(0, "the agent finished"))
    monkeypatch.setattr(up, "write_report", report)
    assert up.run(run, RunOptions(), False, lambda _: None).code == 0
    assert held == [True]
    assert not is_held(run.launcher_lock)


@pytest.mark.parametrize(("was", "written"), [("running", 1), ("stopped", 0)])
def test_down_writes_a_killed_launchers_report(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, was: str, written: int
) -> None:
    run = RunPaths(tmp_path / "night")
    run.path.mkdir()
    run.launcher_state.write_text(f'{{"state": "{was}"}}')
    looks = iter((True, False, False))
    reports: list[RunPaths] = []
    monkeypatch.setattr(down, "is_held", lambda _: next(looks, False))
    monkeypatch.setattr(down, "owner_of", lambda _: None)
    monkeypatch.setattr(down, "_remove_containers", lambda *_: None)
    monkeypatch.setattr(down, "write_report", reports.append)
    assert down.run(run, LIMITS) == f"{run.path} is down."
    assert len(reports) == written
