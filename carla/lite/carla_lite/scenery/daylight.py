"""The effect of weather on light and air: the light's direction, its colours, haze, and the sky.

Owns the conversion of CARLA's WeatherParameters to the figures used for drawing. Knows no camera and no scene.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property, lru_cache

import numpy as np

from carla_lite.roads.reference_line import FloatArray

# 58° above the horizon, so shadows reach the pavement but rarely the far lane.
SUN = np.array([-0.33, -0.42, 0.845]) / np.linalg.norm([-0.33, -0.42, 0.845])
"""Unit vector to ClearNoon's sun, in CARLA's frame."""

# In the order of the wire protocol's section 2.3: the value of carla.WeatherParameters.ClearNoon, and the step below
# which a change is invisible; infinite for fields that are never shown. Results for one weather are reused within these
# steps.
_FIELDS = {
    "cloudiness": (5.0, 2.0),
    "precipitation": (0.0, 2.0),
    "precipitation_deposits": (0.0, 4.0),
    "wind_intensity": (10.0, 10.0),
    "sun_azimuth_angle": (-1.0, 2.0),
    "sun_altitude_angle": (45.0, 1.0),
    "fog_density": (2.0, 2.0),
    "fog_distance": (0.75, 5.0),
    "fog_falloff": (0.1, math.inf),
    "wetness": (0.0, 4.0),
    "scattering_intensity": (1.0, math.inf),
    "mie_scattering_scale": (0.03, math.inf),
    "rayleigh_scattering_scale": (0.0331, math.inf),
    "dust_storm": (0.0, 4.0),
}
CLEAR_NOON = tuple(value for value, _ in _FIELDS.values())
"""The weather at the start."""
_STEPS = tuple(step for _, step in _FIELDS.values())
SHOWN = {name: math.isfinite(step) for name, (_, step) in _FIELDS.items()}
"""Fields of CARLA's WeatherParameters, and whether pictures show them."""

_NOON_ALTITUDE_DEG = math.degrees(math.asin(SUN[2]))
_NOON_HEADING = math.atan2(SUN[1], SUN[0])
_FADE_RAD = 0.28


def _bgr(blue: float, green: float, red: float) -> FloatArray:
    return np.array((blue, green, red))


@dataclass(frozen=True, eq=False)
class Daylight:
    """Light and air of one weather; the defaults are those of ClearNoon. Colours are BGR."""

    sun: FloatArray = field(default_factory=lambda: SUN)
    """Unit vector to the light source: the sun, at night the moon."""
    ambient: FloatArray = field(default_factory=lambda: _bgr(0.62, 0.62, 0.62))
    """Brightness in the shadow."""
    diffuse: FloatArray = field(default_factory=lambda: _bgr(0.48, 0.48, 0.48))
    """Brightness that the sun adds to a surface that faces it."""
    haze: FloatArray = field(default_factory=lambda: _bgr(226.0, 214.0, 200.0))
    """Colour of the air, and of the sky at the horizon."""
    zenith: FloatArray = field(default_factory=lambda: _bgr(196.0, 140.0, 84.0))
    haze_m: float = 260.0
    """Distance, from ``clear_m`` on, at which haze makes up 63 % of a colour."""
    clear_m: float = 0.0
    clouds: float = 0.0
    """Share of the sky covered by clouds, 0 to 1; all fields below also range from 0 to 1."""
    rain: float = 0.0
    wind: float = 0.0
    wet: float = 0.0
    """Wetness of the ground; from 0.5 on there are puddles."""
    lamps: float = 0.0
    """Visibility of lamps: 0 by day, 1 at night."""

    @staticmethod
    def of(weather: Sequence[float]) -> Daylight:
        """Return the light for a WeatherParameters struct; the same object for weathers that look the same."""
        return _daylight(tuple(round(value / step) for value, step in zip(weather, _STEPS, strict=False)))

    @cached_property
    def level(self) -> FloatArray:
        """Brightness of level ground in the sun, as a share (3,) of ClearNoon's."""
        bright: FloatArray = self.shade(self.sun[2]) / NOON.shade(NOON.sun[2])
        return bright

    @cached_property
    def unlit(self) -> FloatArray:
        """Brightness of lamps that are off, and of everything unshaded, as a share (3,) of ClearNoon's."""
        share: FloatArray = self.ambient / NOON.ambient
        return share

    def shade(self, sunward: FloatArray | float) -> FloatArray:
        """Return the brightness (..., 3) of faces, given the part of their unit normals towards the sun (..., )."""
        lit: FloatArray = self.ambient + self.diffuse * np.maximum(sunward, 0.0)[..., None]
        return lit

    @cached_property
    def haze_bgr(self) -> tuple[float, ...]:
        """Colour of the haze as plain numbers."""
        return tuple(self.haze.tolist())

    def haze_share(self, distance: float) -> float:
        """Return the share of haze in the colour of a thing at a distance (m)."""
        return 1.0 - math.exp(-max(distance - self.clear_m, 0.0) / self.haze_m)

    def haze_shares(self, distances: FloatArray) -> FloatArray:
        """Return the share of haze (..., ) for many distances (..., )."""
        shares: FloatArray = 1.0 - np.exp(-np.maximum(distances - self.clear_m, 0.0) / self.haze_m)
        return shares

    def hazed(self, colours: FloatArray, distances: FloatArray) -> FloatArray:
        """Return BGR colours (..., 3) as seen from distances (..., ) in metres."""
        share = self.haze_shares(distances)[..., None]
        seen: FloatArray = colours * (1.0 - share) + self.haze * share
        return seen

    def sky(self, elevation: FloatArray) -> FloatArray:
        """Return the BGR colour (..., 3) of the sky at angles above the horizon (rad)."""
        share = np.exp(-np.maximum(elevation, 0.0) / _FADE_RAD)[..., None]
        colours: FloatArray = self.zenith + (self.haze - self.zenith) * share
        return colours


NOON = Daylight()


@lru_cache(maxsize=64)
def _daylight(steps: tuple[int, ...]) -> Daylight:
    if steps == tuple(round(value / step) for value, step in zip(CLEAR_NOON, _STEPS, strict=True)):
        return NOON
    cloudiness, precipitation, deposits, wind, azimuth, altitude, fog, fog_start, _, wetness, *_, dust = (
        count * step if count else 0.0 for count, step in zip(steps, _STEPS, strict=True)
    )
    cover, rain, sand = _share(cloudiness - 5.0, 95.0), _share(precipitation, 100.0), _share(dust, 100.0)
    foggy = _share(fog - 2.0, 98.0)

    day = _between(altitude, (-12.0, 0.0, 15.0, 45.0), (0.0, 0.4, 0.76, 1.0))
    direct = _between(altitude, (-2.0, 3.0, 15.0, 45.0), (0.0, 0.35, 0.9, 1.0)) * (1.0 - cover) ** 1.5 * (1.0 - sand)
    warm = _between(altitude, (-12.0, 0.0, 15.0, 35.0), (0.2, 1.0, 0.75, 0.0))
    by_day = 0.62 * (1.0 + 0.12 * cover - 0.3 * rain - 0.2 * sand) * (1.0 - warm * (1.0 - cover) * _SUNSET_SHADE)
    air = _Air(warm, cover, rain, sand, day)
    return Daylight(
        sun=_towards(azimuth, altitude),
        ambient=_NIGHT_SHADE + (by_day - _NIGHT_SHADE) * day,
        diffuse=0.48 * direct * (1.0 - warm * _SUNSET_LOSS) + (1.0 - day) * _MOON,
        haze=air.colour(NOON.haze, sunset=_bgr(120, 168, 242), grey=_bgr(196, 192, 188), night=_bgr(50, 34, 26)),
        zenith=air.colour(NOON.zenith, sunset=_bgr(152, 108, 92), grey=_bgr(170, 164, 158), night=_bgr(26, 15, 10)),
        haze_m=NOON.haze_m * math.exp(-2.2 * foggy) * (1.0 - 0.55 * rain) * (1.0 - 0.85 * sand),
        clear_m=max(0.0, fog_start - 0.75) if foggy > 0.0 else 0.0,
        clouds=_share(cloudiness, 100.0) if cloudiness >= 10.0 else 0.0,
        rain=rain,
        wind=_share(wind, 100.0),
        wet=max(_share(deposits, 100.0), 0.5 * rain, 0.6 * _share(wetness, 100.0)),
        lamps=1.0 - _share(altitude + 8.0, 16.0),
    )


_NIGHT_SHADE = _bgr(0.25, 0.19, 0.155)
_MOON = _bgr(0.07, 0.056, 0.05)
_SUNSET_SHADE, _SUNSET_LOSS = _bgr(0.02, 0.16, 0.14), _bgr(0.66, 0.34, 0.0)
_DUST = _bgr(84, 142, 186)


@dataclass(frozen=True)
class _Air:
    """Conditions that colour the air, each from 0 to 1."""

    warm: float
    cover: float
    rain: float
    sand: float
    day: float

    def colour(self, clear: FloatArray, *, sunset: FloatArray, grey: FloatArray, night: FloatArray) -> FloatArray:
        """Return the mixture: clouds hide the sun's colours, dust hides both, and night is darker than all."""
        colour = clear + (sunset - clear) * self.warm
        dull = grey * (1.0 - 0.3 * self.rain) * (1.0 - 0.25 * self.warm)
        colour = colour + (dull - colour) * self.cover
        colour = colour + (_DUST - colour) * self.sand
        mixed: FloatArray = night + (colour - night) * self.day
        return mixed


def _towards(azimuth_deg: float, altitude_deg: float) -> FloatArray:
    """Return the unit vector to the sun; for ClearNoon it matches the shadows on the ground's picture.

    CARLA's noon is at 45°, ours at 58°: other altitudes are stretched so that both horizons agree. Below the horizon
    the moon shines instead.
    """
    if altitude_deg < -5.0:
        altitude_deg = 50.0
    up = math.radians(_between(altitude_deg, (-5.0, 0.0, 15.0, 45.0, 90.0), (1.0, 2.0, 15.0, _NOON_ALTITUDE_DEG, 90.0)))
    heading = _NOON_HEADING + math.radians(azimuth_deg - CLEAR_NOON[4])
    return np.array((math.cos(up) * math.cos(heading), math.cos(up) * math.sin(heading), math.sin(up)))


def _between(value: float, places: Sequence[float], values: Sequence[float]) -> float:
    return float(np.interp(value, places, values))


def _share(value: float, whole: float) -> float:
    return min(max(value / whole, 0.0), 1.0)
