"""Infractions of a drive, counted like the Leaderboard's criteria: collisions, red lights, stop signs, lanes, speed.

Pure bookkeeping of one drive. Says what happened, where and when; knows no penalty, and ends no drive.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

from carla_td3.env.sensors import Collision

Kind = Literal["collision", "red_light", "stop_sign", "off_road", "blocked"]

# Leaderboard 2.1, CollisionTest: contacts with one actor are one collision until they pause for this long.
SAME_COLLISION_S = 5.0
# Leaderboard 2.1, MinimumSpeedRouteTest: the car's speed is compared with the traffic's in this many parts of the
# route.
PARTS = 4


@dataclass(frozen=True)
class Infraction:
    """One infraction."""

    kind: Kind
    s_m: float
    """Arc length along the route."""
    time_s: float
    """Simulated seconds since the drive began."""
    other: str | None = None
    """For a collision: vehicle, pedestrian or static."""
    impulse_ns: float = 0.0
    """For a collision: its largest contact, in newton seconds."""


class Record:
    """Record of one drive."""

    def __init__(self) -> None:
        self.infractions: list[Infraction] = []
        self.driven_m = 0.0
        self._off_lane_m = 0.0
        self._contacts: dict[int, tuple[float, int]] = {}
        self._part = 0
        self._own_mps = self._traffic_mps = 0.0
        self._shares: list[float] = []

    @property
    def off_lane_share(self) -> float:
        """Share of the distance at which the car's centre was outside its route's lane."""
        return self._off_lane_m / self.driven_m if self.driven_m > 0.0 else 0.0

    @property
    def minimum_speed_share(self) -> float:
        """Mean, over the finished parts of the route, of the car's speed as a share of the traffic's; at most 1."""
        return sum(self._shares) / len(self._shares) if self._shares else 1.0

    def count(self, kind: Kind) -> int:
        """Return the number of infractions of a kind."""
        return sum(each.kind == kind for each in self.infractions)

    def add(self, kind: Kind, s_m: float, time_s: float) -> None:
        """Record an infraction."""
        self.infractions.append(Infraction(kind, s_m, time_s))

    def collide(self, contact: Collision, s_m: float, time_s: float) -> bool:
        """Record a contact; return whether it begins a new collision."""
        last_s, index = self._contacts.get(contact.other_id, (-SAME_COLLISION_S - 1.0, -1))
        fresh = time_s - last_s > SAME_COLLISION_S
        if fresh:
            index = len(self.infractions)
            self.infractions.append(Infraction("collision", s_m, time_s, contact.kind, contact.impulse_ns))
        elif contact.impulse_ns > self.infractions[index].impulse_ns:
            self.infractions[index] = replace(self.infractions[index], impulse_ns=contact.impulse_ns)
        self._contacts[contact.other_id] = time_s, index
        return fresh

    def drive(self, metres: float, off_lane: bool) -> None:
        """Add the distance of a step."""
        self.driven_m += metres
        self._off_lane_m += metres * off_lane

    def keep_pace(self, own_mps: float, traffic_mps: float | None, route_completion: float) -> None:
        """Add a step's speed and the traffic's mean speed (None if there is no traffic)."""
        if route_completion * PARTS >= self._part + 1:
            self._part = int(route_completion * PARTS)
            if self._traffic_mps > 0.0:
                self._shares.append(min(1.0, self._own_mps / self._traffic_mps))
            self._own_mps = self._traffic_mps = 0.0
        if traffic_mps is not None:
            self._own_mps += own_mps
            self._traffic_mps += traffic_mps
