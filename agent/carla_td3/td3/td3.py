"""TD3 (Fujimoto, van Hoof, Meger 2018, algorithm 1) on images with one shared encoder.

The paper's symbols: s, a, r, s' a transition; d' = 1 where s' is terminal (never where a time limit cut the episode);
γ discount, τ Polyak factor, ε smoothing noise of deviation σ̃ clipped at c, d the policy delay; π_φ the actor, Q_θ1 and
Q_θ2 the critics, a prime for targets; f the encoder, which belongs to θ. One round is

    ε ~ clip(N(0, σ̃), -c, c)
    y ← r + γ (1 - d') min_i Q_θ'i(f'(s'), clip(π_φ'(f'(s')) + ε, -1, 1))           bellman_target
    θ ← θ - Adam(∇θ N⁻¹ Σ (Σ_i (y - Q_θi(f(s), a))² + λ |h(f(s)) - p|²))            critic_loss, auxiliary_loss
    every d-th round:
        φ ← φ + Adam(∇φ N⁻¹ Σ (ν Q_θ1(f(s), π_φ(f(s))) - κ |π_φ(f(s)) - u|² - β w ℓ(π_φ(f(s)), p_a)))  actor_loss
        θ', φ' ← τ (θ, φ) + (1 - τ) (θ', φ')                                        update_targets

Not the paper's: u, the present steering and pedal, which are the last two numbers of s. The actor is drawn towards them
(weight κ; CAPS, Mysore et al. 2021, draws it to its action in the next state). Without that, a critic after a few
hundred updates doesn't know yet what a change of the action costs, and sends the actor from one bound to the other at
every step.

Not the paper's either, and off by default: p, the privileged numbers of s. A head h learns to predict p from f(s)
(weight λ; with ``encoder_learns_from: auxiliary`` f learns from nothing else). Critics may read p beside f(s)
(``critic_sees``); π_φ never does. p_a, the last two of p, is the expert's action in s, towards which the actor is drawn
(weight β; TD3+BC, Fujimoto & Gu 2021, but with the labels of DAgger, Ross et al. 2011, for the states that the driver
itself reaches; ``imitation`` has ℓ, and w of each row). With ``imitation_counts: if_better``, w is also 0 where not
both critics value p_a above π_φ's action. ν (``q_weight``) is 1; with 0 the actor only imitates, a control. Two
controls have no f: there f(s) is nothing (the driver sees only its vector), or p without p_a (``network.sees``).

Owns the losses, their order and the smoothing noise. Its ``executor`` owns how a gradient is computed in the available
memory, and where tensors are.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property

import torch
from torch import Tensor
from torch.nn import functional

from carla_td3.td3.algorithm import Algorithm
from carla_td3.td3.detector import detection_loss
from carla_td3.td3.executor import Attempt, Learned, Loss, Metrics, whole_batch
from carla_td3.td3.graphs import Graphs
from carla_td3.td3.imitation import imitation_loss, smoothness_loss
from carla_td3.td3.networks import frozen
from carla_td3.td3.replay.frames import ACTION, LISTED
from carla_td3.td3.replay.replay import Batch


class TD3(Algorithm):
    """Twin critics, a delayed actor, smoothed targets."""

    @property
    def learned(self) -> Sequence[Learned]:
        """Parameters θ (encoder and critics), and φ."""
        return (
            Learned("critic", ("encoder.", "critic.", "auxiliary."), self.config.critic_learning_rate),
            Learned("actor", ("actor.",), self.config.actor_learning_rate),
        )

    @cached_property
    def graphs(self) -> Graphs:
        """The recorded updates."""
        return Graphs(self.executor, self.phases)

    @property
    def without_graphs(self) -> str:
        """Why updates run without the CUDA graphs that were asked for; empty if they don't."""
        return self.graphs.refused if self.config.cuda_graph else ""

    def update(self, batch: Batch, attempt: Attempt = whole_batch, rate: float = 1.0) -> Metrics:
        """One update of the critics, and of the actor and all targets every d-th time.

        Returns:
            ``critic_loss``, ``q_buffer`` = E[Q₁(s, a)], ``q_target`` = E[y], with a head ``auxiliary_loss``, and after
            an actor's update ``actor_loss``, ``q_policy`` = E[Q₁(s, π(s))] and, by their weights, ``smoothness_loss``,
            ``imitation_loss`` and ``imitation_share``, the share of the labels that count. Watch ``q_policy`` beside
            ``q_buffer``: overestimation shows there, not on replayed actions.
        """
        noise = self.smoothing_noise(len(batch))  # first: every try of this update sees the same noise
        number = self.updates + 1
        acts = number % self.config.policy_delay == 0
        if self.config.cuda_graph and not self.executor.is_dry:
            metrics = self.graphs.update(batch, noise, attempt, rate, acts)
        else:
            metrics = self.phases(batch, noise, attempt, rate, acts)
            if self.config.cuda_graph:
                self.graphs.prepare(batch, noise, attempt)  # a dry run takes the memory of the graphs, too
        self.updates = number
        return metrics

    def phases(self, batch: Batch, noise: Tensor, attempt: Attempt, rate: float | Tensor, acts: bool) -> Metrics:
        """Update the critics, and with ``acts`` the actor and all targets; return what ``update`` returns."""
        (f,), metrics = self.executor.minimise(
            "critic", self.critic_loss, [batch], attempt, self.bellman_target, [noise], rate
        )
        self.updates += 1  # for reports from here on; ``update`` sets it, since a recording runs this several times
        if acts:
            inputs = [f, batch.vector, batch.privileged]
            _, means = self.executor.minimise("actor", self.actor_loss, inputs, attempt, rate=rate)
            self.executor.update_targets(self.config.tau, attempt)
            metrics |= means
        return metrics

    def smoothing_noise(self, size: int) -> Tensor:
        """Return ε (size, 2) ~ clip(N(0, σ̃), -c, c)."""
        c = self.config.target_noise_clip
        noise = torch.randn(size, ACTION, generator=self.noise) * self.config.target_noise
        return noise.clamp_(-c, c)

    def bellman_target(self, batch: Batch, noise: Tensor) -> Tensor:
        """Return y (B,); ``noise`` is ε (B, 2). With n-step returns r is Σ γᵏ rₖ, and γ becomes γᵐ (Sutton 1988)."""
        target, gamma = self.target, self.config.gamma
        f = target.features(batch.frames[:, -target.stack.frames :], batch.next_vector, batch.next_privileged)
        next_action = (target.actor(f, batch.next_vector) + noise).clamp_(-1, 1)
        q1, q2 = target.critic(f, batch.next_vector, next_action, batch.next_privileged)
        y: Tensor = batch.reward + gamma * batch.discount * (1 - batch.terminated) * torch.min(q1, q2)
        return y

    def critic_loss(self, batch: Batch, y: Tensor) -> Loss:
        """Return the squared errors of both critics, and keep f(s) from before the step, for the actor.

        It isn't computed again in the actor's phase, because the step changes f. It takes 4 bytes per feature, 0.5 MiB
        at batch 256; the frames' activations, 100 times as much, exist for one micro-batch.
        """
        online = self.online
        f, maps = online.detected(batch.frames[:, : online.stack.frames], batch.vector, batch.privileged)
        # Before the critics, so that it comes last in the backward pass, when their memory is already freed.
        wrong = None if online.auxiliary is None else auxiliary_loss(online.auxiliary(f), batch.privileged[:, LISTED:])
        if wrong is not None and maps:
            wrong = wrong + detection_loss(maps, online.stack.views, batch.privileged)
        taught = f if self.config.encoder_learns_from == "all" else f.detach()
        q1, q2 = online.critic(taught, batch.vector, batch.action, batch.privileged)
        loss = functional.mse_loss(q1, y, reduction="sum") + functional.mse_loss(q2, y, reduction="sum")
        sums = {"critic_loss": loss.detach(), "q_buffer": q1.detach().sum(), "q_target": y.sum()}
        if wrong is not None:
            loss, sums = loss + self.config.auxiliary * wrong, {**sums, "auxiliary_loss": wrong.detach()}
        return Loss(loss, sums, (f.detach(),))

    def actor_loss(self, f: Tensor, vector: Tensor, privileged: Tensor) -> Loss:
        """Return -ν Σ Q_θ1(f(s), π_φ(f(s))), κ Σ |π_φ(f(s)) - u|² and β Σ w ℓ(π_φ(f(s)), p_a); θ gets no gradient."""
        online, kappa, beta = self.online, self.config.smoothness, self.config.imitation
        with frozen(online.critic):
            acted = online.actor(f, vector)
            q = online.critic.q1(online.critic.joined(f, vector, acted, privileged))
            loss = -self.config.q_weight * q.sum()
        sums = {"q_policy": q.detach().sum()}
        if kappa:
            change = smoothness_loss(acted, vector)
            loss, sums = loss + kappa * change, {**sums, "smoothness_loss": change.detach()}
        if beta:
            filtered = self.config.imitation_counts == "if_better"
            counts = self.advice_is_better(f, vector, privileged, q) if filtered else None
            apart = imitation_loss(acted, vector, privileged, counts)
            loss, sums = loss + beta * apart, {**sums, "imitation_loss": apart.detach()}
            if counts is not None:
                sums["imitation_share"] = counts.sum()
        return Loss(loss, {"actor_loss": loss.detach(), **sums})

    @torch.no_grad()
    def advice_is_better(self, f: Tensor, vector: Tensor, privileged: Tensor, q: Tensor) -> Tensor:
        """Return (B,), 1 where min_i Q_θi(f(s), p_a) > q, else 0; q (B,) is the value of the actor's own action."""
        q1, q2 = self.online.critic(f, vector, privileged[:, -ACTION:], privileged)
        better: Tensor = (torch.min(q1, q2) > q).to(q.dtype)
        return better


def auxiliary_loss(told: Tensor, privileged: Tensor) -> Tensor:
    """Return Σ |h(f(s)) - p|², with the mean over its numbers for each row."""
    return functional.mse_loss(told, privileged, reduction="sum") / privileged.shape[1]
