"""Diagnoses from series of memory readings: shortages, foreign processes, bands; and cases without a diagnosis."""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from dataclasses import replace

import pytest

from carla_launcher.decide.detectors.causes import Cause, Finding
from carla_launcher.decide.detectors.diagnostician import Diagnostician
from carla_launcher.decide.detectors.expectations import BandKey
from carla_launcher.observe.observation import AgentSeen, Observation
from carla_launcher.observe.pools import UNKNOWN, Gpu, Owner, OwnerKind, Pool, PoolKind, Reading, measured
from tests.unit.launcher.seen import (
    EXPECTED,
    FULL_MIB,
    LIMITS,
    RESERVE_MIB,
    SIMULATOR,
    TOTAL_MIB,
    Series,
    causes,
    diagnosed,
    driving,
    first,
    holding,
    seconds,
    vram,
    with_beat,
    with_simulator,
)

KEY, OTHER = ("agent", "vram:0", "updating"), ("simulator", "vram:0", "")

# Shortages


def test_a_shortage_is_found_after_its_time_with_deficit_and_who_grew() -> None:
    series = holding(agent=lambda t: 1200 + 400 * (t >= 100), simulator=FULL_MIB - RESERVE_MIB - 300)
    time_s, pressure = first(diagnosed(map(series, seconds(200))), Cause.PRESSURE)
    assert 100 + LIMITS.memory.pressure_s <= time_s <= 100 + LIMITS.memory.pressure_s + 2
    assert pressure.owner == "agent"
    assert pressure.numbers["grown_mib"] == 400
    assert pressure.deficit_mib == 100


def test_a_short_dip_is_no_shortage() -> None:
    series = holding(agent=lambda t: 1200 + 400 * (100 <= t < 104), simulator=FULL_MIB - RESERVE_MIB - 300)
    assert Cause.PRESSURE not in causes(diagnosed(map(series, seconds(200))))


@pytest.mark.parametrize("period_s", [2, 7, 20, 60, 301])
def test_free_memory_that_swings_about_the_threshold_is_one_shortage(period_s: int) -> None:
    rng = random.Random(period_s)

    def swinging(time_s: float) -> float:
        return FULL_MIB - RESERVE_MIB + 50 * math.sin(2 * math.pi * time_s / period_s) + rng.uniform(-5, 5)

    reported = diagnosed(map(holding(simulator=swinging), seconds(1800)))
    times = [time_s for time_s, finding in reported if finding.cause is Cause.PRESSURE]
    begun = [now for before, now in zip([-9.0, *times], times, strict=False) if now - before > 1]
    assert len(begun) == 1
    assert times[-1] == 1799


def test_a_shortage_is_over_when_clearly_more_than_the_reserve_is_free() -> None:
    series = holding(simulator=lambda t: FULL_MIB - RESERVE_MIB + (20 if t < 100 else -150))
    reported = diagnosed(map(series, seconds(200)))
    assert 100 <= max(time_s for time_s, finding in reported if finding.cause is Cause.PRESSURE) <= 110


def test_memory_that_is_there_again_needn_t_be_freed_though_the_shortage_is_not_over() -> None:
    series = holding(agent=lambda t: 1200 + 400 * (100 <= t < 130), simulator=FULL_MIB - RESERVE_MIB - 300)
    reported = [
        (time_s, found) for time_s, found in diagnosed(map(series, seconds(200))) if found.cause is Cause.PRESSURE
    ]
    assert {found.deficit_mib for time_s, found in reported if time_s < 130} == {100}
    assert [found.deficit_mib for time_s, found in reported if time_s >= 130] == [0] * round(LIMITS.memory.pressure_s)


def test_nobody_is_blamed_for_a_pool_that_was_short_before() -> None:
    _, pressure = first(diagnosed(map(holding(simulator=FULL_MIB - 50), seconds(60))), Cause.PRESSURE)
    assert pressure.owner == ""
    assert pressure.deficit_mib == pytest.approx(RESERVE_MIB - 50)


# What was planned is no growth

PLANNED = {
    ("simulator", "vram:0", ""): 3000.0,
    ("agent", "vram:0", "updating"): 1200.0,
    ("agent", "vram:0", "evaluating"): 1500.0,
    ("agent", "disk", ""): 750.0,
}


def started(time_s: float, simulator: float = 3000.0, foreign: float = 85.0) -> Observation:
    """Return a look at a run whose simulator started after 100 s, its agent after 130 s."""
    memory = vram(simulator if time_s >= 100 else 0, 1200 if time_s >= 130 else 0, foreign, "blender")
    seen = with_beat(replace(driving(time_s), memory=memory), phase="collecting" if time_s >= 140 else "starting")
    return seen if time_s >= 130 else replace(seen, agent=AgentSeen(running=False))


@pytest.mark.parametrize("at_s", [120, 150, 250])
def test_the_foreign_process_that_took_the_rest_is_blamed_not_the_simulator_that_has_just_started(at_s: int) -> None:
    looks = (started(time_s, foreign=1500 if time_s >= at_s else 85) for time_s in seconds(300))
    short = [found for _, found in diagnosed(looks, planned=PLANNED) if found.deficit_mib > 0]
    assert {(found.cause, found.owner) for found in short} == {(Cause.FOREIGN_PROCESS, "blender")}
    assert "; blender, which isn't this run's, took 1415 MiB in the last " in short[0].sentence
    assert all("simulator" not in found.sentence for found in short)


def test_a_simulator_is_blamed_for_what_it_took_beyond_its_plan_and_a_foreign_process_beside_it() -> None:
    looks = (started(t, simulator=3900, foreign=600 if t >= 110 else 85) for t in seconds(160))
    _, pressure = first(diagnosed(looks, planned=PLANNED), Cause.PRESSURE)
    assert (pressure.owner, pressure.numbers["grown_mib"]) == ("simulator", 900)
    assert "simulator took 900 MiB beyond the expected 3000 MiB in the last " in pressure.sentence
    assert " and blender, which isn't this run's, took 515 MiB" in pressure.sentence


def test_once_measured_it_is_blamed_for_what_it_took_beyond_that_whatever_was_planned() -> None:
    roomy = {**PLANNED, ("simulator", "vram:0", ""): 4500.0}
    looks = (started(t, simulator=3000 if t < 250 else 4400) for t in seconds(300))
    _, pressure = first(diagnosed(looks, planned=roomy), Cause.PRESSURE)
    assert (pressure.owner, pressure.numbers["grown_mib"]) == ("simulator", 1400)


def test_an_evaluation_that_was_planned_is_no_growth() -> None:
    def look(time_s: float) -> Observation:
        evaluating = time_s >= 400
        foreign = 1200 if time_s >= 405 else 85
        seen = holding(agent=1500 if evaluating else 1200, foreign=foreign, name="blender")(time_s)
        return with_beat(seen, phase="evaluating" if evaluating else "collecting", state="evaluating")

    short = [found for _, found in diagnosed(map(look, seconds(430)), planned=PLANNED) if found.deficit_mib > 0]
    assert {(found.owner, found.numbers["grown_mib"]) for found in short} == {("blender", 1115)}


def test_another_simulator_is_measured_by_its_own_plan_not_by_what_the_one_before_it_held() -> None:
    def look(time_s: float) -> Observation:
        second = time_s >= 200
        held = 2900 if not second else 1500 if time_s < 240 else 2800
        seen = holding(simulator=held, agent=lambda t: 2400 if t < 200 else 2800)(time_s)
        owners = tuple(
            replace(each, pids=(101,)) if second and each.name == "simulator" else each
            for each in seen.memory.pools[0].owners
        )
        pool = replace(seen.memory.pools[0], owners=owners)
        seen = replace(seen, memory=replace(seen.memory, pools=(pool,)))
        return with_simulator(seen, pid=101 if second else 100)

    planned = {("simulator", "vram:0", ""): 1600.0}
    _, pressure = first(
        [each for each in diagnosed(map(look, seconds(280)), planned=planned) if each[0] >= 240], Cause.PRESSURE
    )
    assert pressure.owner == "simulator"


@pytest.mark.parametrize(
    ("replay_mib", "replay"), [(750, ""), (1450, " and replay took 700 MiB beyond the expected 750 MiB")]
)
def test_on_a_disk_others_wrote_the_rest_and_what_replay_was_to_take_is_no_growth(
    replay_mib: float, replay: str
) -> None:
    def look(time_s: float) -> Observation:
        held, others = (replay_mib, 20_000) if time_s >= 50 else (0, 18_500)
        owners = (Owner("replay", OwnerKind.AGENT, (), measured(held)),)
        total = 20_400 + replay_mib
        disk = Pool("disk", PoolKind.DISK, measured(total), measured(total - others - held), owners)
        return replace(driving(time_s), memory=Reading((disk,), Gpu.NONE))

    found = next(found for _, found in diagnosed(map(look, seconds(80)), planned=PLANNED) if found.deficit_mib > 0)
    assert (found.cause, found.owner) == (Cause.FOREIGN_PROCESS, "other files")
    assert "; other files took 1500 MiB in the last " in found.sentence
    assert (replay in found.sentence) if replay else ("replay" not in found.sentence)


def test_memory_that_no_process_is_seen_to_hold_is_named_as_that() -> None:
    def look(time_s: float) -> Observation:
        seen = holding()(time_s)
        pool = seen.memory.pools[0]
        taken = 1400 if time_s >= 50 else 0
        unseen = replace(pool, free=measured((pool.free.mib or 0) - taken))
        return replace(seen, memory=replace(seen.memory, pools=(unseen,)))

    short = [found for _, found in diagnosed(map(look, seconds(80))) if found.deficit_mib > 0]
    assert {(found.cause, found.owner) for found in short} == {(Cause.FOREIGN_PROCESS, "others, unnamed")}


# Foreign processes


def test_a_foreign_process_is_named_before_the_agent_runs() -> None:
    def look(time_s: float) -> Observation:
        memory = vram(agent=0, foreign=2048 if time_s >= 50 else 0, name="blender")
        return replace(driving(time_s), memory=memory, agent=AgentSeen(running=False))

    reported = diagnosed(map(look, seconds(120)))
    assert [(time_s, finding.cause, finding.owner) for time_s, finding in reported] == [
        (50, Cause.FOREIGN_PROCESS, "blender")
    ]
    assert reported[0][1].numbers == {"grown_mib": 2048, "held_mib": 2048, "for_s": 1, "free_mib": 697}
    assert reported[0][1].deficit_mib == 0


def test_a_foreign_process_that_makes_the_pool_short_is_the_cause_for_as_long_as_it_is() -> None:
    series = holding(simulator=3000, foreign=lambda t: 1450 if 50 <= t < 150 else 10, name="blender")
    reported = diagnosed(map(series, seconds(300)))
    assert causes(reported) == {Cause.FOREIGN_PROCESS}
    short = [(time_s, finding) for time_s, finding in reported if finding.deficit_mib > 0]
    assert short[0][0] == pytest.approx(56, abs=1)
    assert short[0][1].deficit_mib == RESERVE_MIB - (TOTAL_MIB - 3000 - 1200 - 1450)
    assert "blender, which isn't this run's, took 1440 MiB" in short[0][1].sentence
    assert all(finding.owner == "blender" for _, finding in short)
    assert 0 <= float(short[-1][1].numbers["for_s"] or 0) - (short[-1][0] - 50) <= 6
    assert max(time_s for time_s, _ in reported) < 160


def test_a_foreign_process_that_takes_more_of_a_short_pool_is_told_of_once_a_look() -> None:
    series = holding(simulator=3000, foreign=lambda t: 10 if t < 50 else 1480 if t < 100 else 1545, name="blender")
    reported = diagnosed(map(series, seconds(150)))
    assert len({time_s for time_s, _ in reported}) == len(reported)


def test_a_foreign_process_that_takes_little_of_much_is_nobodys_business() -> None:
    series = holding(simulator=1000, agent=500, foreign=lambda t: 85 + 200 * (t >= 50))
    assert not diagnosed(map(series, seconds(120)))


# Bands


def test_leaving_the_band_is_told_once_and_again_after_a_return() -> None:
    def agent(time_s: float) -> float:
        return 1500.0 if 200 <= time_s < 300 or time_s >= 400 else 1200.0

    reported = diagnosed(map(holding(agent=agent, simulator=2000), seconds(600)))
    assert [(round(time_s, -1), finding.cause) for time_s, finding in reported] == [
        (200, Cause.OUT_OF_BAND),
        (400, Cause.OUT_OF_BAND),
    ]
    assert reported[0][1].sentence == "the agent holds 1500 MiB of vram:0 while updating, 1200 MiB were measured before"


def test_falling_out_of_the_band_is_told_too() -> None:
    reported = diagnosed(map(holding(agent=lambda t: 700 if t >= 200 else 1200, simulator=2000), seconds(300)))
    assert [finding.numbers["held_mib"] for _, finding in reported] == [700]


def test_what_the_plan_did_not_expect_is_told_once_and_then_expected() -> None:
    planned = {("agent", "vram:0", "updating"): 900.0, ("simulator", "vram:0", ""): 2e3}
    reported = diagnosed(map(holding(agent=1200, simulator=2000), seconds(300)), planned=planned)
    assert [finding.numbers["expected"] for _, finding in reported] == ["planned"]
    assert reported[0][0] == pytest.approx(LIMITS.restore.settle_s, abs=1)


def test_a_simulator_is_measured_once_somebody_drives_in_it() -> None:
    def look(time_s: float) -> Observation:
        seen = holding(agent=1200, simulator=1500 if time_s < 100 else 2000)(time_s)
        return with_beat(seen, phase="starting" if time_s < 50 else "warming" if time_s < 100 else "collecting")

    assert not diagnosed(map(look, seconds(300)))
    assert diagnosed(with_beat(look(time_s), phase="collecting") for time_s in seconds(300))


def test_a_plan_s_peak_need_not_be_reached() -> None:
    planned = {("agent", "vram:0", "updating"): 3000.0, ("simulator", "vram:0", ""): 9e3}
    assert not diagnosed(map(holding(agent=1200, simulator=2000), seconds(300)), planned=planned)


def test_each_phase_has_a_band_of_its_own() -> None:
    def look(time_s: float) -> Observation:
        evaluating = time_s % 200 >= 100
        seen = holding(agent=1600 if evaluating else 1200, simulator=2000)(time_s)
        return with_beat(seen, phase="evaluating" if evaluating else "collecting", state="evaluating")

    assert not diagnosed(map(look, seconds(900)))


def test_other_micro_batches_are_measured_anew() -> None:
    def look(time_s: float) -> Observation:
        seen = holding(agent=800 if time_s >= 200 else 1200, simulator=2000)(time_s)
        return with_beat(seen, micro_batch=16 if time_s >= 200 else 64)

    assert not diagnosed(map(look, seconds(400)))


@pytest.mark.parametrize(
    ("then", "told"), [({}, {"agent"}), ({KEY: 900.0}, set()), ({KEY: 900.0, OTHER: 2400.0}, set())]
)
def test_after_a_rung_the_agent_is_measured_anew(then: dict[BandKey, float], told: set[str]) -> None:
    """A rung that frees memory changes the agent's plan, and only that starts a new measurement."""
    diagnostician, found = Diagnostician(LIMITS, EXPECTED), list[Finding]()
    planned = {KEY: 1300.0, OTHER: 2500.0}
    diagnostician.expect(planned)
    for time_s in seconds(400):
        if time_s == 200:
            diagnostician.expect({**planned, **then})
        found += diagnostician.look(holding(agent=800 if time_s >= 200 else 1200, simulator=2000)(time_s))
    assert {each.owner for each in found} == told


def of_two(held_mib: Callable[[float], float], second: Callable[[float], tuple[int, ...] | None]) -> Series:
    """Return a run of two simulators that hold so much together, the second with these processes."""
    series = holding(agent=1200, simulator=held_mib)
    return lambda time_s: replace(series(time_s), further=second(time_s))


def test_two_simulators_of_which_one_is_started_again_or_ended_are_measured_anew() -> None:
    def held_mib(time_s: float) -> float:
        if time_s < 200:
            return 4000.0
        return 2000.0 + 20.0 * min(100.0, time_s - 200) if time_s < 500 else 2000.0

    def second(time_s: float) -> tuple[int, ...] | None:
        if 200 <= time_s < 300:
            return None
        return () if time_s >= 500 else (101 if time_s < 200 else 102,)

    assert not diagnosed(map(of_two(held_mib, second), seconds(700)))
    assert causes(diagnosed(map(of_two(held_mib, lambda _: (101,)), seconds(700)))) == {Cause.OUT_OF_BAND}


# No figures


def test_a_lost_gpu_is_told_first_and_for_as_long_as_it_is() -> None:
    lost = Reading((), Gpu.LOST, "NVML: GPU is lost.")
    reported = diagnosed(replace(driving(t), memory=lost, simulator=SIMULATOR) for t in seconds(3))
    assert [(finding.cause, finding.sentence) for _, finding in reported] == [
        (Cause.GPU_LOST, "the GPU is lost: NVML: GPU is lost")
    ] * 3


def test_pools_without_figures_are_not_judged() -> None:
    owners = tuple(replace(owner, held=UNKNOWN) for owner in vram().pools[0].owners)
    blind = Reading((Pool("vram:0", PoolKind.VRAM, measured(TOTAL_MIB), UNKNOWN, owners),), Gpu.OK)
    assert not diagnosed(replace(driving(t), memory=blind) for t in seconds(400))
