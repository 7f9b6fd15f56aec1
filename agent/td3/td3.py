"""TD3's update (Fujimoto, van Hoof, Meger 2018, algorithm 1) on images with one shared encoder.

Owns networks, targets, optimizers, the smoothing noise and their state. Never touches files, processes, the
environment or global random state; the device is an argument.

The paper's symbols: s, a, r, s' a transition; d' = 1 where s' is terminal (never where a time limit cut the episode);
γ discount, τ Polyak factor, σ̃ and c the smoothing noise and its clip, d the policy delay;
π_φ the actor, Q_θ1, Q_θ2 the critics, a prime for targets; f the encoder, which belongs to θ.

An update has three phases: critic, actor, targets. Each ends with its commit, a step in place; until then only
gradients are in flight. So a phase that ran out of memory is run again, in smaller micro-batches whose gradients add
up, and the update is the same up to rounding. Who runs it again is the caller's choice: ``Attempt``. A commit itself
allocates nothing, or on the CPU one convolution's gradient at a time: less than backward has freed just before.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from functools import partial
from itertools import chain

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.optim import Adam

from agent.config import TD3Config
from agent.td3.frames import ACTION, STACK
from agent.td3.networks import Actor, Critic, Encoder
from agent.td3.phases import Attempt, Metrics, added, at_once, micro_batches
from agent.td3.replay import Batch


class _Networks(nn.Module):
    """Encoder, actor and critics: once learned, once as their slow targets."""

    def __init__(self, config: TD3Config) -> None:
        super().__init__()
        self.encoder = Encoder(config.network)
        self.actor = Actor(config.network)
        self.critic = Critic(config.network)


class TD3:
    """The learner's whole state and its one operation, ``update``."""

    def __init__(self, config: TD3Config, device: torch.device, seed: int) -> None:
        self.config = config
        self.device = device
        self.updates = 0
        with torch.random.fork_rng(devices=[]):  # the same weights on every device, and nobody else's numbers moved
            torch.manual_seed(seed)
            self.online = _Networks(config)
            self.target = _Networks(config).requires_grad_(False)
        self.target.load_state_dict(self.online.state_dict())
        self.online.to(device)
        self.target.to(device)
        self._encode = self.online.encoder.forward
        self._encode_target = self.target.encoder.forward
        self._noise = torch.Generator().manual_seed(seed)
        self._tau = config.tau
        online = self.online
        self._critic_parameters = [*online.encoder.parameters(), *online.critic.parameters()]
        self._actor_parameters = [*online.actor.parameters()]
        self._critic_optimizer = _adam(self._critic_parameters, config.critic_learning_rate)
        self._actor_optimizer = _adam(self._actor_parameters, config.actor_learning_rate)

    def compile(self) -> None:
        """Let torch.compile build the encoder's passes at their next use (about 20 s on 2 cores, needs a compiler)."""
        self._encode = torch.compile(self.online.encoder)
        self._encode_target = torch.compile(self.target.encoder)

    def update(self, batch: Batch, attempt: Attempt = at_once) -> Metrics:
        """One update of the critics, and of the actor and all targets every d-th time.

        Args:
            batch: B transitions, on any device; each micro-batch is moved when its turn comes.
            attempt: runs a phase; by default once, unsplit.

        Returns:
            0-dimensional tensors on the device, nothing waited for: ``critic_loss``, ``q_buffer`` = E[Q₁(s, a)],
            ``q_target`` = E[y], and after an actor's update ``actor_loss`` and ``q_policy`` = E[Q₁(s, π(s))].
            Watch the last beside ``q_buffer``: overestimation shows there, not on replayed actions.
        """
        size = len(batch.reward)
        noise = self._smoothing_noise(size)  # first: every try of this update sees the same noise
        features, metrics = attempt("critic", partial(self._update_critic, batch, noise), size)
        self.updates += 1
        if self.updates % self.config.policy_delay == 0:
            metrics |= attempt("actor", partial(self._update_actor, features, batch.vector), size)
            attempt("targets", self._update_targets, 1)
        return metrics

    def _smoothing_noise(self, size: int) -> Tensor:
        c = self.config.target_noise_clip
        noise = torch.randn(size, ACTION, generator=self._noise) * self.config.target_noise  # ε ~ clip(N(0, σ̃), -c, c)
        return noise.clamp_(-c, c)

    def _update_critic(self, batch: Batch, noise: Tensor, micro_batch: int) -> tuple[Tensor, Metrics]:
        """Step θ; return f(s) as it was before, for the actor, and metrics.

        f(s) is kept, not computed again in the actor's phase: after the step it would be another f. It takes 4 bytes
        a feature, 0.5 MiB at batch 256; the frames' activations, 100 times as much, live for one micro-batch.
        """
        size = len(noise)
        features: list[Tensor] = []
        metrics: Metrics = {}
        self._critic_optimizer.zero_grad()
        for rows in micro_batches(size, micro_batch):
            part = batch.part(rows).to(self.device)
            seen, sums = self._critic_gradient(part, noise[rows].to(self.device), size)
            features.append(seen)
            metrics = added(metrics, sums)
        all_features = features[0] if len(features) == 1 else torch.cat(features)
        self._critic_optimizer.step()  # the commit
        return all_features, metrics

    def _critic_gradient(self, part: Batch, noise: Tensor, size: int) -> tuple[Tensor, Metrics]:
        """Add ∇θ N⁻¹ Σ (y - Q_θi(s, a))² over this part of the N = ``size`` transitions."""
        y = self._bellman_target(part, noise)
        with self._encoder_precision():
            features = self._encode(part.frames[:, :STACK])
        q1, q2 = self.online.critic(features, part.vector, part.action)
        loss = (_squared_error(q1, y) + _squared_error(q2, y)) / size
        loss.backward()  # type: ignore[no-untyped-call]
        sums = {"critic_loss": loss.detach(), "q_buffer": q1.detach().sum() / size, "q_target": y.sum() / size}
        return features.detach(), sums

    @torch.no_grad()
    def _bellman_target(self, part: Batch, noise: Tensor) -> Tensor:
        with self._encoder_precision():
            features = self._encode_target(part.frames[:, 1:])
        next_action = (self.target.actor(features, part.next_vector) + noise).clamp_(-1, 1)
        q1, q2 = self.target.critic(features, part.next_vector, next_action)
        y: Tensor = part.reward + self.config.gamma * (1 - part.terminated) * torch.min(q1, q2)
        return y

    def _update_actor(self, features: Tensor, vector: Tensor, micro_batch: int) -> Metrics:
        """Step φ along ∇φ N⁻¹ Σ Q_θ1(s, π_φ(s))."""
        size = len(features)
        metrics: Metrics = {}
        self._actor_optimizer.zero_grad()
        for rows in micro_batches(size, micro_batch):
            seen, v = features[rows], vector[rows].to(self.device)
            loss = -self.online.critic.first(seen, v, self.online.actor(seen, v)).sum() / size
            loss.backward(inputs=self._actor_parameters)  # type: ignore[no-untyped-call]
            metrics = added(metrics, {"actor_loss": loss.detach(), "q_policy": -loss.detach()})
        self._actor_optimizer.step()  # the commit
        return metrics

    @torch.no_grad()
    def _update_targets(self, _: int) -> None:
        torch._foreach_lerp_(list(self.target.parameters()), list(self.online.parameters()), self._tau)

    def release(self) -> None:
        """Let go of what another try of a phase does without: gradients, and passes compiled for another size."""
        self.online.zero_grad()
        self._encode, self._encode_target = self.online.encoder.forward, self.target.encoder.forward

    @contextlib.contextmanager
    def without_effect(self) -> Iterator[None]:
        """Let the next update run all its phases, in full, and change nothing that a later one depends on.

        Adam is told that its gradients overflowed, as mixed precision's scaler tells it: its kernels start, see that,
        and leave weights, moments and step counts as they are. The targets follow by τ = 0.
        """
        updates, noise = self.updates, self._noise.get_state()
        optimizers = (self._critic_optimizer, self._actor_optimizer)
        for optimizer in optimizers:
            optimizer.found_inf = torch.ones((), device=self.device)  # type: ignore[attr-defined]
        self.updates, self._tau = self.config.policy_delay - 1, 0.0
        try:
            yield
        finally:
            for optimizer in optimizers:
                del optimizer.found_inf  # type: ignore[attr-defined]
            self.online.zero_grad()
            self.updates, self._tau = updates, self.config.tau
            self._noise.set_state(noise)

    def _encoder_precision(self) -> torch.autocast:
        enabled = self.config.precision == "bfloat16"
        return torch.autocast(self.device.type, dtype=torch.bfloat16, enabled=enabled)

    def policy_state(self) -> dict[str, Tensor]:
        """Return views of encoder and actor under ``Policy``'s names; copy them before the next update."""
        policy = nn.ModuleDict({"encoder": self.online.encoder, "actor": self.online.actor})
        return dict(policy.state_dict())

    def state(self) -> dict[str, Tensor]:
        """Return everything that the next update depends on, as named copies on the CPU."""
        extra = {"noise": self._noise.get_state(), "updates": torch.tensor(self.updates)}
        # Contiguous: files know no channels_last; loading copies into place and so restores it.
        return {
            name: value.detach().to("cpu", copy=True, memory_format=torch.contiguous_format)
            for name, value in chain(self._tensors().items(), extra.items())
        }

    @torch.no_grad()
    def load_state(self, state: dict[str, Tensor]) -> None:
        """Go on from ``state()`` of a TD3 of the same widths, on any device.

        Raises:
            KeyError, RuntimeError: a tensor is missing or has another shape.
        """
        for name, value in self._tensors().items():
            value.copy_(state[name])
        self._noise.set_state(state["noise"])
        self.updates = int(state["updates"])

    def _tensors(self) -> dict[str, Tensor]:
        tensors: dict[str, Tensor] = {f"online.{name}": value for name, value in self.online.named_parameters()}
        tensors |= {f"target.{name}": value for name, value in self.target.named_parameters()}
        for parameter_name, parameter in self.online.named_parameters():
            optimizer = self._actor_optimizer if parameter in self._actor_optimizer.state else self._critic_optimizer
            for key, value in optimizer.state[parameter].items():
                tensors[f"adam.{parameter_name}.{key}"] = value
        return tensors


def _squared_error(q: Tensor, y: Tensor) -> Tensor:
    return functional.mse_loss(q, y, reduction="sum")


def _adam(parameters: list[nn.Parameter], learning_rate: float) -> Adam:
    """Return fused Adam with its state in place from the start, so that it can be saved and loaded before step 1."""
    optimizer = Adam(parameters, lr=learning_rate, fused=True)
    for parameter in parameters:
        optimizer.state[parameter] = {
            "step": torch.zeros((), device=parameter.device),
            "exp_avg": torch.zeros_like(parameter),
            "exp_avg_sq": torch.zeros_like(parameter),
        }
    return optimizer
