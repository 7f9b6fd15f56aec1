"""Behaviour that only a real GPU can show: limits, moves, offload, the allocator and the estimate."""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from carla_run.exits import Exit
from carla_run.memory.processes import MIB
from carla_run.paths import RunPaths
from carla_td3 import config
from carla_td3.config import AgentConfig, TD3Config
from carla_td3.cuda import choose_device, limit_memory
from carla_td3.exits import AgentError
from carla_td3.memory import snapshot
from carla_td3.memory.watermarks import Watermarks
from carla_td3.run_directory import prepare
from carla_td3.td3.td3 import TD3
from carla_td3.trainer.learner import Learner
from tests.unit.agent.batches import CPU, MadeUp, random_batch
from tests.unit.agent.watched import distance

pytestmark = [pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device here")]

REPOSITORY = Path(__file__).resolve().parents[3]
PRECISIONS = ("float32", "bfloat16", "float16")
SIZE = 64


@pytest.fixture
def card() -> Iterator[torch.device]:
    """The card, with whatever it may give, and the same kernels in every update."""
    device, before = choose_device("cuda"), torch.backends.cudnn.deterministic
    torch.backends.cudnn.deterministic = True
    try:
        yield device
    finally:
        torch.backends.cudnn.deterministic = before
        limit_memory(device, 1.0)
        torch.cuda.empty_cache()


def held_to(device: torch.device, more_mib: float) -> float:
    """Return the fraction that leaves so much beyond what is reserved now."""
    total = torch.cuda.get_device_properties(device).total_memory
    return min(1.0, (torch.cuda.memory_reserved(device) + more_mib * MIB) / total)


def settings(**values: Any) -> AgentConfig:
    return config.validate({"td3": {"batch_size": SIZE, "policy_delay": 1}, **values}, source="test")


@contextlib.contextmanager
def learning(folder: Path, chosen: AgentConfig) -> Iterator[tuple[Learner, RunPaths]]:
    run, batch = RunPaths(folder), random_batch(chosen.td3.batch_size)
    with prepare(run, resume=False):
        learner = Learner(chosen, run)
        learner._replay = MadeUp(lambda *_: batch)  # type: ignore[assignment]
        yield learner, run


def full(device: torch.device) -> list[torch.Tensor]:
    """Return tensors that fill whatever the allocator may give or has kept, down to its smallest block."""
    hoard, size = [], 2**28
    while size >= 512:
        try:
            hoard.append(torch.empty(size, dtype=torch.uint8, device=device))
        except torch.OutOfMemoryError:
            size //= 2
    return hoard


def test_a_fraction_of_the_configuration_is_what_a_learner_can_have(card: torch.device, tmp_path: Path) -> None:
    fraction = held_to(card, 900)
    with learning(tmp_path, settings(memory={"per_process_memory_fraction": fraction})) as (learner, _):
        learner.dry_run()
        learner.update()
        assert learner.device == card
        assert torch.cuda.get_per_process_memory_fraction(card) == pytest.approx(fraction)
        with pytest.raises(torch.OutOfMemoryError):
            torch.empty(1000 * MIB, dtype=torch.uint8, device=card)


def test_a_first_update_beyond_the_fraction_is_finished_in_parts_before_anything_is_learned(
    card: torch.device, tmp_path: Path
) -> None:
    size = 4096
    chosen = settings(memory={"per_process_memory_fraction": held_to(card, 400)}, td3={"batch_size": size})
    with learning(tmp_path, chosen) as (learner, run):
        learner.dry_run()
        assert 1 <= learner.micro_batch < size
        learner.update()
        assert learner.device == card
    reported = [json.loads(line) for line in run.agent_events.read_text(encoding="utf-8").splitlines()]
    assert {row["phase"].split(" ")[0] for row in reported if row["event"] == "out_of_memory"} == {"rehearsed"}
    assert (run.memory / "out-of-memory-1.pickle").stat().st_size > 0, "PyTorch's viewer has its file"
    account = json.loads((run.memory / "out-of-memory-1.json").read_text(encoding="utf-8"))
    assert account["allocator"]["num_ooms"] > 0


@pytest.mark.parametrize(("device", "leaves"), [("auto", True), ("cuda", False)])
def test_a_learner_with_not_a_byte_left_goes_to_the_cpu_where_it_may(
    card: torch.device, tmp_path: Path, device: str, leaves: bool
) -> None:
    with learning(tmp_path, settings(device=device)) as (learner, _):
        learner.update()
        learner._algorithm.executor.release()  # its gradients' room would do for an update of few rows
        torch.cuda.empty_cache()
        limit_memory(card, held_to(card, 0))
        hoard = full(card)
        if not leaves:
            with pytest.raises(AgentError) as caught:
                learner.update()
            assert caught.value.code is Exit.OUT_OF_MEMORY
            return
        learner.update()
        assert (learner.device, learner.micro_batch, len(hoard) > 0) == (CPU, SIZE, True)
        assert all(value == value for value in learner.losses().values())  # noqa: PLR0124 – not NaN


def test_a_request_takes_a_learner_to_the_cpu_and_back_under_the_same_limit(card: torch.device, tmp_path: Path) -> None:
    fraction = held_to(card, 1500)
    chosen = settings(device="cpu", memory={"per_process_memory_fraction": fraction, "offload": ["optimizer"]})
    with learning(tmp_path, chosen) as (learner, _):
        memory = Watermarks(learner.device)
        for device in ("cuda", "cpu", "cuda"):
            learner.apply(chosen.model_copy(update={"device": device}), ["device"])
            memory.follow(learner.device)
            memory.enter(f"updating on {device}")
            learner.update()
            memory.read("updating")
            assert learner.device.type == device
            assert memory.now["device_used"] > memory.now["device_reserved"]
        assert torch.cuda.get_per_process_memory_fraction(card) == pytest.approx(fraction)


@pytest.mark.parametrize("precision", PRECISIONS)
@pytest.mark.parametrize("offload", [(), ("optimizer", "targets")])
def test_an_update_on_the_card_is_the_cpu_s_up_to_rounding(
    card: torch.device, precision: str, offload: tuple[Any, ...]
) -> None:
    """Tolerance of the gradients: where a gradient is nearly 0, Adam turns any rounding error into a whole step."""
    chosen = TD3Config(precision=precision, batch_size=SIZE, policy_delay=1)
    found = []
    for device in (card, CPU):
        td3 = TD3(chosen, device, seed=0, offload=offload if device == card else ())
        if td3.executor._scale is not None:
            td3.executor._scale.value.fill_(256)  # where it comes down to after some updates: no overflow
        td3.executor._gradient(
            td3.critic_loss,
            [random_batch(SIZE).to(device), torch.zeros(SIZE, device=device)],
            SIZE,
            td3.executor._optimizers["critic"],
        )
        scale = 1.0 if td3.executor._scale is None else float(td3.executor._scale.value)
        gradients = {name: each.grad for name, each in td3.online.named_parameters() if each.grad is not None}
        found.append({name: gradient.cpu() / scale for name, gradient in gradients.items()})
    assert distance(*found) < {"float32": 5e-3, "bfloat16": 5e-2, "float16": 1e-2}[precision]  # TF32 on the card


@pytest.mark.parametrize("precision", PRECISIONS)
def test_the_estimate_holds_what_a_fresh_process_s_allocator_takes(card: torch.device, precision: str) -> None:
    batch = SIZE
    command = [
        "benchmarks/card_footprint.py",
        "--batch",
        str(batch),
        "--precision",
        precision,
        "--seconds",
        "0.2",
        "--json",
    ]
    ended = subprocess.run([sys.executable, *command], cwd=REPOSITORY, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    report = json.loads(ended.stdout)
    assert 100 < report["context_mib"] < 2000, report


@pytest.mark.parametrize(
    ("memory", "expected"),
    [
        ({}, {"expandable_segments": True}),
        ({"expandable_segments": False}, {"expandable_segments": False, "garbage_collection_threshold": 0.8}),
        ({"garbage_collection_threshold": 0.6}, {"garbage_collection_threshold": 0.6, "expandable_segments": True}),
    ],
)
def test_the_allocator_runs_with_what_it_was_told(memory: dict[str, Any], expected: dict[str, Any]) -> None:
    """In a fresh process, as the admission asks: nothing has made a context there."""
    program = (
        "import json, os, sys; from carla_td3.memory import allocator; from carla_td3.config import MemoryConfig;"
        "allocator.prepare(MemoryConfig(**json.loads(sys.argv[1])), os.environ, allocator.Platform.here());"
        "from carla_td3.memory.preflight import read_back; print(json.dumps(read_back()))"
    )
    words = [sys.executable, "-c", program, json.dumps(memory)]
    ended = subprocess.run(words, cwd=REPOSITORY, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stderr
    took_hold = json.loads(ended.stdout)
    assert {name: took_hold[name] for name in expected} == expected


def test_page_locked_tensors_stay_page_locked_through_updates_and_moves(card: torch.device) -> None:
    td3 = TD3(TD3Config(policy_delay=1), card, seed=0, offload=("optimizer", "targets"))

    def locked() -> list[bool]:
        masters = [each for one in td3.executor._optimizers.values() for each in one.masters.values()]
        return [each.is_pinned() for each in (*masters, *td3.target.parameters())]

    td3.update(random_batch(SIZE))
    assert all(locked())
    td3.executor.move(CPU)
    assert not any(locked())
    td3.executor.move(card, ("optimizer", "targets"))
    td3.update(random_batch(SIZE))
    assert all(locked())


def test_an_account_of_a_shortage_has_the_card_s_figures(card: torch.device, tmp_path: Path) -> None:
    kept = torch.zeros(MIB, device=card)
    name = snapshot.write(tmp_path, card, {"phase": "critic"})
    assert name is not None
    account = json.loads((tmp_path / name).read_text(encoding="utf-8"))
    assert account["allocator"]["allocated_bytes.all.current"] >= kept.nbytes
    assert account["for_the_viewer"] == "out-of-memory-1.pickle"


def test_losses_are_summed_on_the_card_and_go_along(card: torch.device, tmp_path: Path) -> None:
    moves: list[Callable[[], None]] = []
    with learning(tmp_path, settings()) as (learner, _):
        moves += [lambda: learner._move(CPU, learner._config), lambda: learner._move(card, learner._config)]
        for move in moves:
            learner.update()
            move()
        learner.update()
        assert learner.losses().keys() >= {"critic_loss", "actor_loss"}
