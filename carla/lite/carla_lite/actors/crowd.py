"""The walkers of a world as arrays: what moves and what is sent of all of them, a few calls for any number.

Owns the columns of a walker's state, and the step of all walkers. A ``Walker`` is a view of its column. Lengths and
angles go through ``math``, whose last bits are the same on every processor.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from carla_lite.motion.physics import BURIED_M, Ground
from carla_lite.motion.vehicles import GRAVITY_MPS2
from carla_lite.protocol import wire
from carla_lite.scenery.people import FLAT_PX, Look, People, flat_colours
from carla_lite.scenery.projection import View
from carla_lite.scenery.skeleton import PHASES
from carla_lite.scenery.statics import StaticIndex
from carla_lite.scenery.strokes import farthest_m

# Of CARLA's walkers (WalkerController.h and .cpp): the largest speed, and the speed upwards of a jump.
TOP_SPEED_MPS = 40.96
JUMP_MPS = 5.0
ACCELERATION_MPS2 = 10.0
TURN_RADPS = 2.0 * math.pi
STRIDE_M, _ADULT_HALF_HEIGHT_M = 1.5, 0.93  # two steps of an adult
WALKS_FROM_M2PS2 = 0.01
"""Square of the speed from which a walker is drawn walking."""
LYING_RAD = -0.5 * math.pi
# Deceleration of a fallen walker that slides on asphalt.
SLIDING_MPS2 = 6.0

Floats = NDArray[np.float64]


class Column:
    """Elements of a walker's state, which are the rows of the crowd's array; flags are 0 or 1."""

    X, Y, Z, YAW, VX, VY, VZ = range(7)
    AX, AY, AZ = 7, 8, 9
    DIRECTION_X, DIRECTION_Y, DIRECTION_Z, SPEED, JUMP = range(10, 15)
    """Its control."""
    WANTED_X, WANTED_Y, HEADING = 15, 16, 17
    """The velocity that the control asks for (m/s), and its direction (rad)."""
    YAW_RATE = 18
    LIES_S = 19
    """Seconds that a fallen walker still lies."""
    STRIDES_M = 20
    """The distance walked."""
    SENT = 21
    """Whether a client's crowd has sent this tick's place."""
    PHYSICS, GRAVITY = 22, 23
    BEFORE_X, BEFORE_Y, BEFORE_Z = 24, 25, 26
    """The velocity of the tick before."""
    RADIUS_M, HALF_HEIGHT_M = 27, 28


COLUMNS = Column.HALF_HEIGHT_M + 1
# Actor record of 119 bytes, as ``wire`` has the others'; its last part is a walker's control: direction, speed, jump.
_RECORD = np.dtype([("id", "<u4"), ("state", "u1"), ("figures", "<f4", 19), ("jump", "u1"), ("rest", "V37")])
_DEGREES = 180.0 / math.pi


_Figure = TypeVar("_Figure", float, Floats)


class Member(Protocol):
    """A walker, as its crowd needs it."""

    id: int
    look: Look
    state: Floats


class Crowd:
    """All walkers of a world, in its order."""

    def __init__(self) -> None:
        self._held: list[Member] = []
        self.columns: Floats = np.zeros((COLUMNS, 0))
        self._records = np.zeros(0, _RECORD)
        self._ids: NDArray[np.intp] = np.zeros(0, np.intp)
        self._colours: Floats = np.zeros((0, 5, 3))

    def hold(self, walkers: Sequence[Member]) -> Floats:
        """Return the state of these walkers (columns, n), which is theirs from now on."""
        if self._held != walkers:
            self._held = list(walkers)
            self.columns = np.array([walker.state for walker in walkers]).reshape(-1, COLUMNS).T.copy()
            for index, walker in enumerate(walkers):
                walker.state = self.columns[:, index]
            self._records = np.zeros(len(walkers), _RECORD)
            self._ids = np.array([walker.id for walker in walkers], np.intp)
            self._colours = np.array([flat_colours(walker.look) for walker in walkers]).reshape(-1, 5, 3)
            self._records["id"], self._records["state"] = self._ids, wire.ACTIVE
        return self.columns

    def records(self) -> NDArray[np.uint8]:
        """Return the walkers' records in the world message (n, bytes); valid until the next call."""
        of, figures = self.columns, self._records["figures"]
        figures[:, 0:3] = of[Column.X : Column.YAW].T
        figures[:, 3] = np.where(of[Column.LIES_S] > 0.0, -90.0, 0.0)
        figures[:, 4] = of[Column.YAW] * _DEGREES
        figures[:, 6:9] = of[Column.VX : Column.AX].T
        figures[:, 12:15] = of[Column.AX : Column.DIRECTION_X].T
        figures[:, 15:19] = of[Column.DIRECTION_X : Column.JUMP].T
        self._records["jump"] = of[Column.JUMP]
        return self._records.view(np.uint8).reshape(-1, _RECORD.itemsize)

    def seen(self, view: View, reach_m: float) -> tuple[list[int], People | None]:
        """Return the walkers in a square around a view's place that may be in the image: the indices of those who are
        large in it, and the others.
        """
        of, lens = self.columns, view.lens
        away = of[: Column.YAW] - view.position[:, None]
        inside = (np.abs(away[:2]) < reach_m).all(axis=0)
        inside &= view.shows(away, 2.0 * of[Column.RADIUS_M], farthest_m(lens))
        which = inside.nonzero()[0]
        x, y, z = away[:, which]
        flat = lens.focal * of[Column.HALF_HEIGHT_M, which] < FLAT_PX * np.sqrt(x * x + y * y + z * z)
        return which[~flat].tolist(), self._people(which[flat]) if flat.any() else None

    def _people(self, which: NDArray[np.intp]) -> People:
        of = self.columns[:, which]
        lies = of[Column.LIES_S] > 0.0
        turns = np.zeros((3, len(which)))
        turns[0], turns[1] = np.where(lies, LYING_RAD, 0.0), of[Column.YAW]
        vx, vy, heights = of[Column.VX], of[Column.VY], of[Column.HALF_HEIGHT_M]
        made = strides(of[Column.STRIDES_M], heights)
        walks = ~lies & (vx * vx + vy * vy > WALKS_FROM_M2PS2)
        phases = np.where(walks, (made * PHASES).astype(np.intp) % PHASES, PHASES)
        return People(self._ids[which], of[: Column.YAW], turns, heights, phases, self._colours[which])


def strides(way_m: _Figure, half_height_m: _Figure) -> _Figure:
    """Return how many strides a way takes, of one walker or of several."""
    return way_m / (STRIDE_M * half_height_m / _ADULT_HALF_HEIGHT_M)


def step(of: Floats, dt: float, ground: Ground, statics: StaticIndex, level: float | None = None) -> None:
    """Move walkers by ``dt`` seconds, except those whose place a client's crowd has sent for this tick.

    ``level`` is the height of the ground where it is the same everywhere.
    """
    if not of.shape[1]:
        return
    (x, y), (vx, vy) = of[: Column.Z], of[Column.VX : Column.VZ]
    lies_s, strides_m = of[Column.LIES_S], of[Column.STRIDES_M]
    np.maximum(lies_s - dt, 0.0, out=lies_s)
    # In CARLA a control moves a walker whatever its physics are (carla #3046, #4210).
    moved = (of[Column.PHYSICS] != 0.0) | of[Column.WANTED_X : Column.HEADING].any(axis=0)
    own = (of[Column.SENT] == 0.0) & moved
    of[Column.SENT] = 0.0
    _accelerate(of, dt, own)
    strides_m += _lengths(vx, vy) * dt
    np.add(x, vx * dt, out=x, where=own)
    np.add(y, vy * dt, out=y, where=own)
    moves = own & ((vx != 0.0) | (vy != 0.0))
    for index in (moves & (statics.clearances.of(x, y) < 1.5 * of[Column.RADIUS_M])).nonzero()[0].tolist():
        _keep_out(of[:, index], statics)
    heights = np.where(lies_s == 0.0, of[Column.HALF_HEIGHT_M], of[Column.RADIUS_M])
    heights += level if level is not None else list(map(ground, *of[: Column.YAW].tolist()))
    _stand(of, dt, heights, own)


def measure(of: Floats, dt: float) -> None:
    """Take the accelerations of this tick: how the velocities changed, whatever changed them, as CARLA tells them."""
    velocities, before = of[Column.VX : Column.AX], of[Column.BEFORE_X : Column.RADIUS_M]
    of[Column.AX : Column.DIRECTION_X] = (velocities - before) / dt
    before[:] = velocities


def _lengths(x: Floats, y: Floats) -> Floats:
    return np.array(list(map(math.hypot, x.tolist(), y.tolist())))


def _accelerate(of: Floats, dt: float, own: NDArray[np.bool_]) -> None:
    """Change the velocities towards the controls', and the yaw towards their direction."""
    yaw, vx, vy = of[Column.YAW], of[Column.VX], of[Column.VY]
    stands = of[Column.LIES_S] == 0.0
    wanted = np.where(stands, of[Column.WANTED_X : Column.HEADING], 0.0)
    missing = wanted - of[Column.VX : Column.VZ]
    moves = missing.any(axis=0) & own
    if moves.any():
        which = moves.nonzero()[0]
        dx, dy = missing[:, which]
        most = np.where(stands[which], ACCELERATION_MPS2, SLIDING_MPS2) * dt
        change = _lengths(dx, dy)
        there = change <= most
        vx[which] = np.where(there, wanted[0, which], vx[which] + dx / change * most)
        vy[which] = np.where(there, wanted[1, which], vy[which] + dy / change * most)
    directed = wanted.any(axis=0)
    turn = of[Column.HEADING] - yaw
    far = (np.abs(turn) > math.pi).nonzero()[0]
    if len(far):
        turn[far] = [math.remainder(one, math.tau) for one in turn[far].tolist()]
    turn = np.minimum(np.maximum(turn, -TURN_RADPS * dt), TURN_RADPS * dt)
    turn = np.where(directed, turn, of[Column.YAW_RATE] * dt * stands)
    np.add(yaw, turn, out=yaw, where=own)


def _keep_out(state: Floats, statics: StaticIndex) -> None:
    """Slide along obstacles."""
    x, y, z = state[: Column.YAW].tolist()
    r, half_height_m = state[Column.RADIUS_M :].tolist()
    for i in statics.at(x, y):
        box = statics.boxes[i]
        if not box.solid or z + half_height_m < box.z - box.half_height_m:
            continue
        dx, dy = x - box.x, y - box.y
        along, across = dx * box.cos + dy * box.sin, dy * box.cos - dx * box.sin
        over_x, over_y = box.half_length_m + r - abs(along), box.half_width_m + r - abs(across)
        if over_x <= 0.0 or over_y <= 0.0:
            continue
        if over_x < over_y:
            along += math.copysign(over_x, along)
        else:
            across += math.copysign(over_y, across)
        x = box.x + along * box.cos - across * box.sin
        y = box.y + along * box.sin + across * box.cos
    state[Column.X], state[Column.Y] = x, y


def _stand(of: Floats, dt: float, heights: Floats, own: NDArray[np.bool_]) -> None:
    """Follow the ground, jump, or fall to it; ``heights`` are those of the bodies' centres on it (m).

    One that lands while its control asks for a jump jumps again, as in CARLA. One deeper than ``BURIED_M`` below the
    ground, where programs keep walkers for later, keeps falling.
    """
    z, vz, jump = of[Column.Z], of[Column.VZ], of[Column.JUMP]
    stands = of[Column.LIES_S] == 0.0
    buried = z < heights - BURIED_M
    on_ground = (z <= heights + 1e-3) & ~buried
    jumps = on_ground & (jump != 0.0) & stands & own
    if jumps.any():
        vz[jumps], on_ground[jumps] = JUMP_MPS, False
    floats = of[Column.GRAVITY] == 0.0
    falls = (~on_ground | (vz > 0.0)) & own & ~floats
    if falls.any():
        np.subtract(vz, GRAVITY_MPS2 * dt, out=vz, where=falls)
    if floats.any() or falls.any():
        np.add(z, vz * dt, out=z, where=(falls | floats) & own)
    # Kerbs and slopes are walked down, without falling.
    lands = (((z < heights) & ~buried) | (on_ground & (vz <= 0.0))) & ~floats & own
    np.copyto(z, heights, where=lands)
    np.copyto(vz, 0.0, where=lands)
