"""A file is written whole, or the old one stands."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from contract.files import write_whole


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


def test_a_file_is_written_whole_or_not_at_all(tmp_path: Path) -> None:
    path = tmp_path / "agent.json"
    write_whole(path, "old")
    (tmp_path / f".agent.json.{os.getpid()}").mkdir()  # the new one can't be written
    with pytest.raises(OSError, match="directory"):
        write_whole(path, "new")
    assert path.read_text() == "old"


@pytest.mark.parametrize("umask", [0o000, 0o077])
def test_only_its_owner_can_write_a_file_whatever_the_umask(tmp_path: Path, umask: int) -> None:
    before = os.umask(umask)
    try:
        write_whole(tmp_path / "launcher.json", "{}")
    finally:
        os.umask(before)
    assert (tmp_path / "launcher.json").stat().st_mode & 0o777 == 0o644 & ~umask
