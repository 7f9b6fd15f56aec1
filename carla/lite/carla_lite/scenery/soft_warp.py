"""A texture without sharp edges on a plane in perspective; in large images it is drawn coarser and smoothed.

Owns how much coarser. Knows no texture.
"""

from __future__ import annotations

from collections.abc import Sequence

import cv2
import numpy as np

from carla_lite.roads.reference_line import FloatArray
from carla_lite.scenery.paint import Image

_FULL_PX = 160


def coarseness(width: int) -> int:
    """Return the width of a coarser image's pixel, in pixels of an image of this width."""
    return max(1, width // _FULL_PX)


def soft_warp(
    texture: Image, to_texture: FloatArray, size: tuple[int, int], border: Sequence[float] | None = None
) -> Image:
    """Return the texture in perspective at a coarser resolution than an image of ``size`` (width, height).

    :func:`smooth` enlarges it. Beyond its edges the texture repeats, or is ``border``.
    """
    step = coarseness(size[0])
    shift = 0.5 * (step - 1)
    finer = np.array(((step, 0.0, shift), (0.0, step, shift), (0.0, 0.0, 1.0)))
    coarse: Image = np.asarray(
        cv2.warpPerspective(
            texture,
            to_texture @ finer,
            (-(-size[0] // step), -(-size[1] // step)),
            flags=cv2.INTER_LINEAR | cv2.WARP_INVERSE_MAP,
            borderMode=cv2.BORDER_WRAP if border is None else cv2.BORDER_CONSTANT,
            borderValue=border or 0,
        ),
        np.uint8,
    )
    return coarse


def smooth(coarse: Image, size: tuple[int, int]) -> Image:
    """Return the result of ``soft_warp`` in the size of the image."""
    step = coarseness(size[0])
    if step == 1:
        return coarse
    whole = cv2.resize(coarse, (coarse.shape[1] * step, coarse.shape[0] * step), interpolation=cv2.INTER_LINEAR)
    cut: Image = np.ascontiguousarray(whole[: size[1], : size[0]])
    return cut


def cover(image: Image, colours: Image, share: Image) -> None:
    """Blend colours (rows, columns, 3) into an image of that size, with a share (rows, columns) of 255."""
    cv2.multiply(image, cv2.cvtColor(cv2.bitwise_not(share), cv2.COLOR_GRAY2BGR), image, 1.0 / 255.0)
    cv2.add(image, cv2.multiply(colours, cv2.cvtColor(share, cv2.COLOR_GRAY2BGR), None, 1.0 / 255.0), image)
