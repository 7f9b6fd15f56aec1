"""What a drive did wrong, as the Leaderboard's criteria count it: collisions, red lights, stop signs, lanes, pace.

Pure bookkeeping of one drive. Says what happened, where and when; knows no penalty, and ends no drive.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

from carla_td3.env.sensors import Collision

Kind = Literal["collision", "red_light", "stop_sign", "off_road", "blocked"]

# Leaderboard 2.1, CollisionTest: contacts with the same actor are one collision until they pause for so long.
SAME_COLLISION_S = 5.0
# Leaderboard 2.1, MinimumSpeedRouteTest: the car's pace is compared with the traffic's in so many parts of the route.
PARTS = 4


@dataclass(frozen=True)
class Infraction:
    """One of them."""

    kind: Kind
    s_m: float
    """Arc length along the route."""
    time_s: float
    """Simulated, since the drive began."""
    other: str | None = None
    """Of a collision: vehicle, pedestrian or static."""
    impulse_ns: float = 0.0
    """Of a collision: the largest of its contacts, newton seconds."""


class Record:
    """Of one drive."""

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
        """Share of the metres driven that the car's middle was outside its route's lane."""
        return self._off_lane_m / self.driven_m if self.driven_m > 0.0 else 0.0

    @property
    def minimum_speed_share(self) -> float:
        """Mean, over the parts of the route that were finished, of the car's pace against the traffic's; at most 1."""
        return sum(self._shares) / len(self._shares) if self._shares else 1.0

    def count(self, kind: Kind) -> int:
        """Return how many there are of a kind."""
        return sum(each.kind == kind for each in self.infractions)

    def add(self, kind: Kind, s_m: float, time_s: float) -> None:
        """Take one in."""
        self.infractions.append(Infraction(kind, s_m, time_s))

    def collide(self, contact: Collision, s_m: float, time_s: float) -> bool:
        """Take in a contact; return whether it is a collision of its own, not one that goes on."""
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
        """Take in what was driven in a step."""
        self.driven_m += metres
        self._off_lane_m += metres * off_lane

    def keep_pace(self, own_mps: float, traffic_mps: float | None, route_completion: float) -> None:
        """Take in a step's speed and the mean of the traffic's (None: there is none)."""
        if route_completion * PARTS >= self._part + 1:
            self._part = int(route_completion * PARTS)
            if self._traffic_mps > 0.0:
                self._shares.append(min(1.0, self._own_mps / self._traffic_mps))
            self._own_mps = self._traffic_mps = 0.0
        if traffic_mps is not None:
            self._own_mps += own_mps
            self._traffic_mps += traffic_mps
