"""Detects ticks that stop: a hung collector, or a hung simulator if a new collector can't tick either. Pure.

The client gives a call up after its time-out. A call that takes longer hangs in the client library; the agent then
replaces the collector by itself, as it replaces one that hangs outside of calls. If calls end but no tick follows, no
client can tick.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from carla_launcher.config import LauncherConfig
from carla_launcher.decide.detectors.causes import Cause, Finding
from carla_launcher.decide.detectors.expectations import Expectations
from carla_launcher.observe.observation import Observation
from carla_run.events import CollectorRestarted, decisive
from carla_run.heartbeat import CollectorState, Heartbeat

NEEDS_TICKS = (CollectorState.CONNECTING, CollectorState.STEPPING, CollectorState.EVALUATING)
"""States in which a collector needs ticks."""
PAUSE_S = 3.0
"""Time without such a state after which the collector needs no ticks; a heartbeat may fall between two calls."""


class TickDetector:
    """Watches the tick counter and the outstanding call."""

    def __init__(self, config: LauncherConfig, expectations: Expectations) -> None:
        self._timeout_s = expectations.timeout_s
        self._margin_s = config.agent.hang_margin_s
        self._limit_s = expectations.timeout_s + self._margin_s
        self._replaced_s = expectations.timeout_s + expectations.collector_margin_s
        self._programs: object = None
        self._last: Heartbeat | None = None
        self._waiting_s = self._wanted_s = 0.0
        self._ticked = self._fresh = self._moved = False

    def forget(self) -> None:
        """Restart all time limits after a gap between looks."""
        self._last = None

    def look(self, seen: Observation) -> tuple[Finding, ...]:
        """Return a finding if collector or simulator hangs."""
        beat, simulator = seen.agent.beat, seen.simulator
        ready = simulator.healthy or simulator.checks_failed > 0  # a check fails only after one has succeeded
        able = simulator.running and ready and not simulator.connection_lost
        if not (seen.agent.running and beat is not None and able):
            self._last = None
            return ()
        replaced = self._replacement(seen.time_s, seen.agent.events)
        self._count(seen, beat)
        found = replaced or self._stalled(seen.time_s, beat, seen.agent.beat_age_s)
        return () if found is None else (found,)

    def ticked_within(self, now_s: float, seconds: float) -> bool:
        """Return whether there was a tick in the last seconds."""
        return self._last is not None and self._ticked and now_s - self._waiting_s <= seconds

    def _count(self, seen: Observation, beat: Heartbeat) -> None:
        now_s, last, state = seen.time_s, self._last, beat.collector.state
        programs = (seen.simulator.pid, seen.agent.pid)
        if programs != self._programs:
            self._programs, self._ticked, self._fresh, self._moved = programs, False, False, False
        if state in NEEDS_TICKS or (beat.tick_outstanding_s > 0 and state is not CollectorState.REHEARSING):
            self._wanted_s = now_s
        if last is not None and beat.collector.pid != last.collector.pid and not self._fresh:
            self._moved = True
        if last is None:
            self._waiting_s = self._wanted_s = now_s
        elif beat.ticks != last.ticks:
            self._waiting_s, self._ticked, self._fresh, self._moved = now_s, True, False, False
        elif beat.collector_restarts > last.collector_restarts:
            self._waiting_s, self._fresh, self._moved = now_s, True, False
        elif now_s - self._wanted_s > PAUSE_S or state in (CollectorState.STARTING, CollectorState.ABSENT):
            self._waiting_s = now_s
        self._last = beat

    def _replacement(self, now_s: float, events: tuple[Mapping[str, Any], ...]) -> Finding | None:
        """Return the hang of a collector that the agent has replaced already."""
        ended = [event for row in events if isinstance(event := decisive(row), CollectorRestarted)]
        hung = [event.cause for event in ended if event.in_a_call]
        waited_s = 0.0 if self._last is None else now_s - self._waiting_s
        if not hung:
            return None
        return _finding(Cause.COLLECTOR_HANG, f"the agent replaced a collector ({hung[-1]})", waited_s, self._last)

    def _stalled(self, now_s: float, beat: Heartbeat, age_s: float) -> Finding | None:
        waited_s = now_s - self._waiting_s
        out_s = beat.tick_outstanding_s + age_s
        # The first connection may take a whole time-out if the simulator didn't answer yet; so may loading the map of
        # another town.
        patient = self._moved or not (self._ticked or self._fresh)
        limit_s = self._limit_s + (self._timeout_s if patient else 0.0)
        if waited_s <= limit_s:
            return None
        connects = beat.collector.state is CollectorState.CONNECTING
        own = "" if self._fresh or connects else self._its_own(beat, min(out_s, waited_s), waited_s)
        if own:
            words = f"{own}; the agent replaces its collector after {self._replaced_s:g} s by itself"
            return _finding(Cause.COLLECTOR_HANG, words, waited_s, beat)
        which = "a new collector" if self._fresh else "the collector, which reconnects,"
        words = f"the simulator answers `version`, but {which} has got no tick for {waited_s:.0f} s"
        return _finding(Cause.SIMULATOR_HANG, words, waited_s, beat)

    def _its_own(self, beat: Heartbeat, out_s: float, waited_s: float) -> str:
        """Return why it is the collector that hangs; empty if it isn't, since its calls end."""
        if beat.tick_outstanding_s == 0 and waited_s <= self._replaced_s + self._margin_s:
            return f"the collector has sent the simulator no call for {waited_s:.0f} s"
        if out_s > self._timeout_s:
            return f"a call to the simulator has taken {out_s:.0f} s, its time-out is {self._timeout_s:g} s"
        return ""


def _finding(cause: Cause, sentence: str, waited_s: float, beat: Heartbeat | None) -> Finding:
    numbers: dict[str, float | int | str | None] = {"no_tick_for_s": round(waited_s, 1)}
    if beat is not None:
        numbers |= {
            "tick_outstanding_s": beat.tick_outstanding_s,
            "ticks": beat.ticks,
            "collector_restarts": beat.collector_restarts,
            "collector_state": beat.collector.state,
        }
    return Finding(cause, sentence, owner="agent" if cause is Cause.COLLECTOR_HANG else "simulator", numbers=numbers)
