"""The content of an OpenDRIVE file as plain records: roads, lanes, signals, junctions, controllers.

Owns the records. Reads no XML (``parser`` does), samples nothing and draws no lanes.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property

from carla_lite.roads.reference_line import Profile, ReferenceLine

# For a road without a speed record: the usual limit in towns.
DEFAULT_SPEED_MPS = 50 / 3.6
# Limit of locations on the wire (``protocol.wire``).
FARTHEST_M = 1e6


# OpenDRIVE's country codes of lights (SignalType.cpp).
LIGHT_TYPES = ("1000001", "1000002", *map(str, range(1000007, 1000021)), "F", "W", "A")


class MapError(Exception):
    """A map that cannot be used; the message is one sentence for a person."""


@dataclass(frozen=True)
class RoadMark:
    """A roadMark record, valid from ``offset`` m after its section's start until the next record."""

    offset: float
    kind: str
    color: str
    width_m: float


@dataclass(frozen=True)
class LaneRecord:
    """A lane of a section, as in the file."""

    lane_id: int
    kind: str  # OpenDRIVE's type in small letters
    width: Profile | None  # of s from the section's start; None if the client knows no width at all
    marks: tuple[RoadMark, ...] = ()
    speed_limit_mps: float | None = None
    predecessor: int = 0
    successor: int = 0


@dataclass(frozen=True)
class Section:
    """A lane section, over stations [start, end] of its road."""

    start: float
    end: float
    lanes: tuple[LaneRecord, ...]  # by ascending id
    number: int = 0
    """Its number in the file, the client's ``section_id``."""

    def lane(self, lane_id: int) -> LaneRecord | None:
        """Return the lane with this id, or None."""
        return self._by_id.get(lane_id)

    @cached_property
    def _by_id(self) -> Mapping[int, LaneRecord]:
        return {lane.lane_id: lane for lane in reversed(self.lanes)}  # of equal ids the first one counts


@dataclass(frozen=True)
class Crosswalk:
    """A crosswalk object: its place on the road, its angle to the road, and its outline's (u, v) around the place."""

    s: float
    t: float
    heading: float
    corners: tuple[tuple[float, float], ...]


@dataclass(frozen=True)
class Road:
    """A road of the file."""

    road_id: int
    in_junction: bool
    length: float
    line: ReferenceLine
    lane_offset: Profile
    sections: tuple[Section, ...]  # by ascending start
    speeds: tuple[tuple[float, float], ...]  # (from station, m/s), ascending
    junctions: tuple[str | None, str | None] = (None, None)
    """The junctions at its start and at its end."""
    crosswalks: tuple[Crosswalk, ...] = ()
    predecessor: int = 0
    successor: int = 0
    keeps_right: bool = True

    @cached_property
    def numbered(self) -> Mapping[int, Section]:
        """The sections by their number in the file; of equal numbers the first one."""
        return {section.number: section for section in reversed(self.sections)}

    def speed_limit_mps(self, s: float) -> float:
        """Return the speed limit at station s."""
        return next((speed for start, speed in reversed(self.speeds) if start <= s), DEFAULT_SPEED_MPS)

    def runs_along(self, lane_id: int) -> bool:
        """Return whether traffic on a lane moves in the direction of the stations; so does the centre lane."""
        return lane_id <= 0 if self.keeps_right else lane_id >= 0


@dataclass(frozen=True)
class SignalReference:
    """A place where a signal applies: road, station, and spans of lane ids; no spans if the file has no validity."""

    signal_id: str
    road_id: int
    s: float
    orientation: str
    spans: tuple[tuple[int, int], ...] = ()


@dataclass(frozen=True)
class SignalRecord:
    """A signal of the file, with its place there."""

    at: SignalReference
    name: str
    type: str
    subtype: str
    t: float
    z_offset: float
    turn: float

    @property
    def is_light(self) -> bool:
        """Whether it is a traffic light."""
        return self.type in LIGHT_TYPES


@dataclass(frozen=True)
class Junction:
    """A junction: its connecting roads, and its controllers' ids in the order of their ``sequence``."""

    junction_id: int
    connecting_roads: tuple[int, ...]
    controllers: tuple[str, ...]


@dataclass(frozen=True)
class OpenDrive:
    """A whole file."""

    roads: Mapping[int, Road]
    signals: tuple[SignalRecord, ...] = ()
    references: tuple[SignalReference, ...] = ()
    """References by signals and signalReferences, in the file's order."""
    junctions: tuple[Junction, ...] = ()
    controllers: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Ids of each controller's signals."""
    geo_reference: str = ""
