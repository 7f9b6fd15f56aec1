"""Detects leaks: simulator or agent grows steadily and will exhaust its pool. Pure.

Growth is fitted over windows of several lengths, and a shorter window is extrapolated over a shorter horizon. So slow
leaks are found over minutes, fast ones early enough, and a burst of growth is no leak. A curve that flattens, as while
a program warms up, is extrapolated to its limit: it is a leak only if the pool has no room for that.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from carla_launcher.config import LauncherConfig
from carla_launcher.decide.detectors.causes import Cause, Finding
from carla_launcher.decide.detectors.series import Growth, Window, steady_growth
from carla_launcher.observe.observation import Observation
from carla_launcher.observe.pools import Owner, OwnerKind, Pool

FRACTIONS = (1.0, 0.5, 0.25)
"""Lengths of the windows and their horizons, as shares of the configured ones."""
LOOKS_A_WINDOW = 60
"""Number of fits in the time of a window."""
KEPT_SHARE = 0.25
"""Share of the window for which a leak is still reported after the fit stops showing it."""


@dataclass
class _Owned:
    """Memory of one owner in one pool over time."""

    window: Window
    pids: frozenset[int]
    settles_s: float
    fitted_s: float = -float("inf")
    found_s: float = -float("inf")
    growth: dict[float, Growth] = field(default_factory=dict)
    slope: float = 0.0


class LeakDetector:
    """Detects leaks of simulator and agent in every pool."""

    def __init__(self, config: LauncherConfig) -> None:
        self._limits, self._settle_s = config.memory, config.restore.settle_s
        self._owned: dict[tuple[str, OwnerKind], _Owned] = {}

    def forget(self) -> None:
        """Restart after a gap between looks."""
        self._owned.clear()

    def look(self, seen: Observation) -> tuple[Finding, ...]:
        """Return the leaks that use up their pool, down to the reserve, within the horizon."""
        watched = _watched(seen)
        present = {
            (pool.name, owner.kind): (pool, owner)
            for pool in seen.memory.pools
            for owner in pool.owners
            if owner.kind in watched and owner.held.mib is not None
        }
        self._owned = {key: owned for key, owned in self._owned.items() if key in present}
        found = (self._judge(seen.time_s, pool, owner) for pool, owner in present.values())
        return tuple(finding for finding in found if finding is not None)

    def _judge(self, now_s: float, pool: Pool, owner: Owner) -> Finding | None:
        owned = self._series(now_s, owner, (pool.name, owner.kind))
        if now_s < owned.settles_s or pool.free.mib is None:
            return None
        owned.window.add(now_s, owner.held.mib or 0.0)
        if now_s - owned.fitted_s >= self._limits.slope_window_s / LOOKS_A_WINDOW:
            owned.fitted_s, owned.growth = now_s, self._growth(owned.window)
        room_mib = max(0.0, pool.free.mib - self._limits.reserve_mib[pool.kind])
        for fraction, growth in owned.growth.items():
            if room_mib / growth.slope <= fraction * self._limits.horizon_s and growth.limit_mib > room_mib:
                owned.found_s, owned.slope = now_s, growth.slope
                break
        if now_s - owned.found_s > KEPT_SHARE * self._limits.slope_window_s:
            return None
        return _finding(pool, owner, owned.slope, room_mib)

    def _series(self, now_s: float, owner: Owner, key: tuple[str, OwnerKind]) -> _Owned:
        """Return an owner's series; a restarted process begins a new one."""
        pids = frozenset(owner.pids)
        owned = self._owned.get(key)
        if owned is None or (pids and owned.pids and not pids & owned.pids):
            owned = self._owned[key] = _Owned(Window(self._limits.slope_window_s), pids, now_s + self._settle_s)
        owned.pids = pids or owned.pids
        return owned

    def _growth(self, window: Window) -> dict[float, Growth]:
        """Return the steady growth by fraction of the window, longest first."""
        span_s = self._limits.slope_window_s
        growth = {part: steady_growth(window.points, part * span_s, self._limits.growth_mib) for part in FRACTIONS}
        return {part: found for part, found in growth.items() if found is not None}


def _watched(seen: Observation) -> set[OwnerKind]:
    """Return the owners whose memory should be flat; that of a starting program isn't."""
    watched = set()
    if seen.simulator.running and seen.simulator.healthy:
        watched.add(OwnerKind.SIMULATOR)
    if seen.agent.running and seen.agent.beat is not None and seen.agent.beat.started:
        watched.add(OwnerKind.AGENT)
    return watched


def _finding(pool: Pool, owner: Owner, slope: float, room_mib: float) -> Finding:
    a_minute, left_s = 60.0 * slope, room_mib / slope
    return Finding(
        Cause.LEAK,
        f"{owner.name} holds {owner.held} of {pool.name} and grows by {a_minute:.0f} MiB per minute: "
        f"the {room_mib:.0f} MiB above the reserve will last {left_s:.0f} s",
        pool=pool.name,
        owner=owner.name,
        exhausted_in_s=round(left_s, 1),
        numbers={
            "held_mib": owner.held.mib,
            "mib_a_minute": round(a_minute, 1),
            "free_mib": pool.free.mib,
            "room_mib": round(room_mib, 1),
        },
    )
