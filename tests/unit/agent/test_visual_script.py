"""Whether the visual test takes a camera of its own goes by the card, and by what the launcher's plan leaves on it."""

from __future__ import annotations

import importlib
import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import REPOSITORY


@pytest.fixture
def script(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(str(REPOSITORY / "scripts"))
    return importlib.import_module("test_visual_navigation")


def planned(left_mib: float | None, **more: float) -> str:
    pools = {"vram:0": left_mib, "ram": 9000.0, **more}
    return json.dumps({"start": {"pools": {name: {"left_mib": left} for name, left in pools.items()}}})


@pytest.mark.parametrize(
    ("plan", "room"),
    [
        (planned(500.0), True),
        (planned(30.0), False),
        (planned(500.0, **{"vram:1": 60.0}), False),
        (planned(None), False),
        ('{"start": null}', False),
        ("no plan at all", False),
    ],
    ids=["enough", "too little", "too little on one of two", "unknown", "nothing fits", "no answer"],
)
def test_beside_a_card_a_camera_needs_room_in_the_plan(
    script: Any, monkeypatch: pytest.MonkeyPatch, plan: str, room: bool
) -> None:
    monkeypatch.setattr(Path, "glob", lambda *_: iter([Path("/dev/nvidia0")]))
    monkeypatch.setattr(script.subprocess, "run", lambda *_, **__: subprocess.CompletedProcess((), 0, plan, ""))
    assert script.room_for_a_camera() is room


def test_without_a_card_a_camera_costs_no_card_anything(script: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Path, "glob", lambda *_: iter(()))
    assert script.room_for_a_camera()
