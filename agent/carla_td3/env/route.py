"""Draws routes over a map's topology: shortest lane paths between spawn points, split into train and held out.

Owns the graph of lanes (networkx, weights are metres; no lane changes, no U-turns). Reads only ``carla.Map``, so it
works without a simulator; never touches actors.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal

import carla
import networkx as nx
import numpy as np
from numpy.typing import NDArray

from carla_td3.config import RouteConfig
from carla_td3.env.route_line import FloatArray, Route, RouteError, wrapped

__all__ = ["LanePoint", "Planner", "Route", "RouteError", "held_out_routes", "split_of"]

Split = Literal["train", "held_out"]
LaneKey = tuple[int, int, int]

LANE_STEP_M = 1.0
SPAWN_SPACING_M = 20.0
SIGNS, BEFORE_SIGN_M = ("205", "206"), 60.0
"""OpenDRIVE's types of yield and stop signs, and how far before one a drive begins."""
FEWEST_DRAWS = 200
"""Known routes drawn in a row after which a map has no others, and four more for each known one."""
TURN_RAD, U_TURN_RAD = math.radians(45.0), math.radians(150.0)


@dataclass(frozen=True, eq=False)
class LanePiece:
    """One lane of one lane section, in the direction of travel."""

    line: FloatArray
    """(n, 3) centre points."""
    half_width: FloatArray
    """(n,) metres."""
    yaws: FloatArray
    """(n,) radians."""
    junction: int
    """Junction id, or -1."""


@dataclass(frozen=True)
class LanePoint:
    """A point on a lane where routes start or end."""

    lane: LaneKey
    index: int

    @property
    def name(self) -> str:
        """Stable text, equal in every process."""
        return ":".join(map(str, (*self.lane, self.index)))


class Planner:
    """Routes of one map.

    Args:
        map: a ``carla.Map``, from a world or made offline from OpenDRIVE (then places are generated).

    Raises:
        RouteError: the map has no connected driving lanes.
    """

    def __init__(self, map: carla.Map) -> None:
        self.name = str(map.name).rsplit("/", 1)[-1]
        self._pieces: dict[LaneKey, LanePiece] = {}
        self._graph: nx.DiGraph[LaneKey] = nx.DiGraph()
        self._reachable: dict[LaneKey, dict[LaneKey, float]] = {}
        for entry, successor in map.get_topology():
            self._join(entry, successor)
        self.places, self._before_sign = self._places(map)
        if not self.places:
            raise RouteError(f"Map {self.name} has no connected driving lanes: give another map.")

    @property
    def lanes(self) -> list[FloatArray]:
        """Every driving lane's centre line, (n, 2) metres, in the direction of travel."""
        return [piece.line[:, :2] for piece in self._pieces.values()]

    def sample(
        self, rng: np.random.Generator, config: RouteConfig, split: Split = "train", min_turns: int | None = None
    ) -> Route:
        """Return a random route of the split, of configured length and with at least ``min_turns`` turns.

        A share of training routes begins before a sign, as configured, if the map has any.

        Raises:
            RouteError: the map has no such route.
        """
        turns = config.min_turns if min_turns is None else min_turns
        starts = rng.permutation(len(self.places))
        if split == "train" and config.before_signs and rng.random() < config.before_signs:
            starts = starts[np.argsort(~self._before_sign[starts], kind="stable")]
        for start in starts:
            for route in self._from(self.places[start], rng, config, split, turns):
                return route
        raise RouteError(self._none(config, split, turns))

    def route(self, start: LanePoint, end: LanePoint) -> Route:
        """Return the shortest route between two places.

        Raises:
            RouteError: there is none, or it makes a U-turn.
        """
        lanes = self._way(start, end)
        turns = self._turns(lanes)
        if any(abs(turn) > U_TURN_RAD for turn in turns):
            raise RouteError(f"The way from {start.name} to {end.name} makes a U-turn.")
        pieces = [self._pieces[lane] for lane in lanes]
        line = np.concatenate([piece.line for piece in pieces])
        width = np.concatenate([piece.half_width for piece in pieces])
        junction = np.concatenate([np.full(len(piece.line), piece.junction >= 0) for piece in pieces])
        stop = len(line) - len(pieces[-1].line) + end.index + 1
        kept = slice(start.index, stop)
        count = sum(abs(turn) > TURN_RAD for turn in turns)
        return Route.through(f"{start.name}>{end.name}", line[kept], width[kept], count, junction[kept], self.name)

    def _way(self, start: LanePoint, end: LanePoint) -> list[LaneKey]:
        if start.lane == end.lane and end.index > start.index:
            return [start.lane]
        try:
            if start.lane != end.lane:
                return nx.dijkstra_path(self._graph, start.lane, end.lane)
            # An end behind the start: round and back into the same lane.
            return [start.lane, *nx.multi_source_dijkstra(self._graph, set(self._graph[start.lane]), end.lane)[1]]
        except (nx.NetworkXNoPath, ValueError):  # ValueError: the lane goes on nowhere
            raise RouteError(f"Map {self.name} has no way from {start.name} to {end.name}.") from None

    def _from(
        self, start: LanePoint, rng: np.random.Generator, config: RouteConfig, split: Split, min_turns: int
    ) -> Iterator[Route]:
        ends = [end for end in self._ends(start, config) if split_of(start, end, config.held_out_fraction) == split]
        for index in rng.permutation(len(ends)):
            try:
                route = self.route(start, ends[index])
            except RouteError:
                continue
            if route.turns >= min_turns and config.min_length_m <= route.length_m <= config.max_length_m:
                yield route

    def _ends(self, start: LanePoint, config: RouteConfig) -> list[LanePoint]:
        """Return the places to which the way from ``start`` has about the configured length."""
        if start.lane not in self._reachable:
            self._reachable[start.lane] = dict(nx.single_source_dijkstra_path_length(self._graph, start.lane))
        metres = self._reachable[start.lane]
        ends = []
        for end in self.places:
            length = metres.get(end.lane, math.inf) + (end.index - start.index) * LANE_STEP_M
            if 0.9 * config.min_length_m <= length <= 1.1 * config.max_length_m:
                ends.append(end)
        return ends

    def _turns(self, lanes: list[LaneKey]) -> list[float]:
        """Return the heading change at each junction of the path, radians."""
        turns: list[float] = []
        previous = -1
        for lane in lanes:
            piece = self._pieces[lane]
            change = wrapped(float(piece.yaws[-1] - piece.yaws[0]))
            if piece.junction >= 0:
                if piece.junction == previous:
                    turns[-1] += change
                else:
                    turns.append(change)
            previous = piece.junction
        return turns

    def _join(self, entry: carla.Waypoint, successor: carla.Waypoint) -> None:
        for waypoint in (entry, successor):
            if _key(waypoint) not in self._pieces:
                self._pieces[_key(waypoint)] = _piece(waypoint)
        line = self._pieces[_key(entry)].line
        end = self._pieces[_key(successor)].line[0]
        length = float(np.hypot(*np.diff(np.concatenate([line, end[None]])[:, :2], axis=0).T).sum())
        self._graph.add_edge(_key(entry), _key(successor), weight=length)

    def _places(self, map: carla.Map) -> tuple[list[LanePoint], NDArray[np.bool_]]:
        """Return the places where routes begin and end, and which of them lie before a sign."""
        waypoints = [map.get_waypoint(spawn.location) for spawn in map.get_spawn_points()]
        if not waypoints:
            waypoints = [w for w in map.generate_waypoints(SPAWN_SPACING_M) if not w.is_junction]
        places = {}
        for waypoint in waypoints:
            if waypoint is not None and (piece := self._pieces.get(_key(waypoint))) is not None:
                here = _xyz(waypoint)[:2]
                place = LanePoint(_key(waypoint), int(np.argmin(np.hypot(*(piece.line[:, :2] - here).T))))
                signs = any(waypoint.get_landmarks_of_type(BEFORE_SIGN_M, kind) for kind in SIGNS)
                places[place.name] = place, signs
        ordered = [places[name] for name in sorted(places)]
        return [place for place, _ in ordered], np.array([sign for _, sign in ordered], np.bool_)

    def _none(self, config: RouteConfig, split: Split, turns: int) -> str:
        more = "" if split == "train" else ", raise environment.route.held_out_fraction"
        return (
            f"Map {self.name} has no {split} route of {config.min_length_m:g} to {config.max_length_m:g} m with at "
            f"least {turns} turns: widen environment.route{more} or choose a larger map."
        )


def held_out_routes(
    planner: Planner, config: RouteConfig, count: int, seed: int, min_turns: int | None = None
) -> list[Route]:
    """Return ``count`` different held-out routes, the same ones for the same seed.

    Raises:
        RouteError: the map doesn't have that many.
    """
    rng = np.random.default_rng(seed)
    routes: dict[str, Route] = {}
    known_in_a_row = 0
    while len(routes) < count and known_in_a_row < FEWEST_DRAWS + 4 * len(routes):
        route = planner.sample(rng, config, "held_out", min_turns)
        known_in_a_row = known_in_a_row + 1 if route.name in routes else 0
        routes[route.name] = route
    if len(routes) < count:
        raise RouteError(f"Map {planner.name} has {len(routes)} held-out routes of this kind, {count} were asked for.")
    return list(routes.values())


def split_of(start: LanePoint, end: LanePoint, held_out_fraction: float) -> Split:
    """Return the split of a pair of places, by a hash of their names that is the same in every process."""
    digest = hashlib.blake2b(f"{start.name}>{end.name}".encode(), digest_size=4).digest()
    return "held_out" if int.from_bytes(digest, "big") < held_out_fraction * 2**32 else "train"


def _key(waypoint: carla.Waypoint) -> LaneKey:
    return waypoint.road_id, waypoint.section_id, waypoint.lane_id


def _piece(entry: carla.Waypoint) -> LanePiece:
    waypoints = [entry, *entry.next_until_lane_end(LANE_STEP_M)]
    # The client follows the lane to the end of the road; this piece ends with its lane section.
    waypoints = [w for w in waypoints if _key(w) == _key(entry)]
    return LanePiece(
        line=np.array([_xyz(w) for w in waypoints]),
        half_width=np.array([w.lane_width / 2.0 for w in waypoints]),
        yaws=np.radians([w.transform.rotation.yaw for w in waypoints]),
        junction=entry.junction_id if entry.is_junction else -1,
    )


def _xyz(waypoint: Any) -> FloatArray:
    location = waypoint.transform.location
    return np.array((location.x, location.y, location.z))
