"""What is held for a growing command, what counts as out of memory, what the options mean: without processes."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from carla_launcher.plugins.reserve import options
from carla_launcher.plugins.reserve.amounts import STEP_MIB, Growth, Reservation, keep, margin
from carla_launcher.plugins.reserve.command import out_of_memory

AMOUNT = st.floats(0, 8192)


@given(reserved_mib=AMOUNT, context=st.floats(0, 600), allocations=st.lists(st.floats(1, STEP_MIB), max_size=60))
def test_a_command_that_allocates_a_step_at_a_time_gets_all_that_was_reserved(
    reserved_mib: float, context: float, allocations: list[float]
) -> None:
    reserved = Reservation(reserved_mib, context)
    held, free, taken = reserved.held_first(), reserved_mib - reserved.held_first(), 0.0
    for wanted in allocations:
        allocation = min(wanted, reserved_mib - taken)
        assert allocation <= free + 1e-6
        taken, free = taken + allocation, free - allocation
        kept = keep(reserved, taken, held, free, STEP_MIB)
        free, held = free + held - kept, kept
        assert free <= max(reserved_mib - held, STEP_MIB) + 1e-6
        assert held == 0 or free <= STEP_MIB + 1e-6


@given(reserved_mib=AMOUNT, taken=AMOUNT, held=AMOUNT, free=AMOUNT, context=st.floats(0, 600))
def test_what_is_held_only_shrinks_and_never_leaves_more_free_than_is_wanted(
    reserved_mib: float, taken: float, held: float, free: float, context: float
) -> None:
    kept = keep(Reservation(reserved_mib, context), taken, held, free, STEP_MIB)
    assert 0 <= kept <= held
    due = max(0.0, reserved_mib - taken)
    if context < kept < min(held, due):
        left_free = free + held - kept
        made_up_for = kept == pytest.approx(due - 2 * STEP_MIB)  # foreign processes' memory, as far as it ever is
        assert left_free < STEP_MIB + 1e-6 if made_up_for else left_free == pytest.approx(STEP_MIB)


def test_a_foreign_process_that_takes_what_lies_free_is_made_up_for_once() -> None:
    reserved, held, theirs = Reservation(2048), 1920.0, 0.0
    for _ in range(50):  # it takes all that lies free, again and again; the command nothing
        theirs += 2048 - theirs - held
        held = keep(reserved, 0.0, held, 0.0, STEP_MIB)
    assert theirs == 2 * STEP_MIB
    assert held == 2048 - 2 * STEP_MIB


def test_room_for_a_whole_context_lies_free_while_one_is_being_made() -> None:
    reserved = Reservation(2048, context_mib=400)
    assert margin(reserved, 0, opening=False) == STEP_MIB
    assert margin(reserved, 0, opening=True) == 400 + STEP_MIB
    assert margin(reserved, 150, opening=True) == 250 + STEP_MIB
    assert margin(reserved, 400, opening=True) == STEP_MIB


def test_the_holders_context_goes_as_soon_as_the_rest_is_less_and_memory_is_short() -> None:
    reserved = Reservation(2048, context_mib=400)
    assert keep(reserved, taken=1500, held=420, free=128, wanted_free=STEP_MIB) == 420
    assert keep(reserved, taken=1550, held=420, free=78, wanted_free=STEP_MIB) == 0


def test_memory_that_was_never_reserved_is_used_up_before_any_is_given_back() -> None:
    assert keep(Reservation(2048), taken=128, held=1920, free=5000, wanted_free=STEP_MIB) == 1920
    assert keep(Reservation(2048), taken=228, held=1920, free=4900, wanted_free=STEP_MIB) == 1820


def test_breathing_is_no_growth() -> None:
    growth = Growth(now_s=0)
    growth.see(500, now_s=10)
    for second in range(11, 60):
        growth.see(500 + second % 3, now_s=second)
    assert growth.rested_s(60) == 50
    assert growth.taken == 502


@pytest.mark.parametrize(
    ("code", "said", "kernel_killed", "expected"),
    [
        (71, "", False, "exit code 71"),
        (137, "", True, "the kernel killed it for memory"),
        (137, "", False, ""),  # a user's kill -9
        (0, "torch.OutOfMemoryError: CUDA out of memory.", False, ""),  # it got over it
        (1, "torch.OutOfMemoryError: CUDA out of memory.", False, "exit code 1 after `out of memory`"),
        (1, "RuntimeError: CUBLAS_STATUS_ALLOC_FAILED", False, "exit code 1 after `CUBLAS_STATUS_ALLOC_FAILED`"),
        (134, "what():  std::bad_alloc", False, "exit code 134 after `std::bad_alloc`"),
        (1, "RuntimeError: !handles_.at(i) INTERNAL ASSERT FAILED", False, "exit code 1 after `handles_.at(i)`"),
        (1, "RuntimeError: can't start new thread", False, "exit code 1 after `can't start new thread`"),
        (1, "OSError: [Errno 12] Cannot allocate memory", False, "exit code 1 after `Cannot allocate memory`"),
        (1, "RuntimeError: CUDA error: CUBLAS_STATUS_INTERNAL_ERROR", False, ""),  # a broken card says so, too
        (1, "RuntimeError: CUDA error: unknown error", False, ""),
        (1, "KeyError: 'memory'", False, ""),
        (1, "", True, ""),  # the kernel killed another one
        (75, "out of memory: finished in parts of 32", False, ""),  # it got over it, and was stopped later
        (143, "out of memory: finished in parts of 32", False, ""),
    ],
)
def test_running_out_of_memory_is_told_from_other_ends(
    code: int, said: str, kernel_killed: bool, expected: str
) -> None:
    assert out_of_memory(code, said, kernel_killed) == expected


def test_the_options_of_the_notes_are_understood() -> None:
    line = "--min-free 2048 --sleep 300 --timeout 7200 --fallback-batch 2 -- bash scripts/run_e1.sh --res 32 -- x"
    found = options.parse(line.split())
    assert (found.min_free, found.sleep_s, found.timeout_s, found.fallback_batch) == (2048, 300, 7200, 2)
    assert found.command == ("bash", "scripts/run_e1.sh", "--res", "32", "--", "x")


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("--min-free 2048", "no command: expected `-- CMD`"),
        ("--min-free 2048 --", "no command: expected `-- CMD`"),
        ("--min-free 0 -- true", "--min-free: '0': expected a whole number from 1 on"),
        ("--min-free 2GiB -- true", "--min-free: '2GiB': expected a whole number from 1 on"),
        ("--sleep 0 -- true", "--sleep: 0 is no pause"),
        ("--timeout nan -- true", "--timeout: 'nan': expected seconds"),
        ("--gpu first -- true", "--gpu: 'first': expected a whole number from 0 on"),
    ],
)
def test_a_wrong_option_is_named(line: str, said: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        options.parse(line.split())
    assert ended.value.code == 2
    assert said in capsys.readouterr().err


def test_the_help_says_that_no_hand_over_is_free_of_gaps(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        options.parse(["--help"])
    assert ended.value.code == 0
    assert "a hand-over without a gap is impossible" in " ".join(capsys.readouterr().out.split())
