"""Ticks and answers that stop: whose fault that is; and a machine that slept."""

from __future__ import annotations

import signal
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from carla_launcher import wiring
from carla_launcher.decide.detectors.causes import Cause
from carla_launcher.observe.observation import Observation, Sign
from carla_launcher.options import RunOptions, RuntimeKind, SimulatorKind
from carla_launcher.resolve.footprint import program
from carla_launcher.resolve.machine import spec_of
from carla_run.events import CollectorEnd, CollectorRestarted
from carla_run.heartbeat import CollectorFigures, CollectorState
from carla_run.paths import RunPaths
from tests.unit.launcher.seen import (
    TIMEOUT_S,
    Told,
    causes,
    diagnosed,
    driving,
    first,
    seconds,
    with_agent,
    with_beat,
    with_simulator,
)

OOM_LINE = "LogVulkanRHI: Error: Result failed, VkResult=-2 (VK_ERROR_OUT_OF_DEVICE_MEMORY)"


def stops_ticking(at_s: float, until_s: float, then: Callable[[float, Observation], Observation]) -> Told:
    """Return the findings of a run whose ticks stop; ``then`` says how it goes on, by the time since."""

    def look(time_s: float) -> Observation:
        seen = driving(min(time_s, at_s))
        seen = replace(seen, time_s=time_s)
        return then(time_s - at_s, seen) if time_s > at_s else seen

    return diagnosed(map(look, seconds(until_s)))


def test_a_call_that_no_time_out_ends_is_the_collectors_hang() -> None:
    """The Traffic Manager's deadlock: the agent replaces its collector after 25 s, and the next one drives."""

    def deadlock(since_s: float, seen: Observation) -> Observation:
        if since_s < 25:
            return with_beat(seen, tick_outstanding_s=since_s)
        restarted = CollectorRestarted(cause="no sign of life", end=CollectorEnd.HUNG).row()
        seen = with_agent(seen, events=(restarted,) * (since_s == 26))
        if since_s < 32:
            return with_beat(seen, collector_restarts=1, state="starting" if since_s < 29 else "connecting")
        return with_beat(seen, collector_restarts=1, ticks=9000 + int(20 * (since_s + 70)))

    reported = stops_ticking(100, 300, deadlock)
    time_s, finding = first(reported, Cause.COLLECTOR_HANG)
    assert causes(reported) == {Cause.COLLECTOR_HANG}
    assert time_s - 100 <= TIMEOUT_S + 5
    assert "replaces its collector after 25 s by itself" in finding.sentence
    assert max(time_s for time_s, _ in reported) <= 126


def test_a_collector_that_hangs_outside_of_all_calls_is_no_hang_of_the_simulator() -> None:
    """Stopped, say: the agent replaces it after 25 s, too."""

    def stopped(since_s: float, seen: Observation) -> Observation:
        if since_s < 26:
            return seen
        return with_beat(seen, collector_restarts=1, ticks=9000 + int(20 * (since_s + 100)))

    reported = stops_ticking(100, 200, stopped)
    assert causes(reported) == {Cause.COLLECTOR_HANG}
    assert "sent the simulator no call" in first(reported, Cause.COLLECTOR_HANG)[1].sentence


def test_one_that_never_calls_and_is_not_replaced_is_looked_for_in_the_simulator_at_last() -> None:
    reported = stops_ticking(100, 200, lambda _, seen: seen)
    assert first(reported, Cause.SIMULATOR_HANG)[0] - 100 <= TIMEOUT_S + 10


def test_a_hung_simulator_whose_calls_time_out_is_found_within_the_time_out_and_5_s() -> None:
    """No Traffic Manager: the client's time-out ends the tick, and the same collector tries to connect."""

    def hang(since_s: float, seen: Observation) -> Observation:
        if since_s < TIMEOUT_S:
            return with_beat(seen, tick_outstanding_s=since_s)
        return with_beat(
            seen, tick_outstanding_s=since_s - TIMEOUT_S, state="connecting", phase="waiting_for_simulator"
        )

    reported = stops_ticking(100, 200, hang)
    time_s, finding = first(reported, Cause.SIMULATOR_HANG)
    assert causes(reported) == {Cause.SIMULATOR_HANG}
    assert TIMEOUT_S < time_s - 100 <= TIMEOUT_S + 5
    assert "answers `version`" in finding.sentence


def test_a_simulator_is_hung_when_a_fresh_collector_cannot_tick_either() -> None:
    """With a Traffic Manager the time-out aborts the collector; first that is noticed, then that it was no help."""

    def hang(since_s: float, seen: Observation) -> Observation:
        if since_s <= TIMEOUT_S:
            return with_beat(seen, tick_outstanding_s=since_s)
        aborted = CollectorRestarted(end=CollectorEnd.SIGNAL, signal=signal.SIGABRT).row()
        seen = with_agent(seen, events=(aborted,) * (since_s == TIMEOUT_S + 1))
        state = "starting" if since_s < TIMEOUT_S + 4 else "connecting"
        return with_beat(seen, collector_restarts=1, state=state, tick_outstanding_s=max(0.0, since_s - TIMEOUT_S - 4))

    reported = stops_ticking(100, 200, hang)
    collector_s, _ = first(reported, Cause.COLLECTOR_HANG)
    simulator_s, finding = first(reported, Cause.SIMULATOR_HANG)
    assert collector_s - 100 <= TIMEOUT_S + 5
    assert simulator_s - collector_s <= TIMEOUT_S + 10
    assert "a new collector" in finding.sentence


def test_a_fresh_collector_whose_tick_hangs_as_well_is_no_collectors_hang() -> None:
    def hang(since_s: float, seen: Observation) -> Observation:
        if since_s < 25:
            return with_beat(seen, tick_outstanding_s=since_s)
        return with_beat(seen, collector_restarts=1, tick_outstanding_s=max(0.0, since_s - 26))

    reported = stops_ticking(100, 155, hang)
    assert first(reported, Cause.SIMULATOR_HANG)[0] - 125 <= TIMEOUT_S + 5
    assert {finding.cause for time_s, finding in reported if time_s >= 126} == {Cause.SIMULATOR_HANG}


def test_a_first_connection_may_cost_a_time_out_before_it_counts() -> None:
    def look(time_s: float) -> Observation:
        return replace(with_beat(driving(0), state="connecting", phase="waiting_for_simulator"), time_s=time_s)

    time_s, _ = first(diagnosed(map(look, seconds(100))), Cause.SIMULATOR_HANG)
    assert 2 * TIMEOUT_S < time_s <= 2 * TIMEOUT_S + 5


def test_a_collector_that_goes_to_another_town_may_take_a_time_out_to_load_it() -> None:
    def move(since_s: float, seen: Observation) -> Observation:
        state = CollectorState.ABSENT if since_s < 2 else CollectorState.CONNECTING
        return with_beat(seen, collector=CollectorFigures(None if since_s < 2 else 99, state), tick_outstanding_s=0.0)

    reported = stops_ticking(100, 200, move)
    time_s, _ = first(reported, Cause.SIMULATOR_HANG)
    assert 2 * TIMEOUT_S < time_s - 102 <= 2 * TIMEOUT_S + 5
    assert causes(reported) == {Cause.SIMULATOR_HANG}


@pytest.mark.parametrize("drove_s", [0.0, 100.0])
def test_a_collector_on_a_cluster_waits_for_a_node_as_long_as_the_agent_lets_it(drove_s: float, tmp_path: Path) -> None:
    keys = {"simulator.timeout_s": TIMEOUT_S, "collector.hang_margin_s": 5.0}
    plan: Any = SimpleNamespace(situation=SimpleNamespace(base=keys), program=program())
    options = RunOptions(cluster="auto", runtime=RuntimeKind.PROCESS, simulator=SimulatorKind.ELSEWHERE)
    expected = wiring.expectations(plan, spec_of(RunPaths(tmp_path), options))

    def look(time_s: float) -> Observation:
        seen = replace(driving(min(time_s, drove_s)), time_s=time_s)
        return with_beat(seen, state="connecting", tick_outstanding_s=0.0) if time_s > drove_s else seen

    assert first(diagnosed(map(look, seconds(300))), Cause.SIMULATOR_HANG), "where the launcher has a simulator"
    assert not diagnosed(map(look, seconds(1000)), expected)


def test_a_hang_after_the_log_told_of_no_video_memory_is_that() -> None:
    def look(time_s: float) -> Observation:
        seen = driving(min(time_s, 10.0))
        seen = replace(seen, time_s=time_s)
        seen = with_simulator(seen, signs=((Sign.OUT_OF_VRAM, OOM_LINE),) * (time_s == 10))
        return with_simulator(seen, checks_failed=int(max(0, time_s - 10) // 5), healthy=time_s < 15, problem="silent")

    assert causes(diagnosed(map(look, seconds(30)))) == {Cause.SIMULATOR_OUT_OF_VRAM}


def test_unanswered_versions_are_a_hang_and_two_are_not() -> None:
    def mute(since_s: float, seen: Observation) -> Observation:
        return with_simulator(seen, checks_failed=int(since_s // 5), healthy=since_s < 5, problem="the port is open")

    time_s, finding = first(stops_ticking(100, 140, mute), Cause.SIMULATOR_HANG)
    assert time_s == 115
    assert finding.numbers["checks_failed"] == 3


def test_one_that_ticks_is_not_hung_whatever_else_it_answers() -> None:
    def look(time_s: float) -> Observation:
        return with_simulator(driving(time_s), checks_failed=int(time_s // 5), healthy=time_s < 5)

    assert not diagnosed(map(look, seconds(100)))


@pytest.mark.parametrize(
    ("phase", "state"),
    [
        ("updating", "waiting"),
        ("saving", "waiting"),
        ("drained", "absent"),
        ("collecting", "rehearsing"),
        ("evaluating", "recording"),
    ],
)
def test_a_collector_that_wants_no_ticks_hangs_nowhere(phase: str, state: str) -> None:
    reported = diagnosed(with_beat(driving(0), phase=phase, state=state, step=int(t)) for t in [0.0])
    reported += diagnosed(
        replace(with_beat(driving(t), phase=phase, state=state, ticks=9000, tick_outstanding_s=0), time_s=t)
        for t in seconds(250)
    )
    assert not reported


def test_a_simulator_that_is_away_is_waited_for() -> None:
    def look(time_s: float) -> Observation:
        seen = with_beat(driving(0), phase="waiting_for_simulator", state="connecting", tick_outstanding_s=time_s)
        return with_simulator(replace(seen, time_s=time_s), running=False, healthy=None)

    assert not diagnosed(map(look, seconds(115)))


@settings(max_examples=25)
@given(gap_s=st.floats(10.5, 1e5), at_s=st.integers(2, 60))
def test_a_gap_begins_all_waiting_anew(gap_s: float, at_s: int) -> None:
    """Whatever was being waited for when the machine fell asleep was not waited for in the meantime."""

    def look(time_s: float) -> Observation:
        seen = with_beat(driving(0), age_s=time_s % 50, tick_outstanding_s=time_s % 19, state="stepping")
        seen = with_simulator(seen, checks_failed=2 if time_s < at_s else 3)
        return replace(seen, time_s=time_s + gap_s * (time_s >= at_s))

    assert not diagnosed(map(look, seconds(at_s + 19, at_s - 2)))


@settings(max_examples=10)
@given(times=st.lists(st.floats(0.5, 9.5), min_size=50, max_size=300))
def test_findings_follow_from_the_observations_alone(times: list[float]) -> None:
    def looks() -> list[Observation]:
        now, found = 0.0, []
        for step in times:
            now += step
            found.append(with_simulator(driving(now), checks_failed=int(step), running=step < 9))
        return found

    assert diagnosed(looks()) == diagnosed(looks())
