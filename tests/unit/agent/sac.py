"""SAC (Haarnoja et al. 2018) in one file, beside TD3 and on the same executor: what a second algorithm takes.

    y ← r + γ (1 - d') (min_i Q_θ'i(f'(s'), a') - α log π_φ(a' | f'(s'))),  a' ~ π_φ(f'(s'))      soft_target
    θ ← θ - Adam(∇θ N⁻¹ Σ Σ_i (y - Q_θi(f(s), a))²)                                               critic_loss
    φ ← φ - Adam(∇φ N⁻¹ Σ (α log π_φ(a | f(s)) - min_i Q_θi(f(s), a))),  a ~ π_φ(f(s))           actor_loss
    α ← α - Adam(∇α N⁻¹ Σ -α (log π_φ(a | f(s)) + H))                                            temperature_loss

The deviation of π_φ is one number an action, whatever the state; so its mean is ``Actor``'s, and a collector drives on.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.distributions import Normal
from torch.nn import functional

from carla_td3.config import NetworkConfig
from carla_td3.td3.algorithm import Algorithm
from carla_td3.td3.executor import Attempt, Learned, Loss, Metrics, whole_batch
from carla_td3.td3.networks import Networks, frozen
from carla_td3.td3.replay.frames import ACTION, FrameStack
from carla_td3.td3.replay.replay import Batch

ENTROPY = -float(ACTION)
"""H, the entropy that the temperature holds: the paper's -dim A."""


class SoftNetworks(Networks):
    """Those of TD3, the policy's deviation and the temperature."""

    def __init__(self, config: NetworkConfig, stack: FrameStack, seen: int = 0, predicted: int = 0) -> None:
        super().__init__(config, stack, seen, predicted)
        self.deviation = nn.Parameter(torch.full((ACTION,), -1.0))  # log σ
        self.temperature = nn.Parameter(torch.full((1,), -2.0))  # log α

    def drawn(self, f: Tensor, vector: Tensor, noise: Tensor) -> tuple[Tensor, Tensor]:
        """Return actions (B, 2) and log π of each (B,), by ``noise`` ~ N(0, 1) of (B, 2)."""
        mean = torch.atanh(self.actor(f, vector))
        inner = mean + self.deviation.exp() * noise
        action = torch.tanh(inner)
        chance = Normal(mean, self.deviation.exp()).log_prob(inner) - torch.log(1 - action.square() + 1e-6)
        return action, chance.sum(1)


class SAC(Algorithm):
    """Soft actor-critic with a learned temperature."""

    online: SoftNetworks

    def networks(self) -> SoftNetworks:
        """Return new networks."""
        return SoftNetworks(self.config.network, self.stack)

    @property
    def learned(self) -> Sequence[Learned]:
        """θ, φ and α."""
        rate = self.config.actor_learning_rate
        return (
            Learned("critic", ("encoder.", "critic."), self.config.critic_learning_rate),
            Learned("actor", ("actor.", "deviation"), rate),
            Learned("temperature", ("temperature",), rate),
        )

    def update(self, batch: Batch, attempt: Attempt = whole_batch, rate: float = 1.0) -> Metrics:
        """One update of all."""
        noise = [torch.randn(len(batch), ACTION, generator=self.noise) for _ in range(2)]
        (f,), metrics = self.executor.minimise(
            "critic", self.critic_loss, [batch], attempt, self.soft_target, noise[:1], rate
        )
        inputs = [f, batch.vector, batch.privileged, noise[1]]
        (chance,), means = self.executor.minimise("actor", self.actor_loss, inputs, attempt, rate=rate)
        self.executor.minimise("temperature", self.temperature_loss, [chance], attempt, rate=rate)
        self.executor.update_targets(self.config.tau, attempt)
        self.updates += 1
        return metrics | means

    def soft_target(self, batch: Batch, noise: Tensor) -> Tensor:
        """Return y (B,)."""
        online, target = self.online, self.target
        f = online.features(batch.frames[:, -self.stack.frames :], batch.next_vector, batch.next_privileged)
        action, chance = online.drawn(f, batch.next_vector, noise)
        f = target.features(batch.frames[:, -self.stack.frames :], batch.next_vector, batch.next_privileged)
        q = torch.min(*target.critic(f, batch.next_vector, action, batch.next_privileged))
        soft = q - online.temperature.exp() * chance
        y: Tensor = batch.reward + self.config.gamma * batch.discount * (1 - batch.terminated) * soft
        return y

    def critic_loss(self, batch: Batch, y: Tensor) -> Loss:
        """Return the squared errors of both critics, and keep f(s)."""
        f = self.online.features(batch.frames[:, : self.stack.frames], batch.vector, batch.privileged)
        both = self.online.critic(f, batch.vector, batch.action, batch.privileged)
        loss = sum((functional.mse_loss(q, y, reduction="sum") for q in both), torch.zeros(()))
        return Loss(loss, {"critic_loss": loss.detach()}, (f.detach(),))

    def actor_loss(self, f: Tensor, vector: Tensor, privileged: Tensor, noise: Tensor) -> Loss:
        """Return Σ (α log π - min Q), and keep log π."""
        with frozen(self.online.critic):
            action, chance = self.online.drawn(f, vector, noise)
            q = torch.min(*self.online.critic(f, vector, action, privileged))
        loss = (self.online.temperature.exp().detach() * chance - q).sum()
        return Loss(loss, {"actor_loss": loss.detach()}, (chance.detach(),))

    def temperature_loss(self, chance: Tensor) -> Loss:
        """Return Σ -α (log π + H)."""
        return Loss(-(self.online.temperature.exp() * (chance + ENTROPY)).sum(), {})
