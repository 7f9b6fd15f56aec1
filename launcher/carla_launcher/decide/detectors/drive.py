"""Detects failures of one simulator and of the collector that drives in it. Pure."""

from __future__ import annotations

from dataclasses import replace

from carla_launcher.config import LauncherConfig
from carla_launcher.decide.detectors.causes import Cause, Finding
from carla_launcher.decide.detectors.expectations import Expectations
from carla_launcher.decide.detectors.kills import RecentOomKills
from carla_launcher.decide.detectors.simulator import SimulatorDetector
from carla_launcher.decide.detectors.ticks import TickDetector
from carla_launcher.observe.observation import Observation


class DriveDetector:
    """Detects failures of a simulator, restarted or not, and of the ticks in it.

    Args:
        config: the launcher's configuration.
        expectations: the agent's time-outs.
        kills: the kernel's OOM kills.
        collector: number of the collector that drives in it.
    """

    def __init__(
        self, config: LauncherConfig, expectations: Expectations, kills: RecentOomKills, collector: int = 0
    ) -> None:
        self._check_every_s = config.watch.check_every_s
        self._simulator, self._ticks = SimulatorDetector(config, kills), TickDetector(config, expectations)
        self._collector = collector

    def forget(self) -> None:
        """Restart all time limits after a gap between looks."""
        self._simulator.forget()
        self._ticks.forget()

    def look(self, seen: Observation) -> list[Finding]:
        """Return the findings; the ticks and restarts of other collectors don't count."""
        seen = _of_collector(seen, self._collector)
        stalled = self._ticks.look(seen)
        ticks_go_on = self._ticks.ticked_within(seen.time_s, self._check_every_s)
        if simulator := self._simulator.look(seen, ticks_go_on):  # which explains why ticks stopped
            return list(simulator)
        return [self._simulator.blamed(each) if each.cause is Cause.SIMULATOR_HANG else each for each in stalled]


def _of_collector(seen: Observation, collector: int) -> Observation:
    agent = seen.agent
    if agent.beat is None or not agent.beat.collectors:
        return seen
    events = tuple(row for row in agent.events if row.get("collector") in (None, collector))
    return replace(seen, agent=replace(agent, beat=agent.beat.of(collector), events=events))
