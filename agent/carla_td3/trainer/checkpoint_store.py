"""A run's counters, and the checkpoints that save them.

Owns the counters, when a checkpoint is superfluous, and what follows if the disk refuses one: it costs only time, so
training continues and tries again; only at the end of the run is it an error. ``checkpoint`` owns the files.
"""

from __future__ import annotations

from dataclasses import replace

from carla_run.heartbeat import Phase
from carla_run.listener import Progress
from carla_td3.trainer.checkpoint import CheckpointError
from carla_td3.trainer.learner import Learner
from carla_td3.trainer.pacing import Counters
from carla_td3.trainer.reporter import Reporter


class CheckpointStore:
    """Counters and checkpoints of one run."""

    def __init__(self, learner: Learner, reporter: Reporter) -> None:
        self._counters = learner.counters()
        self._learner = learner
        self._reporter, self._events = reporter, reporter.events
        self._refused = False
        """Whether the disk refused the last checkpoint."""
        self._refused_score: float | None = None
        """Its score."""

    @property
    def counters(self) -> Counters:
        """The run's present counters. Only the replay counts steps, and only the learner counts updates."""
        return replace(self._counters, steps=self._learner.steps, updates=self._learner.updates)

    @property
    def progress(self) -> Progress:
        """Steps, updates, and the checkpoint if it holds them all."""
        counters = self.counters
        saved = counters.saved_updates == counters.updates
        return Progress(counters.steps, counters.updates, self._learner.checkpoint if saved else None)

    def update_counters(self, **changes: bool | int) -> None:
        """Change counters that only the loop knows."""
        self._counters = replace(self._counters, **changes)  # type: ignore[arg-type]

    def save(self, cause: str, score: float | None = None) -> None:
        """Write a checkpoint, with a ``score`` if these weights were evaluated, now or when the disk refused it.

        Raises:
            CheckpointError: the disk refuses it. The event log says so, and training may continue.
        """
        counters = self.counters
        if score is None and self._refused and counters.tried_updates == counters.updates:
            score = self._refused_score
        self._reporter.update(counters, Phase.SAVING)
        where = {"steps": counters.steps, "updates": counters.updates}
        try:
            self._learner.save(counters, score)
        except CheckpointError as error:
            self._refused, self._refused_score = True, score
            self._counters = replace(counters, tried_updates=counters.updates)
            self._events.append("checkpoint_failed", str(error), wanted=cause, kept=self._learner.checkpoint, **where)
            self._reporter.say(str(error))
            raise
        self._refused = False
        self._counters = replace(counters, saved_updates=counters.updates, saved_steps=counters.steps)
        self._events.append("checkpoint", cause, **where)

    def save_if_possible(self, cause: str, score: float | None = None) -> None:
        """Write a checkpoint, or continue without: the next one holds the same and more."""
        try:
            self.save(cause, score)
        except CheckpointError:
            return  # the event log says so

    def save_if_changed(self, cause: str) -> None:
        """Write a checkpoint, unless the last one is of this moment, which may have a score.

        Raises:
            CheckpointError: the disk refuses it.
        """
        counters = self.counters
        known = (counters.saved_steps, counters.saved_updates) == (counters.steps, counters.updates)
        if self._refused or not known:
            self.save(cause)

    def close(self, cause: str, stopped: bool) -> CheckpointError | None:
        """Save everything for the last time; return why that failed, and from where a resume continues.

        A ``stopped`` run also saves its steps; a finished one has nothing new, unless the disk refused it.
        """
        try:
            if stopped or self._refused:
                self.save_if_changed(cause)
        except CheckpointError as error:
            lost = self.counters.updates - max(0, self.counters.saved_updates)
            kept = self._learner.checkpoint or "the replay only"
            return CheckpointError(f"{error} --resume continues from {kept} and repeats {lost} updates.")
        return None
