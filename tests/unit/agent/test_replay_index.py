"""``replay.json`` and its copy: either is enough, a damaged one is named, and what can't be read says what to do."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from carla_run.sealed import is_damaged
from carla_td3.td3.replay import index
from carla_td3.td3.replay.damage import mend_rings, undamaged
from carla_td3.td3.replay.frames import DEFAULT
from carla_td3.td3.replay.index import COPY, META
from carla_td3.td3.replay.layout import Layout, ReplayError
from carla_td3.td3.replay.replay import Replay
from carla_td3.td3.replay.resize_replay import resize


@pytest.fixture
def ring(tmp_path: Path) -> Path:
    """Return a ring that was resized, so that its description has all entries."""
    Replay.create(tmp_path / "replay", 100).close()
    assert resize(tmp_path / "replay", 120, DEFAULT) is not None
    return tmp_path / "replay"


def told(ring: Path) -> list[str]:
    """Return what a start says of a ring; the next one must have nothing to say."""
    sentences: list[str] = []
    for _ in range(2):
        mend_rings([ring], DEFAULT, lambda event, cause, **_: sentences.append(f"{event}: {cause}"))
    return sentences


@pytest.mark.parametrize("name", [META, COPY])
def test_any_flipped_bit_is_named_and_the_other_used(ring: Path, name: str) -> None:
    whole, content = index.read(ring), (ring / name).read_bytes()
    for bit in range(8 * len(content)):
        changed = bytearray(content)
        changed[bit // 8] ^= 1 << bit % 8
        (ring / name).write_bytes(changed)
        found, damaged = index.examined(ring)
        assert found == whole, changed
        assert str(ring / name) in damaged or str(ring) in damaged, changed
    assert len(told(ring)) == 1
    assert (ring / name).read_bytes() == content


@pytest.mark.parametrize("name", [META, COPY])
@pytest.mark.parametrize("left", [b"", b'{"capacity": 120, "ver', b"[]", b"\xff" * 40, b"[" * 100_000])
def test_a_torn_one_is_named_and_written_again(ring: Path, name: str, left: bytes) -> None:
    whole = index.read(ring)
    (ring / name).write_bytes(left)
    (sentence,) = told(ring)
    assert sentence.startswith(f"replay_index_damaged: {ring / name}: can't be read (")
    assert sentence.endswith("is used instead." if name == META else "is used.")
    assert index.examined(ring) == (whole, "")


def test_a_lost_one_is_named_and_a_missing_copy_is_made(ring: Path) -> None:
    whole = index.read(ring)
    (ring / META).unlink()
    assert undamaged(ring, DEFAULT, lambda *_, **__: None).capacity == 120
    assert f"{META} is missing" in told(ring)[0]
    (ring / COPY).unlink()
    assert told(ring) == [], "earlier versions wrote none"
    assert not is_damaged(json.loads((ring / COPY).read_bytes()))
    assert index.read(ring) == whole


def test_what_both_damaged_ask_for_is_possible(ring: Path) -> None:
    (ring / META).write_bytes(b"{")
    (ring / COPY).write_bytes(b"{}")
    said = rf"{META}: can't be read .*{COPY}: can't be read .*: move it away to continue from the checkpoint"
    with pytest.raises(ReplayError, match=said):
        index.read(ring)
    ring.rename(ring.with_name("away"))
    assert Replay.create(ring, 120).rows == 0


def test_a_kill_between_the_two_leaves_the_new_ring_and_mends_the_copy(ring: Path) -> None:
    before = (ring / COPY).read_bytes()
    resize(ring, 150, DEFAULT)
    (ring / COPY).write_bytes(before)
    assert index.read(ring) == Layout(150, first=0, generation=2)
    assert index.read(ring).capacity == 150
    Replay.create(ring, 150).close()
    assert index.examined(ring)[1] == ""
    (ring / META).unlink()
    assert index.read(ring).capacity == 150


def test_files_that_are_cut_short_are_refused_once(ring: Path) -> None:
    (ring / "rows.1.bin").write_bytes(b"1" * 50)
    with pytest.raises(ReplayError) as refused:
        index.read(ring)
    assert str(refused.value).count("cut short") == 1
