"""Whatever learns: parts, a checkpoint, a dry run, and what lives on the host, change no number of an update."""

from __future__ import annotations

from typing import Any, get_args

import pytest

from carla_td3.config import Offload, TD3Config
from carla_td3.td3.dry_run import dry_run
from carla_td3.td3.executor import whole_batch
from carla_td3.td3.replay.frames import PRIVILEGED
from carla_td3.td3.replay.replay import Batch
from carla_td3.td3.td3 import TD3
from tests.unit.agent.batches import CPU, NARROW, bits, in_parts, random_batch
from tests.unit.agent.watched import assert_parts_make_the_same_update

WAYS: dict[str, dict[str, Any]] = {
    "plain": {},
    "float16": {"precision": "float16"},
    "auxiliary": {"auxiliary": 0.5},
    "critic": {"critic_sees": "privileged"},
    "both": {"auxiliary": 0.5, "critic_sees": "privileged"},
    "apart": {"auxiliary": 0.5, "encoder_learns_from": "auxiliary"},
    "imitation": {"imitation": 2.0},
    "vector": {"network": NARROW.model_copy(update={"sees": "vector"})},
    "told": {"network": NARROW.model_copy(update={"sees": "privileged"}), "critic_sees": "privileged"},
}
BOTH: tuple[Offload, ...] = get_args(Offload)


@pytest.fixture(params=WAYS)
def way(request: pytest.FixtureRequest) -> TD3Config:
    return TD3Config(network=NARROW, batch_size=8).model_copy(update=WAYS[request.param])


def made(way: TD3Config, seed: int = 0, offload: tuple[Offload, ...] = ()) -> TD3:
    return TD3(way, CPU, seed, offload, privileged=PRIVILEGED)


def batch(seed: int, size: int = 8) -> Batch:
    return random_batch(size, seed, PRIVILEGED)


@pytest.mark.parametrize("micro_batch", [1, 5, 16])
def test_parts_make_the_same_update(way: TD3Config, micro_batch: int) -> None:
    if way.precision == "float16":
        pytest.skip("it rounds each part: how far that goes is test_float16's")
    whole, split = made(way), made(way)
    ours = assert_parts_make_the_same_update(whole, split, batch, micro_batch)
    assert ours.keys() == dict(split.online.named_parameters()).keys()


@pytest.mark.parametrize("done", [0, 3, 4])  # before Adam's first step; in the middle of a policy delay; at its end
def test_a_resumed_learner_goes_on_bit_for_bit(way: TD3Config, done: int) -> None:
    straight, resumed = made(way), made(way, seed=99)
    for number in range(done):
        straight.update(batch(number))
    resumed.load_state(straight.state())
    dry_run(resumed, 8, whole_batch)
    assert bits(resumed) == bits(straight)
    for number in range(done, done + 5):
        assert straight.update(batch(number)).keys() == resumed.update(batch(number)).keys()
    assert bits(straight) == bits(resumed)
    assert straight.updates == resumed.updates == done + 5


@pytest.mark.parametrize("offload", [("optimizer",), ("targets",), BOTH])
@pytest.mark.parametrize("micro_batch", [8, 3])
def test_what_lives_on_the_host_changes_no_number(
    way: TD3Config, offload: tuple[Offload, ...], micro_batch: int
) -> None:
    plain, offloaded = made(way), made(way, offload=offload)
    for number in range(4):
        expected, found = (each.update(batch(number), in_parts(micro_batch)) for each in (plain, offloaded))
        assert all(found[name].equal(value) for name, value in expected.items())
        dry_run(offloaded, 8, whole_batch)
    assert bits(plain) == bits(offloaded)  # the same names, too
