"""TD3 (Fujimoto, van Hoof, Meger 2018, algorithm 1) on images with one shared encoder.

The paper's symbols: s, a, r, s' a transition; d' = 1 where s' is terminal (never where a time limit cut the episode);
γ discount, τ Polyak factor, ε smoothing noise of deviation σ̃ clipped at c, d the policy delay; π_φ the actor, Q_θ1 and
Q_θ2 the critics, a prime for targets; f the encoder, which belongs to θ. One round is

    ε ~ clip(N(0, σ̃), -c, c)
    y ← r + γ (1 - d') min_i Q_θ'i(f'(s'), clip(π_φ'(f'(s')) + ε, -1, 1))           bellman_target
    θ ← θ - Adam(∇θ N⁻¹ Σ (Σ_i (y - Q_θi(f(s), a))² + λ |h(f(s)) - p|²))            critic_loss, auxiliary_loss
    every d-th round:
        φ ← φ + Adam(∇φ N⁻¹ Σ (Q_θ1(f(s), π_φ(f(s))) - κ |π_φ(f(s)) - u|² - β w |π_φ(f(s)) - p_a|²))  actor_loss
        θ', φ' ← τ (θ, φ) + (1 - τ) (θ', φ')                                        polyak_update

Not the paper's: u, where wheel and pedal are, the last two numbers of s, to which the actor is drawn (weight κ; CAPS,
Mysore et al. 2021, draws it to its action in the next state). Without that a critic of a few hundred updates, which
can't tell yet what a change of the action costs, sends the actor to its bounds, from one to the other at every step.

Not the paper's either, and off by default: p, what the simulator knows of s beside the observation, which a head h
learns to tell from f(s) (weight λ; with ``encoder_learns_from: auxiliary`` f learns from nothing else), and which
critics may read beside f(s) (``critic_sees``); π_φ never does; p_a, the last two of p, what the expert would do in s,
to which the actor is drawn (weight β; TD3+BC, Fujimoto & Gu 2021, but with the labels of DAgger, Ross et al. 2011:
wherever the driver itself comes to; w is ``STARTING`` where the expert starts, else 1). Two controls have no f: there
f(s) is nothing (a driver by its vector alone), or what p has before p_a (``network.sees``).

Owns the losses, their order, the smoothing noise and the count of updates. How a gradient is computed in the memory
there is, and where everything lives, is ``accumulate``'s. Never touches files, processes, the environment or global
random state.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from functools import partial
from itertools import chain

import torch
from torch import Tensor, nn
from torch.nn import functional

from carla_td3.config import Offload, TD3Config
from carla_td3.td3.accumulate import Accumulator, Attempt, Loss, Metrics, whole_batch
from carla_td3.td3.networks import Networks, frozen
from carla_td3.td3.replay.frames import ACTION, DEFAULT, FrameStack
from carla_td3.td3.replay.replay import Batch

STARTING, STANDING = 10.0, 0.1
"""What a row weighs in which the car is as slow as that (1 m/s) and the expert has the throttle: dozens of rows before
a red light go with each of these, and an actor that isn't sure of a green stays at the brake by the mean of both."""
STEERING = 20.0
"""What an error of the steering weighs beside one of the pedal that is as large: its spread is less than a fourth."""


def bellman_target(target: Networks, gamma: float, batch: Batch, noise: Tensor) -> Tensor:
    """Return y (B,); ``noise`` is ε (B, 2). With n-step returns r is Σ γᵏ rₖ, and γ becomes γᵐ (Sutton 1988)."""
    f = target.features(batch.frames[:, -target.stack.frames :], batch.next_privileged)
    next_action = (target.actor(f, batch.next_vector) + noise).clamp_(-1, 1)
    q1, q2 = target.critic(f, batch.next_vector, next_action, batch.next_privileged)
    y: Tensor = batch.reward + gamma * batch.discount * (1 - batch.terminated) * torch.min(q1, q2)
    return y


def critic_loss(online: Networks, batch: Batch, y: Tensor, auxiliary: float = 0.0, teach: bool = True) -> Loss:
    """Return the squared errors of both critics, and keep f(s) as it was before the step, for the actor.

    It is kept, not computed again in the actor's phase: after the step it would be another f. It takes 4 bytes a
    feature, 0.5 MiB at batch 256; the frames' activations, 100 times as much, live for one micro-batch.
    ``auxiliary`` is λ, where there is a head; unless the critics ``teach``, it alone moves the encoder.
    """
    f = online.features(batch.frames[:, : online.stack.frames], batch.privileged)
    # Before the critics, so that it comes last in the backward pass, when they have let go of their memory.
    wrong = None if online.auxiliary is None else auxiliary_loss(online.auxiliary, f, batch.privileged)
    q1, q2 = online.critic(f if teach else f.detach(), batch.vector, batch.action, batch.privileged)
    loss = functional.mse_loss(q1, y, reduction="sum") + functional.mse_loss(q2, y, reduction="sum")
    sums = {"critic_loss": loss.detach(), "q_buffer": q1.detach().sum(), "q_target": y.sum()}
    if wrong is not None:
        loss, sums = loss + auxiliary * wrong, {**sums, "auxiliary_loss": wrong.detach()}
    return Loss(loss, sums, (f.detach(),))


def auxiliary_loss(head: nn.Module, f: Tensor, privileged: Tensor) -> Tensor:
    """Return Σ |h(f(s)) - p|², of each row the mean over its numbers."""
    return functional.mse_loss(head(f), privileged, reduction="sum") / privileged.shape[1]


def actor_loss(
    online: Networks,
    f: Tensor,
    vector: Tensor,
    privileged: Tensor,
    imitation: float = 0.0,
    smoothness: float = 0.0,
) -> Loss:
    """Return -Σ Q_θ1(f(s), π_φ(f(s))), κ Σ |π_φ(f(s)) - u|² and β Σ w |π_φ(f(s)) - p_a|²; no gradient reaches θ.

    κ is ``smoothness``. β is ``imitation``; in its |…|² the steering's square counts ``STEERING`` times.
    """
    with frozen(online.critic):
        acted = online.actor(f, vector)
        loss = -online.critic.q1(online.critic.joined(f, vector, acted, privileged)).sum()
    sums = {"q_policy": -loss.detach()}
    if smoothness:
        change = (acted - vector[:, -ACTION:]).square().sum()
        loss, sums = loss + smoothness * change, {**sums, "smoothness_loss": change.detach()}
    if imitation:
        advised = privileged[:, -ACTION:]
        starts = (vector[:, 0] < STANDING) & (advised[:, 1] > 0)
        weight = torch.where(starts, STARTING, 1.0)
        off = acted - advised
        apart = (weight * (STEERING * off[:, 0].square() + off[:, 1].square())).sum()
        loss, sums = loss + imitation * apart, {**sums, "imitation_loss": apart.detach()}
    return Loss(loss, {"actor_loss": loss.detach(), **sums})


@torch.no_grad()
def polyak_update(target: Sequence[Tensor], online: Sequence[Tensor], tau: float) -> None:
    """θ' ← τ θ + (1 - τ) θ', in place."""
    torch._foreach_lerp_(list(target), list(online), tau)


def _untrained(config: TD3Config, stack: FrameStack, privileged: int, seed: int) -> Networks:
    with torch.random.fork_rng(devices=[]):  # the same weights on every device; the process's own numbers stay
        torch.manual_seed(seed)
        return Networks(config.network, stack, config.seen(privileged), config.predicted(privileged))


class TD3(Accumulator):
    """The learner's whole state and its one operation, ``update``."""

    def __init__(
        self,
        config: TD3Config,
        device: torch.device,
        seed: int,
        offload: Collection[Offload] = frozenset(),
        stack: FrameStack = DEFAULT,
        privileged: int = 0,
    ) -> None:
        """Begin with untrained networks.

        Args:
            config: widths, rates, precision.
            device: where losses and gradients are computed.
            seed: of the weights and of the smoothing noise.
            offload: what lives on the host instead, and is on the device only while it is needed there.
            stack: what an image is made of.
            privileged: numbers of a batch that only the simulator knows.
        """
        self.stack = stack = stack.seen_by(config.network)
        self.privileged = privileged
        self.updates = 0
        self.noise = torch.Generator().manual_seed(seed)
        online = _untrained(config, stack, privileged, seed)
        target = _untrained(config.model_copy(update={"auxiliary": 0.0}), stack, privileged, seed).requires_grad_(False)
        learned = online.state_dict()
        target.load_state_dict({name: learned[name] for name in target.state_dict()})
        super().__init__(config, online, target, device, offload)

    def begin_anew(self, seed: int) -> None:
        """Forget all that was learned, for other untrained networks; updates and the noise go on.

        What was learned from the first few drives stays, whatever comes later (the primacy bias; Nikishin et al. 2022);
        from nothing, as many updates on all rows come further.
        """
        self.renew(_untrained(self.config, self.stack, self.privileged, seed))

    def update(self, batch: Batch, attempt: Attempt = whole_batch, rate: float = 1.0) -> Metrics:
        """One update of the critics, and of the actor and all targets every d-th time.

        Args:
            batch: B transitions, on any device.
            attempt: runs a phase; by default once, unsplit.
            rate: what both learning rates are multiplied by.

        Returns:
            0-dimensional tensors on the device, nothing waited for: ``critic_loss``, ``q_buffer`` = E[Q₁(s, a)],
            ``q_target`` = E[y], with a head ``auxiliary_loss``, and after an actor's update ``actor_loss``,
            ``q_policy`` = E[Q₁(s, π(s))] and, by their weights, ``smoothness_loss`` and ``imitation_loss``.
            Watch the last beside ``q_buffer``: overestimation shows there, not on replayed actions.
        """
        y = partial(bellman_target, self.target, self.config.gamma)
        noise = self._smoothing_noise(len(batch))  # first: every try of this update sees the same noise
        teach = self.config.encoder_learns_from == "all"
        loss = partial(critic_loss, self.online, auxiliary=self.config.auxiliary, teach=teach)
        (f,), metrics = self.minimise("critic", loss, [batch], attempt, y, [noise], rate=rate)
        self.updates += 1
        if self.updates % self.config.policy_delay == 0:
            imitation, smoothness = self.config.imitation, self.config.smoothness
            loss = partial(actor_loss, self.online, imitation=imitation, smoothness=smoothness)
            _, means = self.minimise("actor", loss, [f, batch.vector, batch.privileged], attempt, rate=rate)
            self.update_targets(polyak_update, self.config.tau, attempt)
            metrics |= means
        return metrics

    def _smoothing_noise(self, size: int) -> Tensor:
        c = self.config.target_noise_clip
        noise = torch.randn(size, ACTION, generator=self.noise) * self.config.target_noise  # ε ~ clip(N(0, σ̃), -c, c)
        return noise.clamp_(-c, c)

    def policy_state(self) -> dict[str, Tensor]:
        """Return views of encoder and actor under ``Policy``'s names; copy them before the next update."""
        learned = self.online.state_dict()
        return {name: value for name, value in learned.items() if name.startswith(("encoder.", "actor."))}

    def state(self, copies: bool = True) -> dict[str, Tensor]:
        """Return everything that the next update depends on, contiguous, by name, on the CPU.

        Args:
            copies: of everything. Without them what is on the CPU already is shown in place, to be used before the next
                update: half of a checkpoint's memory.
        """
        extra = {"noise": self.noise.get_state(), "updates": torch.tensor(self.updates)}
        # Contiguous: files know no channels_last; loading copies into place and so restores it.
        return {
            name: value.detach().to("cpu", copy=copies).contiguous()
            for name, value in chain(self._tensors().items(), extra.items())
        }

    def load_state(self, state: Mapping[str, Tensor]) -> None:
        """Go on from ``state()`` of a TD3 of the same widths, on any device.

        Raises:
            KeyError, RuntimeError: a tensor is missing or has another shape.
        """
        self._load(state)
        self.noise.set_state(state["noise"])
        self.updates = int(state["updates"])
