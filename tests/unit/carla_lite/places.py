"""Shared by several tests: maps by name, the real client's reading of them, level ground, scenes of a few boxes."""

from __future__ import annotations

import math
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


def flat(_x: float, _y: float, _z: float) -> float:
    return 0.0


def ground_of(level: int) -> GroundImage:
    """Return grey ground, 300 m around the origin."""
    return GroundImage(tuple(np.full((600 >> k, 600 >> k, 3), level, np.uint8) for k in range(6)), 1.0, -300.0, -300.0)


def scene(*boxes: StaticBox, ground: GroundImage | None = None) -> Scene:
    """Return a scene on black ground."""
    picture = ground or ground_of(0)
    return Scene(StaticIndex(boxes), flat, picture.metres_per_pixel, lambda: picture)


def bridge() -> RoadNetwork:
    """Return a road to the east at y = -20 and height 0, and one to the north at x = 50 that leads over it at 6.4 m and
    allows 108 km/h.
    """

    def road(number: int, length: int, start: str, elevation: str, of_type: str = "") -> str:
        lane = '<lane id="{}" type="driving"><width sOffset="0" a="3.5" b="0" c="0" d="0"/></lane>'
        return f"""<road id="{number}" length="{length}" junction="-1">{of_type}
          <planView><geometry s="0" {start} length="{length}"><line/></geometry></planView>
          <elevationProfile>{elevation}</elevationProfile>
          <lanes><laneSection s="0"><left>{lane.format(1)}</left><center><lane id="0" type="none"/></center>
          <right>{lane.format(-1)}</right></laneSection></lanes></road>"""

    arch = "".join(
        f'<elevation s="{s}" a="{a}" b="{b}" c="0" d="0"/>'
        for s, a, b in ((0, 0.0, 0.06), (100, 6.0, 0.02), (150, 7.0, -0.1))
    )
    fast = '<type s="0" type="motorway"><speed max="30"/></type>'
    under = road(7, 100, 'x="0" y="20" hdg="0"', '<elevation s="0" a="0" b="0" c="0" d="0"/>')
    over = road(8, 200, f'x="50" y="-100" hdg="{0.5 * math.pi}"', arch, fast)
    return RoadNetwork.parse("bridge", f'<OpenDRIVE><header revMajor="1" revMinor="4"/>{under}{over}</OpenDRIVE>')
