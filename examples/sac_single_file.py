"""Soft actor-critic (Haarnoja et al. 2018) on ``CarlaTD3/Driving-v0`` in one file, to read and to change.

Start a simulator (``python -m carla_lite``), then ``python examples/sac_single_file.py``. It drives where CARLA_HOST
and CARLA_PORT say. The replay keeps a frame stack once a step, 28 kB. It reports to a launcher, where one started it.
"""

from __future__ import annotations

import argparse
import math
import sys
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional

import carla_td3.env  # noqa: F401 (registers the environment)
from carla_run import run

Observation = dict[str, NDArray[Any]]


@dataclass
class Settings:
    """What a training is to be like."""

    steps: int = 50_000
    warm_up: int = 1_000
    """Steps of random actions before the first update."""
    batch: int = 64
    capacity: int = 20_000
    """Transitions that the replay holds."""
    gamma: float = 0.99
    tau: float = 0.005
    learning_rate: float = 3e-4
    seed: int = 0
    patience_s: float = 60.0
    weights: str = "runs/sac.pt"
    save_every: int = 5_000
    begin_with: str = ""
    """Weights, and their step, to begin with; if the file isn't there, from nothing."""


class Features(nn.Module):
    """Image and vector to 256 + 53 numbers."""

    def __init__(self) -> None:
        super().__init__()
        self.convolutions = nn.Sequential(
            nn.Conv2d(4, 32, 8, 4), nn.ReLU(), nn.Conv2d(32, 64, 4, 2), nn.ReLU(), nn.Conv2d(64, 64, 3, 1), nn.ReLU()
        )
        self.trunk = nn.Sequential(nn.Flatten(), nn.Linear(64 * 7 * 7, 256), nn.LayerNorm(256), nn.Tanh())

    def forward(self, image: Tensor, vector: Tensor) -> Tensor:
        """Return (n, 309)."""
        return torch.cat((self.trunk(self.convolutions(image / 255.0)), vector), dim=1)


class Actor(nn.Module):
    """A Gaussian, squashed to [-1, 1]."""

    def __init__(self) -> None:
        super().__init__()
        self.head = nn.Sequential(nn.Linear(256 + 53, 256), nn.ReLU(), nn.Linear(256, 4))

    def forward(self, features: Tensor) -> tuple[Tensor, Tensor]:
        """Return an action and its log-probability, (n, 2) and (n,)."""
        mean, log_std = self.head(features).chunk(2, dim=1)
        normal = torch.distributions.Normal(mean, log_std.clamp(-5.0, 2.0).exp())
        raw = normal.rsample()
        # log(1 - tanh²) in a form that doesn't overflow.
        squashed = 2.0 * (math.log(2.0) - raw - functional.softplus(-2.0 * raw))
        log_p: Tensor = normal.log_prob(raw) - squashed  # type: ignore[no-untyped-call]
        return raw.tanh(), log_p.sum(dim=1)


class Critics(nn.Module):
    """Two estimates of an action's value, and the features that they share with the actor."""

    def __init__(self) -> None:
        super().__init__()
        self.features = Features()
        self.heads = nn.ModuleList(
            nn.Sequential(nn.Linear(256 + 53 + 2, 256), nn.ReLU(), nn.Linear(256, 1)) for _ in range(2)
        )

    def values(self, features: Tensor, action: Tensor) -> Tensor:
        """Return (2, n)."""
        both = torch.cat((features, action), dim=1)
        return torch.stack([head(both).squeeze(1) for head in self.heads])


class Replay:
    """The newest transitions. The next observation is the next row's, so none is drawn whose successor is missing."""

    def __init__(self, capacity: int) -> None:
        self.image = np.zeros((capacity, 4, 84, 84), np.uint8)
        self.vector = np.zeros((capacity, 53), np.float32)
        self.action = np.zeros((capacity, 2), np.float32)
        self.reward = np.zeros(capacity, np.float32)
        self.terminated = np.zeros(capacity, np.float32)
        self.usable = np.zeros(capacity, np.bool_)
        self.next = 0

    def begin(self, observation: Observation) -> None:
        """Take the first observation of a drive."""
        self.image[self.next], self.vector[self.next] = observation["image"], observation["vector"]
        self.usable[self.next] = False

    def add(self, action: NDArray[np.float32], reward: float, observation: Observation, terminated: bool) -> None:
        """Take a step, and the observation after it."""
        here, self.next = self.next, (self.next + 1) % len(self.usable)
        self.action[here], self.reward[here], self.terminated[here] = action, reward, terminated
        self.begin(observation)
        self.usable[here] = True

    def end(self) -> None:
        """Leave the last observation of a drive, so that the next drive's first doesn't take its place."""
        self.next = (self.next + 1) % len(self.usable)

    def sample(self, count: int, rng: np.random.Generator, device: torch.device) -> list[Tensor]:
        """Return image, vector, action, reward, terminated, next image, next vector."""
        rows = rng.choice(np.flatnonzero(self.usable), count)
        after = (rows + 1) % len(self.usable)
        drawn = (
            *(self.image[rows], self.vector[rows], self.action[rows], self.reward[rows], self.terminated[rows]),
            *(self.image[after], self.vector[after]),
        )
        return [torch.as_tensor(each, device=device) for each in drawn]


class Learner:
    """Networks, their optimizers, and one update."""

    def __init__(self, settings: Settings, device: torch.device) -> None:
        self.settings = settings
        self.actor, self.critics, self.targets = Actor().to(device), Critics().to(device), Critics().to(device)
        self.targets.load_state_dict(self.critics.state_dict())
        self.log_alpha = torch.zeros((), device=device, requires_grad=True)
        rate = settings.learning_rate
        self.of_actor = torch.optim.Adam(self.actor.parameters(), rate)
        self.of_critics = torch.optim.Adam(self.critics.parameters(), rate)
        self.of_alpha = torch.optim.Adam([self.log_alpha], rate)

    def update(self, batch: list[Tensor]) -> float:
        """Make one update; return the critics' loss."""
        image, vector, action, reward, terminated, next_image, next_vector = batch
        alpha = self.log_alpha.exp().detach()
        with torch.no_grad():
            then, log_p = self.actor(self.critics.features(next_image, next_vector))
            seen = self.targets.features(next_image, next_vector)
            value = self.targets.values(seen, then).min(dim=0).values - alpha * log_p
            wanted = reward + self.settings.gamma * (1.0 - terminated) * value
        features = self.critics.features(image, vector)
        loss = ((self.critics.values(features, action) - wanted) ** 2).mean(dim=1).sum()
        step(self.of_critics, loss)
        # The critics' loss alone moves the features.
        features = features.detach()
        now, log_p = self.actor(features)
        step(self.of_actor, (alpha * log_p - self.critics.values(features, now).min(dim=0).values).mean())
        step(self.of_alpha, -(self.log_alpha * (log_p.detach() - 2.0)).mean())  # entropy of -2: minus the action's size
        with torch.no_grad():
            for target, online in zip(self.targets.parameters(), self.critics.parameters(), strict=True):
                target.lerp_(online, self.settings.tau)
        return float(loss.detach())

    def save(self, path: Path, step: int) -> None:
        """Write the weights so that a kill leaves the old file or the new one."""
        path.parent.mkdir(parents=True, exist_ok=True)
        new = path.with_name(f"new-{path.name}")
        torch.save({"step": step, **{name: each.state_dict() for name, each in self.networks.items()}}, new)
        new.replace(path)

    def load(self, path: Path) -> int:
        """Take up weights; return their step."""
        saved = torch.load(path, weights_only=True)
        for name, each in self.networks.items():
            each.load_state_dict(saved[name])
        return int(saved["step"])

    @property
    def networks(self) -> dict[str, nn.Module]:
        """Those that are saved, by name."""
        return {"actor": self.actor, "critics": self.critics, "targets": self.targets}

    def act(self, observation: Observation, device: torch.device) -> NDArray[np.float32]:
        """Return a drawn action."""
        with torch.no_grad():
            image, vector = (torch.as_tensor(observation[key][None], device=device) for key in ("image", "vector"))
            action: NDArray[np.float32] = self.actor(self.critics.features(image, vector))[0][0].cpu().numpy()
        return action


def step(optimizer: torch.optim.Optimizer, loss: Tensor) -> None:
    """Follow the loss's gradient."""
    optimizer.zero_grad(set_to_none=True)
    loss.backward()  # type: ignore[no-untyped-call]
    optimizer.step()


def train(settings: Settings, report: run.Report) -> None:
    """Drive and learn, and save the weights."""
    torch.manual_seed(settings.seed)
    rng = np.random.default_rng(settings.seed)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    env = gymnasium.make("CarlaTD3/Driving-v0", simulator={"patience_s": settings.patience_s})
    learner, replay = Learner(settings, device), Replay(settings.capacity)
    path, before = Path(settings.weights), Path(settings.begin_with)
    number = first = learner.load(before) if before.is_file() else 0
    try:
        observation, _ = env.reset(seed=settings.seed)
        replay.begin(observation)
        env.action_space.seed(settings.seed)
        earned = loss = 0.0
        while number < settings.steps and not report.stop_asked:
            number += 1
            warm = number - first > settings.warm_up
            action = learner.act(observation, device) if warm or first else env.action_space.sample()
            observation, reward, terminated, truncated, info = env.step(action)
            replay.add(action, float(reward), observation, terminated)
            earned += float(reward)
            if warm:
                loss = learner.update(replay.sample(settings.batch, rng, device))
            report.step(number)
            if terminated or truncated:
                print(f"step {number}: {info['end']}, return {earned:.1f}, loss {loss:.3f}", flush=True)
                report.step(number, reward=earned, **{"train/loss": loss})
                replay.end()
                earned = 0.0
                observation, _ = env.reset()
                replay.begin(observation)
            wanted = [each for each in report.requests() if each.kind in ("checkpoint", "stop")]
            if wanted or number % settings.save_every == 0:
                learner.save(path, number)
                report.saved(path.name)
            for each in wanted:
                each.done()
    finally:
        env.close()
    learner.save(path, number)
    print(f"{number} steps; the weights are in {path}.")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.ArgumentDefaultsHelpFormatter)
    for each in fields(Settings):
        parser.add_argument(f"--{each.name.replace('_', '-')}", type=type(each.default), default=each.default)
    settings = Settings(**vars(parser.parse_args()))
    with run.report(settings.steps, sigterm=True) as report:
        train(settings, report)
    sys.exit(report.exit_code)
