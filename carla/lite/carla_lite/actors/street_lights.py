"""Street lights: their state as the client's light manager sets it, and switching by day and night.

Owns which lights are on. Knows no picture: ``environment`` shows the dark ones.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from carla_lite.protocol.wire import Vector

_STREET, _GROUPS = 2, range(5)
# CARLA's lamps differ from map to map; these are a warm white and an intensity of that order.
_COLOUR, _INTENSITY = (255, 223, 186), 1000.0
_NONE: frozenset[int] = frozenset()


@dataclass(slots=True)
class StreetLight:
    """A LightState (protocol, section 2.3), in wire order, without the id."""

    location: Vector
    intensity: float = _INTENSITY
    group: int = _STREET
    colour: tuple[int, int, int] = _COLOUR
    active: bool = False


class StreetLights:
    """The lights of one episode, by id."""

    def __init__(self, places: Mapping[int, Vector]) -> None:
        self._lights = {number: StreetLight(place) for number, place in places.items()}
        self.follow_the_sun = True
        """Whether dusk and dawn switch them (``set_day_night_cycle``)."""
        self._night: bool | None = None

    @property
    def dark(self) -> frozenset[int]:
        """Ids of the lights that a client turned off at night."""
        if not self._night:
            return _NONE
        return frozenset(number for number, light in self._lights.items() if not light.active)

    def set_night(self, night: bool) -> None:
        """Set whether it is night; a change switches all lights."""
        if night != self._night and self.follow_the_sun:
            for light in self._lights.values():
                light.active = night
        self._night = night

    def states(self, shown: Iterable[int]) -> list[Any]:
        """Return the LightStates of those ids that are lights."""
        found = [(number, self._lights[number]) for number in shown if number in self._lights]
        return [[n, list(a.location), a.intensity, a.group, list(a.colour), a.active] for n, a in found]

    def update(self, state: Sequence[Any]) -> str:
        """Apply a LightState, except its place; return an error, or ''."""
        number, _location, intensity, group, (red, green, blue, *_), active = state
        if number not in self._lights:
            return f"light {number} does not exist here; get_all_lights() lists what does"
        if not math.isfinite(intensity) or group not in _GROUPS:
            return f"light {number} has intensity {intensity} and group {group}, expected a number and 0 to 4"
        light = self._lights[number]
        light.intensity, light.group = float(intensity), int(group)
        light.colour, light.active = (red, green, blue), bool(active)
        return ""
