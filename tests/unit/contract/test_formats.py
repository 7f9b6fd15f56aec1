"""A format is read or refused in one place, and a run says which version wrote it last."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from carla_run import formats
from carla_run.formats import Format, FormatError
from carla_run.paths import RunPaths
from carla_td3.td3.replay import index

TWO = Format("replay", 1, 2)


@pytest.mark.parametrize("found", [1, 2])
def test_formats_of_the_span_are_read(found: int) -> None:
    TWO.require(Path("x"), found)


@pytest.mark.parametrize("found", [0, 3, "1", 1.0, True, None])
def test_any_other_format_is_refused(found: object) -> None:
    with pytest.raises(
        FormatError, match=rf"x: holds a replay of format {found};.* reads format 1 to 2: use the version"
    ):
        TWO.require(Path("x"), found)


def test_the_refusal_names_the_version_that_wrote_it() -> None:
    with pytest.raises(FormatError, match=r"format 3, written by version 0.9; this is version .*: use version 0.9, or"):
        TWO.require(Path("x"), 3, "0.9")


@pytest.mark.parametrize("text", [None, "", "{", "[]", '{"version": "0.2.0"}', '{"format": 1, "version": "0.2.0"}'])
def test_a_run_without_a_later_format_is_readable(tmp_path: Path, text: str | None) -> None:
    run = RunPaths(tmp_path)
    if text is not None:
        run.version.write_text(text)
    formats.require_readable(run)


@pytest.mark.parametrize("digit", "0359")
def test_a_flipped_bit_in_the_format_refuses_no_run_of_this_version(tmp_path: Path, digit: str) -> None:
    run = RunPaths(tmp_path)
    formats.stamp(run)
    run.version.write_text(run.version.read_text().replace('"format": 1', f'"format": {digit}'))
    formats.require_readable(run)
    formats.stamp(run)
    assert json.loads(run.version.read_text())["format"] == formats.RUN.newest


def test_a_stamp_is_written_once(tmp_path: Path) -> None:
    run = RunPaths(tmp_path)
    formats.stamp(run)
    assert json.loads(run.version.read_text()) == {"format": formats.RUN.newest, "version": formats.version()}
    inode = run.version.stat().st_ino
    formats.stamp(run)
    assert run.version.stat().st_ino == inode


def test_a_replay_of_a_later_format_is_refused(tmp_path: Path) -> None:
    (tmp_path / "replay.json").write_text('{"capacity": 1, "version": 3, "planes": "as nobody knows yet"}')
    with pytest.raises(FormatError, match="replay of format 3"):
        index.read(tmp_path)
