"""Offloading changes no number: updates, dry runs, checkpoints and recoveries are those of a plain TD3."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, get_args

import pytest
import torch
from torch import Tensor

from carla_td3.config import Offload, TD3Config
from carla_td3.td3.dry_run import dry_run
from carla_td3.td3.replay.replay import Batch
from carla_td3.td3.td3 import TD3
from tests.unit.agent.batches import CPU, NARROW, bits, in_parts, random_batch
from tests.unit.agent.watched import distance

CUDA = torch.device("cuda")
SIZE = 12
SMALL = TD3Config(network=NARROW, batch_size=SIZE, policy_delay=2)
BOTH: tuple[Offload, ...] = get_args(Offload)
WAYS = [("optimizer",), ("targets",), BOTH]


def _batch(seed: int, size: int = SIZE) -> Batch:
    return random_batch(size, seed)


@pytest.mark.parametrize("offload", WAYS)
def test_copies_on_the_host_are_copies(offload: tuple[Offload, ...]) -> None:
    """Else these tests would show nothing: what is stepped, or followed, isn't what computes."""
    td3 = TD3(SMALL, CPU, seed=0, offload=offload)
    online = {p.data_ptr() for p in td3.online.parameters()}
    stepped = {p.data_ptr() for each in td3.executor._optimizers.values() for p in each.masters.values()}
    assert (stepped == online) is ("optimizer" not in offload)
    home = [p.data_ptr() for p in td3.target.parameters()]
    with td3.executor._targets.on_device():
        away = [p.data_ptr() for p in td3.target.parameters()]
    assert (away == home) is ("targets" not in offload)
    assert [p.data_ptr() for p in td3.target.parameters()] == home


def test_targets_are_home_but_for_their_visit(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    td3 = TD3(SMALL, CPU, seed=0, offload=BOTH)
    home = [p.data_ptr() for p in td3.target.parameters()]
    seen: list[bool] = []
    gradient = td3.executor._gradient

    def watched(*arguments: Any) -> Any:
        seen.append([p.data_ptr() for p in td3.target.parameters()] == home)
        return gradient(*arguments)

    monkeypatch.setattr(td3.executor, "_gradient", watched)
    td3.update(_batch(0), in_parts(5))
    assert seen == [True, True, True]
    with pytest.raises(RuntimeError, match="stop"), td3.executor._targets.on_device():
        raise RuntimeError("stop")
    assert [p.data_ptr() for p in td3.target.parameters()] == home


def test_a_checkpoint_goes_from_one_way_to_the_other() -> None:
    plain, offloaded = TD3(SMALL, CPU, seed=0), TD3(SMALL, CPU, seed=1, offload=BOTH)
    for seed in range(3):
        plain.update(_batch(seed))
    offloaded.load_state(plain.state())
    for each in (plain, offloaded):
        each.update(_batch(3))
    back = TD3(SMALL, CPU, seed=2)
    back.load_state(offloaded.state())
    for each in (plain, back):
        each.update(_batch(4))
    assert bits(back) == bits(plain)


@pytest.mark.parametrize("precision", ["float32", "float16"])
@pytest.mark.parametrize(("before", "after"), [((), ()), ((), BOTH), (BOTH, ()), (("targets",), ("optimizer",))])
def test_a_moved_td3_goes_on_as_one_that_was_never_moved(
    before: tuple[Offload, ...], after: tuple[Offload, ...], precision: str
) -> None:
    config = SMALL.model_copy(update={"precision": precision})
    moved, stayed = TD3(config, CPU, seed=0, offload=before), TD3(config, CPU, seed=0)
    for number, seed in enumerate(range(8)):
        if number in (3, 5):
            kept = bits(moved)
            moved.executor.move(CPU, after if number == 3 else before)
            assert bits(moved) == kept
        moved.update(_batch(seed))
        stayed.update(_batch(seed))
    assert bits(moved) == bits(stayed)


@pytest.mark.parametrize("where", ["critic", "actor", "targets"])
def test_a_move_in_the_middle_of_an_update_changes_nothing_of_it(where: str) -> None:
    moved, stayed = TD3(SMALL, CPU, seed=0, offload=BOTH), TD3(SMALL, CPU, seed=0)

    def attempt(phase: str, run: Callable[[int], Any], rows: int) -> Any:
        if phase == where:
            moved.executor.move(CPU)
        return run(rows)

    for seed in range(4):
        moved.update(_batch(seed), attempt)
        stayed.update(_batch(seed))
    assert bits(moved) == bits(stayed)


def test_a_move_in_the_middle_of_a_dry_run_has_no_effect_either() -> None:
    td3 = TD3(SMALL.model_copy(update={"precision": "float16"}), CPU, seed=0, offload=BOTH)
    td3.update(_batch(0))
    before = bits(td3)

    def attempt(phase: str, run: Callable[[int], Any], rows: int) -> Any:
        if phase == "rehearsed actor":
            td3.executor.move(CPU)
        return run(rows)

    dry_run(td3, SIZE, attempt)
    assert bits(td3) == before


def learned(td3: TD3, before: dict[str, Tensor]) -> dict[str, Tensor]:
    """Return what the weights have moved by.

    Its whole is compared, not each number: Adam makes a full step of any rounding error where a gradient is all but 0,
    and a GPU rounds otherwise than a CPU, and differently each time. Arithmetic as coarse as bfloat16 puts two of these
    0.07 to 0.14 apart, an update that was left out 0.17, another batch 1.3.
    """
    return {name: value - before[name] for name, value in td3.state().items() if name.startswith("online")}


def test_an_update_left_out_is_further_off_than_rounding() -> None:
    td3, fewer = TD3(SMALL, CPU, seed=0), TD3(SMALL, CPU, seed=0)
    before = td3.state()
    for seed in range(5):
        td3.update(_batch(seed))
        if seed < 4:
            fewer.update(_batch(seed))
    assert distance(learned(fewer, before), learned(td3, before)) > 0.1


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device here")
@pytest.mark.parametrize("offload", WAYS)
def test_on_a_gpu_offloading_holds_less_and_updates_alike(offload: tuple[Offload, ...]) -> None:
    config = TD3Config(policy_delay=1)
    held, made = [torch.cuda.memory_allocated()], []
    for way in ((), offload):
        made.append(TD3(config, CUDA, seed=0, offload=way))
        held.append(torch.cuda.memory_allocated())
    assert held[2] - held[1] < held[1] - held[0]
    plain, offloaded = made
    before = plain.state()
    for each in made:
        each.update(_batch(0, size=64))
    assert distance(learned(offloaded, before), learned(plain, before)) < 0.1
    moments = [value.device.type for value in offloaded.executor._optimizers["critic"].tensors().values()]
    assert set(moments) == {"cpu" if "optimizer" in offload else "cuda"}
    assert {p.device.type for p in offloaded.target.parameters()} == {"cpu" if "targets" in offload else "cuda"}


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device here")
def test_on_a_gpu_a_td3_goes_to_the_cpu_and_back() -> None:
    td3, stayed = TD3(SMALL, CUDA, seed=0), TD3(SMALL, CUDA, seed=0)
    held, before = torch.cuda.memory_allocated(), stayed.state()

    def leave(phase: str, run: Callable[[int], Any], rows: int) -> Any:
        if phase == "actor":
            td3.executor.move(CPU)
        return run(rows)

    for seed in range(4):
        td3.update(_batch(seed), leave)
        stayed.update(_batch(seed))
    assert {value.device.type for value in td3.executor.tensors().values()} == {"cpu"}
    stayed.executor.release()
    assert torch.cuda.memory_allocated() < held
    td3.executor.move(CUDA)
    for each in (td3, stayed):
        each.update(_batch(9))
    assert distance(learned(td3, before), learned(stayed, before)) < 0.1
