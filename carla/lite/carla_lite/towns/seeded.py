"""Plans of towns from a seed, by name: ``Lite:seed=7,size=400``.

A grid of lines at uneven distances is bent as a whole, so that streets curve and crossings are oblique. Then some
streets are left out, which turns crossings into T junctions and corners into bends. It draws only from
``random.random``, whose sequence is the same in all versions of Python: a name means the same town everywhere.
"""

from __future__ import annotations

import re
from cmath import phase
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import pairwise
from math import pi, sin, tan
from random import Random

from carla_lite.towns.geometry import unit
from carla_lite.towns.junctions import arms_of
from carla_lite.towns.plan import Plan, Street

PREFIX = "Lite:"
DEFAULT_SIZE_M, LEAST_SIZE_M, MOST_SIZE_M = 400, 200, 1000
HOW_NAMED = (
    f"{PREFIX}seed=NUMBER,size=METRES (side length, {LEAST_SIZE_M} to {MOST_SIZE_M}; default {DEFAULT_SIZE_M}, the "
    "size of Town01)"
)
NAME = re.compile(rf"{PREFIX}seed=(\d{{1,18}})(?:,size=(\d{{1,4}}))?")

BLOCK_M = 100.0
UNEVEN = 0.2  # a block is at most this share longer or shorter than the mean
STEEPEST = 0.2  # largest slope of a bent line against its straight one
LEFT_OUT = 0.4  # share of the narrow streets inside the town that are left out
WIDE_FROM_M = 300  # from this size on, the main avenue has three lanes in each direction
GENTLE_RADIUS_M, GENTLE_RAD = 300.0, 0.5
# If there is room, a narrow street bulges around its middle, this far to the side and over this length.
BULGES = 0.5
BULGE_M, TOP_M, BULGE_FROM_M, BULGE_KMH = 14.0, 16.0, 62.0, 30

Node = tuple[int, int]
Edge = tuple[Node, Node]


def is_name(text: str) -> bool:
    """Return whether a text names a town of this module."""
    found = NAME.fullmatch(text)
    return found is not None and LEAST_SIZE_M <= int(found[2] or DEFAULT_SIZE_M) <= MOST_SIZE_M


def plan_of(name: str) -> Plan:
    """Return the plan of a name for which ``is_name`` holds; KeyError for another one."""
    if not is_name(name) or (found := NAME.fullmatch(name)) is None:
        raise KeyError(name)
    return Grid(Random(int(found[1])), float(found[2] or DEFAULT_SIZE_M)).plan()


class Grid:
    """Lines in both directions, the streets along them, and their course once bent."""

    def __init__(self, rng: Random, size_m: float) -> None:
        self._rng = rng
        count = round(size_m / BLOCK_M) + 1
        self.lines = (self._lines(count, size_m), self._lines(count, size_m))
        self._waves = tuple((size_m * self._between(0.6, 1.2), self._between(0.0, 2 * pi)) for _ in range(2))
        self.lanes = self._lanes(count, 3 if size_m >= WIDE_FROM_M else 2)
        self.edges = self._thinned(count)

    def plan(self) -> Plan:
        """Return the town's plan: crossings where three or more streets meet, and the streets between them."""
        ways = list(chains(self.edges))
        places = {name_of(node): self._bent(*node) for way in ways for node in (way[0], way[-1])}
        crossings = {name: (place.real, place.imag) for name, place in sorted(places.items())}
        sharp = Plan(crossings, tuple(self._street(way) for way in ways))
        sharp = Plan(crossings, tuple(self._bulged(*ends) for ends in free_ends(sharp)))
        return Plan(crossings, tuple(self._rounded(*ends) for ends in free_ends(sharp)))

    def _lines(self, count: int, size_m: float) -> list[float]:
        blocks = [self._between(1 - UNEVEN, 1 + UNEVEN) for _ in range(count - 1)]
        return [sum(blocks[:i]) * size_m / sum(blocks) for i in range(count)]

    def _lanes(self, count: int, most: int) -> tuple[list[int], list[int]]:
        """Return the lanes per direction of the lines in both directions: a ring, two avenues, and narrow streets."""
        ring = 1 + self._below(2)
        lanes = ([], [])  # type: tuple[list[int], list[int]]
        for direction in lanes:
            inner = [2 if self._rng.random() < 0.2 else 1 for _ in range(count - 2)]
            direction += [ring, *inner, ring]
        lanes[0][1 + self._below(count - 2)], lanes[1][1 + self._below(count - 2)] = most, 2
        return lanes

    def _thinned(self, count: int) -> list[Edge]:
        """Return the grid's edges without some narrow ones inside, so that there are no dead ends and no loops."""
        along = [((i, j), (i + 1, j)) for j in range(count) for i in range(count - 1)]
        across = [((i, j), (i, j + 1)) for i in range(count) for j in range(count - 1)]
        edges: list[Edge] = along + across
        narrow = [e for e in edges if self._lanes_of(e) == 1 and not _is_outside(e, count - 1)]
        for edge in sorted(narrow, key=lambda _: self._rng.random())[: int(LEFT_OUT * len(narrow))]:
            rest = [one for one in edges if one != edge]
            if _leads_on(rest):
                edges = rest
        return edges

    def _lanes_of(self, edge: Edge) -> int:
        (i, j), (k, _) = edge
        return self.lanes[1][j] if i != k else self.lanes[0][i]

    def _bent(self, i: float, j: float) -> complex:
        """Return the position of a grid place after bending."""
        x, y = _at(self.lines[0], i), _at(self.lines[1], j)
        (across_m, across), (along_m, along) = self._waves
        aside = STEEPEST / (2 * pi) * across_m * sin(2 * pi * y / across_m + across)
        ahead = STEEPEST / (2 * pi) * along_m * sin(2 * pi * x / along_m + along)
        return complex(x + aside, y + ahead)

    def _street(self, way: Sequence[Node]) -> Street:
        """Return the street of a way, with corners of radius 0."""
        lanes = min(self._lanes_of(edge) for edge in pairwise(way))
        corners: list[complex] = []
        for here, there in pairwise(way):
            corners += [self._bent((here[0] + there[0]) / 2, (here[1] + there[1]) / 2), self._bent(*there)]
        speed_kmh = ((40, 50), (50, 60), (60,))[lanes - 1]
        return Street(
            name_of(way[0]),
            name_of(way[-1]),
            tuple((place.real, place.imag, 0.0) for place in corners[:-1]),
            lanes,
            speed_kmh[self._below(len(speed_kmh))],
        )

    def _bulged(self, street: Street, start: complex, end: complex) -> Street:
        """Return the street, or at random, if there is room, one that bulges around its middle."""
        side = 1 if self._rng.random() < 0.5 else -1
        if (
            self._rng.random() > BULGES
            or street.lanes > 1
            or len(street.corners) > 1
            or abs(end - start) < BULGE_FROM_M
        ):
            return street
        along, middle = unit(end - start), (start + end) / 2
        out = along * 1j * side * BULGE_M
        foot, top = along * (0.5 * TOP_M + BULGE_M), along * 0.5 * TOP_M
        corners = (middle - foot, middle - top + out, middle + top + out, middle + foot)
        places = tuple((place.real, place.imag, 0.0) for place in corners)
        return replace(street, corners=places, speed_kmh=BULGE_KMH)

    def _rounded(self, street: Street, start: complex, end: complex) -> Street:
        """Return the street with radii: wide ones for gentle bends, random ones for corners, all as wide as fits."""
        places = [complex(x, y) for x, y, _ in street.corners]
        points = [start, *places, end]
        room = [abs(there - here) / 2 for here, there in pairwise(points)]
        room[0], room[-1] = 2 * room[0], 2 * room[-1]
        corners = []
        for i, place in enumerate(places, 1):
            turn = max(abs(phase((points[i + 1] - place) / (place - points[i - 1]))), 1e-6)
            tightest = 16.0 * street.lanes
            wanted = GENTLE_RADIUS_M if turn < GENTLE_RAD else self._between(tightest, tightest + 30.0)
            corners.append((place.real, place.imag, min(wanted, 0.99 * min(room[i - 1], room[i]) / tan(turn / 2))))
        return replace(street, corners=tuple(corners))

    def _between(self, low: float, high: float) -> float:
        return low + (high - low) * self._rng.random()

    def _below(self, bound: int) -> int:
        return int(bound * self._rng.random())


def free_ends(plan: Plan) -> Iterator[tuple[Street, complex, complex]]:
    """Yield each street with the places where its crossings end."""
    ends = {(arm.street, arm.at_start): arm.end for name in plan.crossings for arm in arms_of(plan, name)}
    for i, street in enumerate(plan.streets):
        yield street, ends[i, True], ends[i, False]


def chains(edges: Sequence[Edge]) -> Iterator[tuple[Node, ...]]:
    """Yield every way between neighbouring crossings, through nodes where only two edges meet; each once."""
    around = _neighbours(edges)
    seen: set[frozenset[Node]] = set()
    for start in sorted(node for node, others in around.items() if len(others) > 2):
        for first in around[start]:
            way = [start, first]
            while len(around[way[-1]]) == 2:
                way.append(next(node for node in around[way[-1]] if node != way[-2]))
            if frozenset(way[:2]) not in seen:
                seen |= {frozenset(way[:2]), frozenset(way[-2:])}
                yield tuple(way)


def name_of(node: Node) -> str:
    """Return the name of a crossing: column and row of the grid."""
    return f"{node[0]}-{node[1]}"


def _leads_on(edges: Sequence[Edge]) -> bool:
    """Return whether every street can be reached from every other, in both directions, and no street is a loop."""
    around = _neighbours(edges)
    reached, waiting = set(), [edges[0][0]]
    while waiting:
        if (node := waiting.pop()) not in reached:
            reached.add(node)
            waiting += around[node]
    # Connected, without dead ends, more than a ring: then one can return on any street without turning round.
    return (
        len(reached) == len(around)
        and min(map(len, around.values())) > 1
        and all(way[0] != way[-1] for way in chains(edges))
    )


def _neighbours(edges: Sequence[Edge]) -> dict[Node, list[Node]]:
    around: dict[Node, list[Node]] = defaultdict(list)
    for one, other in edges:
        around[one].append(other)
        around[other].append(one)
    return around


def _is_outside(edge: Edge, last: int) -> bool:
    (i, j), (k, m) = edge
    return (i == k and i in (0, last)) or (j == m and j in (0, last))


def _at(line: Sequence[float], index: float) -> float:
    """Return the coordinate of a line, or of the middle between two lines."""
    low = int(index)
    return line[low] if low == index else (line[low] + line[low + 1]) / 2
