"""The shape of an observation as the algorithm sees it, and the layout of its frames.

Owns the sizes (84×84, or 64×64 where memory is short; by default 4 frames of one grey plane; 53 numbers, 104
privileged ones, 2 actions) and the 4×4 space-to-depth layout in which frames are stored and convolved. Never touches
networks, disk or the environment.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import accumulate
from typing import Any

import numpy as np
from numpy.typing import NDArray

from carla_td3.config import CameraConfig, NetworkConfig

SIDE = 84  # pixels of a camera frame's side
SIDES = (SIDE, 64)  # sides that a run may have
STACK = 4  # frames of one observation, the newest last
VECTOR = 53  # numbers of one observation beside the image
LISTED = 64  # privileged numbers of the nearest people and vehicles, which only a detector learns from; they come first
KNOWN_NUMBERS = 38  # further ones of the simulator, which a run may keep for all but the actor
ACTION = 2  # steering, throttle(+)/brake(−), each in [-1, 1]
PRIVILEGED = LISTED + KNOWN_NUMBERS + ACTION  # with the expert's action
COLUMNS, MAPS = 21, 8  # of a detector's features, for each view (td3.detector)

BLOCK = 4  # = stride of the first convolution
_ERASED_CELLS, _ERASED_GREY = (2, 7), (60, 180)  # side of an erased rectangle in cells, and its grey levels


@dataclass(frozen=True)
class View:
    """A camera's view: its planes, and where it is and looks, from the car's centre (metres, degrees)."""

    planes: int
    fov_deg: float
    yaw_deg: float
    pitch_deg: float
    x_m: float
    z_m: float


@dataclass(frozen=True)
class FrameStack:
    """Frames of one observation's image."""

    side: int = SIDE
    """Pixels of a frame's side."""
    planes: int = 1
    """Planes per frame: one for a grey view, three for a colour view."""
    frames: int = STACK
    every: int = 1
    """Steps between two of the frames."""
    colour: tuple[int, ...] = ()
    """Index of the first of the three planes red, green and blue, for each colour view."""
    views: tuple[View, ...] = ()
    """The cameras, in the order of their planes; known where a configuration is."""

    @classmethod
    def of(cls, camera: CameraConfig) -> FrameStack:
        """Return the frames of a camera's observations."""
        ends = list(accumulate(view.own_planes for view in camera.views))
        colour = tuple(
            end - view.own_planes for end, view in zip(ends, camera.views, strict=True) if view.own_planes > 1
        )
        views = tuple(
            View(view.own_planes, view.fov_deg, view.yaw_deg, view.pitch_deg, camera.x_m, camera.z_m)
            for view in camera.views
        )
        return cls(camera.width, camera.planes, camera.stack.frames, camera.stack.every, colour, views)

    def seen_by(self, network: NetworkConfig) -> FrameStack:
        """Return the frames that a network reads: all, or none. A ring has them in any case."""
        return self if network.sees == "image" else replace(self, frames=0, every=1)

    @property
    def frame_shape(self) -> tuple[int, int, int]:
        """Shape of a stored frame."""
        return frame_shape(self.side, self.planes)

    @property
    def channels(self) -> int:
        """Input channels of the first convolution, per cell."""
        return self.frames * self.planes * BLOCK * BLOCK

    @property
    def reach(self) -> int:
        """Number of earlier rows that hold a part of the transition that arrives at a row."""
        return max(1, (self.frames - 1) * self.every + 1)

    @property
    def before(self) -> NDArray[np.int64]:
        """Frames of s, relative to the row at which its step arrives: t-3..t."""
        return self.arrived - 1

    @property
    def arrived(self) -> NDArray[np.int64]:
        """Frames of s', relative to its row."""
        return np.arange(-(self.frames - 1) * self.every, 1, self.every)

    def new(self, n_step: int) -> int:
        """Return how many frames of s' aren't frames of s: one, if s and s' are one step apart."""
        return min(self.frames, 1) if n_step == self.every == 1 else self.frames

    def cells(self, image: NDArray[np.uint8]) -> NDArray[np.uint8]:
        """Return an image of whole frames, (n · planes, S, S), as n stored frames, (n, S/4, S/4, 16 · planes)."""
        cells = space_to_depth(image)
        planes = cells.reshape(-1, self.planes, *cells.shape[-3:])
        stored: NDArray[Any] = planes.transpose(0, 2, 3, 1, 4).reshape(-1, *self.frame_shape)
        return stored


DEFAULT = FrameStack()


def known(network: NetworkConfig, stack: FrameStack = DEFAULT) -> int:
    """Return the size of f(s): the numbers that a network knows of a state besides its vector."""
    columns = COLUMNS * MAPS * len(stack.views) if network.encoder == "detector" else 0
    return {"image": network.features + columns, "vector": 0, "privileged": KNOWN_NUMBERS}[network.sees]


def told(privileged: int) -> int:
    """Return how many of so many privileged numbers critics and an auxiliary head have to do with: the last ones."""
    return privileged - LISTED if privileged else 0


def frame_shape(side: int = SIDE, planes: int = 1) -> tuple[int, int, int]:
    """Return a stored frame's shape, (21, 21, 16) of 84×84: channels last, so that stacking frames is one `cat`."""
    return side // BLOCK, side // BLOCK, planes * BLOCK * BLOCK


def convolved_sides(side: int = SIDE) -> tuple[int, int, int]:
    """Return the width in cells of each convolution's output: 84 → 20 → 9 → 7; 64 → 15 → 6 → 4."""
    first = side // BLOCK - 1
    second = (first - 4) // 2 + 1
    return first, second, second - 2


def space_to_depth(frames: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """Return frames (..., S, S) as (..., S/4, S/4, 16): pixel (4Y+y, 4X+x) becomes channel 4y+x of cell (Y, X).

    An 8×8 convolution of stride 4 over the pixels is then a 2×2 one of stride 1 over the cells: the same sums,
    in a shape that CPU and GPU kernels run several times faster.

    Raises:
        ValueError: the frames are not uint8 of one of ``SIDES``.
    """
    if frames.shape[-2:] not in [(side, side) for side in SIDES] or frames.dtype != np.uint8:
        raise ValueError(f"a frame is {frames.dtype} {frames.shape[-2:]}, expected uint8 of S×S, S in {SIDES}")
    lead, (across, _, pixels) = frames.shape[:-2], frame_shape(frames.shape[-1])
    cells: NDArray[Any] = frames.reshape(*lead, across, BLOCK, across, BLOCK).swapaxes(-3, -2)
    return cells.reshape(*lead, across, across, pixels)


def erase(frames: NDArray[np.uint8], most: int, rng: np.random.Generator) -> None:
    """Draw up to ``most`` grey rectangles over each row of stored frames (B, W, C, C, 16 a plane), in place.

    Random erasing (Zhong et al. 2020), with sides of 8 to 28 pixels, the same in all frames and planes of a row. The
    encoder then can't rely on a single place of the picture.
    """
    across = frames.shape[2]
    count = rng.integers(0, most + 1, len(frames))
    sizes = rng.integers(*_ERASED_CELLS, (len(frames), most, 2), endpoint=True)
    corners = rng.integers(0, across - sizes + 1)
    greys = rng.integers(*_ERASED_GREY, (len(frames), most), endpoint=True)
    drawn = np.arange(most) < count[:, None]
    # As Python's numbers: slices by numpy's take three times as long.
    each = (values.tolist() for values in (drawn.nonzero()[0], sizes[drawn], corners[drawn], greys[drawn]))
    for row, (high, wide), (y, x), grey in zip(*each, strict=True):
        frames[row, :, y : y + high, x : x + wide] = grey


def depth_to_space(cells: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """Undo :func:`space_to_depth`: return (..., C, C, 16) as (..., 4C, 4C)."""
    *lead, across, _, _ = cells.shape
    pixels: NDArray[Any] = cells.reshape(*lead, across, across, BLOCK, BLOCK).swapaxes(-3, -2)
    return pixels.reshape(*lead, across * BLOCK, across * BLOCK)
