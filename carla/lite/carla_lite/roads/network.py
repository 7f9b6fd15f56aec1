"""The road network of a map for the rest of carla-lite: lanes, painted lines, ground, spawn points.

Owns the conversion of a map's name or path to a network. The geometry is in the modules below; the wire is unknown
here.
"""

from __future__ import annotations

import codecs
import copy
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property, lru_cache, partial
from pathlib import Path
from typing import NamedTuple

import numpy as np

from carla_lite.roads import parser, signals, spawn_points, unloadable
from carla_lite.roads.crossings import NO_CROSSINGS, Crossings, crossings
from carla_lite.roads.geo_reference import GeoReference
from carla_lite.roads.ground import ground, level_of
from carla_lite.roads.lanes import Lane, Marking, is_wide, lanes_of, markings_of
from carla_lite.roads.opendrive import FARTHEST_M, MapError, OpenDrive, Road
from carla_lite.roads.reference_line import FloatArray
from carla_lite.roads.signals import Signals
from carla_lite.roads.spawn_points import SpawnPoint
from carla_lite.towns import generator

__all__ = ["MAP_NAMES", "Lane", "MapError", "Marking", "RoadNetwork", "RoadPaint", "SpawnPoint", "load"]

MAP_NAMES = generator.NAMES
# About 300 B per metre; CARLA's largest town has a third of this length.
_LONGEST_M = 2e6
_MOST_BYTES = 256 << 20


class RoadPaint(NamedTuple):
    """Markings and pedestrian crossings that are painted on the roads of a map."""

    markings: tuple[Marking, ...] = ()
    crossings: Crossings = NO_CROSSINGS


@dataclass(frozen=True, eq=False)
class RoadNetwork:
    """All lanes and markings of one map, in CARLA's frame; compared by identity, so it can be a key of a cache."""

    name: str
    xodr: str
    lanes: tuple[Lane, ...]
    bounds: tuple[float, float, float, float]  # x_min, y_min, x_max, y_max of all lanes, m
    signals: Signals = field(default_factory=Signals)
    painted: Callable[[], RoadPaint] = RoadPaint
    """Makes what is painted on the roads, for the first camera or the first walker with a way."""
    geo_reference: GeoReference = field(default_factory=GeoReference)
    """Where on Earth the map lies."""

    @classmethod
    def parse(cls, name: str, xodr: str, step_m: float = 1.0) -> RoadNetwork:
        """Return the network of an OpenDRIVE text, sampled every ``step_m``; MapError if there is something wrong with
        it.

        A text that the ``carla`` client accepts is accepted; one that it doesn't survive is refused.
        """
        drive = parser.read(name, xodr)
        for fault in unloadable.faults(drive):
            raise MapError(f"map {name}, {fault}: the carla client does not survive that, export the map again")
        roads = list(drive.roads.values())
        _check_length(name, drive)
        with np.errstate(all="ignore"):  # NaN and too large numbers are reported below
            every = [lane for road in roads for lane in lanes_of(road, step_m)]
        placed = list(_placed(name, every))
        if not placed:
            raise MapError(f"map {name} has {len(roads)} roads but no lane: nothing can drive there")
        lanes = tuple(lane for lane in placed if is_wide(lane)) or tuple(placed)
        edges = np.concatenate([edge[:, :2] for lane in lanes for edge in (lane.left, lane.right)])
        (x_min, y_min), (x_max, y_max) = edges.min(axis=0).tolist(), edges.max(axis=0).tolist()
        bounds = (x_min, y_min, x_max, y_max)
        try:
            origin = GeoReference.read(drive.geo_reference)
        except ValueError as error:
            raise MapError(f"map {name}: {error}, expected a number: the carla client can't load that") from None
        return cls(name, xodr, lanes, bounds, signals.read(drive, lanes), partial(_painted, roads, step_m), origin)

    @property
    def markings(self) -> tuple[Marking, ...]:
        """The painted and raised lines."""
        return self._paint.markings

    @property
    def crossings(self) -> Crossings:
        """The crosswalks and stop lines."""
        return self._paint.crossings

    @cached_property
    def _paint(self) -> RoadPaint:
        return self.painted()

    def renamed(self, name: str) -> RoadNetwork:
        """Return this network under another name."""
        other = copy.copy(self)  # with what was already computed
        object.__setattr__(other, "name", name)
        return other

    def height(self, x: float, y: float, z: float = math.inf) -> float:
        """Return the height in metres of the lane nearest to (x, y); under a bridge, ``z`` says which one is meant."""
        return self.ground(x, y, z)

    @cached_property
    def ground(self) -> Callable[[float, float, float], float]:
        """The function behind ``height``, for loops in which a further call would cost too much."""
        return ground(self._samples())

    @cached_property
    def level(self) -> float | None:
        """The height of all lanes (m); None if there are hills."""
        return level_of(self._samples())

    def _samples(self) -> FloatArray:
        return np.concatenate([points for lane in self.lanes for points in (lane.left, lane.centre, lane.right)])

    def spawn_points(self) -> tuple[SpawnPoint, ...]:
        """Return the spawn points, always the same in the same order."""
        return self._spawn_points

    @cached_property
    def _spawn_points(self) -> tuple[SpawnPoint, ...]:
        roomy = [point for point in spawn_points.choose(self.lanes) if spawn_points.has_room(point, self.ground)]
        return tuple(roomy) or tuple(spawn_points.entries(self.lanes))


def _check_length(name: str, drive: OpenDrive) -> None:
    lanes_m = sum(
        max(section.end - section.start, 0.0) * len(section.lanes)
        for road in drive.roads.values()
        for section in road.sections
    )
    if not lanes_m <= _LONGEST_M:
        raise MapError(
            f"map {name} has {lanes_m / 1000:.0f} km of lanes, carla-lite holds {_LONGEST_M / 1000:.0f}: "
            "look for a length with a digit too many, or cut the map into parts"
        )


def _painted(roads: Sequence[Road], step_m: float) -> RoadPaint:
    with np.errstate(all="ignore"):
        markings = tuple(one for road in roads for one in markings_of(road, step_m) if _is_near(one.points))
    return RoadPaint(markings, crossings(roads))


def _is_near(points: FloatArray) -> bool:
    # A comparison, which is false for NaN.
    return bool((np.abs(points) <= FARTHEST_M).all())


def _placed(name: str, lanes: Iterable[Lane]) -> Iterator[Lane]:
    """Yield the lanes that have a valid place; sidewalks without one are left out."""
    for lane in lanes:
        if _is_near(lane.left) and _is_near(lane.right):
            yield lane
        elif lane.kind == "driving":
            raise MapError(
                f"map {name}, road {lane.road_id}: its lane {lane.lane_id} runs through no place within "
                f"±{FARTHEST_M / 1000:.0f} km (a curvature of 0, no number, or one too large): export the map again"
            )


@lru_cache(maxsize=2)
def load(map: str) -> RoadNetwork:
    """Return the network of a generated town or of the .xodr file at a path.

    Names of towns are ``Lite01``, ``/Game/Carla/Maps/Lite01``, ``Lite:seed=7,size=400``. MapError names the maps if
    there is none of this name.
    """
    name = map.rsplit("/", 1)[-1]
    if generator.is_name(name):
        return RoadNetwork.parse(name, generator.generate(name))
    path = Path(map)
    if not path.is_file():
        raise MapError(
            f"map {map} does not exist: expected one of {generator.KNOWN} or the path of an OpenDRIVE file (.xodr)"
        )
    if (size := path.stat().st_size) > _MOST_BYTES:
        raise MapError(f"map {map} has {size >> 20} MiB, carla-lite reads {_MOST_BYTES >> 20}: cut it into parts")
    try:
        content = path.read_bytes()
    except OSError as error:
        raise MapError(f"map {map} cannot be read ({error}): expected an OpenDRIVE file (.xodr)") from None
    return RoadNetwork.parse(path.stem, _decoded(content))


def _decoded(content: bytes) -> str:
    """Return a file's text as Unreal reads it: UTF-16 if it begins so, else UTF-8 with replacement characters."""
    wide = content.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE))
    return content.decode("utf-16" if wide else "utf-8-sig", "replace")
