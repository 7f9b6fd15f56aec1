"""Reports of a running training: heartbeat, metrics, events, progress, behind one object for the loop.

Owns the state that is reported, averages and rates. Decides nothing and never waits.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator, Sequence

from rich.console import Console

from carla_run.event_log import EventLog
from carla_run.heartbeat import Phase
from carla_run.paths import RunPaths
from carla_td3.config import AgentConfig
from carla_td3.exchange.messages import Driving, EpisodeEnded, Evaluated
from carla_td3.exchange.status import Status
from carla_td3.memory.watermarks import Watermarks
from carla_td3.telemetry.heartbeat import HeartbeatWriter, Vitals
from carla_td3.telemetry.metrics import Episodes, Metrics, last_row
from carla_td3.telemetry.progress import ProgressLine, Shown
from carla_td3.trainer.learner import Learner
from carla_td3.trainer.pacing import Counters

RATE_WINDOW_S = 2.0
"""Seconds between two measurements of steps/s and updates/s."""


class Reporter:
    """Reports of one run, active while :meth:`running`."""

    def __init__(
        self, config: AgentConfig, run: RunPaths, learner: Learner, statuses: Sequence[Status], out: Console
    ) -> None:
        self.vitals = Vitals(
            total_steps=config.training.total_steps,
            device=learner.device.type,
            batch=config.td3.batch_size,
            micro_batch=learner.micro_batch,
            gave_way=learner.gave_way or None,
        )
        self.events = EventLog(run.agent_events)
        self._run, self._statuses, self._out = run, statuses, out
        self._evaluated: Evaluated | None = None
        self._driving: Driving | None = None
        self._learner = learner
        self._every_steps = config.training.log_every_steps
        self._logged_at = learner.steps, learner.updates
        self._episodes = Episodes(last_row(run.metrics))
        self._rate = _Rate(learner.steps, learner.updates)
        self._metrics = Metrics(run.tensorboard, run.metrics)
        self._metrics.hyperparameters(config.model_dump(mode="json"))
        self._progress = ProgressLine(config.training.total_steps, out)
        self.memory = Watermarks(learner.device)
        self._heartbeat = HeartbeatWriter(run, self.vitals, statuses, self.memory)

    @contextlib.contextmanager
    def running(self) -> Iterator[None]:
        """Write heartbeat, metrics and progress while the block runs."""
        with contextlib.closing(self._metrics), self._heartbeat, self._progress:
            yield

    def take(self, said: EpisodeEnded | Driving | Evaluated) -> None:
        """Handle a collector's report: write an evaluation's row and pictures, and keep its table for the end."""
        if isinstance(said, EpisodeEnded):
            self._episodes.add(said)
        elif isinstance(said, Driving):
            self._driving = said
        else:
            self._evaluated, self._driving = said, None
            self._metrics.write(said.step, {f"eval/{name}": value for name, value in said.totals["td3"].items()})
            for name, file in said.pictures.items():
                self._metrics.picture(said.step, name, self._run.videos / file)

    def update(self, counters: Counters, phase: Phase) -> None:
        """Update the reported state; cheap, called at every turn of the loop."""
        learner = self._learner
        now = {"phase": phase, "step": counters.steps, "updates": counters.updates, "device": learner.device.type}
        gave_way = learner.gave_way or None
        self.vitals.set(**now, update_ms=learner.update_ms, micro_batch=learner.micro_batch, gave_way=gave_way)
        self.vitals.collector_steps = learner.collector_steps
        self.memory.follow(learner.device)
        self.memory.enter(phase.value)
        self._rate.see(counters.steps, counters.updates)
        self._progress.show(
            Shown(
                steps=counters.steps,
                steps_per_s=self._rate.steps_per_s,
                updates_per_s=self._rate.updates_per_s,
                mean_return=self._episodes.mean_return,
                mean_completion=self._episodes.mean_completion,
                phase=self._in_words(phase),
            )
        )
        if counters.steps // self._every_steps > self._logged_at[0] // self._every_steps:
            self.log(counters)

    def _in_words(self, phase: Phase) -> str:
        driving = self._driving if phase is Phase.EVALUATING else None
        words = phase.value.replace("_", " ")
        return words if driving is None else f"{words}: {driving.driver}, route {driving.route} of {driving.routes}"

    def log(self, counters: Counters) -> None:
        """Write one row of training metrics, at most one per step and update; waits for the device once."""
        if (counters.steps, counters.updates) == self._logged_at:
            return
        self._logged_at = counters.steps, counters.updates
        self._metrics.write(
            counters.steps,
            {
                **self._episodes.scalars(),
                **{f"train/{name}": value for name, value in self._learner.losses().items()},
                **self.memory.scalars(),
                "train/n_updates": counters.updates,
                "time/episodes": sum(status.read().episodes for status in self._statuses),
                "time/fps": self._rate.mean_steps_per_s(counters.steps),
                "time/time_elapsed": self._rate.elapsed_s,
                "time/total_timesteps": counters.steps,
            },
        )

    def say(self, sentence: str) -> None:
        """Print a message at once."""
        self._out.print(sentence, highlight=False, soft_wrap=True)

    def summarise(self, counters: Counters) -> None:
        """Print what the run left, and where; call after the block."""
        found = self._evaluated
        if found is not None:
            self.say(found.table)
        video = f", video {self._run.path / found.video}" if found is not None and found.video else ""
        self.say(f"{self._run.path}: {counters.steps} steps, {counters.updates} updates{video}")


class _Rate:
    """Steps and updates per second: over the last moments, and since the start."""

    def __init__(self, steps: int, updates: int) -> None:
        self._first = self._last = (time.monotonic(), steps, updates)
        self.steps_per_s = 0.0
        self.updates_per_s = 0.0

    @property
    def elapsed_s(self) -> float:
        """Seconds since this process began, as Stable-Baselines3 counts."""
        return time.monotonic() - self._first[0]

    def mean_steps_per_s(self, steps: int) -> float:
        """Mean steps per second since this process began."""
        return (steps - self._first[1]) / max(1e-9, self.elapsed_s)

    def see(self, steps: int, updates: int) -> None:
        now_s = time.monotonic()
        then_s, steps_then, updates_then = self._last
        if (elapsed_s := now_s - then_s) >= RATE_WINDOW_S:
            self.steps_per_s = (steps - steps_then) / elapsed_s
            self.updates_per_s = (updates - updates_then) / elapsed_s
            self._last = (now_s, steps, updates)
