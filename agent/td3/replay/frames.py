"""The shape of an observation as the algorithm sees it, and the layout of its frames.

Owns the sizes (84×84 grey, or 64×64 where memory is short; 4 frames, 53 numbers, 15 privileged ones, 2 actions) and
the 4×4 space-to-depth layout in which frames are stored and convolved. Never touches networks, disk or the environment.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

SIDE = 84  # pixels of a camera frame, both ways
SIDES = (SIDE, 64)  # those that a run may have
STACK = 4  # frames of one observation, the newest last
VECTOR = 53  # numbers of one observation beside the image
PRIVILEGED = 15  # numbers that a run may keep of what its simulator knows, for all but the actor
ACTION = 2  # steering, throttle(+)/brake(−), each in [-1, 1]

BLOCK = 4  # = stride of the first convolution


def frame_shape(side: int = SIDE) -> tuple[int, int, int]:
    """Return a stored frame's shape, (21, 21, 16) of 84×84: channels last, so that stacking frames is one `cat`."""
    return side // BLOCK, side // BLOCK, BLOCK * BLOCK


def frames_of(n_step: int) -> int:
    """Return how many frames a transition of a batch has: five hold the stacks before and after one step."""
    return STACK + 1 if n_step == 1 else 2 * STACK


def convolved_sides(side: int = SIDE) -> tuple[int, int, int]:
    """Return how many cells wide each convolution's output is: 84 → 20 → 9 → 7; 64 → 15 → 6 → 4."""
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


def shift(frames: NDArray[np.uint8], reach: int, rng: np.random.Generator) -> None:
    """Move the pictures of stored frames (B, W, C, C, 16) in place, each row's together (DrQ, Yarats et al. 2021).

    By up to ``reach`` pixels down and across, uniformly; what comes in at an edge repeats the edge.
    """
    window, across = frames.shape[1:3]
    side = BLOCK * across
    # Four pixels lie side by side in a cell as in a picture, and are moved as one number.
    lines, moved = (np.empty((window, across, BLOCK, across), np.uint32) for _ in range(2))
    padded = np.empty((window, side + 2 * reach, side + 2 * reach), np.uint8)
    for row, (y, x) in zip(frames.view(np.uint32), rng.integers(0, 2 * reach + 1, (len(frames), 2)), strict=True):
        lines[...] = row.swapaxes(2, 3)
        padded[:, reach:-reach, reach:-reach] = lines.view(np.uint8).reshape(window, side, side)
        padded[:, :reach], padded[:, -reach:] = padded[:, reach, None], padded[:, -reach - 1, None]
        padded[:, :, :reach], padded[:, :, -reach:] = padded[:, :, reach, None], padded[:, :, -reach - 1, None]
        moved.view(np.uint8).reshape(window, side, side)[...] = padded[:, y : y + side, x : x + side]
        row[...] = moved.swapaxes(2, 3)


def depth_to_space(cells: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """Return what :func:`space_to_depth` was given: (..., C, C, 16) as (..., 4C, 4C)."""
    *lead, across, _, _ = cells.shape
    pixels: NDArray[Any] = cells.reshape(*lead, across, across, BLOCK, BLOCK).swapaxes(-3, -2)
    return pixels.reshape(*lead, across * BLOCK, across * BLOCK)
