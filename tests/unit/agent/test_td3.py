"""The update follows the paper, trains every module it should, and resumes bit for bit."""

from __future__ import annotations

import dataclasses
import subprocess
import sys
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import functional

from carla_td3.config import NetworkConfig, TD3Config
from carla_td3.td3.accumulate import Attempt, Metrics, whole_batch
from carla_td3.td3.networks import Policy
from carla_td3.td3.replay.frames import PRIVILEGED
from carla_td3.td3.replay.replay import Batch
from carla_td3.td3.td3 import STARTING, STEERING, TD3, actor_loss, bellman_target, critic_loss
from tests.conftest import REPOSITORY
from tests.crowd import PATIENCE_S
from tests.unit.agent.batches import random_batch

SMALL = TD3Config(network=NetworkConfig(channels=(8, 8, 8), features=32, hidden=(32,)), batch_size=8)
CPU = torch.device("cpu")
WEIGHTS = torch.tensor((STEERING, 1.0))
"""Of steering and pedal, in the imitation loss."""


def _batch(seed: int, size: int = 8) -> Batch:
    return random_batch(size, seed)


def _changed(before: dict[str, Tensor], after: dict[str, Tensor], prefix: str) -> set[str]:
    return {name for name in before if name.startswith(prefix) and not torch.equal(before[name], after[name])}


def _names(state: dict[str, Tensor], prefix: str) -> set[str]:
    return {name for name in state if name.startswith(prefix)}


def test_critic_update_moves_encoder_and_both_critics_and_nothing_else() -> None:
    td3 = TD3(SMALL, CPU, seed=0)
    before = td3.state()
    td3.update(_batch(0))  # the first of two: the policy is delayed
    after = td3.state()
    assert _changed(before, after, "online.encoder") == _names(before, "online.encoder")
    assert _changed(before, after, "online.critic") == _names(before, "online.critic")
    assert not _changed(before, after, "online.actor")
    assert not _changed(before, after, "target.")


def test_delayed_update_moves_the_actor_and_every_target() -> None:
    td3 = TD3(SMALL, CPU, seed=0)
    td3.update(_batch(0))
    before = td3.state()
    td3.update(_batch(1))
    after = td3.state()
    assert _changed(before, after, "online.actor") == _names(before, "online.actor")
    assert _changed(before, after, "target.") == _names(before, "target.")


def step_critics(td3: TD3, batch: Batch, attempt: Attempt = whole_batch) -> tuple[tuple[Tensor, ...], Metrics]:
    loss, y = partial(critic_loss, td3.online), partial(bellman_target, td3.target, SMALL.gamma)
    return td3.minimise("critic", loss, [batch], attempt, y, [torch.zeros(8, 2)])


def test_the_actor_loss_gives_the_encoder_and_the_critics_no_gradient() -> None:
    td3 = TD3(SMALL, CPU, seed=0)
    td3.update(_batch(0))
    batch = _batch(1)
    (features,), _ = step_critics(td3, batch)
    gradients = {n: p.grad.clone() for n, p in td3.online.named_parameters() if p.grad is not None}
    td3.minimise("actor", partial(actor_loss, td3.online), [features, batch.vector, batch.privileged], whole_batch)
    for name, parameter in td3.online.named_parameters():
        if not name.startswith("actor"):
            assert parameter.grad is not None
            assert torch.equal(parameter.grad, gradients[name]), name


def test_the_actor_is_drawn_to_what_the_expert_would_do_whatever_was_done() -> None:
    settings = SMALL.model_copy(update={"imitation": 1e4, "actor_learning_rate": 1e-2})
    td3 = TD3(settings, CPU, seed=0, privileged=PRIVILEGED)
    batch = random_batch(8, 0, PRIVILEGED)
    batch.vector[:, 0] = 1.0  # it drives
    advised = batch.privileged[:, -2:].clamp_(-0.5, 0.5)

    def apart() -> Tensor:
        with torch.no_grad():
            acted = td3.online.actor(td3.online.encoder(batch.frames[:, :4]), batch.vector)
            distance: Tensor = (acted - advised).square() @ WEIGHTS
        return distance

    before = apart().mean()
    losses = [metrics["imitation_loss"] for _ in range(120) if "imitation_loss" in (metrics := td3.update(batch))]
    torch.testing.assert_close(losses[0], before, rtol=0.05, atol=0)
    assert apart().mean() < 0.1 * before


def test_where_the_expert_starts_a_row_weighs_more_and_steering_more_than_the_pedal() -> None:
    td3 = TD3(SMALL, CPU, seed=0, privileged=PRIVILEGED)
    batch = random_batch(4, 0, PRIVILEGED)
    batch.vector[:, 0] = torch.tensor((0.0, 0.05, 0.0, 1.0))
    batch.privileged[:, -1] = torch.tensor((0.4, 0.1, -0.5, 0.4))
    f = td3.online.encoder(batch.frames[:, :4]).detach()
    found = [
        actor_loss(td3.online, f[i : i + 1], batch.vector[i : i + 1], batch.privileged[i : i + 1], 2.0).sums
        for i in range(4)
    ]
    acted = td3.online.actor(f, batch.vector)
    apart = (acted - batch.privileged[:, -2:]).square() @ WEIGHTS
    expected = apart * torch.tensor((STARTING, STARTING, 1.0, 1.0))
    torch.testing.assert_close(torch.stack([each["imitation_loss"] for each in found]), expected)


def test_the_actor_is_drawn_to_where_wheel_and_pedal_are() -> None:
    """That is all there is where the critic says nothing: each action has its row's own place to go to."""
    td3 = TD3(SMALL.model_copy(update={"smoothness": 1e4, "actor_learning_rate": 1e-2}), CPU, seed=0)
    batch = random_batch(8, 0)
    applied = batch.vector[:, -2:].clamp_(-0.5, 0.5)

    def apart() -> Tensor:
        with torch.no_grad():
            acted = td3.online.actor(td3.online.encoder(batch.frames[:, :4]), batch.vector)
            distance: Tensor = (acted - applied).square().sum(1)
        return distance

    before = apart().mean()
    losses = [metrics["smoothness_loss"] for _ in range(120) if "smoothness_loss" in (metrics := td3.update(batch))]
    torch.testing.assert_close(losses[0], before, rtol=0.05, atol=0)
    assert apart().mean() < 0.1 * before


def test_its_weight_is_what_a_change_costs() -> None:
    td3 = TD3(SMALL, CPU, seed=0)
    batch = random_batch(4, 0)
    f = td3.online.encoder(batch.frames[:, :4]).detach()
    plain, smooth = (actor_loss(td3.online, f, batch.vector, batch.privileged, 0.0, kappa) for kappa in (0.0, 2.0))
    change = (td3.online.actor(f, batch.vector) - batch.vector[:, -2:]).square().sum()
    torch.testing.assert_close(smooth.total - plain.total, 2.0 * change)
    assert "smoothness_loss" not in plain.sums


def test_targets_follow_by_tau() -> None:
    td3 = TD3(SMALL, CPU, seed=0)
    td3.update(_batch(0))
    before = td3.state()
    td3.update(_batch(1))
    after = td3.state()
    for name in _names(before, "target."):
        online = after["online." + name.removeprefix("target.")]
        expected = (1 - SMALL.tau) * before[name] + SMALL.tau * online
        torch.testing.assert_close(after[name], expected, rtol=1e-5, atol=1e-7)


def test_target_bootstraps_through_truncation_but_not_through_termination() -> None:
    td3 = TD3(SMALL, CPU, seed=0)
    batch = _batch(0)
    no_noise = torch.zeros(8, 2)
    ended = bellman_target(td3.target, SMALL.gamma, dataclasses.replace(batch, terminated=torch.ones(8)), no_noise)
    torch.testing.assert_close(ended, batch.reward)
    # A truncated transition is stored with terminated = 0: its target holds the next state's value.
    truncated = bellman_target(td3.target, SMALL.gamma, dataclasses.replace(batch, terminated=torch.zeros(8)), no_noise)
    target = td3.target
    features = target.encoder(batch.frames[:, 1:])
    action = target.actor(features, batch.next_vector)
    smaller = torch.minimum(*target.critic(features, batch.next_vector, action, batch.next_privileged))
    torch.testing.assert_close(truncated, batch.reward + SMALL.gamma * smaller)


def test_smoothing_noise_is_clipped_and_the_noisy_action_stays_in_range() -> None:
    td3 = TD3(SMALL.model_copy(update={"target_noise": 5.0}), CPU, seed=0)
    noise = td3._smoothing_noise(1000)
    assert noise.abs().max() == SMALL.target_noise_clip
    seen: list[Tensor] = []
    td3.target.critic.register_forward_pre_hook(lambda _, inputs: seen.append(inputs[2]))
    output = td3.target.actor.body[-1]
    assert isinstance(output, torch.nn.Linear)
    output.bias.data.fill_(3.0)  # π' at tanh(1), so that the noise reaches past the range
    bellman_target(td3.target, SMALL.gamma, _batch(0), torch.full((8, 2), 0.5))
    assert seen[0].max() == 1.0


def test_metrics_show_q_on_replayed_and_on_own_actions() -> None:
    td3 = TD3(SMALL, CPU, seed=0)
    first, second = td3.update(_batch(0)), td3.update(_batch(1))
    assert first.keys() == {"critic_loss", "q_buffer", "q_target"}
    assert second.keys() == first.keys() | {"actor_loss", "q_policy", "smoothness_loss"}
    assert all(isinstance(value, Tensor) and value.shape == () for value in second.values())


def test_global_random_state_is_left_alone() -> None:
    before = torch.get_rng_state()
    td3 = TD3(SMALL, CPU, seed=3)
    td3.update(_batch(0))
    assert torch.equal(torch.get_rng_state(), before)


def test_same_seed_gives_the_same_weights_and_another_seed_others() -> None:
    one, same, other = (TD3(SMALL, CPU, seed=seed).state() for seed in (1, 1, 2))
    assert not _changed(one, same, "")
    assert _changed(one, other, "online.")


@pytest.mark.parametrize("done", [0, 3, 4])  # before Adam's first step; in the middle of a policy delay; at its end
def test_resumed_run_goes_on_bit_for_bit(done: int) -> None:
    straight = TD3(SMALL, CPU, seed=0)
    for index in range(done):
        straight.update(_batch(index))
    resumed = TD3(SMALL, CPU, seed=99)
    resumed.load_state(straight.state())
    for index in range(done, done + 5):
        expected, metrics = straight.update(_batch(index)), resumed.update(_batch(index))
        assert expected.keys() == metrics.keys()
    assert not _changed(straight.state(), resumed.state(), "")
    assert straight.updates == resumed.updates == done + 5


def test_a_learner_that_begins_anew_is_a_new_one_but_for_its_count_and_noise() -> None:
    used, new = TD3(SMALL, CPU, seed=0), TD3(SMALL, CPU, seed=5)
    for index in range(3):
        used.update(_batch(index))
    noise = used.noise.get_state()
    used.begin_anew(5)
    assert _changed(used.state(), new.state(), "") == {"noise", "updates"}
    assert used.updates == 3
    assert torch.equal(used.noise.get_state(), noise)


def test_state_is_a_copy_that_later_updates_do_not_touch() -> None:
    td3 = TD3(SMALL, CPU, seed=0)
    state = td3.state()
    kept = {name: value.clone() for name, value in state.items()}
    td3.update(_batch(0))
    assert not _changed(kept, state, "")


def test_adam_with_its_state_in_place_steps_like_a_fresh_one(monkeypatch: pytest.MonkeyPatch) -> None:
    td3 = TD3(SMALL, CPU, seed=0)
    fresh = torch.optim.Adam(
        [*td3.online.encoder.parameters(), *td3.online.critic.parameters()], lr=SMALL.critic_learning_rate, fused=True
    )
    twin = TD3(SMALL, CPU, seed=0)
    monkeypatch.setattr(td3._optimizers["critic"], "_adam", lambda *_: fresh.step())
    td3.update(_batch(0))
    twin.update(_batch(0))
    for ours, theirs in zip(twin.online.parameters(), td3.online.parameters(), strict=True):
        assert torch.equal(ours, theirs)


def test_a_rate_shortens_the_steps_of_encoder_critics_and_actor_alike() -> None:
    whole, half, none = (TD3(SMALL, CPU, seed=0) for _ in range(3))
    before = none.state()
    for td3, rate in ((whole, 1.0), (half, 0.5), (none, 0.0)):
        for seed in range(SMALL.policy_delay):
            td3.update(_batch(seed), rate=rate if seed == SMALL.policy_delay - 1 else 0.0)
    assert not _changed(before, none.state(), "online.")
    for name in _names(before, "online."):
        moved, moved_by_half = whole.state()[name] - before[name], half.state()[name] - before[name]
        if not name.startswith("online.actor."):  # whose gradient is that of critics which have moved as well
            torch.testing.assert_close(moved_by_half, moved / 2, atol=1e-7, rtol=1e-3)
        assert 0.4 * moved.norm() < moved_by_half.norm() < 0.6 * moved.norm()


def test_learning_never_loads_torchs_compiler() -> None:
    """Its import takes a second and 70 MiB; torch.optim.Adam would."""
    program = """if True:
        import sys, torch
        from tests.unit.agent.test_td3 import SMALL, TD3, _batch
        TD3(SMALL, torch.device("cpu"), seed=0).update(_batch(0))
        assert "torch._dynamo" not in sys.modules"""
    subprocess.run([sys.executable, "-c", program], cwd=REPOSITORY, check=True, timeout=PATIENCE_S)


def test_policy_takes_the_learners_weights_and_acts_like_its_actor() -> None:
    td3 = TD3(SMALL, CPU, seed=0)
    for index in range(2):
        td3.update(_batch(index))
    policy = Policy(SMALL.network)
    policy.load_state_dict(td3.policy_state())
    batch = _batch(5)
    with torch.no_grad():
        expected = td3.online.actor(td3.online.encoder(batch.frames[:, :4]), batch.vector)
        torch.testing.assert_close(policy.actor(policy.encoder(batch.frames[:, :4]), batch.vector), expected)


def test_bfloat16_update_stays_near_the_float32_one() -> None:
    losses = []
    for precision in ("float32", "bfloat16"):
        td3 = TD3(SMALL.model_copy(update={"precision": precision}), CPU, seed=0)
        losses.append(td3.update(_batch(0))["critic_loss"])
        assert all(p.dtype == torch.float32 for p in td3.online.parameters())
    torch.testing.assert_close(losses[0], losses[1], rtol=0.05, atol=0.05)


def test_loss_and_gradient_are_the_papers() -> None:
    """Adam hides by what a gradient is too large; float16's range doesn't."""
    td3 = TD3(SMALL, CPU, seed=0)
    twin = TD3(SMALL, CPU, seed=0)
    batch = _batch(0)
    y = bellman_target(twin.target, SMALL.gamma, batch, twin._smoothing_noise(8))
    q1, q2 = twin.online.critic(twin.online.encoder(batch.frames[:, :4]), batch.vector, batch.action, batch.privileged)
    expected = functional.mse_loss(q1, y) + functional.mse_loss(q2, y)
    expected.backward()
    torch.testing.assert_close(td3.update(batch)["critic_loss"], expected.detach())
    for (name, ours), theirs in zip(td3.online.named_parameters(), twin.online.parameters(), strict=True):
        if not name.startswith("actor"):
            torch.testing.assert_close(ours.grad, theirs.grad, msg=name)


def _in_parts(micro_batch: int) -> Callable[..., Any]:
    def attempt(phase: str, run: Callable[[int], Any], rows: int) -> Any:
        return run(min(micro_batch, rows))

    return attempt


def _distance(ours: Sequence[Tensor], theirs: Sequence[Tensor]) -> float:
    difference = sum(float((a - b).detach().double().square().sum()) for a, b in zip(ours, theirs, strict=True))
    return float((difference / sum(float(b.detach().double().square().sum()) for b in theirs)) ** 0.5)


@pytest.mark.parametrize(
    ("size", "micro_batch", "precision", "tolerance"),
    [
        (48, 16, "float32", 2e-6),
        (50, 16, "float32", 2e-6),  # 16, 16, 16 and 2
        (50, 49, "float32", 2e-6),
        (8, 1, "float32", 2e-6),
        (50, 16, "bfloat16", 1e-2),
    ],
)
def test_micro_batches_make_the_same_update_as_the_whole_batch(
    size: int, micro_batch: int, precision: str, tolerance: float
) -> None:
    whole, split = (TD3(SMALL.model_copy(update={"precision": precision}), CPU, seed=0) for _ in range(2))
    whole.update(_batch(0, size))
    split.load_state(whole.state())
    expected = whole.update(_batch(1, size))  # the second: actor and targets, too
    found = split.update(_batch(1, size), _in_parts(micro_batch))
    assert found.keys() == expected.keys()
    for name, value in expected.items():
        torch.testing.assert_close(found[name], value, rtol=1e-5, atol=1e-6, msg=name)
    ours, theirs = list(split.online.parameters()), list(whole.online.parameters())
    gradients = [[p.grad for p in parameters if p.grad is not None] for parameters in (ours, theirs)]
    assert len(gradients[0]) == len(ours)
    assert _distance(gradients[0], gradients[1]) <= tolerance
    assert _distance(ours, theirs) <= (2e-6 if precision == "float32" else 1e-3)
    assert _distance(list(split.target.parameters()), list(whole.target.parameters())) <= 2e-6


def test_the_actor_sees_the_features_from_before_the_critics_step() -> None:
    td3 = TD3(SMALL, CPU, seed=0)
    batch = _batch(0)
    with torch.no_grad():
        before = td3.online.encoder(batch.frames[:, :4])
    (features,), _ = step_critics(td3, batch, _in_parts(3))
    torch.testing.assert_close(features, before)
    with torch.no_grad():
        assert not torch.allclose(td3.online.encoder(batch.frames[:, :4]), before, rtol=1e-5)


def test_a_move_to_a_device_that_is_too_full_leaves_everything_on_the_cpu(monkeypatch: pytest.MonkeyPatch) -> None:
    td3 = TD3(SMALL, CPU, seed=0)
    td3.update(_batch(0))
    before = td3.state()
    place, full = td3._place, ["cuda"]

    def place_or_not(*where: Any) -> None:
        place(*where)  # parameters are there, moments are new
        if full:
            raise RuntimeError(f"CUDA out of memory on {full.pop()}")

    monkeypatch.setattr(td3, "_place", place_or_not)
    with pytest.raises(RuntimeError, match="out of memory"):
        td3.move(CPU)
    after = td3.state()
    assert after.keys() == before.keys()
    assert all(torch.equal(after[name], value) for name, value in before.items())
