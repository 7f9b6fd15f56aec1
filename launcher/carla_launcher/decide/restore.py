"""When what was given up is taken back: the rung above has fitted for a hold time, and then an episode ends."""

from __future__ import annotations

from dataclasses import dataclass

from carla_launcher.config import RestoreLimits
from carla_launcher.decide.choose import Ground
from carla_launcher.decide.fit import lives_in
from carla_launcher.decide.ladder import Standing, overrides
from carla_launcher.observe.pools import OwnerKind, Pool, PoolKind


@dataclass
class Hold:
    """How long is waited before a restore, and since when the rung above fits.

    Attributes:
        hold_s: doubles with every restore that failed; kept across launchers.
        fits_since_s: None while the rung above doesn't fit.
        restored_s: when the last restore was, while it is on probation.
    """

    hold_s: float
    fits_since_s: float | None = None
    restored_s: float | None = None

    def look(self, now_s: float, fits: bool) -> None:
        """Take note whether the rung above fits at this moment."""
        if not fits:
            self.fits_since_s = None
        elif self.fits_since_s is None:
            self.fits_since_s = now_s

    def is_over(self, now_s: float) -> bool:
        """Return whether it has fitted for long enough."""
        return self.fits_since_s is not None and now_s - self.fits_since_s >= self.hold_s

    def begin_again(self) -> None:
        """Forget how long it has fitted: something changed."""
        self.fits_since_s = None

    def restored(self, now_s: float) -> None:
        """Put a restore on probation."""
        self.restored_s, self.fits_since_s = now_s, None

    def degraded(self, now_s: float, limits: RestoreLimits) -> bool:
        """Return whether the step down shows that the last restore failed; if so the hold has doubled."""
        failed = self.restored_s is not None and now_s - self.restored_s <= limits.probation_s
        if failed:
            self.hold_s = min(2 * self.hold_s, limits.longest_hold_s)
        self.restored_s, self.fits_since_s = None, None
        return failed

    def passed(self, now_s: float, limits: RestoreLimits) -> bool:
        """Return whether a restore has just passed its probation: the hold is the first one again."""
        if self.restored_s is None or now_s - self.restored_s <= limits.probation_s:
            return False
        self.restored_s, self.hold_s = None, limits.hold_s
        return True


def fits_without_last(ground: Ground, limits: RestoreLimits) -> bool:
    """Return whether every pool would keep its reserve and a margin if the last step were taken back.

    Args:
        ground: at least one step is taken.
        limits: the margin beyond the reserve.
    """
    *before, last = ground.taken
    step, below = ground.step_of(last.rung), Standing(ground.ladder, before, ground.needs)
    costs = {kind: 0.0 for kind in PoolKind if kind.value == last.kind}
    owner = OwnerKind.AGENT if last.quality is None else OwnerKind.SIMULATOR
    now, then = ground.needs(overrides(ground.taken)), ground.needs(overrides(before))
    if last.quality is not None:
        costs |= {} if step is None else step.frees_mib
    elif now and then:
        costs |= {kind: then[kind] - now[kind] for kind in now.keys() & then.keys()}
    elif step is None:
        return False  # what comes back isn't known yet
    else:
        costs |= below.relief([step])
    comes_back = [(owner, costs)]
    if step is not None and step.simulators_mib:
        comes_back.append((OwnerKind.SIMULATOR, below.of_simulators([step])))

    def cost_in(pool: Pool) -> float | None:
        here = [mib for whose, mib in comes_back if lives_in(whose, pool.name, pool.kind, ground.cards)]
        kept = [mib[pool.kind] for mib in here if pool.kind in mib]
        return sum(kept) if kept else None

    return all(
        pool.free.mib is not None
        and pool.free.mib >= max(0.0, cost) + ground.reserve_mib.get(pool.kind, 0.0) + limits.margin_mib
        for pool in ground.reading.pools
        if (cost := cost_in(pool)) is not None and (cost > 0 or pool.kind.value == last.kind)
    )
