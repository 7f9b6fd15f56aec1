"""Runs all detectors on each observation and orders their findings. Pure: a function of the observations.

After a gap between observations (a suspended machine, a stopped launcher) all time limits restart, so that no program
is blamed for it.
"""

from __future__ import annotations

from collections.abc import Mapping

from carla_launcher.config import LauncherConfig
from carla_launcher.decide.detectors.agent import AgentDetector
from carla_launcher.decide.detectors.bands import BandDetector
from carla_launcher.decide.detectors.causes import Cause, Finding
from carla_launcher.decide.detectors.drive import DriveDetector
from carla_launcher.decide.detectors.expectations import BandKey, Expectations
from carla_launcher.decide.detectors.foreign import ForeignProcessDetector
from carla_launcher.decide.detectors.kills import RecentOomKills
from carla_launcher.decide.detectors.leaks import LeakDetector
from carla_launcher.decide.detectors.shortage import ShortageDetector
from carla_launcher.decide.holders import Holders
from carla_launcher.observe.observation import Observation
from carla_launcher.observe.pools import Gpu

FIRST = (Cause.GPU_LOST, Cause.MISCONFIGURATION)
"""Reported first, since they explain other findings."""


class Diagnostician:
    """Takes every observation in order. A problem that lasts is found at every look, with new numbers.

    Attributes:
        holders: the record of each owner's memory in every pool.
    """

    def __init__(self, config: LauncherConfig, expectations: Expectations) -> None:
        self._gap_s = config.watch.gap_s
        self._kills = RecentOomKills(config.watch.sign_s)
        self._drive = DriveDetector(config, expectations, self._kills)
        self._agent = AgentDetector(config, self._kills, expectations.exits, expectations.in_container)
        self.holders = Holders(config.memory.slope_window_s)
        self._leaks, self._bands = LeakDetector(config), BandDetector(config)
        self._shortages = ShortageDetector(config, self.holders, self._bands.expected_mib)
        self._foreign_processes = ForeignProcessDetector(config, self.holders)
        self._looked_s: float | None = None

    def expect(self, planned: Mapping[BandKey, float]) -> None:
        """Set the planned bands of simulator and agent."""
        self._bands.expect(planned)

    def look(self, seen: Observation) -> tuple[Finding, ...]:
        """Return the findings of this moment, the one that explains most first.

        These are found once: OUT_OF_BAND, a FOREIGN_PROCESS while nothing is short, and a collector that the agent has
        replaced already or that the kernel killed. All others are found for as long as they last.
        """
        if self._looked_s is None or not 0 <= seen.time_s - self._looked_s <= self._gap_s:
            self._restart()
        self._looked_s = seen.time_s
        self.holders.look(seen.time_s, seen.memory)
        self._kills.look(seen.time_s, seen.memory)
        findings = [*_gpu(seen), *self._drive.look(seen), *self._agent.look(seen), *self._memory(seen)]
        return tuple(sorted(findings, key=lambda finding: finding.cause not in FIRST))

    def _restart(self) -> None:
        for part in (self._drive, self._agent, self._leaks, self._shortages, self._bands):
            part.forget()

    def _memory(self, seen: Observation) -> list[Finding]:
        outside = self._bands.look(seen)  # before the shortages, which use the expected figures
        short = self._shortages.look(seen)
        pools = {finding.pool for finding in short}
        named = (finding for finding in self._foreign_processes.look(seen) if finding.pool not in pools)
        return [*self._leaks.look(seen), *short, *named, *outside]


def _gpu(seen: Observation) -> list[Finding]:
    if seen.memory.gpu is not Gpu.LOST:
        return []
    reason = seen.memory.problem or "the driver has lost it"
    return [Finding(Cause.GPU_LOST, f"the GPU is lost: {reason.rstrip('.')}")]
