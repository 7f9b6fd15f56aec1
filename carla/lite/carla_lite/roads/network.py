"""The road network of a map as the rest of carla-lite needs it: lanes, painted lines, ground, places to spawn.

Owns the way from a map's name or path to a network. The geometry lives in the modules below; the wire is unknown here.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from pathlib import Path

import numpy as np

from carla_lite.roads import signals, spawn_points
from carla_lite.roads.crossings import NO_CROSSINGS, Crossings, crossings
from carla_lite.roads.geo_reference import GeoReference
from carla_lite.roads.ground import ground
from carla_lite.roads.lanes import Lane, Marking, lanes_of, markings_of
from carla_lite.roads.opendrive import MapError, read_roads
from carla_lite.roads.signals import Signals
from carla_lite.roads.spawn_points import SpawnPoint
from carla_lite.towns import generator

__all__ = ["KNOWN", "MAP_NAMES", "Lane", "MapError", "Marking", "RoadNetwork", "SpawnPoint", "load"]

MAP_NAMES = generator.NAMES
KNOWN = f"{', '.join(MAP_NAMES)}, {generator.HOW_NAMED}"


@dataclass(frozen=True, eq=False)
class RoadNetwork:
    """All lanes and markings of one map, in CARLA's frame; compared by identity, so it can be a key of a cache."""

    name: str
    xodr: str
    lanes: tuple[Lane, ...]
    markings: tuple[Marking, ...]
    bounds: tuple[float, float, float, float]  # x_min, y_min, x_max, y_max of all lanes, m
    signals: Signals = field(default_factory=Signals)
    crossings: Crossings = NO_CROSSINGS

    @classmethod
    def parse(cls, name: str, xodr: str, step_m: float = 1.0) -> RoadNetwork:
        """Return the network of an OpenDRIVE text, sampled every ``step_m``; MapError says what is wrong with it."""
        roads = read_roads(name, xodr)
        lanes = tuple(lane for road in roads for lane in lanes_of(road, step_m))
        if not lanes:
            raise MapError(f"map {name} has {len(roads)} roads but no lane with a width: nothing can drive there")
        markings = tuple(marking for road in roads for marking in markings_of(road, step_m))
        edges = np.concatenate([edge[:, :2] for lane in lanes for edge in (lane.left, lane.right)])
        (x_min, y_min), (x_max, y_max) = edges.min(axis=0).tolist(), edges.max(axis=0).tolist()
        bounds = (x_min, y_min, x_max, y_max)
        return cls(name, xodr, lanes, markings, bounds, signals.read(name, xodr, lanes), crossings(roads))

    def renamed(self, name: str) -> RoadNetwork:
        """Return the same network under another name."""
        other = copy.copy(self)  # with what was computed already
        object.__setattr__(other, "name", name)
        return other

    def height(self, x: float, y: float) -> float:
        """Return the height in metres of the lane nearest to (x, y)."""
        return self.ground(x, y)

    @cached_property
    def ground(self) -> Callable[[float, float], float]:
        """The lookup behind ``height``, for loops that would pay for one call more."""
        return ground(
            np.concatenate([points for lane in self.lanes for points in (lane.left, lane.centre, lane.right)])
        )

    @cached_property
    def geo_reference(self) -> GeoReference:
        """Where on Earth the map lies."""
        return GeoReference.read(self.xodr)

    def spawn_points(self) -> tuple[SpawnPoint, ...]:
        """Return the places for cars, always the same ones in the same order."""
        return self._spawn_points

    @cached_property
    def _spawn_points(self) -> tuple[SpawnPoint, ...]:
        return tuple(point for point in spawn_points.choose(self.lanes) if spawn_points.is_level(point, self.ground))


@lru_cache(maxsize=2)
def load(map: str) -> RoadNetwork:
    """Return the network of a generated town (``Lite01``, ``/Game/Carla/Maps/Lite01``, ``Lite:seed=7,size=400``) or of
    the .xodr file at a path.

    MapError names the maps that exist if there is no such one.
    """
    name = map.rsplit("/", 1)[-1]
    if generator.is_name(name):
        return RoadNetwork.parse(name, generator.generate(name))
    path = Path(map)
    if not path.is_file():
        raise MapError(f"map {map} does not exist: expected one of {KNOWN} or the path of an OpenDRIVE file (.xodr)")
    try:
        xodr = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise MapError(f"map {map} cannot be read ({error}): expected an OpenDRIVE file (.xodr) in UTF-8") from None
    return RoadNetwork.parse(path.stem, xodr)
