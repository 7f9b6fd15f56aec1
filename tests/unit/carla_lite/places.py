"""Shared by several tests: maps by name, the real client's reading of them, level ground, scenes of a few boxes."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np
import pytest

from carla_lite.roads import network as roads
from carla_lite.roads.network import RoadNetwork
from carla_lite.scenery.paint import GroundImage
from carla_lite.scenery.scene import Scene
from carla_lite.scenery.statics import StaticBox, StaticIndex
from carla_lite.towns import generator
from tests.conftest import REPOSITORY

MAPS = REPOSITORY.parent / "shared" / "maps"


@lru_cache(maxsize=32)
def xodr_of(name: str) -> str:
    """Return a generated town's OpenDRIVE text, or that of one of CARLA's; skip the test where that isn't here."""
    if generator.is_name(name):
        return generator.generate(name)
    path = MAPS / f"{name}.xodr"
    if not path.is_file():
        pytest.skip(f"CARLA's own {name}.xodr is not beside the repository")
    return path.read_text(encoding="utf-8")


@lru_cache(maxsize=8)
def network_of(name: str) -> RoadNetwork:
    return roads.load(name) if generator.is_name(name) else RoadNetwork.parse(name, xodr_of(name))


@lru_cache(maxsize=32)
def client_map(name: str) -> Any:
    """Return what the real client makes of a map."""
    return pytest.importorskip("carla").Map(name, xodr_of(name))


def flat(_x: float, _y: float) -> float:
    return 0.0


def ground_of(level: int) -> GroundImage:
    """Return grey ground, 300 m around the origin."""
    return GroundImage(tuple(np.full((600 >> k, 600 >> k, 3), level, np.uint8) for k in range(6)), 1.0, -300.0, -300.0)


def scene(*boxes: StaticBox, ground: GroundImage | None = None) -> Scene:
    """Return a scene on black ground."""
    picture = ground or ground_of(0)
    return Scene(StaticIndex(boxes), flat, picture.metres_per_pixel, lambda: picture)
