"""The shape of an observation as the algorithm sees it, and the layout of its frames.

Owns the sizes (84×84 grey, 4 frames, 53 numbers, 2 actions) and the 4×4 space-to-depth layout in which frames are
stored and convolved. Never touches networks, disk or the environment.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

SIDE = 84  # pixels of a camera frame, both ways
STACK = 4  # frames of one observation, the newest last
VECTOR = 53  # numbers of one observation beside the image
ACTION = 2  # steering, throttle(+)/brake(−), each in [-1, 1]

BLOCK = 4  # = stride of the first convolution
CELLS = SIDE // BLOCK
FRAME_SHAPE = (CELLS, CELLS, BLOCK * BLOCK)  # (21, 21, 16): channels last, so that stacking frames is one `cat`

CACHED_ROWS = 64
"""On the CPU: so many observations go through all convolutions, then the next, so that their numbers stay in cache."""


def space_to_depth(frames: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """Return frames (..., 84, 84) as (..., 21, 21, 16): pixel (4Y+y, 4X+x) becomes channel 4y+x of cell (Y, X).

    An 8×8 convolution of stride 4 over the pixels is then a 2×2 one of stride 1 over the cells: the same sums,
    in a shape that CPU and GPU kernels run several times faster.

    Raises:
        ValueError: the frames are not uint8 of 84×84.
    """
    if frames.shape[-2:] != (SIDE, SIDE) or frames.dtype != np.uint8:
        raise ValueError(f"a frame is {frames.dtype} {frames.shape[-2:]}, expected uint8 ({SIDE}, {SIDE})")
    lead = frames.shape[:-2]
    cells: NDArray[Any] = frames.reshape(*lead, CELLS, BLOCK, CELLS, BLOCK).swapaxes(-3, -2)
    return cells.reshape(*lead, *FRAME_SHAPE)
