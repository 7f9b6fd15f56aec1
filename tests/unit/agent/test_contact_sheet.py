"""A sheet shows some pictures of a drive, evenly apart, however long it was."""

from __future__ import annotations

from pathlib import Path

import cv2
import numpy as np
import pytest

from carla_td3.evaluation.contact_sheet import GAP, KEPT, LABEL, ContactSheet


def shades(path: Path, columns: int, width: int, height: int) -> list[int]:
    """Return the grey of each picture on a sheet, row by row."""
    page = cv2.imread(str(path))
    assert page is not None
    found = []
    for top in range(GAP, page.shape[0] - height, height + LABEL + GAP):
        for left in range(GAP, page.shape[1] - width, width + GAP):
            found.append(int(page[top + height // 2, left + width // 2, 0]))
    return found[: len(found) // columns * columns]


@pytest.mark.parametrize("count", [KEPT, 24, 25, 100, 233])
def test_pictures_lie_evenly_over_the_drive(tmp_path: Path, count: int) -> None:
    sheet = ContactSheet(40)
    for number in range(count):
        sheet.add(np.full((20, 20, 3), number, np.uint8), str(number))
    sheet.write(tmp_path / "sheet.png", columns=4)
    found = shades(tmp_path / "sheet.png", 4, 40, 40)
    assert len(found) == KEPT
    apart = np.diff(found)
    assert found[0] == 0
    assert found[-1] >= count - 1 - count / KEPT
    assert apart.max() - apart.min() <= max(2, count / KEPT)


def test_a_short_drive_has_fewer_pictures(tmp_path: Path) -> None:
    sheet = ContactSheet(40)
    sheet.write(tmp_path / "none.png")
    assert not (tmp_path / "none.png").exists()
    for number in (10, 20):
        sheet.add(np.full((20, 20, 3), number, np.uint8), "")
    sheet.write(tmp_path / "two.png")
    assert shades(tmp_path / "two.png", 2, 40, 40) == [10, 20]
