"""A drive at a glance: some of its pictures, evenly spaced, on one sheet (PNG).

Owns which pictures are kept while their final number is still unknown. Draws only their labels.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path

import cv2
import numpy as np
from numpy.typing import NDArray

from carla_run.files import write_whole

Picture = NDArray[np.uint8]

KEPT = 12
GAP, LABEL = 6, 18
GROUND, INK = (26, 24, 22), (235, 235, 235)


class ContactSheet:
    """Takes pictures of one size, and keeps between ``KEPT`` and twice as many of them, evenly spaced.

    Args:
        width: of each picture on the sheet, in pixels.
    """

    def __init__(self, width: int) -> None:
        self._width = width
        self._every, self._shown = 1, 0
        self._kept: list[tuple[str, Picture]] = []

    def add(self, picture: Picture, label: str) -> None:
        """Take the next picture, (height, width, 3), blue first."""
        if self._shown % self._every == 0:
            if len(self._kept) == 2 * KEPT:  # the next picture is a multiple of the doubled interval
                self._kept, self._every = self._kept[::2], 2 * self._every
            self._kept.append((label, _wide(picture, min(self._width, picture.shape[1]))))
        self._shown += 1

    def write(self, path: Path, columns: int = 3) -> None:
        """Write the whole sheet; without a picture write nothing.

        Raises:
            OSError: it can't be written.
        """
        if self._kept:
            chosen = np.linspace(0, len(self._kept) - 1, min(KEPT, len(self._kept))).round().astype(int)
            shown = [(label, _wide(picture, self._width)) for label, picture in (self._kept[index] for index in chosen)]
            _, png = cv2.imencode(".png", sheet(shown, columns))
            write_whole(path, png.tobytes())


def sheet(pictures: Sequence[tuple[str, Picture]], columns: int) -> Picture:
    """Return the sheet of pictures of one size, row by row, with labels. The font for labels takes 6 MiB."""
    height, width = pictures[0][1].shape[:2]
    rows = math.ceil(len(pictures) / columns)
    across = min(columns, len(pictures))
    down = height + GAP + (LABEL if any(label for label, _ in pictures) else 0)
    page = np.full((rows * down + GAP, across * (width + GAP) + GAP, 3), GROUND, np.uint8)
    for index, (label, picture) in enumerate(pictures):
        row, column = divmod(index, columns)
        top, left = GAP + row * down, GAP + column * (width + GAP)
        page[top : top + height, left : left + width] = picture
        if label:
            at = (left + 2, top + height + LABEL - 5)
            cv2.putText(page, label, at, cv2.FONT_HERSHEY_SIMPLEX, 0.42, INK, 1, cv2.LINE_AA)
    return page


def _wide(picture: Picture, width: int) -> Picture:
    height, before = picture.shape[:2]
    way = cv2.INTER_AREA if width < before else cv2.INTER_CUBIC
    return np.array(cv2.resize(picture, (width, round(height * width / before)), interpolation=way), np.uint8)
