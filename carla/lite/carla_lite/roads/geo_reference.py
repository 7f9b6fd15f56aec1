"""Where on Earth a map lies: latitude and longitude of a place, as the client's ``transform_to_geolocation`` has it.

Owns the reading of OpenDRIVE's geoReference and the projection, which in the 0.9.16 client is a transverse Mercator on
a sphere, whatever the file's +proj says.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass

# The Earth's at the equator, times the scale of UTM.
_RADIUS_M = 0.9996 * 6378137.0
_ELEMENT = re.compile(r"<geoReference>(.*?)</geoReference>", re.DOTALL)


@dataclass(frozen=True)
class GeoReference:
    """The origin of a map in degrees. CARLA's own where the file doesn't name both."""

    latitude: float = 42.0
    longitude: float = 2.0

    @classmethod
    def read(cls, xodr: str) -> GeoReference:
        """Return the origin that an OpenDRIVE text names by ``+lat_0`` and ``+lon_0``."""
        element = _ELEMENT.search(xodr)
        found = dict(re.findall(r"\+(lat_0|lon_0)=(\S+?)(?=[\s\]<]|$)", element[1])) if element else {}
        try:
            return cls(float(found["lat_0"]), float(found["lon_0"]))
        except (KeyError, ValueError):
            return cls()

    def transform(self, x: float, y: float) -> tuple[float, float]:
        """Return latitude and longitude (degrees) of a place in CARLA's frame (m).

        The client of 0.9.16 has latitudes grow with y, which points south in CARLA's frame; so have we.
        """
        east, north = x / _RADIUS_M, y / _RADIUS_M + math.radians(self.latitude)
        latitude = math.asin(math.sin(north) / math.cosh(east))
        return math.degrees(latitude), self.longitude + math.degrees(math.atan2(math.sinh(east), math.cos(north)))
