"""What a disk changed or lost of a ring is counted and never drawn; every other row is."""

from __future__ import annotations

import functools
import os
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from carla_td3.td3.replay.checksum import checksum
from carla_td3.td3.replay.damage import mend_rings, undamaged
from carla_td3.td3.replay.frames import DEFAULT
from carla_td3.td3.replay.layout import ROW, ReplayError
from carla_td3.td3.replay.replay import Replay

CAPACITY, DRIVES, STEPS = 100, 3, 9
FRAME = 84 * 84
LAST = DRIVES * (STEPS + 1) - 1
PLANES, OTHER_BYTES = 9, 512
"""The largest row that the checksum is made for."""


def drive(replay: Replay, drives: int = 1) -> None:
    """Write drives whose rows hold their numbers."""
    for _ in range(drives):
        replay.start_episode(*seen(replay.rows))
        for step in range(STEPS):
            number = replay.rows + (step == 0)
            replay.append(np.zeros(2, np.float32), float(number), step == STEPS - 1, False, *seen(number))


@functools.cache
def seen(number: int) -> tuple[np.ndarray, np.ndarray]:
    vector = np.full(53, number + 1, np.float32)
    return np.random.default_rng(number).integers(1, 256, (84, 84), np.uint8), vector


def filled(folder: Path, drives: int = DRIVES) -> Path:
    replay = Replay.create(folder / "replay", CAPACITY)
    drive(replay, drives)
    replay.close()
    return folder / "replay"


def drawn(replay: Replay) -> set[int]:
    """Return the numbers of the rows that are drawn; what comes with them must be theirs."""
    batch = replay.sample(2000, np.random.default_rng(0), n_step=2)
    assert np.isfinite(batch.vector.numpy()).all()
    found, places = np.unique(batch.vector[:, 0].numpy().astype(int), return_index=True)
    for frames, number in zip(batch.frames.numpy()[places], found.tolist(), strict=True):
        assert (frames[3] == DEFAULT.cells(seen(number - 1)[0])[0]).all()
    return set(found.tolist())


def flip(path: Path, at: int, bit: int = 3) -> None:
    with path.open("r+b") as file:
        file.seek(at)
        changed = file.read(1)[0] ^ 1 << bit
        file.seek(at)
        file.write(bytes([changed]))


def mended(replay: Path) -> list[dict[str, Any]]:
    events: list[dict[str, Any]] = []
    mend_rings([replay], DEFAULT, lambda _, cause, **numbers: events.append({"cause": cause, **numbers}))
    return events


def steps_of(*left_out: int, last: int = LAST) -> set[int]:
    """Return the rows that are steps, up to one, without those that reach back to these."""
    unreached = set(range(last + 1)) - {number + each for number in left_out for each in range(5)}
    return {number for number in unreached if number % (STEPS + 1)}


@pytest.mark.parametrize("number", [0, 12, 19, 20, 21], ids=lambda number: f"row {number}")
@pytest.mark.parametrize("where", ["frames.u8", *(name for name in ROW.names or ())])
def test_a_flipped_bit_costs_its_row_and_those_that_show_it(tmp_path: Path, where: str, number: int) -> None:
    replay = filled(tmp_path)
    if where == "frames.u8":
        flip(replay / where, number * FRAME + 3000)
    else:
        flip(replay / "rows.bin", number * ROW.itemsize + ROW.fields[where][1])  # type: ignore[index]
    (told,) = mended(replay)
    assert (told["damaged"], told["left_out"], told["rows"]) == (1, 5, [LAST + 1] * 2)
    assert f"1 of {LAST + 1} rows are damaged ({number})" in told["cause"]
    assert mended(replay) == []
    goes_on = Replay.create(replay, CAPACITY)
    assert drawn(goes_on) == steps_of(number)
    assert goes_on.steps == DRIVES * STEPS
    drive(goes_on)
    assert goes_on.steps == (DRIVES + 1) * STEPS


@pytest.mark.parametrize(("first", "kept"), [(LAST, LAST), (LAST - 3, LAST - 3), (LAST - STEPS + 1, LAST - STEPS)])
def test_damaged_rows_at_the_end_are_dropped(tmp_path: Path, first: int, kept: int) -> None:
    replay = filled(tmp_path)
    for number in range(first, LAST + 1):
        flip(replay / "rows.bin", number * ROW.itemsize, bit=6)
    (told,) = mended(replay)
    assert (told["damaged"], told["rows"]) == (LAST + 1 - kept, [LAST + 1, kept])
    assert mended(replay) == []
    goes_on = Replay.create(replay, CAPACITY)
    assert goes_on.steps == DRIVES * STEPS - (LAST + 1 - first)
    assert drawn(goes_on) == steps_of(last=kept - 1)
    drive(goes_on)
    assert goes_on.rows == kept + STEPS + 1
    goes_on.close()
    assert mended(replay) == []


@pytest.mark.parametrize("drives", [DRIVES, 27], ids=["a new ring", "a ring that came round"])
def test_a_count_with_a_flipped_bit_is_found(tmp_path: Path, drives: int) -> None:
    replay = filled(tmp_path, drives)
    content, rows = (replay / "published").read_bytes(), drives * (STEPS + 1)
    for bit in (*range(9), 31, 62, 63):
        (replay / "published").write_bytes(content)
        flip(replay / "published", bit // 8, bit % 8)
        (told,) = mended(replay)
        assert told["rows"][1] == rows
        assert (replay / "published").read_bytes() == content


@pytest.mark.parametrize("drives", [DRIVES, 27], ids=["a new ring", "a ring that came round"])
@pytest.mark.parametrize("name", ["published", "rows.bin", "frames.u8"])
def test_a_write_that_was_lost_costs_only_what_it_held(tmp_path: Path, name: str, drives: int) -> None:
    replay = filled(tmp_path, drives)
    old = (replay / name).read_bytes()
    before = Replay.create(replay, CAPACITY)
    drive(before, 2)
    rows, oldest = before.rows, before.oldest_whole() + 1
    before.close()
    (replay / name).write_bytes(old)
    (told,) = mended(replay)
    lost = 0 if name == "published" else 2 * (STEPS + 1)
    assert told["rows"][1] == rows - lost
    assert told["damaged"] >= lost
    assert mended(replay) == []
    found = drawn(Replay.open(replay))
    assert found <= steps_of(last=rows - lost - 1)
    assert found >= {number for number in steps_of(last=rows - lost - 1) if number > oldest + 15}


def test_a_torn_page_costs_the_rows_in_it(tmp_path: Path) -> None:
    replay = filled(tmp_path)
    with (replay / "rows.bin").open("r+b") as file:
        file.seek(2048)
        file.write(bytes(2048))
    torn = set(range(2048 // ROW.itemsize, -(-4096 // ROW.itemsize)))
    (told,) = mended(replay)
    assert told["damaged"] == len(torn)
    assert drawn(Replay.open(replay)) == steps_of(*torn)


@pytest.mark.parametrize("name", ["published", "rows.bin", "frames.u8"])
def test_a_file_that_was_cut_short_costs_the_rows_that_it_lacks_once_it_has_its_length(
    tmp_path: Path, name: str
) -> None:
    replay = filled(tmp_path)
    row = {"published": 8, "rows.bin": ROW.itemsize, "frames.u8": FRAME}[name]
    left = 0 if name == "published" else 15 * row + 100
    os.truncate(replay / name, left)
    with pytest.raises(ReplayError, match=rf"{name}: .* is cut short to {left} of ") as refused:
        mended(replay)
    subprocess.run(str(refused.value).split("`")[1], shell=True, check=True)
    (told,) = mended(replay)
    rows = LAST + 1 if name == "published" else 15
    assert told["rows"] == [0 if name == "published" else LAST + 1, rows]
    assert mended(replay) == []
    assert drawn(Replay.open(replay)) == steps_of(last=rows - 1)


def test_rows_of_earlier_versions_count_as_whole(tmp_path: Path) -> None:
    replay = filled(tmp_path)
    rows = np.memmap(replay / "rows.bin", ROW, "r+")
    rows["checksum"] = 0
    flip(replay / "frames.u8", 3000)
    assert mended(replay) == []
    assert {number for number in range(LAST + 1) if number % (STEPS + 1)} == set(
        Replay.open(replay).sample(2000, np.random.default_rng(0)).reward.numpy().astype(int).tolist()
    )


@pytest.mark.parametrize("what", ["rows", "count"])
def test_a_ring_without_an_undamaged_row_is_one_sentence(tmp_path: Path, what: str) -> None:
    replay = filled(tmp_path, 27)
    if what == "rows":
        for number in range(CAPACITY):
            flip(replay / "rows.bin", number * ROW.itemsize)
    else:
        (replay / "published").write_bytes((50_000).to_bytes(8, "little"))
    with pytest.raises(ReplayError, match="no row of this replay is undamaged"):
        mended(replay)


def test_damaged_demonstrations_are_left_out_and_stay_as_they_are(tmp_path: Path) -> None:
    replay = filled(tmp_path)
    flip(replay / "frames.u8", 12 * FRAME)
    before = {path.name: path.read_bytes() for path in replay.iterdir()}
    causes: list[str] = []
    opened = undamaged(replay, DEFAULT, lambda *event, **_: causes.append(event[1]))
    assert drawn(opened) == steps_of(12)
    assert {path.name: path.read_bytes() for path in replay.iterdir()} == before
    assert len(causes) == 1
    again = Replay.create(replay, CAPACITY)  # a running training's rows arrive all the same
    drive(again)
    assert max(drawn(opened)) == LAST + STEPS + 1


def bits_of_a_row() -> np.ndarray:
    """Return what each bit of the largest row changes in a CRC-32, from its last one on."""
    changed, changes = 1, np.empty(8 * (PLANES * FRAME + OTHER_BYTES), np.uint32)
    for place in range(len(changes)):
        changed = changed >> 1 ^ (0xEDB88320 if changed & 1 else 0)
        changes[place] = changed
    return changes


def test_no_single_bit_goes_unseen() -> None:
    changes = bits_of_a_row()
    assert ((changes ^ changes >> 11 ^ changes >> 14) & 0xFFFF).all()
    row, frame = bytes(ROW.itemsize), bytes(FRAME)
    for at in range(8 * (len(row) + len(frame))):
        if at % 97 == 0 or at < 8 * len(row):
            flipped = bytearray(row + frame)
            flipped[at // 8] ^= 1 << at % 8
            there = checksum(7, bytes(flipped[: len(row)]), bytes(flipped[len(row) :]))
            assert there != checksum(7, row, frame)


def test_a_row_elsewhere_is_not_that_row(tmp_path: Path) -> None:
    replay = filled(tmp_path)
    rows = np.memmap(replay / "rows.bin", ROW, "r+")
    frames = np.memmap(replay / "frames.u8", np.uint8, "r+").reshape(CAPACITY, FRAME)
    rows[14], frames[14] = rows[4], frames[4]
    (told,) = mended(replay)
    assert (told["damaged"], told["left_out"]) == (1, 5)
