"""Detects unexpected memory: simulator or agent leaves the band that is expected for its phase. Reported once. Pure.

The planned figure is expected until the phase has settled, then the figure measured at that moment. A planned figure
is a peak, so only more counts; from a measured one, more and less count.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from carla_launcher.config import LauncherConfig
from carla_launcher.decide.detectors.causes import Cause, Finding
from carla_launcher.decide.detectors.expectations import DRIVING, PHASES, BandKey
from carla_launcher.decide.detectors.series import Window
from carla_launcher.observe.observation import Observation
from carla_launcher.observe.pools import OwnerKind, Pool, PoolKind

Key = tuple[str, OwnerKind, str]


@dataclass
class _Band:
    """The expected memory of one owner in one pool and phase."""

    window: Window
    settles_s: float
    expected_mib: float | None
    measured: bool = False
    outside: bool = False


class BandDetector:
    """Compares simulator and agent with their bands, in every pool."""

    def __init__(self, config: LauncherConfig) -> None:
        self._limits, self._settle_s = config.memory, config.restore.settle_s
        self._planned: Mapping[BandKey, float] = {}
        self._bands: dict[Key, _Band] = {}
        self._setup: dict[OwnerKind, object] = {}
        self._phase: dict[OwnerKind, str] = {}

    def expect(self, planned: Mapping[BandKey, float]) -> None:
        """Expect these MiB in phases that begin from now on, until a phase has been measured.

        What was measured of an owner that now has another plan doesn't count any more.
        """
        changed = {key[0] for key, _ in planned.items() ^ self._planned.items()}
        self._planned = planned
        self._bands = {key: band for key, band in self._bands.items() if key[1].value not in changed}

    def forget(self) -> None:
        """Restart all time limits after a gap between looks; measured figures stay."""
        for band in self._bands.values():
            band.window.clear()
        self._phase.clear()

    def expected_mib(self, pool: str, owner: OwnerKind) -> float:
        """Return what an owner should hold now: as measured in this phase, else the highest plan; 0 if unknown."""
        band = self._bands.get((pool, owner, self._phase[owner])) if owner in self._phase else None
        if band is not None and band.expected_mib is not None:
            return band.expected_mib
        planned = (mib for (name, of, _), mib in self._planned.items() if (name, of) == (owner.value, pool))
        return max(planned, default=0.0)

    def look(self, seen: Observation) -> tuple[Finding, ...]:
        """Return a finding for each owner that has just left its band."""
        phases = self._phases(seen)
        found = [
            self._judge(seen.time_s, pool, owner, phase, pool.held_by(owner))
            for pool in seen.memory.pools
            for owner, phase in phases.items()
            if pool.kind is not PoolKind.DISK  # it fills up by design; the plan's figure is for the whole run
            and any(each.kind is owner and each.held.mib is not None for each in pool.owners)
        ]
        return tuple(finding for finding in found if finding is not None)

    def _phases(self, seen: Observation) -> dict[OwnerKind, str]:
        """Return each owner's lasting phase; a program that was restarted or changed is measured again."""
        phases: dict[OwnerKind, str] = {}
        beat = seen.agent.beat
        if seen.agent.running and beat is not None:
            self._note(OwnerKind.AGENT, (seen.agent.pid, beat.device, beat.micro_batch))
            if beat.phase in PHASES:
                phases[OwnerKind.AGENT] = PHASES[beat.phase]
        # A simulator without a driving agent holds less than it will with the first camera.
        is_up = seen.simulator.running and seen.simulator.healthy and seen.further is not None
        if is_up and phases.get(OwnerKind.AGENT) in DRIVING:
            phases[OwnerKind.SIMULATOR] = ""
            self._note(OwnerKind.SIMULATOR, (seen.simulator.pid, seen.further))
        for band in (self._bands[key] for key in self._bands if phases.get(key[1]) != self._phase.get(key[1])):
            band.window.clear()
        self._phase = phases
        return phases

    def _note(self, owner: OwnerKind, setup: object) -> None:
        if self._setup.get(owner) != setup:
            self._setup[owner] = setup
            self._bands = {key: band for key, band in self._bands.items() if key[1] is not owner}

    def _judge(self, now_s: float, pool: Pool, owner: OwnerKind, phase: str, held_mib: float) -> Finding | None:
        key = (pool.name, owner, phase)
        if key not in self._bands:
            planned = self._planned.get((owner.value, pool.name, phase))
            self._bands[key] = _Band(Window(2 * self._limits.pressure_s), now_s + self._settle_s, planned)
        band = self._bands[key]
        band.window.add(now_s, held_mib)
        if now_s < band.settles_s or band.window.covered_s < self._limits.pressure_s:
            return None
        middle_mib, expected_mib, measured = band.window.middle, band.expected_mib, band.measured
        if not band.measured:
            band.expected_mib, band.measured = middle_mib, True
        if expected_mib is None:
            return None
        before, band.outside = band.outside, self._leaves(middle_mib - expected_mib, expected_mib, measured)
        if before or not band.outside:
            return None
        return _finding(pool, owner, phase, middle_mib, expected_mib, measured)

    def _leaves(self, beyond_mib: float, expected_mib: float, measured: bool) -> bool:
        distance_mib = abs(beyond_mib) if measured else beyond_mib
        return distance_mib > max(self._limits.band_mib, self._limits.band_share * expected_mib)


def _finding(pool: Pool, owner: OwnerKind, phase: str, held_mib: float, expected_mib: float, measured: bool) -> Finding:
    source = "measured before" if measured else "planned"
    when = f" while {phase}" if phase else ""
    return Finding(
        Cause.OUT_OF_BAND,
        f"the {owner.value} holds {held_mib:.0f} MiB of {pool.name}{when}, {expected_mib:.0f} MiB were {source}",
        pool=pool.name,
        owner=owner.value,
        numbers={
            "held_mib": round(held_mib, 1),
            "expected_mib": round(expected_mib, 1),
            "phase": phase,
            "expected": source,
        },
    )
