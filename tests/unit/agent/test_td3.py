"""The update follows the paper, trains every module it should, and resumes bit for bit."""

from __future__ import annotations

import dataclasses
import subprocess
import sys
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import functional

from carla_td3.config import TD3Config
from carla_td3.td3.executor import Attempt, Metrics, whole_batch
from carla_td3.td3.imitation import CAREFUL, NEAR, STARTING, STEERING, imitation_loss, smoothness_loss
from carla_td3.td3.networks import Policy
from carla_td3.td3.replay.frames import PRIVILEGED
from carla_td3.td3.replay.replay import Batch
from carla_td3.td3.td3 import TD3
from tests.conftest import REPOSITORY
from tests.crowd import PATIENCE_S
from tests.unit.agent.batches import CPU, NARROW, bits, in_parts, random_batch
from tests.unit.agent.watched import distance

SMALL = TD3Config(network=NARROW, batch_size=8)


def made(seed: int = 0, updates: int = 0, privileged: int = 0, **values: Any) -> TD3:
    """Return a small TD3 after some updates."""
    td3 = TD3(SMALL.model_copy(update=values), CPU, seed, privileged=privileged)
    for number in range(updates):
        td3.update(_batch(number))
    return td3


def _batch(seed: int, size: int = 8) -> Batch:
    return random_batch(size, seed)


def _changed(before: dict[str, bytes], after: dict[str, bytes]) -> set[str]:
    return {name for name in before if before[name] != after[name]}


def _names(td3: TD3, *prefixes: str) -> set[str]:
    return {name for name in td3.state() if name.startswith(prefixes)}


def test_critics_and_encoder_move_first_then_actor_and_targets() -> None:
    td3 = made()
    before = bits(td3)
    td3.update(_batch(0))  # the first of two: the policy is delayed
    between = bits(td3)
    moved = _changed(before, between)
    assert moved >= _names(td3, "online.encoder", "online.critic")
    assert not moved & _names(td3, "online.actor", "target.")
    td3.update(_batch(1))
    assert _changed(between, bits(td3)) >= _names(td3, "online.actor", "target.")


def step_critics(td3: TD3, batch: Batch, attempt: Attempt = whole_batch) -> tuple[tuple[Tensor, ...], Metrics]:
    return td3.executor.minimise("critic", td3.critic_loss, [batch], attempt, td3.bellman_target, [torch.zeros(8, 2)])


def test_the_actor_loss_gives_encoder_and_critics_no_gradient() -> None:
    td3, batch = made(updates=1), _batch(1)
    (features,), _ = step_critics(td3, batch)
    gradients = {n: p.grad.clone() for n, p in td3.online.named_parameters() if p.grad is not None}
    td3.executor.minimise("actor", td3.actor_loss, [features, batch.vector, batch.privileged], whole_batch)
    for name, parameter in td3.online.named_parameters():
        if not name.startswith("actor"):
            assert parameter.grad is not None
            assert torch.equal(parameter.grad, gradients[name]), name


def sizes(pedal: Tensor) -> Tensor:
    """Return what pedal errors (B,) count."""
    return torch.where(pedal.abs() < 0.2, 1.75 * pedal.square(), 0.7 * (pedal.abs() - 0.1))


@pytest.mark.parametrize("loss", ["imitation", "smoothness"])
def test_the_actor_is_drawn_to_the_expert_and_to_where_it_is(loss: str) -> None:
    """That is all there is where the critic says nothing: each action has its row's own place to go to."""
    weights: dict[str, Any] = {"imitation": 0.0, "smoothness": 0.0, loss: 1e4}
    td3 = made(privileged=PRIVILEGED, actor_learning_rate=1e-2, **weights)
    batch = random_batch(8, 0, PRIVILEGED)
    batch.vector[:, 0] = 1.0  # it drives
    place = (batch.privileged if loss == "imitation" else batch.vector)[:, -2:].clamp_(-0.5, 0.5)

    def apart() -> Tensor:
        with torch.no_grad():
            acted = td3.online.actor(td3.online.encoder(batch.frames[:, :4]), batch.vector)
            steer, pedal = (acted - place).unbind(dim=1)
            careful = torch.where((place[:, 1] < 0) & (pedal > 0), CAREFUL, 1.0)
            distances: Tensor = steer.square() + pedal.square()
            if loss == "imitation":
                distances = STEERING * steer.square() + careful * sizes(pedal)
            return distances.mean()

    before = apart()
    losses = [metrics[f"{loss}_loss"] for _ in range(120) if f"{loss}_loss" in (metrics := td3.update(batch))]
    torch.testing.assert_close(losses[0], before, rtol=0.05, atol=0)
    assert apart() < 0.1 * before


def test_starts_steering_and_too_little_braking_weigh_more() -> None:
    batch = random_batch(8, 0, PRIVILEGED)
    batch.vector[:, 0] = torch.tensor((0.0, 0.05, 0.0, 1.0, 1.0, 0.0, 0.2, 0.1))
    batch.privileged[:, -1] = torch.tensor((0.4, 0.1, -0.5, 0.4, -0.5, -0.5, -0.5, -0.5))
    batch.action[:, 1] = torch.tensor((0.5, 0.0, -0.55, 0.8, 0.1, 0.1, 0.1, 0.1))
    rows = [slice(i, i + 1) for i in range(8)]
    found = [imitation_loss(batch.action[i], batch.vector[i], batch.privileged[i]) for i in rows]
    steer, pedal = (batch.action - batch.privileged[:, -2:]).unbind(dim=1)
    careful = torch.tensor((1.0, 1.0, 1.0, 1.0, CAREFUL, 1.0, 1.0 + (CAREFUL - 1.0) / 3.0, 1.0))
    weight = torch.tensor((STARTING, STARTING, *[1.0] * 6))
    torch.testing.assert_close(torch.stack(found), weight * (STEERING * steer.square() + careful * sizes(pedal)))


@pytest.mark.parametrize(("brakes", "pedal"), [(0.1, 0.4), (0.3, -0.6)])
def test_an_unsure_actor_brakes_or_drives_and_does_not_do_neither(brakes: float, pedal: float) -> None:
    """One observation, of whose rows the expert brakes in a share: the best action is one of the expert's two."""
    vector = torch.ones(20, 53)
    privileged = torch.zeros(20, PRIVILEGED)
    privileged[:, -1] = torch.where(torch.arange(20) < 20 * brakes, -0.6, 0.4)
    pedals = torch.linspace(-1, 1, 201)
    losses = [imitation_loss(torch.tensor((0.0, float(p))).repeat(20, 1), vector, privileged) for p in pedals]
    assert float(pedals[int(torch.stack(losses).argmin())]) == pytest.approx(pedal, abs=NEAR)


def test_without_q_the_actor_only_imitates() -> None:
    batch = random_batch(8, 0, PRIVILEGED)
    td3 = made(privileged=PRIVILEGED, imitation=3.0, smoothness=0.0, q_weight=0.0)
    f = td3.online.encoder(batch.frames[:, :4]).detach()
    found = td3.actor_loss(f, batch.vector, batch.privileged)
    own = imitation_loss(td3.online.actor(f, batch.vector), batch.vector, batch.privileged)
    torch.testing.assert_close(found.total, 3.0 * own)
    q = td3.online.critic.q1(
        td3.online.critic.joined(f, batch.vector, td3.online.actor(f, batch.vector), batch.privileged)
    )
    torch.testing.assert_close(found.sums["q_policy"], q.sum())


def test_labels_count_only_where_both_critics_prefer_them() -> None:
    batch = random_batch(8, 0, PRIVILEGED)
    td3 = made(privileged=PRIVILEGED, imitation=3.0, smoothness=0.0, imitation_counts="if_better")
    f = td3.online.encoder(batch.frames[:, :4]).detach()
    acted = td3.online.actor(f, batch.vector)
    q1, q2 = td3.online.critic(f, batch.vector, batch.privileged[:, -2:], batch.privileged)
    q = td3.online.critic.q1(td3.online.critic.joined(f, batch.vector, acted, batch.privileged))
    better = (q1 > q) & (q2 > q)
    assert 0 < better.sum() < 8
    found = td3.actor_loss(f, batch.vector, batch.privileged)
    kept = imitation_loss(acted[better], batch.vector[better], batch.privileged[better])
    torch.testing.assert_close(found.total, 3.0 * kept - q.sum())
    assert found.sums["imitation_share"] == better.sum()


@pytest.mark.parametrize("counts", ["always", "if_better"])
def test_parts_of_a_batch_teach_the_actor_the_same(counts: str) -> None:
    values: dict[str, Any] = {"imitation": 3.0, "q_weight": 0.5, "imitation_counts": counts, "policy_delay": 1}
    batch, (whole, parted) = random_batch(8, 0, PRIVILEGED), (made(privileged=PRIVILEGED, **values) for _ in range(2))
    told, told_in_parts = whole.update(batch), parted.update(batch, in_parts(3))
    for name in told:
        torch.testing.assert_close(told_in_parts[name], told[name], rtol=1e-4, atol=1e-5)


def test_the_smoothness_weight_is_what_a_change_costs() -> None:
    batch, plain, smooth = random_batch(4, 0), made(smoothness=0.0), made(smoothness=2.0)
    f = plain.online.encoder(batch.frames[:, :4]).detach()
    without, found = (each.actor_loss(f, batch.vector, batch.privileged) for each in (plain, smooth))
    change = smoothness_loss(plain.online.actor(f, batch.vector), batch.vector)
    torch.testing.assert_close(found.total - without.total, 2.0 * change)
    assert "smoothness_loss" not in without.sums


def test_targets_follow_by_tau() -> None:
    td3 = made(updates=1)
    before = td3.state()
    td3.update(_batch(1))
    after = td3.state()
    for name in _names(td3, "target."):
        online = after["online." + name.removeprefix("target.")]
        expected = (1 - SMALL.tau) * before[name] + SMALL.tau * online
        torch.testing.assert_close(after[name], expected, rtol=1e-5, atol=1e-7)


def test_a_target_looks_past_truncation_but_not_past_termination() -> None:
    td3, batch, no_noise = made(), _batch(0), torch.zeros(8, 2)
    ended = td3.bellman_target(dataclasses.replace(batch, terminated=torch.ones(8)), no_noise)
    torch.testing.assert_close(ended, batch.reward)
    # A truncated transition is stored with terminated = 0: its target holds the next state's value.
    truncated = td3.bellman_target(dataclasses.replace(batch, terminated=torch.zeros(8)), no_noise)
    target = td3.target
    features = target.encoder(batch.frames[:, 1:])
    action = target.actor(features, batch.next_vector)
    smaller = torch.minimum(*target.critic(features, batch.next_vector, action, batch.next_privileged))
    torch.testing.assert_close(truncated, batch.reward + SMALL.gamma * smaller)


def test_smoothing_noise_is_clipped_and_so_is_the_noisy_action() -> None:
    td3 = made(target_noise=5.0)
    assert td3.smoothing_noise(1000).abs().max() == SMALL.target_noise_clip
    seen: list[Tensor] = []
    td3.target.critic.register_forward_pre_hook(lambda _, inputs: seen.append(inputs[2]))
    output = td3.target.actor.body[-1]
    assert isinstance(output, torch.nn.Linear)
    output.bias.data.fill_(3.0)  # π' at tanh(1), so that the noise reaches past the range
    td3.bellman_target(_batch(0), torch.full((8, 2), 0.5))
    assert seen[0].max() == 1.0


def test_metrics_show_q_on_replayed_and_on_own_actions() -> None:
    td3 = made()
    first, second = td3.update(_batch(0)), td3.update(_batch(1))
    assert first.keys() == {"critic_loss", "q_buffer", "q_target"}
    assert second.keys() == first.keys() | {"actor_loss", "q_policy", "smoothness_loss"}
    assert all(isinstance(value, Tensor) and value.shape == () for value in second.values())


def test_chance_comes_from_the_seed_and_leaves_torchs_alone() -> None:
    before = torch.get_rng_state()
    one, same, other = (made(seed, updates=1) for seed in (3, 3, 2))
    assert torch.equal(torch.get_rng_state(), before)
    assert bits(one) == bits(same)
    assert _changed(bits(one), bits(other)) & _names(one, "online.")


def test_a_reset_learner_is_a_new_one_but_for_count_and_noise() -> None:
    used, new = made(updates=3), made(5)
    noise = used.noise.get_state()
    used.reset(5)
    assert _changed(bits(used), bits(new)) == {"noise", "updates"}
    assert used.updates == 3
    assert torch.equal(used.noise.get_state(), noise)


def test_state_is_a_copy_that_later_updates_do_not_touch() -> None:
    td3 = made()
    state = td3.state()
    kept = {name: value.clone() for name, value in state.items()}
    td3.update(_batch(0))
    assert all(torch.equal(kept[name], value) for name, value in state.items())


def test_adam_with_its_state_in_place_steps_like_a_fresh_one(monkeypatch: pytest.MonkeyPatch) -> None:
    td3, twin = made(), made(updates=1)
    learned = [*td3.online.encoder.parameters(), *td3.online.critic.parameters()]
    fresh = torch.optim.Adam(learned, lr=SMALL.critic_learning_rate, fused=True)
    monkeypatch.setattr(td3.executor._optimizers["critic"], "_adam", lambda *_: fresh.step())
    td3.update(_batch(0))
    for ours, theirs in zip(twin.online.parameters(), td3.online.parameters(), strict=True):
        assert torch.equal(ours, theirs)


def test_a_rate_shortens_the_steps_of_all_that_learns() -> None:
    before, found = made().state(), {}
    for rate in (0.0, 0.5, 1.0):
        td3 = made()
        td3.update(_batch(0), rate=0.0)
        td3.update(_batch(1), rate=rate)
        found[rate] = td3.state()
    for name in _names(td3, "online."):
        assert torch.equal(found[0.0][name], before[name])
        moved, moved_by_half = found[1.0][name] - before[name], found[0.5][name] - before[name]
        if not name.startswith("online.actor."):  # whose gradient is that of critics which have moved as well
            torch.testing.assert_close(moved_by_half, moved / 2, atol=1e-7, rtol=1e-3)
        assert 0.4 * moved.norm() < moved_by_half.norm() < 0.6 * moved.norm()


def test_learning_never_loads_torchs_compiler() -> None:
    """Its import takes a second and 70 MiB; torch.optim.Adam would."""
    program = """if True:
        import sys
        from tests.unit.agent.test_td3 import made
        made(updates=1)
        assert "torch._dynamo" not in sys.modules"""
    subprocess.run([sys.executable, "-c", program], cwd=REPOSITORY, check=True, timeout=PATIENCE_S)


def test_a_policy_acts_like_the_learners_actor() -> None:
    td3, policy, batch = made(updates=2), Policy(SMALL.network), _batch(5)
    policy.load_state_dict(td3.policy_state())
    with torch.no_grad():
        expected = td3.online.actor(td3.online.encoder(batch.frames[:, :4]), batch.vector)
        torch.testing.assert_close(policy.actor(policy.encoder(batch.frames[:, :4]), batch.vector), expected)


def test_a_bfloat16_update_stays_near_the_float32_one() -> None:
    full, half = made(), made(precision="bfloat16")
    losses = [each.update(_batch(0))["critic_loss"] for each in (full, half)]
    assert all(p.dtype == torch.float32 for p in half.online.parameters())
    torch.testing.assert_close(losses[0], losses[1], rtol=0.05, atol=0.05)


def test_loss_and_gradient_are_the_papers() -> None:
    """Adam hides by what a gradient is too large; float16's range doesn't."""
    td3, twin, batch = made(), made(), _batch(0)
    y = twin.bellman_target(batch, twin.smoothing_noise(8))
    q1, q2 = twin.online.critic(twin.online.encoder(batch.frames[:, :4]), batch.vector, batch.action, batch.privileged)
    expected = functional.mse_loss(q1, y) + functional.mse_loss(q2, y)
    expected.backward()
    torch.testing.assert_close(td3.update(batch)["critic_loss"], expected.detach())
    for (name, ours), theirs in zip(td3.online.named_parameters(), twin.online.parameters(), strict=True):
        if not name.startswith("actor"):
            torch.testing.assert_close(ours.grad, theirs.grad, msg=name)


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
def test_micro_batches_make_the_same_update(size: int, micro_batch: int, precision: str, tolerance: float) -> None:
    whole, split = (made(precision=precision) for _ in range(2))
    whole.update(_batch(0, size))
    split.load_state(whole.state())
    expected = whole.update(_batch(1, size))  # the second: actor and targets, too
    found = split.update(_batch(1, size), in_parts(micro_batch))
    assert found.keys() == expected.keys()
    for name, value in expected.items():
        torch.testing.assert_close(found[name], value, rtol=1e-5, atol=1e-6, msg=name)
    ours, theirs = (dict(each.online.named_parameters()) for each in (split, whole))
    gradients = [{name: p.grad for name, p in each.items() if p.grad is not None} for each in (ours, theirs)]
    assert gradients[0].keys() == ours.keys()
    assert distance(*gradients) <= tolerance
    assert distance(ours, theirs) <= (2e-6 if precision == "float32" else 1e-3)
    assert distance(*(dict(each.target.named_parameters()) for each in (split, whole))) <= 2e-6


def test_the_actor_sees_the_features_from_before_the_critics_step() -> None:
    td3, batch = made(), _batch(0)
    with torch.no_grad():
        before = td3.online.encoder(batch.frames[:, :4])
    (features,), _ = step_critics(td3, batch, in_parts(3))
    torch.testing.assert_close(features, before)
    with torch.no_grad():
        assert not torch.allclose(td3.online.encoder(batch.frames[:, :4]), before, rtol=1e-5)


def test_a_move_to_a_full_device_leaves_everything_on_the_cpu(monkeypatch: pytest.MonkeyPatch) -> None:
    td3 = made(updates=1)
    before = bits(td3)
    place, full = td3.executor._place, ["cuda"]

    def place_or_not(*where: Any) -> None:
        place(*where)  # parameters are there, moments are new
        if full:
            raise RuntimeError(f"CUDA out of memory on {full.pop()}")

    monkeypatch.setattr(td3.executor, "_place", place_or_not)
    with pytest.raises(RuntimeError, match="out of memory"):
        td3.executor.move(CPU)
    assert bits(td3) == before
