"""Binary formats of CARLA 0.9.16's wire protocol: structs in RPC calls, and the messages of the streams.

Owns field orders, sizes and units (degrees on the wire, radians inside), and refuses values that no simulation can use.
Knows no state: every function takes plain values. Section numbers are those of the project's protocol reference.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

# Prefix of the names that load_world accepts, and of a map's own name without the content folder (CarlaServer.cpp).
OFFERED_PREFIX, MAP_PREFIX = "/Game/Carla/Maps/", "Carla/Maps/"

Vector: TypeAlias = tuple[float, float, float]

# CARLA's words: scripts look for them.
NO_ROOM = "Spawn failed because of collision at spawn position"

HEADER = struct.Struct("<QQd6f")
"""Message type, frame, simulated seconds, transform: the start of every stream message (section 3.3)."""
IMAGE = struct.Struct("<IIf")
"""Width, height, field of view in degrees; BGRA follows (section 3.5)."""
WORLD_HEAD = struct.Struct("<QdfiiiI")
"""Episode, wall clock, delta, map origin, state flags; flags other than 0 can abort the client (section 3.4)."""
VEHICLE_RECORD = struct.Struct("<IB15f3fBBBifBBIB24x")
"""Actor record of 119 bytes: id, state, transform, velocity, angular velocity, acceleration, vehicle part."""
PLAIN_RECORD = struct.Struct("<IB6f90x")
"""Actor record of sensors and the spectator: 119 bytes with an empty last part."""
_TOKEN = struct.Struct("<IHBB16x")
LIGHT_RECORD = struct.Struct("<IB6f36x32s4fIBB")
"""Actor record of a traffic light: sign id, green, yellow, red and elapsed seconds, pole index, frozen, state."""
LIGHT_ELAPSED, LIGHT_ELAPSED_AT = struct.Struct("<f"), 109
"""The elapsed seconds in a light's record, and their offset: often the only change in a tick."""
SIGN_RECORD = struct.Struct("<IB6f36x32s22x")
"""Actor record of a traffic sign: its id in the map."""

ACTIVE = 1

# Beyond this, single precision is coarser than 6 cm, and there is nothing there.
_FARTHEST_M = 1e6
_MANY_TURNS = 1e6  # degrees


_UNSPLIT_S = 0.33333
SHORTEST_S = 1e-6
"""The shortest step in which physics can be computed."""
_LARGEST = 3.4e38
"""The largest number of single precision, as the wire has in a tick's records."""


class RpcError(Exception):
    """A request that can't be met; the caller's ``RuntimeError`` has this message."""


@dataclass
class Settings:
    """Episode settings; those without a meaning here are stored and returned unchanged."""

    synchronous: bool
    fixed_delta_s: float | None
    raw: list[Any]

    @property
    def delta_s(self) -> float:
        """Simulated seconds per tick: as fixed by the client, otherwise 0.05."""
        return self.fixed_delta_s or 0.05

    @property
    def physics_s(self) -> float:
        """Seconds by which a tick advances physics.

        CARLA makes at most ``max_substeps`` substeps of ``max_substep_delta_time`` per tick, by default 0.1 s, however
        long the tick is (Docs/adv_synchrony_timestep.md). Without substeps the limit is a third of a second
        (MaxPhysicsDeltaTime in its DefaultEngine.ini).
        """
        substepping, substep_s, substeps = self.raw[3:6]
        return min(self.delta_s, substep_s * substeps if substepping else _UNSPLIT_S)


SETTINGS = {
    "synchronous_mode": "",
    "no_rendering_mode": "cameras draw anyway; they cost nothing while no client listens",
    "fixed_delta_seconds": "",
    "substepping": "",
    "max_substep_delta_time": "",
    "max_substeps": "",
    "max_culling_distance": "cameras see as far as their picture shows",
    "deterministic_ragdolls": "there are no ragdolls",
    "tile_stream_distance": "maps are loaded whole",
    "actor_active_distance": "actors are never dormant",
    "spectator_as_ego": "maps are loaded whole",
}
"""Fields of EpisodeSettings in wire order (section 2.3), and why a field has no effect, if it has none."""


def default_settings() -> Settings:
    """Return CARLA's settings at start: asynchronous, variable step."""
    return Settings(False, None, [False, False, [False], True, 0.01, 10, 0.0, True, 3000.0, 2000.0, True])


def settings(raw: list[Any]) -> Settings:
    """Read EpisodeSettings (section 2.3).

    Raises:
        RpcError: the fixed step isn't a finite number of seconds from 0 on, or there are no substeps of a length.
    """
    fixed = optional(raw[2])
    if fixed is not None and fixed != 0.0 and not SHORTEST_S <= fixed < math.inf:
        raise RpcError(f"fixed_delta_seconds is {fixed}, expected {SHORTEST_S} s at least, or none")
    substepping, substep_s, substeps = raw[3:6]
    if substepping and not (SHORTEST_S <= substep_s < math.inf and substeps >= 1):
        raise RpcError(
            f"max_substep_delta_time is {substep_s} and max_substeps {substeps}, expected {SHORTEST_S} s and 1 at least"
        )
    return Settings(bool(raw[0]), fixed or None, raw)


def optional(value: list[Any]) -> Any:
    """Read ``[false]`` or ``[true, x]``: None or x."""
    return value[1] if value[0] else None


def vector(raw: Sequence[float]) -> Vector:
    """Read a Vector3D.

    Raises:
        RpcError: a component is not a finite number.
    """
    x, y, z = raw
    if not (math.isfinite(x) and math.isfinite(y) and math.isfinite(z)):
        raise RpcError(f"({x}, {y}, {z}) is no place or direction, expected finite numbers")
    return float(x), float(y), float(z)


def finite(raw: float) -> float:
    """Read a number.

    Raises:
        RpcError: it is infinite or NaN.
    """
    if not math.isfinite(raw):
        raise RpcError(f"{raw} is no measure, expected a finite number")
    return float(raw)


def single(raw: float) -> float:
    """Read a number that is sent again in single precision.

    Raises:
        RpcError: it is infinite, NaN or too large.
    """
    if not abs(raw) <= _LARGEST:
        raise RpcError(f"{raw} is no measure, expected a number within ±{_LARGEST}")
    return float(raw)


def location(raw: Sequence[float]) -> Vector:
    """Read a Location.

    Raises:
        RpcError: it is further from the origin than any map reaches, or isn't a place.
    """
    place = vector(raw)
    if max(map(abs, place)) > _FARTHEST_M:
        raise RpcError(f"{place} is no place on a map, expected coordinates within ±{_FARTHEST_M:.0f} m")
    return place


def place(raw: Sequence[Any]) -> tuple[float, float, float, float, float, float]:
    """Read a Transform: x, y, z in metres, pitch, yaw, roll in radians.

    Raises:
        RpcError: a component is not a finite number, or the location is off every map.
    """
    # In radians and back again, the largest angle would no longer fit into single precision.
    pitch, yaw, roll = (angle if abs(angle) < _MANY_TURNS else math.fmod(angle, 360.0) for angle in vector(raw[1]))
    return *location(raw[0]), math.radians(pitch), math.radians(yaw), math.radians(roll)


def transform(x: float, y: float, z: float, *, yaw: float, pitch: float = 0.0) -> list[list[float]]:
    """Return the Transform of something without roll: radians become degrees."""
    return [[x, y, z], [math.degrees(pitch), math.degrees(yaw), 0.0]]


def bounding_box(centre: Vector, extent: Vector, yaw: float = 0.0) -> list[Any]:
    """Return a BoundingBox: half sizes, yaw in radians."""
    return [list(centre), list(extent), [0.0, math.degrees(yaw), 0.0], 0]


EMPTY_BOX = bounding_box((0.0, 0.0, 0.0), (0.0, 0.0, 0.0))


def token(stream: int, port: int) -> bytes:
    """Return a stream token without an address: the client then uses the host that it is connected to (section 3.1)."""
    return _TOKEN.pack(stream, port, 1, 0)


_LABEL_NAMES = (
    "none roads sidewalks buildings walls fences poles trafficlight trafficsigns vegetation terrain sky pedestrians "
    "rider car truck bus train motorcycle bicycle static dynamic other water roadlines ground bridge railtrack "
    "guardrail"
)
LABELS = dict(enumerate(_LABEL_NAMES.split()))
"""Names of CityObjectLabel (section 3.5)."""
