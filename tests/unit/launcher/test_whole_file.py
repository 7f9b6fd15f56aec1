"""A file is written whole, or the old one stands."""

from __future__ import annotations

from pathlib import Path

import pytest

from launcher.whole_file import write_whole


@pytest.mark.parametrize("durable", [True, False])
def test_the_new_text_takes_the_old_ones_place_and_nothing_else_is_left(tmp_path: Path, durable: bool) -> None:
    path = tmp_path / "report.md"
    path.write_text("old")
    write_whole(path, "né \udcff", durable=durable)
    assert path.read_text(encoding="utf-8") == "né ?"
    assert list(tmp_path.iterdir()) == [path]


def test_where_it_can_not_be_put_in_place_the_old_one_stands(tmp_path: Path) -> None:
    path = tmp_path / "taken"
    path.mkdir()
    with pytest.raises(IsADirectoryError):
        write_whole(path, "new")
    assert list(tmp_path.iterdir()) == [path]
