"""The next action of learner and collectors: pure decisions over counters, the same for free-running and lockstep runs.

The learner publishes a ``step_limit``; the collector takes steps while it has fewer. Everything else follows from the
two counters that survive a crash: steps (rows in the replay) and updates (of the last checkpoint). Owns no clock, no
file and no process.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from enum import Enum
from fractions import Fraction
from math import ceil, floor
from typing import Any

from carla_run.heartbeat import Phase
from carla_td3.config import AgentConfig


class Action(Enum):
    """The learner's next action."""

    UPDATE = "update"
    WAIT = "wait"
    RESET = "reset"
    """Reset the networks, for the final updates."""
    EVALUATE = "evaluate"
    FINAL_EVALUATION = "final evaluation"
    SAVE = "save"
    """Save, because the interval is over."""
    SAVE_UNSAVED = "save unsaved"
    """Save what was learned since the last checkpoint, before the phase changes."""
    FINISH = "finish"


@dataclass(frozen=True)
class Pacing:
    """A ratio of updates to steps, from some step on; exact, so that learner and collector never round differently."""

    ratio: Fraction
    steps: int
    """The schedule's first step: the warm-up's end, or where the ratio changed."""
    updates: int = 0
    """Updates that the earlier schedule called for."""
    spent: int = 0
    """Final updates of an earlier end, which no step called for, if the run was extended since."""

    @classmethod
    def of(cls, config: AgentConfig, last: Pacing | None, steps: int) -> Pacing:
        """Return the pacing of a learner that starts at ``steps``; ``last`` is the pacing in the last checkpoint."""
        ratio = Fraction(str(config.training.updates_per_step))
        return cls(ratio, config.training.warmup_steps) if last is None else last.continued(ratio, steps)

    def continued(self, ratio: Fraction, steps: int) -> Pacing:
        """Return the pacing from ``steps`` on: updates due stay due, and earlier steps call for no more."""
        if ratio == self.ratio:
            return self
        return replace(self, ratio=ratio, steps=max(steps, self.steps), updates=self.updates_due(steps))

    def extended(self, final: int) -> Pacing:
        """Return the pacing of a run that is extended beyond an end with this many final updates."""
        return replace(self, updates=self.updates + final, spent=self.spent + final)

    @classmethod
    def from_plain(cls, plain: Mapping[str, Any] | None) -> Pacing | None:
        """Return the pacing of :meth:`plain`'s result; None for None."""
        if plain is None:
            return None
        ratio, spent = Fraction(plain["ratio"]), int(plain.get("spent", 0))
        return cls(ratio, int(plain["steps"]), int(plain["updates"]), spent)

    def plain(self) -> dict[str, Any]:
        """Return it as plain data."""
        return {"ratio": str(self.ratio), "steps": self.steps, "updates": self.updates, "spent": self.spent}

    def updates_due(self, steps: int) -> int:
        """Return how many updates this many steps call for."""
        return self.updates + floor(self.ratio * max(0, steps - self.steps))

    def covered(self, updates: int) -> Fraction:
        """Return how many steps this many updates are enough for."""
        return self.steps + (updates - self.updates) / self.ratio


@dataclass(frozen=True)
class Plan:
    """The configuration's values for pacing; fields of ``training`` keep their names."""

    total_steps: int
    final_updates: int
    annealing: float
    warmup_steps: int
    pacing: Pacing
    max_lead_steps: int
    lockstep: bool
    evaluate_every_steps: int
    final_evaluation: bool
    checkpoint_every_steps: int

    @classmethod
    def of(cls, config: AgentConfig, pacing: Pacing) -> Plan:
        """Return the plan of a configuration."""
        return cls(
            **config.training.model_dump(include={field.name for field in fields(cls)}),
            pacing=pacing,
            evaluate_every_steps=config.evaluation.every_steps,
            final_evaluation=config.evaluation.final_episodes > 0,
        )


@dataclass(frozen=True)
class Counters:
    """Counters of a run."""

    steps: int
    updates: int
    evaluated_at: int = 0
    """Steps at the last evaluation."""
    saved_updates: int = -1
    """Updates in the last checkpoint; -1 before the first."""
    saved_steps: int = -1
    """Steps in the last checkpoint; -1 before the first."""
    tried_updates: int = -1
    """Updates when the disk last refused a checkpoint, which is then retried later; -1 if it never did."""
    evaluating: bool = False
    """Whether an evaluation is running in the collector."""
    final_from: int = -1
    """Updates at which the final ones began; -1 before."""
    finally_evaluated: int = -1
    """Updates at the final evaluation; -1 before. Later steps or updates call for another one."""
    drained: bool = False
    """Whether the simulator was given back on request: no collector runs, and nothing is learned until one does again.
    """


def resumed(counters: Counters, pacing: Pacing, total_steps: int) -> tuple[Counters, Pacing]:
    """Return the counters and the pacing with which a learner resumes, given the run's new ``total_steps``.

    If that is beyond the end for which final updates were made, the run has a new end. The checkpoint's steps decide
    that: a learner that was killed before it saved may have taken all the steps on disk.
    """
    if counters.final_from < 0 or counters.saved_steps >= total_steps:
        return counters, pacing
    return replace(counters, final_from=-1), pacing.extended(counters.updates - counters.final_from)


def due_updates(plan: Plan, counters: Counters) -> int:
    """Return how many updates are due now: by the steps, and after the reset also by the end."""
    if counters.final_from >= 0:
        return counters.final_from + plan.final_updates
    return plan.pacing.updates_due(min(counters.steps, plan.total_steps))


def learning_rate(plan: Plan, counters: Counters) -> float:
    """Return the learning-rate factor of the next update."""
    begun = counters.final_from >= 0
    regular = counters.final_from if begun else max(counters.updates, plan.pacing.updates_due(plan.total_steps))
    spent = plan.pacing.spent
    return learning_rate_factor(plan.annealing, counters.updates - spent, regular + plan.final_updates - spent)


def learning_rate_factor(annealing: float, updates: int, total: int) -> float:
    """Return the factor after this many updates: 1, and linearly to 0 over the last share."""
    falling = annealing * total
    return min(1.0, max(0, total - updates) / falling) if falling else 1.0


def next_evaluation(plan: Plan, evaluated_at: int) -> int | None:
    """Return the step of the next evaluation; None if the final one comes first."""
    if plan.evaluate_every_steps == 0:
        return None
    step = (evaluated_at // plan.evaluate_every_steps + 1) * plan.evaluate_every_steps
    return step if step < plan.total_steps else None


def step_limit(plan: Plan, counters: Counters) -> int:
    """Return how many steps the collector may have.

    Lockstep: the step after the last one whose updates are all done, so nothing depends on speed. Free-running:
    ``max_lead_steps`` more than the updates cover. Both stop at an evaluation, so that it happens at its step.
    """
    if counters.drained:
        return counters.steps
    limit = ceil(plan.pacing.covered(counters.updates + 1))
    if not plan.lockstep:
        limit = max(limit, floor(plan.pacing.covered(counters.updates)) + plan.max_lead_steps)
    evaluation = next_evaluation(plan, counters.evaluated_at)
    return min(limit, plan.total_steps, plan.total_steps if evaluation is None else evaluation)


def decide(plan: Plan, counters: Counters) -> Action:
    """Return the learner's next action.

    It waits during an evaluation, so that the score belongs to one set of weights, and while the run is drained. What
    was learned is saved before the phase changes, because the next phase may run out of memory.
    """
    if counters.evaluating or counters.drained:
        return Action.WAIT
    if _save_due(plan, counters):
        return Action.SAVE
    behind = counters.updates < due_updates(plan, counters)
    evaluation = next_evaluation(plan, counters.evaluated_at)
    due = evaluation is not None and evaluation <= counters.steps < plan.total_steps
    if due and not (plan.lockstep and behind):
        return Action.SAVE_UNSAVED if _unsaved(counters) else Action.EVALUATE
    if behind:
        return Action.UPDATE
    if counters.steps < plan.total_steps:
        return Action.WAIT
    return _last_actions(plan, counters)


def phase(plan: Plan, counters: Counters, action: Action) -> Phase:
    """Return the run's present phase."""
    if counters.drained:
        return Phase.DRAINED
    if counters.evaluating or action in (Action.EVALUATE, Action.FINAL_EVALUATION):
        return Phase.EVALUATING
    if action in (Action.SAVE, Action.SAVE_UNSAVED):
        return Phase.SAVING
    if counters.steps < plan.warmup_steps:
        return Phase.WARMING
    return Phase.UPDATING if action in (Action.UPDATE, Action.RESET) else Phase.COLLECTING


def _last_actions(plan: Plan, counters: Counters) -> Action:
    if plan.final_updates and counters.final_from < 0:
        return Action.RESET
    if _unsaved(counters):
        return Action.SAVE_UNSAVED
    if plan.final_evaluation and not _is_evaluated(plan, counters):
        return Action.FINAL_EVALUATION
    return Action.FINISH


def _is_evaluated(plan: Plan, counters: Counters) -> bool:
    return counters.finally_evaluated == counters.updates and counters.evaluated_at >= plan.total_steps


def _unsaved(counters: Counters) -> bool:
    # Only updates count: steps are already on disk.
    return _last_tried(counters) < counters.updates


def _save_due(plan: Plan, counters: Counters) -> bool:
    # Counted in updates: steps are on disk anyway, and a learner that catches up makes updates without steps.
    every = ceil(plan.checkpoint_every_steps * plan.pacing.ratio)
    return counters.updates // every > max(0, _last_tried(counters)) // every


def _last_tried(counters: Counters) -> int:
    return max(counters.saved_updates, counters.tried_updates)
