"""Where a run stands, and how much of that is on disk: its counters, and the checkpoints that keep them.

Owns the counters, when a checkpoint is superfluous, and what follows from a disk that refuses one: that costs no more
than time, so training goes on and tries again, and only the end of the run insists. Files are ``checkpoint``'s.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from carla_run.heartbeat import Phase
from carla_run.listener import Standing
from carla_td3.trainer.checkpoint import CheckpointError
from carla_td3.trainer.learner import Learner
from carla_td3.trainer.pacing import Counters
from carla_td3.trainer.reporter import Reporter


@dataclass(frozen=True)
class _Refused:
    """A checkpoint that the disk refused."""

    updates: int
    score: float | None


class CheckpointStore:
    """Counters and checkpoints of one run."""

    def __init__(self, learner: Learner, reporter: Reporter) -> None:
        self._counters = learner.counters()
        self._learner = learner
        self._reporter, self._events = reporter, reporter.events
        self._refused: _Refused | None = None

    @property
    def counters(self) -> Counters:
        """Where the run stands now. Steps are counted by the replay and updates by the learner, nowhere else."""
        return replace(self._counters, steps=self._learner.steps, updates=self._learner.updates)

    @property
    def standing(self) -> Standing:
        """Steps, updates, and the checkpoint if it holds them all."""
        counters = self.counters
        saved = counters.saved_updates == counters.updates
        return Standing(counters.steps, counters.updates, self._learner.checkpoint if saved else None)

    def note(self, **changes: bool | int) -> None:
        """Change counters that only the loop knows of."""
        self._counters = replace(self._counters, **changes)  # type: ignore[arg-type]

    def save(self, cause: str, score: float | None = None) -> None:
        """Write a checkpoint; ``score`` where these very weights were evaluated, now or when the disk refused it.

        Raises:
            CheckpointError: the disk refuses it, which is in the event log; training may go on.
        """
        counters = self.counters
        if score is None and self._refused is not None and self._refused.updates == counters.updates:
            score = self._refused.score
        self._reporter.tell(counters, Phase.SAVING)
        where = {"steps": counters.steps, "updates": counters.updates}
        try:
            self._learner.save(counters, score)
        except CheckpointError as error:
            self._refused = _Refused(counters.updates, score)
            self._counters = replace(counters, tried_updates=counters.updates)
            self._events.append("checkpoint_failed", str(error), wanted=cause, kept=self._learner.checkpoint, **where)
            self._reporter.say(str(error))
            raise
        self._refused = None
        self._counters = replace(counters, saved_updates=counters.updates, saved_steps=counters.steps)
        self._events.append("checkpoint", cause, **where)

    def save_if_possible(self, cause: str, score: float | None = None) -> None:
        """Write a checkpoint, or go on without: the next one holds the same and more."""
        try:
            self.save(cause, score)
        except CheckpointError:
            return  # it is in the event log

    def save_what_is_new(self, cause: str) -> None:
        """Write a checkpoint, unless the last one is of this very moment: that one may bear a score.

        Raises:
            CheckpointError: the disk refuses it.
        """
        counters = self.counters
        known = (counters.saved_steps, counters.saved_updates) == (counters.steps, counters.updates)
        if self._refused is not None or not known:
            self.save(cause)

    def close(self, cause: str, stopped: bool) -> CheckpointError | None:
        """Save what isn't saved, for the last time; return why that can't be, and what a resume goes on from.

        A run that is ``stopped`` writes its steps, too; one that finished has nothing new, unless the disk refused it.
        """
        try:
            if stopped or self._refused is not None:
                self.save_what_is_new(cause)
        except CheckpointError as error:
            lost = self.counters.updates - max(0, self.counters.saved_updates)
            kept = self._learner.checkpoint or "the replay alone"
            return CheckpointError(f"{error} --resume goes on from {kept} and makes {lost} updates again.")
        return None
