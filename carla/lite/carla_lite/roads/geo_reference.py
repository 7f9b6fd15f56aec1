"""Geographic reference of a map: latitude and longitude of a place, as in the client's ``transform_to_geolocation``.

Owns the meaning of OpenDRIVE's geoReference and the projection, which in the 0.9.16 client is a transverse Mercator on
a sphere, whatever the file's +proj says.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from carla_lite.roads.parser import is_number, number

_EQUATOR_M = 6378137.0
# Scale of UTM as a factor.
_RADIUS_M = 0.9996 * _EQUATOR_M


@dataclass(frozen=True)
class GeoReference:
    """Origin of a map in degrees; CARLA's default if the file doesn't name both."""

    latitude: float = 42.0
    longitude: float = 2.0
    mercator: bool = False
    """Whether the client is 0.9.15, which uses Mercator's projection and has north against y."""

    @classmethod
    def read(cls, text: str) -> GeoReference:
        """Return the origin in the text of a geoReference, given by ``+lat_0`` and ``+lon_0`` between blanks.

        Raises:
            ValueError: one isn't a number, for which the client's ``stod`` throws (GeoReferenceParser.cpp).
        """
        pairs = (part.split("=") for part in text.split(" "))
        found = {pair[0]: _stod(*pair) for pair in pairs if len(pair) == 2 and pair[0] in ("+lat_0", "+lon_0")}
        if len(found) != 2 or not all(map(math.isfinite, found.values())):
            return cls()
        return cls(found["+lat_0"], found["+lon_0"])

    def transform(self, x: float, y: float) -> tuple[float, float]:
        """Return latitude and longitude (degrees) of a place in CARLA's frame (m).

        In the client of 0.9.16 latitudes grow with y, which points south in CARLA's frame; here they do, too.
        """
        if self.mercator:
            radius_m = _EQUATOR_M * math.cos(math.radians(self.latitude))
            up = math.log(math.tan(math.radians(90.0 + self.latitude) / 2)) - y / radius_m
            return math.degrees(2 * math.atan(math.exp(up))) - 90.0, self.longitude + math.degrees(x / radius_m)
        east, north = x / _RADIUS_M, y / _RADIUS_M + math.radians(self.latitude)
        latitude = math.asin(math.sin(north) / math.cosh(east))
        return math.degrees(latitude), self.longitude + math.degrees(math.atan2(math.sinh(east), math.cos(north)))


def _stod(key: str, text: str) -> float:
    value = number(text)
    if not is_number(text) or (math.isinf(value) and "inf" not in text.lower()):
        raise ValueError(f"the geoReference has {key}={text!r}")
    return value
