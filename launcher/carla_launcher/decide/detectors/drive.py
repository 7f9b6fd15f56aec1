"""One simulator and the collector in it: what is wrong with either, the one that explains more. Pure."""

from __future__ import annotations

from dataclasses import replace

from carla_launcher.config import LauncherConfig
from carla_launcher.decide.detectors.causes import Cause, Finding
from carla_launcher.decide.detectors.expectations import Expectations
from carla_launcher.decide.detectors.kills import OomKills
from carla_launcher.decide.detectors.simulator import Simulator
from carla_launcher.decide.detectors.ticks import Ticks
from carla_launcher.observe.observation import Observation


class Drive:
    """Watches a simulator, one after another, and the ticks in it.

    Args:
        config: the launcher's.
        expectations: of the agent.
        kills: what the kernel killed for memory.
        collector: the number of the one that drives in it.
    """

    def __init__(self, config: LauncherConfig, expectations: Expectations, kills: OomKills, collector: int = 0) -> None:
        self._check_every_s = config.watch.check_every_s
        self._simulator, self._ticks = Simulator(config, kills), Ticks(config, expectations)
        self._collector = collector

    def forget(self) -> None:
        """Start all waiting over: time has passed without a look."""
        self._simulator.forget()
        self._ticks.forget()

    def look(self, seen: Observation) -> list[Finding]:
        """Return what is wrong; of several collectors only this one's ticks and restarts count."""
        seen = _as_if_alone(seen, self._collector)
        stalled = self._ticks.look(seen)
        ticks_go_on = self._ticks.ticked_within(seen.time_s, self._check_every_s)
        if simulator := self._simulator.look(seen, ticks_go_on):  # which explains why ticks stopped
            return list(simulator)
        return [self._simulator.blamed(each) if each.cause is Cause.SIMULATOR_HANG else each for each in stalled]


def _as_if_alone(seen: Observation, collector: int) -> Observation:
    agent = seen.agent
    if agent.beat is None or not agent.beat.collectors:
        return seen
    events = tuple(row for row in agent.events if row.get("collector") in (None, collector))
    return replace(seen, agent=replace(agent, beat=agent.beat.of(collector), events=events))
