"""Diagnoses of a simulator's end, start and log."""

from __future__ import annotations

from dataclasses import replace

import pytest

from carla_launcher.decide.detectors.causes import Cause
from carla_launcher.decide.detectors.simulator import MISCONFIGURED
from carla_launcher.observe.observation import AgentSeen, Ended, Observation, Sign
from tests.unit.launcher.seen import (
    LIMITS,
    TOTAL_MIB,
    Told,
    causes,
    diagnosed,
    driving,
    first,
    ram,
    seconds,
    vram,
    with_simulator,
)

OOM_LINE = "LogVulkanRHI: Error: Result failed, VkResult=-2 (VK_ERROR_OUT_OF_DEVICE_MEMORY)"


def simulator_ends(
    code: int, sign: Sign | None = None, at_s: float = 30, oom_killed: bool = False, planned: bool = False
) -> Told:
    """Return the findings of a run whose simulator ends, a second after a line in its log."""

    def look(time_s: float) -> Observation:
        seen = driving(min(time_s, at_s))
        seen = replace(seen, time_s=time_s)
        if sign is not None and time_s == at_s - 1:
            seen = with_simulator(seen, signs=((sign, OOM_LINE),))
        if time_s >= at_s:
            seen = with_simulator(seen, running=False, ended=Ended(code, oom_killed, planned), connection_lost=True)
        return seen

    return diagnosed(map(look, seconds(at_s + 50)))


@pytest.mark.parametrize(
    ("code", "sign", "oom_killed", "cause", "words"),
    [
        (139, Sign.OUT_OF_VRAM, False, Cause.SIMULATOR_OUT_OF_VRAM, "(signal 11) after out of video memory"),
        (1, Sign.OUT_OF_VRAM, False, Cause.SIMULATOR_OUT_OF_VRAM, "(exit code 1) after out of video memory"),
        (139, Sign.CRASH, False, Cause.SIMULATOR_CRASH, "ended by itself (signal 11)"),
        (134, Sign.DEVICE_LOST, False, Cause.SIMULATOR_CRASH, "(signal 6) after a GPU fault"),
        (1, Sign.PORT_TAKEN, False, Cause.SIMULATOR_CRASH, "after its port is in use"),
        (137, None, True, Cause.SIMULATOR_HOST_OOM, "the kernel killed the simulator for memory (signal 9)"),
        (137, None, False, Cause.SIMULATOR_CRASH, "(signal 9)"),
        (0, None, False, Cause.SIMULATOR_CRASH, "(exit code 0)"),
        (139, Sign.OUT_OF_RAM, False, Cause.SIMULATOR_HOST_OOM, "(signal 11) after out of host memory"),
        (139, Sign.RENDERER_HUNG, False, Cause.SIMULATOR_CRASH, "(signal 11) after its render thread hung"),
        (139, Sign.VULKAN_FAILED, False, Cause.SIMULATOR_CRASH, "after its Vulkan driver didn't start"),
        (1, Sign.LAVAPIPE, False, Cause.MISCONFIGURATION, "lavapipe"),
        (1, Sign.NO_VULKAN, False, Cause.MISCONFIGURATION, "no Vulkan driver"),
        (1, Sign.ROOT, False, Cause.MISCONFIGURATION, "refuses to run as root"),
        (127, Sign.NO_LIBRARY, False, Cause.MISCONFIGURATION, OOM_LINE),
    ],
)
def test_a_simulators_end_is_named(code: int, sign: Sign | None, oom_killed: bool, cause: Cause, words: str) -> None:
    reported = simulator_ends(code, sign, oom_killed=oom_killed)
    time_s, finding = first(reported, cause)
    assert causes(reported) == {cause}, "the same for as long as it is looked at"
    assert time_s == (29 if sign in MISCONFIGURED and sign is not Sign.VULKAN_FAILED else 30)
    assert words in reported[-1][1].sentence
    assert reported[-1][1].exit_code == code
    if sign is not None:
        assert finding.numbers["log"] == OOM_LINE


@pytest.mark.parametrize("code", [137, 143, 0, 139])
def test_an_end_that_the_launcher_asked_for_is_none(code: int) -> None:
    assert not simulator_ends(code, Sign.CRASH, planned=True)


def test_a_line_of_long_ago_explains_nothing() -> None:
    def look(time_s: float) -> Observation:
        seen = driving(time_s)
        if time_s == 5:
            return with_simulator(seen, signs=((Sign.OUT_OF_VRAM, OOM_LINE),))
        return with_simulator(seen, running=False, ended=Ended(139)) if time_s >= 60 else seen

    assert causes(diagnosed(map(look, seconds(70)))) == {Cause.SIMULATOR_CRASH}


def test_an_oom_kill_that_only_the_counter_shows_is_seen() -> None:
    def look(time_s: float) -> Observation:
        seen = replace(driving(time_s), memory=ram(kills=3 + (time_s >= 29), name="ram:simulator"))
        return with_simulator(seen, running=False, ended=Ended(137)) if time_s >= 30 else seen

    reported = diagnosed(map(look, seconds(80)))
    assert causes(reported) == {Cause.SIMULATOR_HOST_OOM}
    assert reported[0][1].pool == "ram:simulator"


def test_an_end_during_the_start_is_a_crash_at_once() -> None:
    def look(time_s: float) -> Observation:
        seen = replace(driving(time_s), agent=AgentSeen(running=False))
        if time_s < 3:
            return with_simulator(seen, healthy=False, problem="nothing listens there")
        return with_simulator(seen, running=False, healthy=False, ended=Ended(1))

    time_s, finding = first(diagnosed(map(look, seconds(10))), Cause.SIMULATOR_CRASH)
    assert time_s == 3
    assert finding.sentence == "the simulator ended by itself during its start (exit code 1)"


def test_lavapipe_is_a_misconfiguration_and_nothing_else() -> None:
    def look(time_s: float) -> Observation:
        seen = driving(time_s)
        return with_simulator(seen, signs=((Sign.LAVAPIPE, "WARNING: lavapipe is not a conformant"),) * (time_s == 2))

    reported = diagnosed(map(look, seconds(100)))
    assert causes(reported) == {Cause.MISCONFIGURATION}
    assert len(reported) == 98, "it stays one, long after the line"
    assert all(cure in reported[0][1].sentence for cure in ("GPU_RUNTIME=nvidia", "doctor"))


def vulkan_fails(free_mib: float, ran_before: bool) -> Told:
    """Return the findings of a simulator whose driver doesn't begin while so much of the card is free."""

    def look(time_s: float) -> Observation:
        seen = driving(time_s)
        if ran_before and time_s < 2:
            return seen
        seen = replace(seen, memory=vram(simulator=0, agent=0, foreign=TOTAL_MIB - free_mib))
        if time_s < 4:
            return with_simulator(seen, healthy=False, pid=101)
        signs = ((Sign.VULKAN_FAILED, "vkCreateDevice failed, VkResult=-3"),) * (time_s == 4)
        return with_simulator(seen, running=False, healthy=False, pid=101, signs=signs, ended=Ended(139))

    return diagnosed(map(look, seconds(20)))


@pytest.mark.parametrize(
    ("free_mib", "ran_before", "cause"),
    [
        (50, False, Cause.SIMULATOR_OUT_OF_VRAM),
        (50, True, Cause.SIMULATOR_OUT_OF_VRAM),
        (5000, False, Cause.MISCONFIGURATION),
        (5000, True, Cause.SIMULATOR_CRASH),
    ],
)
def test_a_driver_that_does_not_begin_is_short_of_memory_or_broken_by_what_is_known_of_it(
    free_mib: float, ran_before: bool, cause: Cause
) -> None:
    assert cause in causes(vulkan_fails(free_mib, ran_before))
    assert not causes(vulkan_fails(free_mib, ran_before)) & set(RIVALS - {cause})


RIVALS = {Cause.SIMULATOR_OUT_OF_VRAM, Cause.MISCONFIGURATION, Cause.SIMULATOR_CRASH}


def test_a_lost_connection_counts_when_the_process_does_not_end_by_itself() -> None:
    def look(time_s: float) -> Observation:
        return with_simulator(driving(time_s), connection_lost=time_s >= 10, healthy=time_s < 10)

    time_s, finding = first(diagnosed(map(look, seconds(30))), Cause.SIMULATOR_CRASH)
    assert time_s == 10 + LIMITS.watch.dying_s
    assert finding.exit_code is None
