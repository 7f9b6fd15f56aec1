"""Which step of a ladder is next: the first that frees what is missing and overfills no other pool."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from launcher.config import MemoryLimits
from launcher.decide.ladder import Does, Ladder, Needs, Step, Taken, overrides, relief
from launcher.memory.pools import OwnerKind, PoolKind, Reading


@dataclass(frozen=True)
class Ground:
    """What a choice stands on.

    Attributes:
        ladder: all steps of this run.
        taken: those taken, in order.
        reading: all pools now.
        limits: reserves.
        needs: what the agent is predicted to take.
        fresh_mib: what the simulator takes just after its start, by kind; what it holds beyond that, a restart frees.
        simulator_ours: it can be restarted.
    """

    ladder: Ladder
    taken: Sequence[Taken]
    reading: Reading
    limits: MemoryLimits
    needs: Needs
    fresh_mib: Mapping[PoolKind, float]
    simulator_ours: bool = True


def next_step(ground: Ground, kind: PoolKind, deficit_mib: float, pool: str = "") -> Step | None:
    """Return the step to take when a pool of this kind lacks so much; ``stop`` is the last; None if there is none.

    The first single step that frees the deficit is taken; where none does, but all that is left together would, the
    one that frees most; where not even that helps, ``stop``. In the pool of a container, only what its own program does
    helps.
    """
    steps = ground.ladder.get(kind, ())
    left = [(step, frees(ground, step)) for step in steps if _can_be_taken(ground, step) and _reaches(step, pool)]
    fitting = [(step, freed[kind]) for step, freed in left if freed.get(kind, 0.0) > 0 and _others_hold(ground, freed)]
    for step, mib in fitting:
        if mib >= deficit_mib:
            return step
    best: dict[str, float] = {}
    for step, mib in fitting:
        best[step.rung] = max(mib, best.get(step.rung, 0.0))
    if best and sum(best.values()) >= deficit_mib:
        return max(fitting, key=lambda pair: pair[1])[0]
    return next((step for step in steps if step.does is Does.STOP), None)


def frees(ground: Ground, step: Step) -> dict[PoolKind, float]:
    """Return what a step frees in each pool, negative where it costs: measured if possible, else as predicted."""
    if step.does is Does.RESTART_SIMULATOR:
        return {
            kind: max(0.0, _held(ground, kind, OwnerKind.SIMULATOR) - mib) for kind, mib in ground.fresh_mib.items()
        }
    freed = relief(step, _holding(ground, step.rung), overrides(list(ground.taken)), ground.needs)
    if step.values.get("device") == "cpu":
        freed[PoolKind.VRAM] = _held(ground, PoolKind.VRAM, OwnerKind.AGENT) or freed.get(PoolKind.VRAM, 0.0)
    return freed


def is_taken(step: Step, ground: Ground) -> bool:
    """Return whether a step, or one further down the same rung, holds already."""
    if not any(taken.rung == step.rung for taken in ground.taken):
        return False
    holding = _holding(ground, step.rung)
    same = _steps_of(ground, step.rung)
    return holding is None or step not in same or same.index(step) <= same.index(holding)


def _can_be_taken(ground: Ground, step: Step) -> bool:
    if step.does is Does.STOP or is_taken(step, ground):
        return False
    return ground.simulator_ours or step.does not in (Does.RESTART_SIMULATOR, Does.QUALITY)


def _reaches(step: Step, pool: str) -> bool:
    of_simulator = step.does in (Does.RESTART_SIMULATOR, Does.QUALITY)
    return {"ram:agent": not of_simulator, "ram:simulator": of_simulator}.get(pool, True)


def _holding(ground: Ground, rung: str) -> Step | None:
    """Return the step of a rung that holds; None if none does, or one that this ladder doesn't have."""
    held = [(taken.values, taken.quality) for taken in ground.taken if taken.rung == rung]
    steps = [step for step in _steps_of(ground, rung) if held and (dict(step.values), step.quality) == held[-1]]
    return steps[0] if steps else None


def _steps_of(ground: Ground, rung: str) -> list[Step]:
    """Return a rung's steps in the first ladder that has it."""
    ladders = ([step for step in steps if step.rung == rung] for steps in ground.ladder.values())
    return next((steps for steps in ladders if steps), [])


def _held(ground: Ground, kind: PoolKind, whose: OwnerKind) -> float:
    return max((pool.held_by(whose) for pool in ground.reading.of(kind)), default=0.0)


def _others_hold(ground: Ground, freed: Mapping[PoolKind, float]) -> bool:
    """Return whether every pool keeps its reserve when a step moves memory into it."""
    for kind, mib in freed.items():
        for pool in ground.reading.of(kind) if mib < 0 else ():
            # The agent's memory never comes to lie in the simulator's own container.
            if pool.name == "ram:simulator" or pool.free.mib is None:
                continue
            if pool.free.mib + mib < ground.limits.reserve_mib.get(kind, 0.0):
                return False
    return True
