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
from collections.abc import Collection, Iterator
from functools import partial
from itertools import chain

import torch
from torch import Tensor, nn
from torch.nn import functional

from agent.config import TD3Config
from agent.memory.settings import Offload
from agent.td3.arithmetic import computed
from agent.td3.frames import ACTION, SIDE, STACK
from agent.td3.host import HOST
from agent.td3.networks import Actor, Critic, Encoder, frozen
from agent.td3.optimizers import LossScale, PlacedAdam
from agent.td3.phases import Attempt, Metrics, added, at_once, micro_batches
from agent.td3.replay import Batch
from agent.td3.targets import Targets


class _Networks(nn.Module):
    """Encoder, actor and critics: once learned, once as their slow targets."""

    def __init__(self, config: TD3Config, side: int) -> None:
        super().__init__()
        self.encoder = Encoder(config.network, side)
        self.actor = Actor(config.network)
        self.critic = Critic(config.network)


class TD3:
    """The learner's whole state and its one operation, ``update``."""

    def __init__(
        self,
        config: TD3Config,
        device: torch.device,
        seed: int,
        offload: Collection[Offload] = frozenset(),
        side: int = SIDE,
    ) -> None:
        """Begin with untrained networks.

        Args:
            config: widths, rates, precision.
            device: where losses and gradients are computed.
            seed: of the weights and of the smoothing noise.
            offload: what lives on the host instead, and visits the device at most.
            side: of the frames, pixels.
        """
        self.config = config
        self.side = side
        self.updates = 0
        with torch.random.fork_rng(devices=[]):  # the same weights on every device, and nobody else's numbers moved
            torch.manual_seed(seed)
            self.online = _Networks(config, side)
            self.target = _Networks(config, side).requires_grad_(False)
        self.target.load_state_dict(self.online.state_dict())
        self._noise = torch.Generator().manual_seed(seed)
        self._tau = config.tau
        self._rehearsed = False
        self._settle(device, offload)

    def _settle(self, device: torch.device, offload: Collection[Offload]) -> None:
        """Put the networks where they belong, and optimizers with moments of 0 beside them."""
        self.device = device
        self.precision = computed(self.config.precision, device.type == "cuda")
        """What the encoder computes in here: float32, bfloat16 or float16."""
        on_host, float16 = "optimizer" in offload, self.precision == "float16"
        self._scale = LossScale(HOST if on_host else device) if float16 else None
        theta = dict(self.online.to(device).named_parameters())
        phi = {name: theta.pop(name) for name in list(theta) if name.startswith("actor.")}
        self._critic_optimizer = PlacedAdam(
            theta, self.config.critic_learning_rate, on_host=on_host, guarded=float16, scale=self._scale
        )
        self._actor_optimizer = PlacedAdam(phi, self.config.actor_learning_rate, on_host=on_host, guarded=float16)
        stepped = self._critic_optimizer.masters | self._actor_optimizer.masters
        visiting = "targets" in offload
        self._targets = Targets(self.target, stepped if visiting else theta | phi, device, on_host=visiting)

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
        self.online.zero_grad()  # the actor's, too: targets that visit take the gradients' room
        if micro_batch >= size:
            batch = batch.to(self.device)  # once, not once for y and once for the gradient
        y = self._bellman_targets(batch, noise, micro_batch)
        for rows in micro_batches(size, micro_batch):
            seen, sums = self._critic_gradient(batch.part(rows).to(self.device), y[rows], size)
            features.append(seen)
            metrics = added(metrics, sums)
        all_features = features[0] if len(features) == 1 else torch.cat(features)
        self._critic_optimizer.step(self._rehearsed)  # the commit
        return all_features, metrics

    def _critic_gradient(self, part: Batch, y: Tensor, size: int) -> tuple[Tensor, Metrics]:
        """Add ∇θ N⁻¹ Σ (y - Q_θi(s, a))² over this part of the N = ``size`` transitions."""
        with self._encoder_precision():
            features = self.online.encoder(part.frames[:, :STACK])
        q1, q2 = self.online.critic(features, part.vector, part.action)
        loss = (_squared_error(q1, y) + _squared_error(q2, y)) / size
        (loss if self._scale is None else loss * self._scale.value).backward()  # type: ignore[no-untyped-call]
        sums = {"critic_loss": loss.detach(), "q_buffer": q1.detach().sum() / size, "q_target": y.sum() / size}
        return features.detach(), sums

    def _bellman_targets(self, batch: Batch, noise: Tensor, micro_batch: int) -> Tensor:
        """Return y (B,) of all transitions, before a gradient is there: targets visit the device for this alone."""
        y = torch.empty(len(noise), device=self.device)
        with self._targets.visit():
            for rows in micro_batches(len(noise), micro_batch):
                part = batch.part(rows).to(self.device)
                y[rows] = self._bellman_target(part, noise[rows].to(self.device))
        return y

    @torch.no_grad()
    def _bellman_target(self, part: Batch, noise: Tensor) -> Tensor:
        with self._encoder_precision():
            features = self.target.encoder(part.frames[:, 1:])
        next_action = (self.target.actor(features, part.next_vector) + noise).clamp_(-1, 1)
        q1, q2 = self.target.critic(features, part.next_vector, next_action)
        y: Tensor = part.reward + self.config.gamma * (1 - part.terminated) * torch.min(q1, q2)
        return y

    def _update_actor(self, features: Tensor, vector: Tensor, micro_batch: int) -> Metrics:
        """Step φ along ∇φ N⁻¹ Σ Q_θ1(s, π_φ(s))."""
        size = len(features)
        metrics: Metrics = {}
        self._actor_optimizer.zero_grad()
        with frozen(self.online.critic):
            for rows in micro_batches(size, micro_batch):
                seen, v = features[rows].to(self.device), vector[rows].to(self.device)
                loss = -self.online.critic.first(seen, v, self.online.actor(seen, v)).sum() / size
                loss.backward()  # type: ignore[no-untyped-call]
                metrics = added(metrics, {"actor_loss": loss.detach(), "q_policy": -loss.detach()})
        self._actor_optimizer.step(self._rehearsed)  # the commit
        return metrics

    def _update_targets(self, _: int) -> None:
        self._targets.follow(self._tau)

    def release(self) -> None:
        """Let go of what another try of a phase does without: gradients."""
        self.online.zero_grad()

    def move(self, device: torch.device, offload: Collection[Offload] = frozenset()) -> None:
        """Go on on another device in this process, between two updates or two tries of a phase.

        Nothing is allocated on the device that is left, which may have no byte to spare. Where the new one has too few,
        everything is on the CPU when the error arrives here.
        """
        self.release()
        # Not state(): its copies are contiguous, and the device would have to make them so.
        kept = {name: value.detach().to(HOST) for name, value in self._tensors().items()}
        try:
            self._settle(device, offload)
        except RuntimeError:
            self._settle(HOST, ())
            raise
        finally:
            self._load(kept)

    @contextlib.contextmanager
    def without_effect(self) -> Iterator[None]:
        """Let the next update run all its phases, in full, and change nothing that a later one depends on.

        The optimizers step without effect (``PlacedAdam.step``), the targets follow by τ = 0.
        """
        updates, noise = self.updates, self._noise.get_state()
        self.updates, self._tau, self._rehearsed = self.config.policy_delay - 1, 0.0, True
        try:
            yield
        finally:
            self.online.zero_grad()
            self.updates, self._tau, self._rehearsed = updates, self.config.tau, False
            self._noise.set_state(noise)

    def _encoder_precision(self) -> torch.autocast:
        dtype = torch.float16 if self.precision == "float16" else torch.bfloat16
        return torch.autocast(self.device.type, dtype=dtype, enabled=self.precision != "float32")

    def policy_state(self) -> dict[str, Tensor]:
        """Return views of encoder and actor under ``Policy``'s names; copy them before the next update."""
        policy = nn.ModuleDict({"encoder": self.online.encoder, "actor": self.online.actor})
        return dict(policy.state_dict())

    def state(self, copies: bool = True) -> dict[str, Tensor]:
        """Return everything that the next update depends on, contiguous, by name, on the CPU.

        Args:
            copies: of everything. Without them what is on the CPU already is shown in place, to be used before the next
                update: half of a checkpoint's memory.
        """
        extra = {"noise": self._noise.get_state(), "updates": torch.tensor(self.updates)}
        # Contiguous: files know no channels_last; loading copies into place and so restores it.
        return {
            name: value.detach().to("cpu", copy=copies).contiguous()
            for name, value in chain(self._tensors().items(), extra.items())
        }

    def load_state(self, state: dict[str, Tensor]) -> None:
        """Go on from ``state()`` of a TD3 of the same widths, on any device.

        Raises:
            KeyError, RuntimeError: a tensor is missing or has another shape.
        """
        self._load(state)
        self._noise.set_state(state["noise"])
        self.updates = int(state["updates"])

    @torch.no_grad()
    def _load(self, state: dict[str, Tensor]) -> None:
        for name, value in self._tensors().items():
            if name in state or not name.startswith("scale."):  # of another precision: a scale finds its size by itself
                value.copy_(state[name])
        for optimizer in (self._critic_optimizer, self._actor_optimizer):
            optimizer.adopt_parameters()

    def _tensors(self) -> dict[str, Tensor]:
        tensors: dict[str, Tensor] = {f"online.{name}": value for name, value in self.online.named_parameters()}
        tensors |= {f"target.{name}": value for name, value in self.target.named_parameters()}
        for optimizer in (self._critic_optimizer, self._actor_optimizer):
            tensors |= {f"adam.{name}": value for name, value in optimizer.tensors().items()}
        if self._scale is not None:
            tensors |= {f"scale.{name}": value for name, value in self._scale.tensors().items()}
        return tensors


def _squared_error(q: Tensor, y: Tensor) -> Tensor:
    return functional.mse_loss(q, y, reduction="sum")
