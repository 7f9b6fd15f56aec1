"""Updates from static inputs are the eager ones bit for bit; on a card they are recorded as CUDA graphs."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from carla_td3.config import AgentConfig, TD3Config, validate
from carla_td3.memory.estimate import estimate
from carla_td3.td3.dry_run import dry_run
from carla_td3.td3.executor import Metrics, whole_batch
from carla_td3.td3.graphs import Graphs
from carla_td3.td3.td3 import TD3
from tests.unit.agent.batches import CPU, NARROW, bits, in_parts, random_batch
from tests.unit.agent.test_offload import learned
from tests.unit.agent.watched import distance

CUDA = torch.device("cuda")
SIZE = 12
EAGER = TD3Config(network=NARROW, batch_size=SIZE, policy_delay=2)
GRAPHS = EAGER.model_copy(update={"cuda_graph": True})


def recorded(config: TD3Config = GRAPHS, seed: int = 0) -> TD3:
    """Return a TD3 whose updates read static inputs, here on the CPU without a recording."""
    td3 = TD3(config, CPU, seed)
    td3.graphs = Graphs(td3.executor, td3.phases, everywhere=True)
    return td3


def counted(td3: TD3, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Return a list to which each recording adds its micro-batch."""
    found: list[int] = []
    record = td3.graphs._record

    def noted(*arguments: Any) -> None:
        found.append(arguments[-1])
        record(*arguments)

    monkeypatch.setattr(td3.graphs, "_record", noted)
    return found


@pytest.mark.parametrize("precision", ["float32", "float16"])
def test_updates_from_static_inputs_are_the_eager_ones_also_resumed(precision: str) -> None:
    with_precision = {"precision": precision}
    eager = TD3(EAGER.model_copy(update=with_precision), CPU, seed=0)
    static = recorded(GRAPHS.model_copy(update=with_precision))
    said: list[tuple[Metrics, Metrics]] = []
    for number in range(7):
        if number == 3:
            resumed = recorded(GRAPHS.model_copy(update=with_precision), seed=1)
            resumed.load_state(static.state())
            static = resumed
        attempt, rate = in_parts(5) if number == 5 else whole_batch, 1.0 - number / 9
        said.append(
            (
                eager.update(random_batch(SIZE, number), attempt, rate),
                static.update(random_batch(SIZE, number), attempt, rate),
            )
        )
    assert bits(static) == bits(eager)
    assert all(a.keys() == b.keys() and all(torch.equal(a[name], b[name]) for name in a) for a, b in said), "also later"


def test_a_recording_is_made_once_for_each_size_and_place(monkeypatch: pytest.MonkeyPatch) -> None:
    td3 = recorded()
    found = counted(td3, monkeypatch)
    dry_run(td3, SIZE, whole_batch)
    for attempt in (whole_batch, whole_batch, in_parts(5), in_parts(5)):
        td3.update(random_batch(SIZE), attempt)
    td3.executor.move(CPU)
    td3.update(random_batch(SIZE), in_parts(5))
    td3.update(random_batch(8), in_parts(5))
    assert found == [SIZE, 5, 5, 5]


def test_a_recording_changes_no_state_and_one_that_fails_loses_no_update(monkeypatch: pytest.MonkeyPatch) -> None:
    eager, static = TD3(EAGER, CPU, seed=0), recorded()
    dry_run(static, SIZE, whole_batch)
    assert bits(static) == bits(eager)

    def full(*_: Any) -> None:
        raise torch.OutOfMemoryError("CUDA out of memory.\nmore")

    monkeypatch.setattr(static.graphs, "_record", full)
    for number, attempt in enumerate((whole_batch, in_parts(5), in_parts(5))):
        for each in (eager, static):
            each.update(random_batch(SIZE, number), attempt)
    assert bits(static) == bits(eager)
    assert static.without_graphs == "CUDA out of memory."


@pytest.mark.parametrize(("device", "offload"), [(CPU, ()), (CPU, ("targets",))])
def test_without_a_card_nothing_is_recorded(
    device: torch.device, offload: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    td3 = TD3(GRAPHS, device, seed=0, offload=offload)
    found = counted(td3, monkeypatch)
    td3.update(random_batch(SIZE))
    assert (found, td3.without_graphs) == ([], "")


def _planned(offload: list[str], **td3: Any) -> AgentConfig:
    return validate({"td3": td3, "memory": {"offload": offload}}, "a test")


@pytest.mark.parametrize(
    ("cuda", "offload", "counts"), [(True, [], True), (False, [], False), (True, ["targets"], False)]
)
def test_the_estimate_counts_graphs_where_they_are_recorded(cuda: bool, offload: list[str], counts: bool) -> None:
    plain, graphs = (estimate(_planned(offload, cuda_graph=on), cuda) for on in (False, True))
    assert (graphs.total("device") > plain.total("device")) is counts
    assert graphs.total("host") == plain.total("host")


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device here")
@pytest.mark.parametrize("precision", ["float32", "bfloat16", "float16"])
def test_on_a_gpu_recorded_updates_learn_what_eager_ones_do(precision: str) -> None:
    config = TD3Config(precision=precision, policy_delay=2)
    eager, graphs = (TD3(config.model_copy(update={"cuda_graph": on}), CUDA, seed=0) for on in (False, True))
    dry_run(graphs, 64, whole_batch)
    before, loss = eager.state(), 0.0
    assert bits(graphs) == bits(eager), "a recording executes nothing"
    for number in range(6):
        attempt = in_parts(20) if number > 3 else whole_batch
        made = [each.update(random_batch(64, number), attempt, 1.0 - number / 9) for each in (eager, graphs)]
        loss = float(made[1]["critic_loss"])
        assert loss == pytest.approx(float(made[0]["critic_loss"]), rel=0.1)
    assert graphs.graphs.refused == ""
    assert graphs.graphs._launches
    assert distance(learned(graphs, before), learned(eager, before)) < 0.1
    held = torch.cuda.memory_reserved()
    graphs.executor.move(CPU)
    graphs.update(random_batch(64, 9))
    assert not graphs.graphs._launches
    assert torch.cuda.memory_reserved() < held
