"""float16: an overflow costs a step and nothing else, the scale follows GradScaler's rule, and a run resumes."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from carla_td3.config import TD3Config
from carla_td3.td3 import optimizers
from carla_td3.td3.networks import Encoder
from carla_td3.td3.optimizers import LossScale, OffloadedAdam
from carla_td3.td3.replay.replay import Batch
from carla_td3.td3.td3 import TD3
from tests.unit.agent.batches import CPU, NARROW, in_parts, random_batch

SIZE = 24
SMALL = TD3Config(network=NARROW, batch_size=SIZE, policy_delay=1)
FLOAT16 = SMALL.model_copy(update={"precision": "float16"})


def _batch(seed: int, size: int = SIZE) -> Batch:
    return random_batch(size, seed)


def settled() -> TD3:
    """Return a TD3 whose scale has come down from where it begins, and 3 steps further: out of chance's reach."""
    td3 = TD3(FLOAT16, CPU, seed=0)
    for seed in range(10):
        td3.update(_batch(seed))
    assert scale_of(td3)["growth_tracker"] > 0
    assert td3.executor._scale is not None
    td3.executor._scale.value /= 8
    return td3


def scale_of(td3: TD3) -> dict[str, float]:
    return {name.removeprefix("scale."): float(v) for name, v in td3.state().items() if name.startswith("scale.")}


def changed(before: dict[str, Tensor], after: dict[str, Tensor], parts: tuple[str, ...]) -> set[str]:
    names = {name for name in before if any(part in name for part in parts)}
    assert names
    return {name for name in names if not torch.equal(before[name], after[name])}


def test_an_overflow_skips_the_step_and_halves_the_scale() -> None:
    td3 = settled()
    assert td3.executor._scale is not None
    td3.executor._scale.value.fill_(2.0**30)
    before, updates = td3.state(), td3.updates
    metrics = td3.update(_batch(99))
    after = td3.state()
    assert not changed(before, after, ("online.encoder", "online.critic", "adam.encoder", "adam.critic"))
    assert changed(before, after, ("online.actor",))  # a float32 part: its gradients are finite
    assert scale_of(td3) == {"value": 2.0**29, "growth_tracker": 0}
    assert td3.updates == updates + 1
    assert all(bool(value.isfinite()) for value in metrics.values())


def test_without_an_overflow_the_gradient_is_float32s() -> None:
    half, full = settled(), TD3(SMALL, CPU, seed=0)
    gradients: list[list[Tensor]] = [[], []]
    for number in range(5):
        before = scale_of(half)
        full.load_state(half.state())
        for td3, seen in zip((half, full), gradients, strict=True):
            td3.update(_batch(95 + number))
            seen += [p.grad.flatten() for p in td3.online.parameters() if p.grad is not None]
        assert scale_of(half) == {**before, "growth_tracker": before["growth_tracker"] + 1}
    ours, theirs = map(torch.cat, gradients)
    along = float(ours @ theirs / theirs.square().sum())
    assert abs(along - 1) < 1e-2
    # A ReLU whose input rounds across 0 lets another gradient through: which ones do is a matter of the processor.
    assert float((ours - along * theirs).norm() / theirs.norm()) < 5e-2
    assert all(p.dtype == torch.float32 for p in half.online.parameters())


@pytest.mark.parametrize("micro_batch", [SIZE, 9])
def test_one_part_that_overflows_skips_the_whole_step(micro_batch: int) -> None:
    """A single row overflows: the decision is about the sum over all micro-batches, so it is the same cut or not."""
    td3 = settled()
    before = td3.state()
    batch = _batch(99)
    batch.reward[0] = 1e9
    td3.update(batch, in_parts(micro_batch))
    assert not changed(before, td3.state(), ("online.encoder", "online.critic"))
    assert scale_of(td3) == {"value": float(before["scale.value"]) / 2, "growth_tracker": 0}


def test_a_forward_overflow_leaves_the_actor_unharmed() -> None:
    td3 = settled()
    assert isinstance(td3.online.encoder, Encoder)
    with torch.no_grad():
        td3.online.encoder.conv1.weight.mul_(1e7)
    before = td3.state()
    metrics = td3.update(_batch(99))
    assert not metrics["q_policy"].isfinite(), "the features were to overflow"
    assert not changed(before, td3.state(), ("online.", "adam."))


def test_the_scale_follows_gradscaler_step_by_step(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(optimizers, "_GROWTH_INTERVAL", 3)
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**16, growth_interval=3)
    theirs, ours = (nn.Parameter(torch.arange(6.0).reshape(2, 3)) for _ in range(2))
    adam = torch.optim.Adam([theirs], lr=0.1, fused=True)
    scale = LossScale(CPU)
    placed = OffloadedAdam({"weight": ours}, 0.1, guarded=True, scale=scale)
    overflows = [True, False, False, False, False, True, True, False, False, False, False, False, False, True]
    for number, overflow in enumerate(overflows):
        factor = float("inf") if overflow else 1.0 + number
        scaler.scale((theirs.square() * factor).sum()).backward()
        ((ours.square() * factor).sum() * scale.value).backward()
        scaler.step(adam)
        scaler.update()
        placed.step()
        assert torch.equal(ours, theirs), number
        expected = scaler.state_dict()
        assert float(scale.value) == expected["scale"], number
        assert int(scale.growth_tracker) == expected["_growth_tracker"], number
        adam.zero_grad()
        placed.zero_grad()
    assert float(scale.value) != 2.0**16


def test_a_float32_run_can_go_on_in_float16_and_back() -> None:
    plain = TD3(SMALL, CPU, seed=0)
    plain.update(_batch(0))
    assert not scale_of(plain)
    half = TD3(FLOAT16, CPU, seed=1)
    half.load_state(plain.state())
    assert scale_of(half) == {"value": 2.0**16, "growth_tracker": 0}
    plain.load_state(half.state())
    assert plain.updates == 1
