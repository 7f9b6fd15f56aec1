"""Damaged lines of a JSON-lines file are counted and left out, all others are read."""

from __future__ import annotations

from pathlib import Path

import pytest

from carla_run.readers import LinesRead, read_lines

SOUND = b'{"a": 1}\n{"a": 2}\n'


@pytest.mark.parametrize(
    ("content", "rows", "damaged", "first"),
    [
        (SOUND, 2, 0, 0),
        (SOUND + b'{"a": 3}', 3, 0, 0),  # its end isn't written yet
        (SOUND + b'{"a"', 2, 0, 0),
        (SOUND + b'{"a"\n' + SOUND, 4, 1, 3),
        (b"\x00" * 40 + b"\n" + SOUND + b"[1]\n\n", 2, 2, 1),
        (SOUND + b'{"a": "\xff"}\n', 2, 1, 3),
        (b"\n\n{}\n", 1, 0, 0),
        (b"1" * 5000 + b"\n" + b"[" * 5000 + b"\n" + SOUND, 2, 2, 1),
    ],
)
def test_damaged_lines_are_counted(tmp_path: Path, content: bytes, rows: int, damaged: int, first: int) -> None:
    path, read = tmp_path / "events.jsonl", LinesRead("events.jsonl")
    path.write_bytes(content)
    assert (len(read_lines(path, read)), read.damaged, read.first) == (rows, damaged, first)


@pytest.mark.parametrize(
    ("damaged", "first", "said"),
    [
        (1, 0, "1 line of metrics.jsonl is damaged and left out"),
        (3, 1204, "3 lines of metrics.jsonl are damaged (first: line 1204) and left out"),
    ],
)
def test_damage_is_one_sentence(damaged: int, first: int, said: str) -> None:
    assert str(LinesRead("metrics.jsonl", damaged, first)) == said
