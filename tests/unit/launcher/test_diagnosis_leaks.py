"""Leaks are found in time, from real ones to the noise that they drown in; what ends, or is noise, is none."""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from carla_launcher.decide.detectors.causes import Cause
from carla_launcher.observe.observation import Observation
from tests.unit.launcher.seen import (
    FULL_MIB,
    LIMITS,
    RESERVE_MIB,
    causes,
    diagnosed,
    first,
    holding,
    seconds,
    with_beat,
    with_simulator,
)


def leaking(mib_a_minute: float, free_mib: float, noise_mib: float = 0.0, seed: int = 0) -> Callable[[float], float]:
    """Return a simulator that leaks from 100 s on, with so much above the reserve then."""
    rng = random.Random(seed)
    flat_mib = FULL_MIB - RESERVE_MIB - free_mib
    return lambda t: flat_mib + mib_a_minute / 60 * max(0.0, t - 100) + rng.uniform(-noise_mib, noise_mib)


def test_a_leak_of_20_mib_a_minute_is_seen_ten_minutes_ahead() -> None:
    reported = diagnosed(map(holding(simulator=leaking(20, free_mib=600)), seconds(100 + 30 * 60)))
    time_s, leak = first(reported, Cause.LEAK)
    exhausted_s = 100 + 60 * 600 / 20
    assert exhausted_s - time_s == pytest.approx(LIMITS.memory.horizon_s, abs=60)
    assert leak.owner == "simulator"
    assert leak.pool == "vram:0"
    assert leak.exhausted_in_s == pytest.approx(exhausted_s - time_s, rel=0.15)
    assert leak.numbers["mib_a_minute"] == pytest.approx(20, rel=0.15)
    assert "simulator" in leak.sentence
    assert "20 MiB per minute" in leak.sentence


@settings(max_examples=15)
@given(slope=st.floats(5, 500), ahead_s=st.floats(460, 1500), noise=st.floats(0, 5), seed=st.integers(0, 2**32))
def test_every_leak_is_found_at_least_a_minute_before_the_reserve_is_touched(
    slope: float, ahead_s: float, noise: float, seed: int
) -> None:
    series = holding(simulator=leaking(slope, ahead_s * slope / 60, noise, seed))
    reported = diagnosed(map(series, seconds(100 + ahead_s)))
    time_s, _ = first(reported, Cause.LEAK)
    assert 100 + ahead_s - time_s >= 60


@settings(max_examples=15)
@given(slope=st.floats(60, 500), ahead_s=st.floats(150, 460), seed=st.integers(0, 2**32))
def test_a_fast_leak_is_found_from_a_shorter_time(slope: float, ahead_s: float, seed: int) -> None:
    series = holding(simulator=leaking(slope, ahead_s * slope / 60, 2.0, seed))
    time_s, _ = first(diagnosed(map(series, seconds(100 + ahead_s))), Cause.LEAK)
    assert 100 + ahead_s - time_s >= 60


def step(time_s: float) -> float:
    return 150.0 * (time_s > 700)


def two_steps(time_s: float) -> float:
    return 80.0 * (time_s > 600) + 80.0 * (time_s > 690)


def warm_up(time_s: float) -> float:
    return 160.0 * (1 - math.exp(-time_s / 60))


def evaluations(time_s: float) -> float:
    return 120.0 * (time_s % 400 < 60)


def garbage(time_s: float) -> float:
    return 100.0 * (time_s % 50) / 50


@pytest.mark.parametrize("shape", [step, two_steps, warm_up, evaluations, garbage])
def test_growth_that_ends_is_no_leak(shape: Callable[[float], float]) -> None:
    rng = random.Random(0)
    series = holding(simulator=lambda t: FULL_MIB - RESERVE_MIB - 200 + shape(t) + rng.uniform(-2, 2))
    assert Cause.LEAK not in causes(diagnosed(map(series, seconds(1800))))


def test_what_rises_and_falls_is_taken_for_a_leak_once_at_most() -> None:
    series = holding(simulator=lambda t: FULL_MIB - RESERVE_MIB - 200 + 100 * (t % 180) / 180)
    reported = diagnosed(map(series, seconds(3600)))
    assert all(time_s < 180 + 80 for time_s, finding in reported if finding.cause is Cause.LEAK)


def test_a_leak_that_is_far_from_the_end_of_its_pool_is_none_yet() -> None:
    reported = diagnosed(map(holding(simulator=lambda t: 1000 + t / 3), seconds(900)))
    assert Cause.LEAK not in causes(reported)


def test_a_simulator_that_was_started_anew_begins_with_a_clean_record() -> None:
    def look(time_s: float) -> Observation:
        seen = holding(simulator=leaking(60, free_mib=800))(time_s if time_s < 600 else time_s - 500)
        owners = seen.memory.pools[0].owners
        fresh = tuple(replace(owner, pids=(owner.pids[0] + (time_s >= 600),)) for owner in owners)
        memory = replace(seen.memory, pools=(replace(seen.memory.pools[0], owners=fresh),))
        return with_simulator(replace(seen, memory=memory, time_s=time_s), pid=100 + (time_s >= 600))

    reported = diagnosed(map(look, seconds(700)))
    times = [time_s for time_s, finding in reported if finding.cause is Cause.LEAK]
    assert times
    assert max(times) < 600


@settings(max_examples=12)
@given(seed=st.integers(0, 2**32), noise=st.floats(0, 20), free=st.floats(120, 2000))
def test_noise_of_20_mib_causes_nothing(seed: int, noise: float, free: float) -> None:
    rng = random.Random(seed)

    def noisy(mib: float) -> Callable[[float], float]:
        return lambda _: mib + rng.uniform(-noise, noise)

    series = holding(simulator=noisy(FULL_MIB - RESERVE_MIB - free), agent=noisy(1200), foreign=noisy(85))
    assert not diagnosed(map(series, seconds(1800)))


@settings(max_examples=15)
@given(gap_s=st.floats(11, 8 * 3600), at_s=st.integers(1, 400), seed=st.integers(0, 2**32))
def test_a_machine_that_slept_causes_nothing(gap_s: float, at_s: int, seed: int) -> None:
    rng = random.Random(seed)

    def look(time_s: float) -> Observation:
        slept = gap_s if time_s >= at_s else 0.0
        seen = holding(simulator=lambda _: FULL_MIB - RESERVE_MIB - 130 + rng.uniform(-9, 9))(time_s)
        # What was in flight is told with the whole night in it, at the first look after it.
        waking = {"age_s": gap_s, "tick_outstanding_s": gap_s} if time_s == at_s else {}
        return replace(with_beat(seen, **waking), time_s=time_s + slept)

    assert not diagnosed(map(look, seconds(700)))
