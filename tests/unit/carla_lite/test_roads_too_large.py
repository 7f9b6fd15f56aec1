"""OpenDRIVE with more elements than any town has: loaded or refused in a sentence, in bounded time and memory."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from carla_lite.roads import network, parser
from carla_lite.roads.network import MapError, RoadNetwork
from tests.conftest import REPOSITORY
from tests.unit.carla_lite import large_roads


def ends(count: int) -> list[str]:
    """Return how the texts of so many elements end, in a process that would be ended if it hung or grew."""
    program = [sys.executable, "-m", large_roads.__name__, str(count)]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    ended = subprocess.run(program, capture_output=True, text=True, cwd=REPOSITORY, env=environment, check=False)
    assert (ended.returncode, ended.stderr) == (0, "")
    return ended.stdout.splitlines()


def test_many_elements_load() -> None:
    assert [line for line in ends(1500) if not line.endswith(": loaded")] == [
        "elements without an end: map map is not XML (Start-end tags mismatch, line 33): expected an OpenDRIVE file "
        "(.xodr), check what was exported"
    ]


@pytest.mark.long
def test_very_many_elements_end() -> None:
    assert len(ends(19_000)) == len(large_roads.KINDS)


@pytest.mark.parametrize(("kind", "element"), [("lanes", "lane"), ("signs", "signal"), ("geometries", "geometry")])
def test_too_many_elements_are_refused(monkeypatch: pytest.MonkeyPatch, kind: str, element: str) -> None:
    monkeypatch.setitem(parser._MOST, element, 50)
    with pytest.raises(MapError, match=rf"has \d+ <{element}> elements, carla-lite holds 50: cut it into parts"):
        RoadNetwork.parse("map", large_roads.text(kind, 60))


def test_a_map_file_too_large_is_not_read(tmp_path: Path) -> None:
    path = tmp_path / "large.xodr"
    with path.open("wb") as file:
        file.truncate(1 << 40)
    with pytest.raises(MapError, match=r"large\.xodr has 1048576 MiB, carla-lite reads 256: cut it into parts"):
        network.load(str(path))
