"""A dry run does everything and changes nothing; a commit takes no memory worth the name."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, get_args

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.profiler import ProfilerActivity, profile

from carla_run.paths import RunPaths
from carla_td3 import config
from carla_td3.config import Offload, TD3Config
from carla_td3.cuda import limit_memory
from carla_td3.run_directory import prepare
from carla_td3.td3.dry_run import dry_run, zero_batch
from carla_td3.td3.executor import whole_batch
from carla_td3.td3.optimizers import OffloadedAdam
from carla_td3.td3.replay.replay import Replay
from carla_td3.td3.td3 import TD3
from carla_td3.trainer.learner import Learner
from tests.unit.agent.batches import CPU, NARROW, bits
from tests.unit.agent.watched import before_each_step

SMALL = TD3Config(network=NARROW, batch_size=8)


def replay_with_an_episode(directory: Path) -> Replay:
    rng = np.random.default_rng(0)
    replay = Replay.create(directory, capacity=1000)
    replay.start_episode(rng.integers(0, 256, (84, 84), dtype=np.uint8), rng.normal(size=53).astype(np.float32))
    for step in range(30):
        frame, vector = rng.integers(0, 256, (84, 84), dtype=np.uint8), rng.normal(size=53).astype(np.float32)
        replay.append(rng.uniform(-1, 1, 2).astype(np.float32), float(step), False, step == 29, frame, vector)
    return replay


@pytest.fixture(scope="module")
def replay(tmp_path_factory: pytest.TempPathFactory) -> Replay:
    return replay_with_an_episode(tmp_path_factory.mktemp("replay") / "ring")


@given(
    seed=st.integers(0, 2**31),
    updates=st.integers(0, 3),
    delay=st.integers(1, 3),
    size=st.integers(1, 9),
    precision=st.sampled_from(["float32", "bfloat16", "float16"]),
)
@settings(max_examples=15)
def test_a_dry_run_leaves_every_bit_as_it_was(
    replay: Replay, seed: int, updates: int, delay: int, size: int, precision: str
) -> None:
    td3 = TD3(SMALL.model_copy(update={"policy_delay": delay, "precision": precision}), CPU, seed)
    twin = TD3(td3.config, CPU, seed)
    for number in range(updates):
        for one in (td3, twin):
            one.update(replay.sample(8, np.random.default_rng(number)))
    state, chance, numbers = (
        bits(td3),
        torch.get_rng_state(),
        np.random.get_state(legacy=False)["state"]["key"].tobytes(),
    )
    dry_run(td3, size, whole_batch)
    assert bits(td3) == state
    assert torch.equal(torch.get_rng_state(), chance)
    assert np.random.get_state(legacy=False)["state"]["key"].tobytes() == numbers
    for one in (td3, twin):
        one.update(replay.sample(8, np.random.default_rng(99)))
    assert bits(td3) == bits(twin)


def test_all_phases_are_rehearsed_whatever_the_policy_delay_says() -> None:
    rehearsed: list[str] = []

    def attempt(phase: str, run: Callable[[int], Any], rows: int) -> Any:
        rehearsed.append(phase)
        return run(rows)

    dry_run(TD3(SMALL.model_copy(update={"policy_delay": 3}), CPU, seed=0), 8, attempt)
    assert rehearsed == ["rehearsed critic", "rehearsed actor", "rehearsed targets", "rehearsed acting"]


def test_a_dry_run_reaches_every_kernel_of_a_later_update() -> None:
    """The optimizers step on real gradients; only the last, in-place operation is told to change nothing."""
    td3 = TD3(SMALL, CPU, seed=0)
    stepped: list[float] = []

    def note(optimizer: OffloadedAdam) -> None:
        stepped.extend(float(each.grad.norm()) for each in optimizer.masters.values() if each.grad is not None)

    for optimizer in td3.executor._optimizers.values():
        before_each_step(optimizer, partial(note, optimizer))
    dry_run(td3, 8, whole_batch)
    assert len(stepped) == len(list(td3.online.parameters()))
    assert sum(stepped) > 0


def test_effects_are_back_after_a_dry_run_that_failed() -> None:
    td3 = TD3(SMALL, CPU, seed=0)
    state = bits(td3)

    def attempt(phase: str, run: Callable[[int], Any], rows: int) -> Any:
        if phase.endswith("targets"):
            raise RuntimeError("stop")
        return run(rows)

    with pytest.raises(RuntimeError, match="stop"):
        dry_run(td3, 8, attempt)
    assert bits(td3) == state
    assert all(parameter.grad is None for parameter in td3.online.parameters())
    td3.update(zero_batch(td3, 8))
    assert bits(td3) != state


def test_adams_state_is_there_before_the_first_step() -> None:
    td3 = TD3(SMALL, CPU, seed=0)
    optimizers = td3.executor._optimizers.values()
    found = [parameter for each in optimizers for parameter in each.masters.values()]
    assert {id(parameter) for parameter in found} == {id(parameter) for parameter in td3.online.parameters()}
    assert all(set(each.state) == {"step", "exp_avg", "exp_avg_sq"} for each in optimizers)
    assert all(len(values) == len(each.masters) for each in optimizers for values in each.state.values())


def allocated_by(function: Callable[[], object]) -> int:
    """Return the bytes that the CPU's allocator gave out, freed again or not."""
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as record:
        function()
    return sum(event.self_cpu_memory_usage for event in record.key_averages() if event.self_cpu_memory_usage > 0)


@pytest.mark.parametrize(("precision", "offload"), [("float32", ()), ("float16", get_args(Offload))])
def test_commits_take_less_than_what_backward_has_just_freed(precision: str, offload: tuple[Offload, ...]) -> None:
    td3 = TD3(TD3Config(policy_delay=1, precision=precision), CPU, 0, offload)
    batch, optimizers = zero_batch(td3, 1), td3.executor._optimizers
    td3.update(batch)
    convolutions = sum(p.numel() * 4 for p in td3.online.encoder.parameters() if p.dim() == 4)
    few = 1024  # step counters
    assert allocated_by(optimizers["critic"].step) <= convolutions + few
    assert allocated_by(optimizers["actor"].step) <= few
    assert allocated_by(lambda: td3.executor.update_targets(0.5, whole_batch)) <= few

    def gradients() -> Tensor:
        return td3.executor._gradient(td3.critic_loss, [batch, torch.zeros(1)], 1, optimizers["critic"]).total

    assert allocated_by(gradients) > 10 * convolutions


def test_the_learner_s_dry_run_has_no_effect_and_tells_the_peak(tmp_path: Path) -> None:
    chosen = config.validate({"td3": SMALL.model_dump(), "replay": {"capacity": 1000}}, source="test")
    run = RunPaths(tmp_path)
    with prepare(run, resume=False):
        replay_with_an_episode(run.replay).close()
        ring = {path.name: path.read_bytes() for path in run.replay.iterdir()}
        learner, twin = Learner(chosen, run), Learner(chosen, run)
        learner.dry_run()
        assert learner.updates == 0
        for one in (learner, twin):
            one.update()
            one.update()
        assert bits(learner._algorithm) == bits(twin._algorithm)
        assert {path.name: path.read_bytes() for path in run.replay.iterdir()} == ring
    (event,) = [json.loads(line) for line in run.agent_events.read_text(encoding="utf-8").splitlines()]
    assert (event["event"], event["batch"], event["micro_batch"]) == ("rehearsed", 8, 8)
    assert event["host_peak_mib"] > 50
    assert event["device_reserved_peak_mib"] is None


def test_the_cpu_knows_no_memory_fraction() -> None:
    limit_memory(CPU, 0.5)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device here")
def test_on_a_gpu_a_small_limit_ends_in_micro_batches() -> None:
    from carla_td3.memory.recovery import Recovery, Shortage

    device = torch.device("cuda", 0)
    reported: list[Shortage] = []
    td3 = TD3(TD3Config(policy_delay=1), device, seed=0)
    recovery = Recovery(2048, None, td3.executor.release, reported.append)
    total = torch.cuda.get_device_properties(device).total_memory
    limit_memory(device, (torch.cuda.memory_reserved(device) + 256 * 2**20) / total)
    try:
        found = dry_run(td3, 2048, recovery.attempt)
    finally:
        limit_memory(device, 1.0)
    assert recovery.micro_batch < 2048
    assert all(shortage.asked_bytes and shortage.free_bytes is not None for shortage in reported)
    assert found.device_reserved_peak_mib is not None
    assert torch.cuda.memory_reserved(device) > torch.cuda.memory_allocated(device)
