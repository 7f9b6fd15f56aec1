"""Diagnoses of an agent's end and of its silence."""

from __future__ import annotations

import signal
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from carla_launcher.decide.detectors.causes import Cause
from carla_launcher.decide.detectors.expectations import Expectations
from carla_launcher.observe.observation import Ended, Observation
from carla_launcher.observe.pools import Reading
from carla_run.configuration.program_life import End
from carla_run.events import CollectorEnd, CollectorRestarted, Failed, MemoryPool
from tests.unit.launcher.seen import (
    EXPECTED,
    LIMITS,
    Told,
    causes,
    diagnosed,
    driving,
    first,
    ram,
    seconds,
    with_agent,
    with_beat,
)


def agent_ends(
    code: int,
    memory: Callable[[float], Reading] | None = None,
    failed: str = "",
    pool: MemoryPool | None = None,
    refused: dict[str, Any] | None = None,
    at_s: float = 30,
    expectations: Expectations = EXPECTED,
    **changed: Any,
) -> Told:
    """Return the findings of a run whose agent ends; ``changed`` is of ``Ended`` or the last heartbeat."""
    ended = Ended(code, **{key: changed.pop(key) for key in ("oom_killed", "planned") if key in changed})

    def look(time_s: float) -> Observation:
        seen = with_beat(driving(min(time_s, at_s)), **changed)
        seen = replace(seen, time_s=time_s, memory=seen.memory if memory is None else memory(time_s))
        if time_s < at_s:
            return seen
        failure = Failed(cause=failed, exit_code=code, error="Error", pool=pool).row()
        events = [*([failure] if failed or pool else []), *([refused] if refused else [])]
        return with_agent(seen, running=False, ended=ended, events=tuple(events) if time_s == at_s else ())

    return diagnosed(map(look, seconds(at_s + 50)), expectations)


@pytest.mark.parametrize(("code", "explained"), [(135, True), (139, False), (1, False)])
def test_a_bus_error_is_explained(code: int, explained: bool) -> None:
    _, found = first(agent_ends(code), Cause.AGENT_CRASH)
    assert ("a page of a mapped file couldn't be read or written" in found.sentence) == explained


@pytest.mark.parametrize("code", [137, 143, 0, 139])
def test_an_end_that_the_launcher_asked_for_is_none(code: int) -> None:
    assert not agent_ends(code, planned=True)


@pytest.mark.parametrize(
    ("code", "device", "pool", "cause"),
    [
        (71, "cuda", MemoryPool.DEVICE, Cause.AGENT_CUDA_OOM),
        (71, "cuda", MemoryPool.HOST, Cause.AGENT_HOST_OOM),
        (71, "cuda:0", None, Cause.AGENT_CUDA_OOM),
        (71, "cpu", None, Cause.AGENT_HOST_OOM),
        (71, "cpu", MemoryPool.DEVICE, Cause.AGENT_CUDA_OOM),
        (1, "cuda", MemoryPool.DEVICE, Cause.AGENT_CUDA_OOM),
        (1, "cuda", None, Cause.AGENT_CRASH),
        (139, "cpu", None, Cause.AGENT_CRASH),
        (137, "cpu", None, Cause.AGENT_CRASH),
        (65, "cpu", None, Cause.MISCONFIGURATION),
        (65, "cpu", MemoryPool.DISK, Cause.MISCONFIGURATION),
        (69, "cpu", None, Cause.SIMULATOR_NOT_READY),
    ],
)
@pytest.mark.parametrize(
    "failed", ["", "It ended.", "CUDA error: out of memory", "DefaultCPUAllocator: can't allocate"]
)
def test_an_agents_end_is_named_by_code_and_pool_whatever_it_says(
    code: int, device: str, failed: str, pool: MemoryPool | None, cause: Cause
) -> None:
    reported = agent_ends(code, failed=failed, pool=pool, device=device)
    assert causes(reported) == {cause}
    assert reported[0][1].exit_code == code
    assert reported[0][1].numbers.get("failure", "") == failed


@pytest.mark.parametrize(
    ("code", "memory", "cause"),
    [
        (71, None, Cause.AGENT_CUDA_OOM),
        (137, None, Cause.AGENT_HOST_OOM),
        (143, None, Cause.AGENT_HOST_OOM),
        (3, lambda _: ram(0), Cause.AGENT_HOST_OOM),  # there is no card
    ],
)
def test_a_code_that_says_out_of_memory_is_of_the_card_only_where_it_can_be(
    code: int, memory: Callable[[float], Reading] | None, cause: Cause
) -> None:
    exits = replace(EXPECTED, exits={code: End.OUT_OF_MEMORY})
    reported = agent_ends(code, memory, device="cuda", expectations=exits)
    assert causes(reported) == {cause}


@pytest.mark.parametrize(
    ("pool", "cause", "short"),
    [
        ("device", Cause.AGENT_CUDA_OOM, "GPU memory"),
        ("host", Cause.AGENT_HOST_OOM, "host memory"),
        ("disk", Cause.AGENT_DISK_FULL, "disk space"),
    ],
)
@pytest.mark.parametrize("device", ["cuda", "cpu"])
def test_a_refusal_is_of_the_pool_that_it_names_wherever_the_last_agent_computed(
    pool: str, cause: Cause, short: str, device: str
) -> None:
    folder = {"folder": "runs/night"} if pool == "disk" else {"folder": None}
    refused = {"event": "cannot_fit", "pool": pool, "needed_mib": 700.0, "free_mib": 500.0, "reserve_mib": 64, **folder}
    reported = agent_ends(71, refused=refused, device=device)
    assert causes(reported) == {cause}
    found = reported[0][1]
    assert (found.deficit_mib, found.exit_code, found.pool) == (264, 71, "disk" if pool == "disk" else "")
    where = " in runs/night" if pool == "disk" else ""
    assert found.sentence == (
        f"the agent needs more {short} than is free (exit code 71): 700 MiB and a reserve of 64 MiB "
        f"are needed{where}, 500 MiB are free"
    )


def test_a_gpu_that_is_lost_to_the_agent_ends_the_run_by_its_own_cause() -> None:
    lost = Failed(cause="CUDA error: unknown error.\nMore.", exit_code=1, error="RuntimeError", gpu_lost=True)
    reported = agent_ends(1, refused=lost.row())
    assert causes(reported) == {Cause.GPU_LOST}
    assert reported[0][1].sentence == "the agent lost the GPU (CUDA error: unknown error): restart the machine"


@pytest.mark.parametrize("code", [0, 75])
def test_an_agent_that_finished_or_was_stopped_by_a_person_is_well(code: int) -> None:
    assert not agent_ends(code, phase="finished", exit_code=code)


@pytest.mark.parametrize("code", [0, 137])
def test_a_kernel_kill_is_no_success_though_the_container_exits_0_and_memory_was_plenty(code: int) -> None:
    reported = agent_ends(code, memory=lambda _: ram(kills=0, free=8000), oom_killed=True)
    assert causes(reported) == {Cause.AGENT_HOST_OOM}
    assert reported[0][0] == 30
    assert "for memory" in reported[0][1].sentence


@pytest.mark.parametrize("code", [0, 137])
def test_a_counter_of_kills_that_rose_tells_as_much(code: int) -> None:
    reported = agent_ends(code, memory=lambda t: ram(kills=2 + (t >= 30)))
    assert causes(reported) == {Cause.AGENT_HOST_OOM}
    assert {finding.pool for _, finding in reported} == {"ram:agent"}


def test_kills_of_before_are_nobodys_end() -> None:
    assert causes(agent_ends(137, memory=lambda _: ram(kills=4))) == {Cause.AGENT_CRASH}
    assert causes(agent_ends(137, memory=lambda t: ram(kills=int(t >= 20)), at_s=100)) == {Cause.AGENT_CRASH}


def test_a_run_that_finished_after_a_child_had_been_killed_has_finished() -> None:
    assert not agent_ends(0, oom_killed=True, phase="finished", exit_code=0)


def test_a_collector_that_the_kernel_killed_is_told_once_while_the_learner_lives() -> None:
    def look(time_s: float) -> Observation:
        restarted = CollectorRestarted(end=CollectorEnd.SIGNAL, signal=signal.SIGKILL).row()
        seen = replace(driving(time_s), memory=ram(kills=int(time_s >= 20)))
        return with_agent(seen, events=(restarted,) * (time_s == 21))

    reported = diagnosed(map(look, seconds(100)))
    assert [(time_s, finding.cause, finding.pool) for time_s, finding in reported] == [
        (21, Cause.AGENT_HOST_OOM, "ram:agent")
    ]


# The agent's silence


@pytest.mark.parametrize(
    ("awaited", "said"), [("", "no heartbeat for"), ("a change of saved", "no progress (a change of saved) for")]
)
def test_an_agent_without_heartbeat_hangs(awaited: str, said: str) -> None:
    def look(time_s: float) -> Observation:
        seen = with_beat(driving(min(time_s, 100.0)), max(0.3, time_s - 100), state="waiting")
        return replace(with_agent(seen, awaited=awaited), time_s=time_s)

    time_s, finding = first(diagnosed(map(look, seconds(200))), Cause.AGENT_HANG)
    assert time_s == pytest.approx(100 + LIMITS.agent.beat_limit_s, abs=1.5)
    assert said in finding.sentence


def test_an_agent_that_never_beats_or_never_gets_through_its_rehearsal_hangs() -> None:
    silent = (with_agent(driving(t), beat=None, beat_age_s=0.0) for t in seconds(400))
    assert first(diagnosed(silent), Cause.AGENT_HANG)[0] == LIMITS.agent.warming_limit_s + 1
    still = (replace(with_beat(driving(0), phase="starting", state="absent"), time_s=t) for t in seconds(400))
    assert first(diagnosed(still), Cause.AGENT_HANG)[0] == LIMITS.agent.warming_limit_s + 1


@pytest.mark.parametrize("phase", ["waiting_for_simulator", "drained"])
def test_an_agent_that_waits_for_others_is_not_hung(phase: str) -> None:
    waiting = (replace(with_beat(driving(0), phase=phase, state="absent"), time_s=t) for t in seconds(900))
    assert not diagnosed(waiting)
