"""A file is written whole, or the old one stands."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from carla_run.files import open_to_append, read_whole, write_whole
from tests.accounts import ALICE, needs_root


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


def append(path: Path) -> None:
    with open_to_append(path) as file:
        file.write(b"more")


@pytest.mark.parametrize("use", [append, read_whole])
@pytest.mark.parametrize("kind", ["link", "pipe", "folder"])
def test_what_was_laid_in_a_file_s_place_is_refused_at_once_and_left_alone(
    tmp_path: Path, use: Callable[[Path], object], kind: str
) -> None:
    precious, place = tmp_path / "precious", tmp_path / "agent.log"
    precious.write_text("keep me")
    {"link": lambda: place.symlink_to(precious), "pipe": lambda: os.mkfifo(place), "folder": place.mkdir}[kind]()
    with pytest.raises(OSError, match=r"it is a link|it isn't a file|No such device|Is a directory"):
        use(place)
    assert precious.read_text() == "keep me"


def test_a_link_that_waits_under_the_temporary_name_is_not_written_through(tmp_path: Path) -> None:
    precious, place = tmp_path / "precious", tmp_path / "launcher.json"
    precious.write_text("keep me")
    (tmp_path / f".launcher.json.{os.getpid()}").symlink_to(precious)
    write_whole(place, "new")
    assert (place.read_text(), precious.read_text()) == ("new", "keep me")


def test_a_private_file_is_its_owner_s_whatever_the_umask(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        write_whole(tmp_path / "page.url", "token", private=True)
    finally:
        os.umask(before)
    assert (tmp_path / "page.url").stat().st_mode & 0o777 == 0o600


def test_a_folder_may_be_reached_by_links_of_one_s_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "scratch" / "logs").mkdir(parents=True)
    (tmp_path / "runs").symlink_to("scratch")
    (tmp_path / "absolute").symlink_to(tmp_path / "runs")
    monkeypatch.chdir(tmp_path)
    for way in ("runs/logs", "absolute/logs", "scratch/../runs/logs", str(tmp_path / "runs" / "logs")):
        append(Path(way) / "agent.log")
    write_whole(Path("runs") / "logs" / "agent.json", "{}")
    assert read_whole(tmp_path / "scratch" / "logs" / "agent.log") == b"more" * 4
    (tmp_path / "round").symlink_to("round")
    with pytest.raises(OSError, match="Errno 40"):
        append(tmp_path / "round" / "agent.log")


@needs_root
@pytest.mark.parametrize("use", [append, read_whole, lambda path: write_whole(path, "{}")])
def test_root_is_led_nowhere_by_a_link_of_another_user_s(tmp_path: Path, use: Callable[[Path], object]) -> None:
    (tmp_path / "etc").mkdir()
    (tmp_path / "etc" / "agent.log").write_text("keep me")
    (tmp_path / "logs").symlink_to(tmp_path / "etc")
    os.lchown(tmp_path / "logs", ALICE, ALICE)
    with pytest.raises(OSError, match="a link on the way that isn't root's"):
        use(tmp_path / "logs" / "agent.log")
    assert [path.name for path in (tmp_path / "etc").iterdir()] == ["agent.log"]
    assert (tmp_path / "etc" / "agent.log").read_text() == "keep me"
