"""The response when memory runs out in an update: the decision, the report, and an unchanged update.

Forced by errors at chosen places; the real thing is ``test_shortages``.
"""

from __future__ import annotations

import errno
import gc
import re
import weakref
from collections.abc import Callable
from typing import Any, Literal, get_args

import pytest
import torch
from torch import Tensor

from carla_run.events import MemoryPool
from carla_run.exits import Exit
from carla_run.memory.errors import failure
from carla_td3.config import ConfigError, Offload
from carla_td3.exits import AgentError, exit_code, is_out_of_memory, sentence
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
    ("place", "calls", "when", "micro_batch", "offload"),
    [
        ("_gradient", range(1), "after", 50, ()),  # at the last inch: all gradients there, the step to come
        ("_gradient", range(3), "after", 12, ()),  # 50, 50, 25
        ("_gradient", range(2, 5), "after", 12, ()),  # never reached at 50: nothing happens before call 2
        ("_optimizers['critic'].step", range(3), "before", 12, ()),
        ("online.actor.forward", range(3), "after", 12, ()),
        ("_optimizers['actor'].step", range(1), "before", 50, ()),
        ("_optimizers['actor'].step", range(2), "before", 25, ()),
        ("_targets.pairs", range(1), "before", 50, ()),
        ("_optimizers['critic']._adam", range(2), "before", 25, get_args(Offload)),
        ("_optimizers['actor'].step", range(2), "before", 25, get_args(Offload)),
        ("_targets.pairs", range(1), "before", 50, get_args(Offload)),
    ],
)
def test_a_shortage_in_any_phase_is_made_good(
    monkeypatch: pytest.MonkeyPatch,
    place: str,
    calls: range,
    when: Literal["before", "after"],
    micro_batch: int,
    offload: tuple[Offload, ...],
) -> None:
    undisturbed, watched = Watched(SMALL), Watched(SMALL, offload)
    owner, _, name = f"executor.{place}".rpartition(".")
    target = eval(owner, {"executor": watched.td3.executor})
    monkeypatch.setattr(target, name, Failing(getattr(target, name), calls, when))
    metrics = undisturbed.td3.update(random_batch(SIZE))
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


def made(batch: int = 8, first: int | None = None, **named: Any) -> tuple[Recovery, list[Shortage]]:
    """Return a recovery, and the shortages that it reports."""
    reported: list[Shortage] = []
    return Recovery(batch, first, lambda: None, reported.append, **named), reported


def actions(reported: list[Shortage]) -> list[str]:
    return [shortage.action for shortage in reported]


def fits(limit: int, tried: list[int] | None = None, error: Exception | None = None) -> Callable[[int], int]:
    """Return a phase that up to ``limit`` rows fit."""

    def run(size: int) -> int:
        if tried is not None:
            tried.append(size)
        if size > limit:
            raise error or torch.OutOfMemoryError(CUDA_FORM)
        return size

    return run


def test_the_ladder_is_garbage_then_halves_then_exit_71() -> None:
    recovery, reported = made()
    with pytest.raises(AgentError) as caught:
        recovery.attempt("critic", fits(0), 8)
    steps = [(shortage.action, shortage.micro_batch, shortage.next_micro_batch) for shortage in reported]
    halves = [("halved", size, size // 2) for size in (8, 4, 2)]
    assert steps == [("collected", 8, 8), *halves, ("collected", 1, 1), ("exhausted", 1, 1)]
    assert caught.value.code is Exit.OUT_OF_MEMORY
    for number in ("critic phase", "down to 1 of td3.batch_size 8", "20.00 MiB asked for", "6.94 MiB free"):
        assert number in str(caught.value)


def test_a_phase_that_cannot_be_split_leaves_the_micro_batch() -> None:
    recovery, reported = made(first=4)
    with pytest.raises(AgentError):
        recovery.attempt("targets", fits(0), 1)
    assert actions(reported) == ["collected", "exhausted"]
    assert recovery.micro_batch == 4


@pytest.mark.parametrize(("first", "rows"), [(None, 8), (4, 8), (None, 1)])
def test_the_last_resort_begins_again_with_the_first_size(first: int | None, rows: int) -> None:
    moved: list[None] = []
    recovery, reported = made(first=first, last_resort=lambda: moved.append(None))
    assert recovery.attempt("critic", lambda size: fits(size if moved else 0)(size), rows) == min(rows, first or 8)
    assert recovery.micro_batch == (first or 8)
    assert actions(reported)[-2:] == ["collected", "moved"]
    assert (reported[-1].micro_batch, reported[-1].next_micro_batch) == (1, min(rows, first or 8))
    assert len(moved) == 1


def test_there_is_one_last_resort_and_then_exit_71() -> None:
    moved: list[None] = []
    recovery, reported = made(2, last_resort=lambda: moved.append(None))
    with pytest.raises(AgentError) as caught:
        recovery.attempt("critic", fits(0), 2)
    assert caught.value.code is Exit.OUT_OF_MEMORY
    ladder = ["collected", "halved", "collected"]
    assert actions(reported) == [*ladder, "moved", *ladder, "exhausted"]
    assert len(moved) == 1


def test_what_worked_is_remembered_until_a_calm() -> None:
    tried: list[int] = []
    recovery, _ = made(32)
    assert recovery.attempt("critic", fits(10, tried), 32) == 8
    assert recovery.attempt("critic", fits(10, tried), 32) == 8
    assert tried == [32, 32, 16, 8, 8]
    tried.clear()
    for _ in range(CALM_PHASES):
        recovery.attempt("critic", fits(10), 32)
    assert recovery.attempt("critic", fits(6, tried), 32) == 4
    assert recovery.attempt("critic", fits(3, tried), 32) == 2
    assert tried == [8, 8, 4, 4, 2]  # again so soon: no litter, but a shortage


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
    recovery, reported = made()
    run = Failing(lambda size: size, range(1), "before", torch.OutOfMemoryError(message))
    assert recovery.attempt("actor", run, 8) == 8
    assert reported == [Shortage("actor", message.splitlines()[0], "collected", 8, 8, 8, asked, free)]


def test_nothing_of_the_failed_try_is_alive_then() -> None:
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


HANDLE = "CUDA error: CUBLAS_STATUS_NOT_INITIALIZED when calling `cublasCreate(handle)`"


@pytest.mark.parametrize(
    ("error", "full", "tried_again"),
    [
        (OSError(errno.ENOMEM, "Cannot allocate memory"), False, True),
        (RuntimeError("can't start new thread"), False, True),
        (RuntimeError(HANDLE), True, True),  # a library without room for its handle, or a broken one
        (RuntimeError(HANDLE), False, False),
        (OSError(errno.ENOSPC, "No space left on device"), False, False),
        (RuntimeError("mat1 and mat2 shapes cannot be multiplied (8x4 and 3x2)"), False, False),
    ],
)
def test_what_is_memory_is_tried_again_in_parts_and_nothing_else(
    error: Exception, full: bool, tried_again: bool
) -> None:
    tried: list[int] = []
    recovery, reported = made(device_is_full=lambda: full)
    run = fits(4, tried, error)
    if tried_again:
        assert recovery.attempt("critic", run, 8) == 4
        assert actions(reported) == ["collected", "halved"]
    else:
        with pytest.raises(type(error), match=re.escape(str(error))):
            recovery.attempt("critic", run, 8)
        assert (reported, tried) == ([], [8])


@pytest.mark.parametrize("refuge", [True, False])
def test_a_broken_allocator_is_left_at_once(refuge: bool) -> None:
    tried: list[int] = []
    moved: list[bool] = []
    recovery, reported = made(last_resort=(lambda: moved.append(True)) if refuge else None)

    def run(size: int) -> int:
        return fits(8 if moved else 0, tried, RuntimeError(ASSERTED_FORM))(size)

    if refuge:
        assert recovery.attempt("critic", run, 8) == 8
    else:
        with pytest.raises(AgentError, match="serves nothing more in this process") as ended:
            recovery.attempt("critic", run, 8)
        assert (ended.value.code, ended.value.pool) == (Exit.OUT_OF_MEMORY, MemoryPool.DEVICE)
    assert tried == ([8, 8] if refuge else [8])
    assert actions(reported) == ["moved" if refuge else "exhausted"]
    assert recovery.micro_batch == 8, "no rung is adopted for it"


class Wrapped(torch.OutOfMemoryError):
    """A library's own kind of the error."""


class RefinedError(ConfigError):
    """A room's own kind of a configuration's error."""


MEMORY_ERRORS = (
    MemoryError(),
    torch.OutOfMemoryError(CUDA_FORM),
    torch.OutOfMemoryError(ASYNC_FORM),
    Wrapped("in words of its own"),
    torch.AcceleratorError("CUDA error: out of memory\nCUDA kernel errors might be asynchronously reported"),
    OSError(errno.ENOMEM, "Cannot allocate memory"),
    *map(
        RuntimeError,
        (
            *(CUDA_FORM, CPU_FORM, ASSERTED_FORM, "std::bad_alloc", "can't start new thread"),
            *("CUDA error: out of memory", "CUDA driver error: out of memory"),
            "CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`",
            "cuDNN error: CUDNN_STATUS_ALLOC_FAILED",
            "cuDNN error: CUDNN_STATUS_INTERNAL_ERROR_DEVICE_ALLOCATION_FAILED",
            "CUDNN_STATUS_INTERNAL_ERROR_HOST_ALLOCATION_FAILED",
        ),
    ),
)
OTHER_ERRORS = (
    OSError(errno.ENOSPC, "No space left on device", "replay/frames"),
    OSError(errno.EAGAIN, "Resource temporarily unavailable"),
    ValueError("CUDA out of memory"),
    KeyboardInterrupt("out of memory"),
    *map(
        RuntimeError,
        (
            *("shape mismatch", "CUDA error: unknown error", "CUDA error: device-side assert triggered"),
            "CUDA error: an illegal memory access was encountered",
            "file notes on running out of memory.txt has no header",
        ),
    ),
)
AMBIGUOUS = (
    HANDLE,
    "cuDNN error: CUDNN_STATUS_NOT_INITIALIZED",
    "cuDNN error: CUDNN_STATUS_INTERNAL_ERROR",
    "GET was unable to find an engine to execute this computation",
    "FIND was unable to find an engine to execute this computation",
    "CUDA error: CUBLAS_STATUS_EXECUTION_FAILED when calling `cublasSgemm`",
    "NVML_SUCCESS == r INTERNAL ASSERT FAILED",
    "CUDA driver error: invalid argument",
)


@pytest.mark.parametrize("full", [True, False])
def test_the_card_is_asked_only_where_the_words_leave_it_open(full: bool) -> None:
    def asked() -> bool:
        raise AssertionError("nobody needs to ask")

    assert all(is_out_of_memory(error, asked) for error in MEMORY_ERRORS)
    assert not any(is_out_of_memory(error, asked) for error in OTHER_ERRORS)
    for message in AMBIGUOUS:
        error = RuntimeError(message)
        assert is_out_of_memory(error, lambda: full) is full, message
        assert exit_code(error, lambda: full) == (Exit.OUT_OF_MEMORY if full else None)
        assert not is_out_of_memory(ValueError(message), lambda: True)


def test_a_lost_gpu_is_no_matter_of_memory() -> None:
    def lost(error: Exception) -> bool:
        return failure(error, 1, None, 0).gpu_lost

    error = RuntimeError("CUDA error: unknown error")
    assert lost(error)
    assert not is_out_of_memory(error, lambda: True)
    assert not lost(RuntimeError("CUDA error: device-side assert triggered"))
    assert not lost(ValueError("CUDA error: unknown error"))


def test_an_exit_code_follows_the_error_s_class_or_errno() -> None:
    assert exit_code(RefinedError("td3.tau is 2")) is Exit.BAD_CONFIG
    error = OSError(errno.ENOMEM, "Cannot allocate memory")
    assert exit_code(error) is Exit.OUT_OF_MEMORY
    assert sentence(error) == "[Errno 12] Cannot allocate memory"
