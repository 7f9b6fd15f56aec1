"""Training episodes: each call of ``Rollout.step`` acts, steps the environment and stores the transition.

Owns the order in which observation, action and transition are written to the replay. Chooses between warm-up actions
and the actor's. Every random draw is a function of the seed and the step (``carla_td3.seeding``).
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from carla_td3.collector.warm_up import warmup_action
from carla_td3.config import AgentConfig
from carla_td3.env.driving import DrivingEnv
from carla_td3.env.expert import Action
from carla_td3.env.observation import Observation
from carla_td3.evaluation.drivers import Driver
from carla_td3.exchange.messages import EpisodeEnded
from carla_td3.seeding import Purpose, derived_seed, generator
from carla_td3.td3.exploration import GaussianNoise, Halts
from carla_td3.td3.replay.replay import Replay


@dataclass
class _Episode:
    """Running sums of one episode."""

    observation: Observation
    noise: GaussianNoise
    halts: Halts
    action: Action = field(default_factory=lambda: np.zeros(2, np.float32))
    length: int = 0
    reward: float = 0.0
    terms: Counter[str] = field(default_factory=Counter)


class Rollout:
    """Drives training episodes and writes them to one collector's ring in the replay."""

    def __init__(self, config: AgentConfig, env: DrivingEnv, replay: Replay, driver: Driver) -> None:
        self._config = config
        self._env = env
        self._replay = replay
        self._driver = driver
        self._episode: _Episode | None = None

    @property
    def in_episode(self) -> bool:
        """Whether the next step continues an episode."""
        return self._episode is not None

    def abandon(self) -> None:
        """Abort the episode, so that the next step begins a new one. The replay keeps the steps so far."""
        self._episode = None

    def step(self) -> EpisodeEnded | None:
        """Take one step and store it. Return a summary of the episode if this step ended it, else None.

        Begins an episode if none is open. If the simulator is lost during the step, the episode ends and the step isn't
        stored.
        """
        episode = self._episode or self.begin()
        episode.action = self._action(episode)
        observation, reward, terminated, truncated, info = self._env.step(episode.action)
        if not info["simulator_lost"]:
            vector, privileged = observation["vector"], observation.get("privileged")
            self._replay.append(episode.action, reward, terminated, truncated, self._env.picture, vector, privileged)
            episode.observation = observation
            episode.length += 1
            episode.reward += reward
            episode.terms.update(info["reward_terms"])
        return self._ended(episode, info) if terminated or truncated else None

    def begin(self) -> _Episode:
        """Begin an episode: reset the environment, which connects to the simulator if needed."""
        steps, seed = self._replay.steps, self._config.seed
        drawn = derived_seed(seed, Purpose.EPISODE, steps)
        observation, _ = self._env.reset(seed=drawn, options={"lane_invasions": False})
        self._replay.start_episode(self._env.picture, observation["vector"], observation.get("privileged"))
        noise = GaussianNoise(self._config.td3.exploration_noise, derived_seed(seed, Purpose.EXPLORATION, steps))
        halts = Halts(
            self._config.training.halts_every_s,
            self._config.simulator.fixed_delta_s,
            derived_seed(seed, Purpose.HALTS, steps),
        )
        self._episode = _Episode(observation, noise, halts)
        return self._episode

    def _action(self, episode: _Episode) -> Action:
        steps, observation = self._replay.steps, episode.observation
        if steps < self._config.training.warmup_steps:
            rng = generator(self._config.seed, Purpose.WARM_UP, steps)
            return warmup_action(rng, episode.action, observation["vector"], self._config.environment)
        state = self._env.state
        return episode.halts(episode.noise(self._driver.act(observation, state)), state.speed_mps)

    def _ended(self, episode: _Episode, info: dict[str, Any]) -> EpisodeEnded:
        self._episode = None
        return EpisodeEnded(
            length=episode.length,
            reward=episode.reward,
            reward_terms=dict(episode.terms),
            route_completion=info["route_completion"],
            success=info["success"],
            end=info["end"],
        )
