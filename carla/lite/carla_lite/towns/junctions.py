"""A town built from its plan: streets drawn back from the crossings, and every turn through each crossing.

Owns which lane leads where: straight on lane by lane, left from the innermost lane, right from the outermost. Writes no
OpenDRIVE.
"""

from __future__ import annotations

from cmath import phase
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import pi

from carla_lite.towns.geometry import Piece, rounded, setbacks, turn_between, unit
from carla_lite.towns.plan import LANE_M, Plan, Street

CORNER_RADIUS_M = 7.0
# A way through a crossing that bends less than this counts as straight on.
STRAIGHT_ON_RAD = pi / 5


@dataclass(frozen=True)
class Arm:
    """The end of a street at a crossing."""

    street: int
    at_start: bool  # whether the street's line starts at this crossing
    lanes: int
    end: complex
    direction: complex  # away from the crossing

    def incoming_id(self, lane: int) -> int:
        """Return the OpenDRIVE id of the n-th lane from the centre that leads into the crossing."""
        return lane if self.at_start else -lane

    def outgoing_id(self, lane: int) -> int:
        """Return the OpenDRIVE id of the n-th lane from the centre that leads away."""
        return -self.incoming_id(lane)


@dataclass(frozen=True)
class Turn:
    """One lane's way through a crossing, along the lane's centre."""

    origin: Arm
    target: Arm
    from_lane: int  # counted from the centre, 1 is the innermost
    to_lane: int
    pieces: tuple[Piece, ...]
    has_kerb: bool  # whether nothing but the sidewalk lies to its right


@dataclass(frozen=True)
class Town:
    """Streets as lines and arcs, in the plan's order, with the turns of each crossing."""

    streets: tuple[tuple[Street, tuple[Piece, ...]], ...]
    crossings: dict[str, tuple[Turn, ...]]
    arms: dict[str, tuple[Arm, ...]]  # of each crossing, counter-clockwise


def build(plan: Plan) -> Town:
    """Return the town of a plan."""
    arms = {name: tuple(arms_of(plan, name)) for name in plan.crossings}
    ends = {(arm.street, arm.at_start): arm.end for crossing in arms.values() for arm in crossing}
    streets = []
    for i, street in enumerate(plan.streets):
        corners = [complex(x, y) for x, y, _ in street.corners]
        line = rounded([ends[i, True], *corners, ends[i, False]], [radius for *_, radius in street.corners])
        streets.append((street, tuple(line)))
    return Town(tuple(streets), {name: tuple(turns_of(crossing)) for name, crossing in arms.items()}, arms)


def arms_of(plan: Plan, name: str) -> Iterator[Arm]:
    """Yield the arms of a crossing counter-clockwise, drawn back so that the kerbs' corners fit."""
    centre = complex(*plan.crossings[name])
    arms = []
    for i, street in enumerate(plan.streets):
        corners = [complex(x, y) for x, y, _ in street.corners]
        ways = [complex(*plan.crossings[street.start]), *corners, complex(*plan.crossings[street.end])]
        if street.start == name:
            arms.append((unit(ways[1] - centre), i, True))
        if street.end == name:
            arms.append((unit(ways[-2] - centre), i, False))
    arms.sort(key=lambda arm: phase(arm[0]))
    streets = [plan.streets[i] for _, i, _ in arms]
    drawn_back = setbacks([direction for direction, *_ in arms], [one.kerb_m for one in streets], CORNER_RADIUS_M)
    for (direction, i, at_start), street, back in zip(arms, streets, drawn_back, strict=True):
        yield Arm(i, at_start, street.lanes, centre + direction * back, direction)


def turns_of(arms: tuple[Arm, ...]) -> Iterator[Turn]:
    """Yield every turn from every arm (arms come counter-clockwise) to every other; there are no U-turns."""
    for i, origin in enumerate(arms):
        # Counter-clockwise, the next arm is the first one on the right of an incoming driver.
        on_the_right = arms[(i + 1) % len(arms)]
        for target in arms:
            if target is not origin:
                for from_lane, to_lane in lane_pairs(origin, target, arms):
                    outermost = from_lane == origin.lanes and to_lane == target.lanes
                    line = turn_line(origin, target, from_lane, to_lane)
                    yield Turn(origin, target, from_lane, to_lane, line, target is on_the_right and outermost)


def lane_pairs(origin: Arm, target: Arm, arms: Sequence[Arm]) -> list[tuple[int, int]]:
    """Return pairs of connected lanes, counted from the centre; every lane of either street is in a pair.

    If no way leads straight on, all lanes but the outermost turn left, and traffic from the right turns into them.
    """
    turn = phase(target.direction / -origin.direction)
    if is_straight(origin, target):
        return spread(origin.lanes, target.lanes)
    if turn < 0:
        return [(origin.lanes, target.lanes)]
    return spread(*(1 if leads_across(arm, arms) else max(1, arm.lanes - 1) for arm in (origin, target)))


def spread(before: int, after: int) -> list[tuple[int, int]]:
    """Return pairs of lanes side by side; surplus lanes of one side join the other's outermost."""
    return [(min(lane, before), min(lane, after)) for lane in range(1, max(before, after) + 1)]


def leads_across(arm: Arm, arms: Sequence[Arm]) -> bool:
    """Return whether another arm lies straight ahead of this one."""
    return any(is_straight(arm, other) for other in arms if other is not arm)


def is_straight(origin: Arm, target: Arm) -> bool:
    """Return whether the way from one arm to the other bends little."""
    return abs(phase(target.direction / -origin.direction)) < STRAIGHT_ON_RAD


def turn_line(origin: Arm, target: Arm, from_lane: int, to_lane: int) -> tuple[Piece, ...]:
    """Return the centre of the lane through the crossing."""
    coming, leaving = -origin.direction, target.direction
    start = origin.end + coming * -1j * (from_lane - 0.5) * LANE_M
    end = target.end + leaving * -1j * (to_lane - 0.5) * LANE_M
    return tuple(turn_between(start, coming, end, leaving))
