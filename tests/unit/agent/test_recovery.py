"""What is done when memory runs out in an update: decided, told, and the update as it would have been.

Forced by errors at chosen places; the real thing is ``test_shortages``.
"""

from __future__ import annotations

import errno
import gc
import weakref
from collections.abc import Callable
from typing import Literal

import pytest
import torch
from torch import Tensor

from carla_run.events import MemoryPool
from carla_run.exits import Exit
from carla_td3.config import ConfigError
from carla_td3.exits import AgentError, exit_code, gpu_is_lost, is_out_of_memory, sentence
from carla_td3.memory.recovery import CALM_PHASES, Recovery, Shortage
from tests.unit.agent.batches import random_batch
from tests.unit.agent.failing import CPU_FORM, CUDA_FORM, Failing
from tests.unit.agent.watched import SIZE, SMALL, Watched, distance, recovery_of

ASYNC_FORM = (
    "Allocation on device 0 would exceed allowed memory. (out of memory)\nCurrently allocated     : 1.00 GiB\n"
    "Requested               : 2.00 MiB\nDevice limit            : 5.61 GiB\nFree (according to CUDA): 512.00 KiB"
)

ASSERTED_FORM = (
    '!handles_.at(i) INTERNAL ASSERT FAILED at "/src/CUDACachingAllocator.cpp":1, please report a bug to PyTorch.'
)


@pytest.mark.parametrize(
    ("place", "calls", "when", "micro_batch"),
    [
        ("td3.executor._gradient", range(1), "after", 50),  # at the last inch: all gradients there, the step to come
        ("td3.executor._gradient", range(3), "after", 12),  # 50, 50, 25
        ("td3.executor._gradient", range(2, 5), "after", 12),  # never reached at 50: nothing happens before call 2
        ("td3.executor._optimizers['critic'].step", range(3), "before", 12),
        ("td3.online.actor.forward", range(3), "after", 12),
        ("td3.executor._optimizers['actor'].step", range(1), "before", 50),
        ("td3.executor._optimizers['actor'].step", range(2), "before", 25),
        ("torch._foreach_lerp_", range(1), "before", 50),
    ],
)
def test_a_shortage_in_any_phase_is_made_good(
    monkeypatch: pytest.MonkeyPatch, place: str, calls: range, when: Literal["before", "after"], micro_batch: int
) -> None:
    undisturbed, watched = Watched(SMALL), Watched(SMALL)
    metrics = undisturbed.td3.update(random_batch(SIZE))
    owner, _, name = place.rpartition(".")
    target = torch if owner == "torch" else eval(owner, {"td3": watched.td3})
    monkeypatch.setattr(target, name, Failing(getattr(target, name), calls, when), raising=False)
    recovery, reported = recovery_of(watched.td3)
    found = watched.td3.update(random_batch(SIZE), recovery.attempt)
    expected_failures = 0 if calls.start > 0 else len(calls)
    assert len(reported) == expected_failures
    assert recovery.micro_batch == (micro_batch if expected_failures else SIZE)
    assert distance(watched.weights(), undisturbed.weights()) <= 2e-6
    assert distance(watched.gradients, undisturbed.gradients) <= 2e-6
    for key, value in metrics.items():
        torch.testing.assert_close(found[key], value, rtol=1e-5, atol=1e-6)
    monkeypatch.undo()
    torch.testing.assert_close(  # and the next one: noise and counters stand where they should
        watched.td3.update(random_batch(SIZE, 7))["q_target"], undisturbed.td3.update(random_batch(SIZE, 7))["q_target"]
    )


def never_fits(size: int) -> None:
    raise torch.OutOfMemoryError(CUDA_FORM)


def test_the_ladder_is_garbage_then_halves_then_exit_71_with_the_numbers() -> None:
    reported: list[Shortage] = []
    recovery = Recovery(8, None, lambda: None, reported.append)
    with pytest.raises(AgentError) as caught:
        recovery.attempt("critic", never_fits, 8)
    steps = [(shortage.action, shortage.micro_batch, shortage.next_micro_batch) for shortage in reported]
    assert steps == [
        ("collected", 8, 8),
        ("halved", 8, 4),
        ("halved", 4, 2),
        ("halved", 2, 1),
        ("collected", 1, 1),
        ("exhausted", 1, 1),
    ]
    assert caught.value.code is Exit.OUT_OF_MEMORY
    sentence = str(caught.value)
    for number in ("critic phase", "down to 1 of td3.batch_size 8", "20.00 MiB asked for", "6.94 MiB free"):
        assert number in sentence


def test_a_phase_that_cannot_be_split_is_tried_once_more_and_leaves_the_micro_batch() -> None:
    reported: list[Shortage] = []
    recovery = Recovery(8, 4, lambda: None, reported.append)
    with pytest.raises(AgentError):
        recovery.attempt("targets", never_fits, 1)
    assert [shortage.action for shortage in reported] == ["collected", "exhausted"]
    assert recovery.micro_batch == 4


@pytest.mark.parametrize(("first", "rows"), [(None, 8), (4, 8), (None, 1)])
def test_the_last_resort_is_to_move_and_begin_again_with_the_first_size(first: int | None, rows: int) -> None:
    reported: list[Shortage] = []
    moved: list[int] = []
    recovery = Recovery(8, first, lambda: None, reported.append, last_resort=lambda: moved.append(recovery.micro_batch))

    def run(size: int) -> int:
        if not moved:
            raise torch.OutOfMemoryError(CUDA_FORM)
        return size

    assert recovery.attempt("critic", run, rows) == min(rows, first or 8)
    assert recovery.micro_batch == (first or 8)
    assert [shortage.action for shortage in reported][-2:] == ["collected", "moved"]
    assert (reported[-1].micro_batch, reported[-1].next_micro_batch) == (1, min(rows, first or 8))
    assert len(moved) == 1


def test_there_is_one_last_resort_and_then_exit_71() -> None:
    reported: list[Shortage] = []
    moved: list[None] = []
    recovery = Recovery(2, None, lambda: None, reported.append, last_resort=lambda: moved.append(None))
    with pytest.raises(AgentError) as caught:
        recovery.attempt("critic", never_fits, 2)
    assert caught.value.code is Exit.OUT_OF_MEMORY
    ladder = ["collected", "halved", "collected"]
    assert [shortage.action for shortage in reported] == [*ladder, "moved", *ladder, "exhausted"]
    assert len(moved) == 1


def fits(limit: int, tried: list[int]) -> Callable[[int], int]:
    def run(size: int) -> int:
        tried.append(size)
        if size > limit:
            raise RuntimeError(CPU_FORM)
        return size

    return run


def test_what_worked_is_remembered_and_garbage_comes_first_again_after_a_calm() -> None:
    reported: list[Shortage] = []
    tried: list[int] = []
    recovery = Recovery(32, None, lambda: None, reported.append)
    assert recovery.attempt("critic", fits(10, tried), 32) == 8
    assert recovery.attempt("critic", fits(10, tried), 32) == 8
    assert tried == [32, 32, 16, 8, 8]
    tried.clear()
    for _ in range(CALM_PHASES):
        recovery.attempt("critic", fits(10, []), 32)
    assert recovery.attempt("critic", fits(6, tried), 32) == 4
    assert tried == [8, 8, 4]
    tried.clear()
    assert recovery.attempt("critic", fits(3, tried), 32) == 2
    assert tried == [4, 2]  # again so soon: no litter, but a shortage


@pytest.mark.parametrize(
    ("message", "asked", "free"),
    [
        (CPU_FORM, 4194304, None),
        (CUDA_FORM, 20 * 2**20, round(6.94 * 2**20)),
        (ASYNC_FORM, 2 * 2**20, 2**19),
        ("CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`", None, None),
    ],
)
def test_the_account_has_the_bytes_that_the_message_has(message: str, asked: int | None, free: int | None) -> None:
    reported: list[Shortage] = []
    failures = iter([torch.OutOfMemoryError(message)])

    def run(size: int) -> int:
        for failure in failures:
            raise failure
        return size

    assert Recovery(8, None, lambda: None, reported.append).attempt("actor", run, 8) == 8
    assert reported == [Shortage("actor", message.splitlines()[0], "collected", 8, 8, 8, asked, free)]


def test_nothing_of_the_failed_try_is_alive_when_memory_is_cleared() -> None:
    alive: list[weakref.ref[Tensor]] = []
    held: list[bool] = []

    def run(size: int) -> int:
        activations = torch.zeros(size)
        alive.append(weakref.ref(activations))
        if len(alive) < 3:
            raise RuntimeError(CPU_FORM)
        return int(activations.sum())

    gc.disable()  # what only the collector frees is pinned
    try:
        recovery = Recovery(8, None, lambda: held.append(alive[-1]() is not None), lambda _: None)
        recovery.attempt("critic", run, 8)
    finally:
        gc.enable()
    assert held == [False, False]


def test_an_error_of_another_kind_is_not_tried_again() -> None:
    tried: list[int] = []

    def run(size: int) -> None:
        tried.append(size)
        raise RuntimeError("mat1 and mat2 shapes cannot be multiplied (8x4 and 3x2)")

    with pytest.raises(RuntimeError, match="shapes"):
        Recovery(8, None, lambda: None, lambda _: None).attempt("critic", run, 8)
    assert tried == [8]


@pytest.mark.parametrize(
    ("error", "known"),
    [
        (MemoryError(), True),
        (torch.OutOfMemoryError(CUDA_FORM), True),
        (torch.OutOfMemoryError(ASYNC_FORM), True),
        (RuntimeError(CUDA_FORM), True),
        (RuntimeError(CPU_FORM), True),
        (
            torch.AcceleratorError("CUDA error: out of memory\nCUDA kernel errors might be asynchronously reported"),
            True,
        ),
        (RuntimeError("CUDA error: out of memory"), True),
        (RuntimeError("CUDA driver error: out of memory"), True),
        (RuntimeError("CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`"), True),
        (RuntimeError("cuDNN error: CUDNN_STATUS_ALLOC_FAILED"), True),
        (RuntimeError("cuDNN error: CUDNN_STATUS_INTERNAL_ERROR_DEVICE_ALLOCATION_FAILED"), True),
        (RuntimeError("std::bad_alloc"), True),
        (RuntimeError(ASSERTED_FORM), True),
        (RuntimeError("can't start new thread"), True),
        (OSError(errno.ENOMEM, "Cannot allocate memory"), True),
        (OSError(errno.ENOSPC, "No space left on device", "replay/frames"), False),
        (OSError(errno.EAGAIN, "Resource temporarily unavailable"), False),
        (ValueError("CUDA out of memory"), False),
        (RuntimeError("shape mismatch"), False),
        (RuntimeError("CUDA error: device-side assert triggered"), False),
        (RuntimeError("CUDA error: an illegal memory access was encountered"), False),
        (RuntimeError("CUDA error: unknown error"), False),
        (RuntimeError("CUDA error: CUBLAS_STATUS_EXECUTION_FAILED when calling `cublasSgemm`"), False),
        (RuntimeError("file notes on running out of memory.txt has no header"), False),
        (KeyboardInterrupt("out of memory"), False),
    ],
)
def test_out_of_memory_is_known_in_its_forms_and_nothing_else_is(error: BaseException, known: bool) -> None:
    assert is_out_of_memory(error) is known


class Wrapped(torch.OutOfMemoryError):
    """A library's own kind of the error."""


class RefinedError(ConfigError):
    """A room's own kind of a configuration's error."""


AMBIGUOUS = (
    "CUDA error: CUBLAS_STATUS_NOT_INITIALIZED when calling `cublasCreate(handle)`",
    "cuDNN error: CUDNN_STATUS_NOT_INITIALIZED",
    "cuDNN error: CUDNN_STATUS_INTERNAL_ERROR",
    "GET was unable to find an engine to execute this computation",
    "FIND was unable to find an engine to execute this computation",
    "CUDA error: CUBLAS_STATUS_EXECUTION_FAILED when calling `cublasSgemm`",
    "NVML_SUCCESS == r INTERNAL ASSERT FAILED",
    "CUDA driver error: invalid argument",
)


@pytest.mark.parametrize("message", AMBIGUOUS)
@pytest.mark.parametrize("full", [True, False])
def test_what_a_full_card_and_a_broken_one_both_say_is_memory_only_while_the_card_is_full(
    message: str, full: bool
) -> None:
    error = RuntimeError(message)
    assert is_out_of_memory(error, lambda: full) is full
    assert exit_code(error, lambda: full) == (Exit.OUT_OF_MEMORY if full else None)
    assert not is_out_of_memory(ValueError(message), lambda: True)


def test_the_card_is_asked_only_where_the_words_leave_it_open() -> None:
    def asked() -> bool:
        raise AssertionError("nobody needs to ask")

    assert is_out_of_memory(RuntimeError(CUDA_FORM), asked)
    assert not is_out_of_memory(RuntimeError("CUDA error: device-side assert triggered"), asked)
    assert is_out_of_memory(RuntimeError("CUDNN_STATUS_INTERNAL_ERROR_HOST_ALLOCATION_FAILED"), asked)


def test_errors_are_known_by_all_the_classes_that_they_are_made_from() -> None:
    assert is_out_of_memory(Wrapped("in words of its own"))
    assert exit_code(RefinedError("td3.tau is 2")) is Exit.BAD_CONFIG


@pytest.mark.parametrize("full", [True, False])
def test_a_library_without_room_for_its_handle_is_tried_again_in_parts_and_one_that_is_broken_is_not(
    full: bool,
) -> None:
    reported: list[Shortage] = []

    def run(size: int) -> int:
        if size > 4:
            raise RuntimeError(AMBIGUOUS[0])
        return size

    recovery = Recovery(8, None, lambda: None, reported.append, device_is_full=lambda: full)
    if full:
        assert recovery.attempt("critic", run, 8) == 4
        assert [shortage.action for shortage in reported] == ["collected", "halved"]
    else:
        with pytest.raises(RuntimeError, match="CUBLAS_STATUS_NOT_INITIALIZED"):
            recovery.attempt("critic", run, 8)
        assert reported == []


@pytest.mark.parametrize("refuge", [True, False])
def test_where_the_allocator_serves_nothing_more_no_smaller_part_is_tried_in_this_process(refuge: bool) -> None:
    reported: list[Shortage] = []
    tried: list[int] = []
    moved: list[bool] = []

    def run(size: int) -> int:
        tried.append(size)
        if not moved:
            raise RuntimeError(ASSERTED_FORM)
        return size

    recovery = Recovery(8, None, lambda: None, reported.append, (lambda: moved.append(True)) if refuge else None)
    if refuge:
        assert recovery.attempt("critic", run, 8) == 8
    else:
        with pytest.raises(AgentError, match="serves nothing more in this process") as ended:
            recovery.attempt("critic", run, 8)
        assert (ended.value.code, ended.value.pool) == (Exit.OUT_OF_MEMORY, MemoryPool.DEVICE)
    assert tried == ([8, 8] if refuge else [8])
    assert [shortage.action for shortage in reported] == ["moved" if refuge else "exhausted"]
    assert recovery.micro_batch == 8, "no rung is adopted for it"


@pytest.mark.parametrize(
    ("error", "tried_again"),
    [
        (OSError(errno.ENOMEM, "Cannot allocate memory"), True),
        (RuntimeError("can't start new thread"), True),
        (OSError(errno.ENOSPC, "No space left on device"), False),
    ],
)
def test_host_memory_is_tried_again_in_parts_however_it_ran_out_and_a_full_disk_is_not(
    error: Exception, tried_again: bool
) -> None:
    def run(size: int) -> int:
        if size > 4:
            raise error
        return size

    recovery = Recovery(8, None, lambda: None, lambda _: None)
    if tried_again:
        assert recovery.attempt("critic", run, 8) == 4
    else:
        with pytest.raises(OSError, match="No space left"):
            recovery.attempt("critic", run, 8)


def test_a_lost_gpu_is_no_matter_of_memory_however_full_the_card_is() -> None:
    error = RuntimeError("CUDA error: unknown error")
    assert gpu_is_lost(error)
    assert not is_out_of_memory(error, lambda: True)
    assert not gpu_is_lost(RuntimeError("CUDA error: device-side assert triggered"))
    assert not gpu_is_lost(ValueError("CUDA error: unknown error"))


def test_host_memory_that_the_kernel_refuses_is_no_sentence_about_a_place() -> None:
    error = OSError(errno.ENOMEM, "Cannot allocate memory")
    assert exit_code(error) is Exit.OUT_OF_MEMORY
    assert sentence(error) == "[Errno 12] Cannot allocate memory"
