"""What a change of rung frees or costs, from what the agent is predicted to take with the values before and after."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from launcher.ladder.rungs import Step
from launcher.memory.pools import Kind

Needs = Callable[[Mapping[str, Any]], Mapping[Kind, float]]
"""From overrides to the agent's predicted peak, MiB by pool kind; kinds that nobody can predict are left out."""


def relief(step: Step, before: Step | None, overrides: Mapping[str, Any], needs: Needs) -> dict[Kind, float]:
    """Return what a step frees in each pool, against what holds; negative where it costs.

    Args:
        step: to be taken.
        before: the step of the same rung that holds already.
        overrides: that hold now.
        needs: of the agent.
    """
    if not step.values:
        return dict(step.frees_mib)
    now, then = needs(overrides), needs({**overrides, **step.values})
    seen = {kind: now[kind] - then[kind] for kind in now.keys() & then.keys()}
    unseen = {} if before is None else before.unseen_mib
    extra = {kind: mib - unseen.get(kind, 0.0) for kind, mib in step.unseen_mib.items()}
    if not seen:
        return dict(step.frees_mib)
    return {kind: seen.get(kind, 0.0) + extra.get(kind, 0.0) for kind in seen.keys() | extra.keys()}
