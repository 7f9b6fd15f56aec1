"""Five seeded instants of each sweep (``make soak`` runs all of them), and that the witness sees what it should."""

from __future__ import annotations

import signal
from pathlib import Path

import numpy as np
import pytest

from carla_td3.td3.replay.replay import Replay
from tests.soak.instants import CHAIN, Moment, Victim, chain
from tests.soak.sweep import sweep, undisturbed
from tests.soak.witness import Witness


@pytest.mark.long
@pytest.mark.parametrize("victim", list(Victim), ids=lambda victim: victim.value)
def test_a_run_that_is_struck_again_and_again_loses_nothing_and_goes_on(victim: Victim, tmp_path: Path) -> None:
    # Only the learner's sweep also compares rows with an undisturbed run's.
    reference = undisturbed(tmp_path / "undisturbed", 120) if victim is Victim.LEARNER else None
    outcomes, problems = sweep(victim, 0, tmp_path, reference)
    assert len(outcomes) == CHAIN
    assert not problems
    assert [(outcome.lost, outcome.problems) for outcome in outcomes] == [(0, [])] * CHAIN


def test_instants_are_a_function_of_the_number_and_cover_a_runs_life() -> None:
    for victim in Victim:
        chains = [chain(victim, number) for number in range(4)]
        assert chains == [chain(victim, number) for number in range(4)]
        instants = [instant for each in chains for instant in each]
        assert [instant.seed for instant in instants] == list(range(4 * CHAIN))
        assert {instant.moment for instant in instants} >= set(Moment) - {Moment.ENDING}
        assert len({instant.delay_s for instant in instants}) > 3 * CHAIN


def test_each_death_of_a_collector_comes_at_each_moment() -> None:
    deaths = (signal.SIGKILL, signal.SIGSEGV, signal.SIGABRT, signal.SIGSTOP)
    instants = [instant for number in range(len(deaths)) for instant in chain(Victim.COLLECTOR, number)]
    assert len(instants) == 20
    assert {(instant.moment, instant.death) for instant in instants} == {
        (moment, death) for moment in Moment if moment is not Moment.ENDING for death in deaths
    }


def filled(folder: Path) -> tuple[Path, Witness]:
    """Return a replay of two episodes, and a witness that has seen it."""
    replay = Replay.create(folder / "replay", 100)
    for _ in range(2):
        replay.start_episode(np.full((84, 84), 7, np.uint8), np.ones(53, np.float32))
        for step in range(5):
            frame, vector = np.full((84, 84), 9, np.uint8), np.ones(53, np.float32)
            replay.append(np.zeros(2, np.float32), 1.0, step == 4, False, frame, vector)
    replay.close()
    witness = Witness(folder / "replay")
    assert (witness.look(), witness.problems()) == (10, [])
    return folder / "replay", witness


def test_the_witness_sees_rows_that_are_lost(tmp_path: Path) -> None:
    replay, witness = filled(tmp_path)
    np.array([9], np.int64).tofile(replay / "published")
    assert witness.problems() == ["3 of 12 rows are lost"]


@pytest.mark.parametrize("name", ["frames.u8", "rows.bin"])
def test_the_witness_sees_a_changed_byte(tmp_path: Path, name: str) -> None:
    replay, witness = filled(tmp_path)
    content = bytearray((replay / name).read_bytes())
    content[20] ^= 1
    (replay / name).write_bytes(content)
    assert "rows [0] have changed" in witness.problems()
    assert Witness(replay).unlike(witness) == []  # a witness that has seen nothing contradicts nothing
    other = Witness(replay)
    other.look()
    assert other.unlike(witness) == ["rows from 0 on differ from an undisturbed run's"]


@pytest.mark.parametrize(
    ("row", "column", "value", "sentence"),
    [
        (8, "step", 9, "rows [8, 9] count a step that isn't one"),
        (8, "episode_step", 4, "rows [8, 9] don't follow in their episode"),
        (3, "truncated", 1, "rows [4] follow an episode's end"),
        (11, "episode_step", 0, "rows [11] begin an episode without a step"),
        (2, "reward", np.nan, "rows [2] have no finite figures"),
    ],
)
def test_the_witness_sees_rows_that_don_t_add_up(
    tmp_path: Path, row: int, column: str, value: float, sentence: str
) -> None:
    replay, _ = filled(tmp_path)
    rows = np.memmap(replay / "rows.bin", Witness(replay).rows.dtype, "r+")
    rows[column][row] = value
    rows.flush()
    assert sentence in Witness(replay).problems()


def test_a_row_without_its_picture_is_seen(tmp_path: Path) -> None:
    replay, _ = filled(tmp_path)
    with (replay / "frames.u8").open("r+b") as file:
        file.seek(4 * 7056)
        file.write(bytes(7056))
    assert "rows [4] have no picture" in Witness(replay).problems()
