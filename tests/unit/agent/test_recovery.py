"""An update that memory ran out in ends as the undisturbed one would have: real shortages, and forced ones."""

from __future__ import annotations

import gc
import json
import os
import resource
import subprocess
import sys
import weakref
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Literal

import pytest
import torch
from torch import Tensor

from agent import config
from agent.config import NetworkConfig, TD3Config
from agent.exits import AgentError, Exit, is_out_of_memory
from agent.learner import Learner
from agent.memory.recovery import CALM_PHASES, Recovery, Shortage
from agent.run_directory import RunDirectory
from agent.td3.replay import Batch
from agent.td3.td3 import TD3
from tests.unit.agent.batches import random_batch

CPU = torch.device("cpu")
SIZE = 50  # halves to 25, then 12 and a last one of 2: unequal parts
SMALL = TD3Config(network=NetworkConfig(channels=(8, 8, 8), features=32, hidden=(32,)), batch_size=SIZE, policy_delay=1)
WIDE_ACTOR = SMALL.network.model_copy(update={"hidden": (4096,)})  # so that its phase takes some MiB, too
CPU_FORM = (
    "[enforce fail at alloc_cpu.cpp:128] err == 0. DefaultCPUAllocator: can't allocate memory: you tried to allocate "
    "4194304 bytes. Error code 12 (Cannot allocate memory)"
)
CUDA_FORM = (
    "CUDA out of memory. Tried to allocate 20.00 MiB. GPU 0 has a total capacity of 5.61 GiB of which 6.94 MiB is "
    "free. Process 4711 has 5.20 GiB memory in use."
)
ASYNC_FORM = (
    "Allocation on device 0 would exceed allowed memory. (out of memory)\nCurrently allocated     : 1.00 GiB\n"
    "Requested               : 2.00 MiB\nDevice limit            : 5.61 GiB\nFree (according to CUDA): 512.00 KiB"
)


class Watched:
    """A TD3 after some updates, with the gradients that its optimizers last stepped by."""

    def __init__(self, settings: TD3Config) -> None:
        self.td3 = TD3(settings, CPU, seed=0)
        for seed in range(8):  # in float16 the scale has come down to its place by then
            self.td3.update(random_batch(SIZE, seed))
        self.gradients: dict[str, Tensor] = {}
        for optimizer in (self.td3._critic_optimizer, self.td3._actor_optimizer):
            optimizer.adam.register_step_pre_hook(lambda *_: self._keep())

    def _keep(self) -> None:
        for name, parameter in self.td3.online.named_parameters():
            if parameter.grad is not None:
                self.gradients[name] = parameter.grad.clone()

    def scale(self) -> dict[str, float]:
        return {name: float(value) for name, value in self.td3.state().items() if name.startswith("scale")}

    def weights(self) -> dict[str, Tensor]:
        return {name: value for name, value in self.td3.state().items() if name.startswith(("online", "target"))}


def distance(ours: dict[str, Tensor], theirs: dict[str, Tensor]) -> float:
    """Return ‖ours - theirs‖₂ / ‖theirs‖₂ over all tensors."""
    assert ours.keys() == theirs.keys()
    difference = sum(float((ours[name] - theirs[name]).double().square().sum()) for name in ours)
    return float(difference**0.5 / sum(float(value.double().square().sum()) for value in theirs.values()) ** 0.5)


def recovery_of(td3: TD3) -> tuple[Recovery, list[Shortage]]:
    told: list[Shortage] = []
    return Recovery(SIZE, None, td3.release, told.append), told


# Real shortages: this file, run as a program in a process of its own.


def update_under_limits(phase: str, settings: TD3Config) -> Iterator[dict[str, Any]]:
    """Yield what came of one update under each of a row of limits to the address space, set as the phase begins."""
    batch, undisturbed, watched = random_batch(SIZE), Watched(settings), Watched(settings)
    start = watched.td3.state()
    metrics = undisturbed.td3.update(batch)
    for micro_batch in (SIZE, 25, 12, 6, 3, 1):  # oneDNN writes code for each size once, 5 MiB of it: not what is meant
        watched.td3.update(batch, Recovery(SIZE, micro_batch, watched.td3.release, print).attempt)
    room, short = 2**20, True
    while short:
        watched.td3.load_state(start)
        recovery, told = recovery_of(watched.td3)
        outcome: dict[str, Any] = {"room": room}
        try:
            found = watched.td3.update(batch, limited(watched.td3, recovery, phase, room))
        except AgentError as error:
            outcome |= {"exit": int(error.code), "sentence": str(error)}
        finally:
            resource.setrlimit(resource.RLIMIT_AS, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
        if "exit" not in outcome:
            outcome |= {
                "micro_batch": recovery.micro_batch,
                "weights": distance(watched.weights(), undisturbed.weights()),
                "gradients": distance(watched.gradients, undisturbed.gradients),
                "metrics": max(abs(float(found[name] - metrics[name])) for name in metrics),
                "same_scale": watched.scale() == undisturbed.scale(),
            }
        yield outcome | {"told": [(one.phase, one.action, one.asked_bytes, one.cause) for one in told]}
        room, short = room * 5 // 4, bool(told)


def limited(td3: TD3, recovery: Recovery, limited_phase: str, room: int) -> Callable[..., Any]:
    def attempt(phase: str, run: Callable[[int], Any], rows: int) -> Any:
        if phase == limited_phase:
            td3.release()  # the critic's gradients: with their room, collecting garbage is all that the actor needs
            used = 4096 * int(Path("/proc/self/statm").read_text(encoding="ascii").split()[0])
            resource.setrlimit(resource.RLIMIT_AS, (used + room, resource.RLIM_INFINITY))
        return recovery.attempt(phase, run, rows)

    return attempt


def limits_seen(phase: str, precision: str) -> list[dict[str, Any]]:
    # A fixed threshold: glibc then hands every larger block back, and the limit means what it says.
    environment = {**os.environ, "MALLOC_MMAP_THRESHOLD_": "16384", "MALLOC_TRIM_THRESHOLD_": "16384"}
    command = [sys.executable, "-m", "tests.unit.agent.test_recovery", phase, precision]
    root = Path(__file__).resolve().parents[3]
    ended = subprocess.run(command, check=False, capture_output=True, text=True, env=environment, cwd=root)
    assert ended.returncode == 0, ended.stderr
    return [json.loads(line) for line in ended.stdout.splitlines()]


@pytest.mark.parametrize(
    ("phase", "precision", "weights", "gradients"),
    [
        ("critic", "float32", 2e-6, 2e-6),
        ("actor", "float32", 2e-6, 2e-6),
        ("critic", "bfloat16", 1e-3, 1e-2),
        ("critic", "float16", 1e-3, 1e-2),
    ],
)
def test_a_real_shortage_changes_the_update_by_rounding_only(
    phase: str, precision: str, weights: float, gradients: float
) -> None:
    seen = limits_seen(phase, precision)
    ended = [one for one in seen if "exit" in one]
    recovered = [one for one in seen if "exit" not in one and one["told"]]
    assert all(one["exit"] == Exit.OUT_OF_MEMORY for one in ended)
    assert any(1 < one["micro_batch"] < SIZE for one in recovered), "no limit let a part through"
    assert all(name == phase for one in recovered for name, *_ in one["told"])
    assert any("DefaultCPUAllocator" in cause and asked for one in recovered for _, _, asked, cause in one["told"])
    assert max(one["weights"] for one in recovered) <= weights
    assert max(one["gradients"] for one in recovered) <= gradients
    assert all(one["same_scale"] for one in recovered)


# Forced shortages.


class Failing:
    """Calls through, except for the n-th to m-th calls, which find no memory: before or after they did their work."""

    def __init__(self, function: Callable[..., Any], calls: range, when: Literal["before", "after"]) -> None:
        self._function, self._calls, self._when = function, calls, when
        self._count = -1

    def __call__(self, *arguments: Any, **named: Any) -> Any:
        self._count += 1
        fails = self._count in self._calls
        if fails and self._when == "before":
            raise RuntimeError(CPU_FORM)
        result = self._function(*arguments, **named)
        if fails:
            raise torch.OutOfMemoryError(CUDA_FORM)
        return result


@pytest.mark.parametrize(
    ("place", "calls", "when", "micro_batch"),
    [
        ("td3._critic_gradient", range(1), "after", 50),  # at the last inch: all gradients there, the step to come
        ("td3._critic_gradient", range(3), "after", 12),  # 50, 50, 25
        ("td3._critic_gradient", range(2, 5), "after", 12),  # never reached at 50: nothing happens before call 2
        ("td3._critic_optimizer.step", range(3), "before", 12),
        ("td3.online.critic.first", range(3), "after", 12),
        ("td3._actor_optimizer.step", range(1), "before", 50),
        ("td3._actor_optimizer.step", range(2), "before", 25),
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
    recovery, told = recovery_of(watched.td3)
    found = watched.td3.update(random_batch(SIZE), recovery.attempt)
    expected_failures = 0 if calls.start > 0 else len(calls)
    assert len(told) == expected_failures
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
    told: list[Shortage] = []
    recovery = Recovery(8, None, lambda: None, told.append)
    with pytest.raises(AgentError) as caught:
        recovery.attempt("critic", never_fits, 8)
    steps = [(shortage.action, shortage.micro_batch, shortage.next_micro_batch) for shortage in told]
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
    told: list[Shortage] = []
    recovery = Recovery(8, 4, lambda: None, told.append)
    with pytest.raises(AgentError):
        recovery.attempt("targets", never_fits, 1)
    assert [shortage.action for shortage in told] == ["collected", "exhausted"]
    assert recovery.micro_batch == 4


@pytest.mark.parametrize(("first", "rows"), [(None, 8), (4, 8), (None, 1)])
def test_the_last_resort_is_to_move_and_begin_again_with_the_first_size(first: int | None, rows: int) -> None:
    told: list[Shortage] = []
    moved: list[int] = []
    recovery = Recovery(8, first, lambda: None, told.append, last_resort=lambda: moved.append(recovery.micro_batch))

    def run(size: int) -> int:
        if not moved:
            raise torch.OutOfMemoryError(CUDA_FORM)
        return size

    assert recovery.attempt("critic", run, rows) == min(rows, first or 8)
    assert recovery.micro_batch == (first or 8)
    assert [shortage.action for shortage in told][-2:] == ["collected", "moved"]
    assert (told[-1].micro_batch, told[-1].next_micro_batch) == (1, min(rows, first or 8))
    assert len(moved) == 1


def test_there_is_one_last_resort_and_then_exit_71() -> None:
    told: list[Shortage] = []
    moved: list[None] = []
    recovery = Recovery(2, None, lambda: None, told.append, last_resort=lambda: moved.append(None))
    with pytest.raises(AgentError) as caught:
        recovery.attempt("critic", never_fits, 2)
    assert caught.value.code is Exit.OUT_OF_MEMORY
    ladder = ["collected", "halved", "collected"]
    assert [shortage.action for shortage in told] == [*ladder, "moved", *ladder, "exhausted"]
    assert len(moved) == 1


def fits(limit: int, tried: list[int]) -> Callable[[int], int]:
    def run(size: int) -> int:
        tried.append(size)
        if size > limit:
            raise RuntimeError(CPU_FORM)
        return size

    return run


def test_what_worked_is_remembered_and_garbage_comes_first_again_after_a_calm() -> None:
    told: list[Shortage] = []
    tried: list[int] = []
    recovery = Recovery(32, None, lambda: None, told.append)
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
    told: list[Shortage] = []
    failures = iter([torch.OutOfMemoryError(message)])

    def run(size: int) -> int:
        for failure in failures:
            raise failure
        return size

    assert Recovery(8, None, lambda: None, told.append).attempt("actor", run, 8) == 8
    assert told == [Shortage("actor", message.splitlines()[0], "collected", 8, 8, 8, asked, free)]


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
        (ValueError("CUDA out of memory"), False),
        (RuntimeError("shape mismatch"), False),
        (RuntimeError("CUDA error: device-side assert triggered"), False),
        (RuntimeError("CUDA error: CUBLAS_STATUS_EXECUTION_FAILED when calling `cublasSgemm`"), False),
        (RuntimeError("file notes on running out of memory.txt has no header"), False),
        (KeyboardInterrupt("out of memory"), False),
    ],
)
def test_out_of_memory_is_known_in_its_forms_and_nothing_else_is(error: BaseException, known: bool) -> None:
    assert is_out_of_memory(error) is known


def test_the_learner_starts_with_the_configured_micro_batch_and_tells_of_shortages(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = config.validate({"td3": SMALL.model_dump() | {"micro_batch": 20}}, source="test")
    run = RunDirectory(tmp_path)
    with run.prepare(resume=False):
        learner = Learner(settings, run)
        assert learner.micro_batch == 20
        monkeypatch.setattr(learner._td3, "_critic_gradient", Failing(learner._td3._critic_gradient, range(2), "after"))
        learner.rehearse()
    assert learner.micro_batch == 10
    events = [json.loads(line) for line in run.events.read_text(encoding="utf-8").splitlines()]
    assert [(e["event"], e.get("action"), e["micro_batch"]) for e in events] == [
        ("out_of_memory", "collected", 20),
        ("out_of_memory", "halved", 20),
        ("rehearsed", None, 10),
    ]
    assert events[0]["phase"] == "rehearsed critic"
    written = json.loads((run.memory / events[0]["snapshot"]).read_text(encoding="utf-8"))
    assert written["shortage"]["micro_batch"] == 20


def test_a_learner_that_left_its_device_finishes_the_same_update(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On the CPU the device that is left and the one that is gone to are one; a GPU's turn is the next test's."""
    settings = config.validate({"td3": SMALL.model_dump(), "replay": {"capacity": 1000}}, source="test")
    run = RunDirectory(tmp_path)
    with run.prepare(resume=False):
        learner = Learner(settings, run)
        monkeypatch.setattr(learner._recovery, "_last_resort", learner._leave_for_the_cpu)
        monkeypatch.setattr(learner, "_replay", AlwaysTheSame())
        undisturbed = TD3(settings.td3, CPU, settings.seed)
        learner.update()
        undisturbed.update(random_batch(SIZE))
        failing = Failing(learner._td3._update_actor, range(8), "before")  # 50, 50, 25, 12, 6, 3, 1, 1
        monkeypatch.setattr(learner._td3, "_update_actor", failing)
        learner.update()
        expected = undisturbed.update(random_batch(SIZE))
    assert learner.micro_batch == SIZE
    told = [json.loads(line) for line in run.events.read_text(encoding="utf-8").splitlines()]
    assert [event["action"] for event in told] == ["collected", *["halved"] * 5, "collected", "moved"]
    ours, theirs = learner._td3.state(), undisturbed.state()
    assert all(torch.equal(ours[name], value) for name, value in theirs.items())
    assert learner.losses().keys() == expected.keys()


class AlwaysTheSame:
    """A replay with one batch."""

    def sample(self, *_: object) -> Batch:
        return random_batch(SIZE)

    def fetch(self, *_: object) -> None:
        """Nothing is on a disk."""


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device here")
def test_on_a_gpu_a_learner_leaves_a_full_device_and_stays_where_it_was_told_to(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for device, leaves in (("auto", True), ("cuda", False)):
        settings = config.validate({"device": device, "td3": {"batch_size": SIZE, "policy_delay": 1}}, source="test")
        run = RunDirectory(tmp_path / device)
        with run.prepare(resume=False):
            learner = Learner(settings, run)
            monkeypatch.setattr(learner, "_replay", AlwaysTheSame())
            learner.update()
            held = torch.cuda.memory_reserved() / torch.cuda.get_device_properties(0).total_memory
            torch.cuda.empty_cache()
            torch.cuda.set_per_process_memory_fraction(held / 100)  # what is there stays, and nothing more is given
            try:
                if leaves:
                    learner.update()
                    assert learner.device == CPU
                    assert learner.micro_batch == SIZE
                    assert all(value == value for value in learner.losses().values())  # noqa: PLR0124 – not NaN
                else:
                    with pytest.raises(AgentError) as caught:
                        learner.update()
                    assert caught.value.code is Exit.OUT_OF_MEMORY
            finally:
                torch.cuda.set_per_process_memory_fraction(1.0)


if __name__ == "__main__":
    torch.set_num_threads(1)
    widths = WIDE_ACTOR if sys.argv[1] == "actor" else SMALL.network
    chosen = SMALL.model_copy(update={"precision": sys.argv[2], "network": widths})
    for outcome in update_under_limits(sys.argv[1], chosen):
        print(json.dumps(outcome), flush=True)
