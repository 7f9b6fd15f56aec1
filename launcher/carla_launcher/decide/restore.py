"""When a step is restored: once the memory has sufficed for a hold time, at the end of an episode."""

from __future__ import annotations

from dataclasses import dataclass

from carla_launcher.config import RestoreLimits
from carla_launcher.decide.choose import Context
from carla_launcher.decide.fit import uses_pool
from carla_launcher.decide.ladder import LadderPosition, overrides
from carla_launcher.observe.pools import OwnerKind, Pool, PoolKind


@dataclass
class Hold:
    """The hold time before a restore.

    Attributes:
        hold_s: length of the hold time; each failed restore doubles it, and later launchers keep it.
        fits_since_s: time since which the run would fit without the last step; None if it doesn't.
        restored_s: time of the last restore while it is on probation.
    """

    hold_s: float
    fits_since_s: float | None = None
    restored_s: float | None = None

    def look(self, now_s: float, fits: bool) -> None:
        """Record whether the run would fit without the last step."""
        if not fits:
            self.fits_since_s = None
        elif self.fits_since_s is None:
            self.fits_since_s = now_s

    def is_over(self, now_s: float) -> bool:
        """Return whether the hold time is over."""
        return self.fits_since_s is not None and now_s - self.fits_since_s >= self.hold_s

    def reset(self) -> None:
        """Restart the hold time after a change."""
        self.fits_since_s = None

    def restored(self, now_s: float) -> None:
        """Put a restore on probation."""
        self.restored_s, self.fits_since_s = now_s, None

    def degraded(self, now_s: float, limits: RestoreLimits) -> bool:
        """Record a step down; return whether it means that the last restore failed, which doubles the hold time."""
        failed = self.restored_s is not None and now_s - self.restored_s <= limits.probation_s
        if failed:
            self.hold_s = min(2 * self.hold_s, limits.longest_hold_s)
        self.restored_s, self.fits_since_s = None, None
        return failed

    def passed_probation(self, now_s: float, limits: RestoreLimits) -> bool:
        """Return whether the last restore has just passed its probation, which resets the hold time."""
        if self.restored_s is None or now_s - self.restored_s <= limits.probation_s:
            return False
        self.restored_s, self.hold_s = None, limits.hold_s
        return True


def fits_without_last(context: Context, limits: RestoreLimits) -> bool:
    """Return whether every pool would keep its reserve and a margin without the last step.

    Args:
        context: state of the run; at least one step is taken.
        limits: the margin beyond the reserve.
    """
    *before, last = context.taken
    step, below = context.step_of(last.rung), LadderPosition(context.ladder, before, context.needs)
    costs = {kind: 0.0 for kind in PoolKind if kind.value == last.kind}
    owner = OwnerKind.AGENT if last.quality is None else OwnerKind.SIMULATOR
    now, then = context.needs(overrides(context.taken)), context.needs(overrides(before))
    if last.quality is not None:
        costs |= {} if step is None else step.frees_mib
    elif now and then:
        costs |= {kind: then[kind] - now[kind] for kind in now.keys() & then.keys()}
    elif step is None:
        return False  # its memory isn't known yet
    else:
        costs |= below.relief([step])
    comes_back = [(owner, costs)]
    if step is not None and step.simulators_mib:
        comes_back.append((OwnerKind.SIMULATOR, below.freed_by_simulators([step])))

    def cost_in(pool: Pool) -> float | None:
        here = [mib for whose, mib in comes_back if uses_pool(whose, pool.name, pool.kind, context.cards)]
        kept = [mib[pool.kind] for mib in here if pool.kind in mib]
        return sum(kept) if kept else None

    return all(
        pool.free.mib is not None
        and pool.free.mib >= max(0.0, cost) + context.reserve_mib.get(pool.kind, 0.0) + limits.margin_mib
        for pool in context.reading.pools
        if (cost := cost_in(pool)) is not None and (cost > 0 or pool.kind.value == last.kind)
    )
