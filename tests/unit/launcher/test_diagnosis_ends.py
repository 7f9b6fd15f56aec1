"""A program that crashed while its memory was below the reserve ran out of it, whatever it said; else it crashed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from carla_launcher.decide.detectors.causes import Cause, Finding
from carla_launcher.observe.observation import Ended, Observation, Sign
from carla_launcher.observe.pools import Gpu, Owner, OwnerKind, Pool, PoolKind, Reading, measured
from carla_run.events import Failed
from tests.unit.launcher.seen import (
    LIMITS,
    TOTAL_MIB,
    diagnosed,
    driving,
    seconds,
    vram,
    with_agent,
    with_beat,
    with_simulator,
)

END_S = 30.0
RESERVE_MIB = LIMITS.memory.reserve_mib
UNKNOWN = Failed(cause="RuntimeError: words that no pattern knows", exit_code=1, error="RuntimeError").row()
OWNERS = {"agent": OwnerKind.AGENT, "simulator": OwnerKind.SIMULATOR}

Memory = Callable[[float], Reading]


def ends(program: str, memory: Memory, code: int = 1, device: str = "cuda", sign: Sign | None = None) -> Finding:
    """Return what the end of a program is put down to: the same at every look."""

    def look(time_s: float) -> Observation:
        seen = replace(with_beat(driving(min(time_s, END_S)), device=device), time_s=time_s, memory=memory(time_s))
        if sign is not None and time_s == END_S - 1:
            seen = with_simulator(seen, signs=((sign, "its line"),))
        if time_s < END_S:
            return seen
        if program == "agent":
            return with_agent(seen, running=False, ended=Ended(code), events=(UNKNOWN,) * (time_s == END_S))
        return with_simulator(seen, running=False, ended=Ended(code), connection_lost=True)

    reported = [each for each in diagnosed(map(look, seconds(END_S + 20))) if each[1].exit_code is not None]
    assert reported[0][0] == END_S
    assert len({finding.cause for _, finding in reported}) == 1
    return reported[0][1]


def card(program: str, free: float, free_after: float | None = None) -> Memory:
    """Return a card with so much free until the end of a program, which gives back what it held."""

    def read(time_s: float) -> Reading:
        held = {"simulator": 3000.0, "agent": 1200.0}
        if time_s >= END_S:
            held[program] = 0.0
        left = free if time_s < END_S else free + 4200.0 - sum(held.values()) if free_after is None else free_after
        return vram(held["simulator"], held["agent"], TOTAL_MIB - sum(held.values()) - left)

    return read


def container(program: str, free: float, since_s: float = 0.0) -> Memory:
    """Return a container with so much free, which is seen from then on, and goes with its program."""

    def read(time_s: float) -> Reading:
        owner = Owner(program, OWNERS[program], (200,), measured(900))
        pool = Pool(f"ram:{program}", PoolKind.RAM, measured(1000), measured(free), (owner,))
        return Reading((pool,) if since_s <= time_s < END_S else (), Gpu.NONE)

    return read


@pytest.mark.parametrize(
    ("program", "cause"), [("agent", Cause.AGENT_CUDA_OOM), ("simulator", Cause.SIMULATOR_OUT_OF_VRAM)]
)
@pytest.mark.parametrize("code", [1, 134, 139])
def test_a_crash_on_a_full_card_is_out_of_memory_though_no_pattern_knows_its_words(
    program: str, cause: Cause, code: int
) -> None:
    found = ends(program, card(program, free=40), code)
    assert (found.cause, found.pool, found.owner) == (cause, "vram:0", program)
    assert found.deficit_mib == RESERVE_MIB[PoolKind.VRAM] - 40
    assert "while vram:0 had 40 MiB free, expected 100 MiB: its memory ran out" in found.sentence
    assert found.numbers["free_mib"] == 40


@pytest.mark.parametrize(
    ("program", "cause"), [("agent", Cause.AGENT_HOST_OOM), ("simulator", Cause.SIMULATOR_HOST_OOM)]
)
@pytest.mark.parametrize("since_s", [0.0, END_S - 1])
@pytest.mark.parametrize("code", [1, 134, 137, 143])
def test_a_crash_in_a_full_container_is_out_of_memory_and_so_is_a_guards_kill(
    program: str, cause: Cause, code: int, since_s: float
) -> None:
    found = ends(program, container(program, 100, since_s), code)
    assert (found.cause, found.pool, found.deficit_mib) == (cause, f"ram:{program}", RESERVE_MIB[PoolKind.RAM] - 100)


@pytest.mark.parametrize(("program", "cause"), [("agent", Cause.AGENT_CRASH), ("simulator", Cause.SIMULATOR_CRASH)])
@pytest.mark.parametrize("memory", [card, container])
def test_with_ample_memory_it_is_a_crash(program: str, cause: Cause, memory: Callable[[str, float], Memory]) -> None:
    assert ends(program, memory(program, 1000)).cause is cause


def test_memory_that_another_took_all_at_once_since_the_last_look_is_seen_by_what_the_end_gave_back() -> None:
    ample_before, taken = 900.0, 900.0
    after = ample_before - taken + 1200.0  # what the agent held
    assert ends("agent", card("agent", ample_before, after)).cause is Cause.AGENT_CUDA_OOM
    assert ends("agent", card("agent", ample_before, after + 500)).cause is Cause.AGENT_CRASH


def test_a_shortage_that_was_over_long_before_the_end_explains_nothing() -> None:
    def read(time_s: float) -> Reading:
        return card("agent", 40 if time_s < END_S - 2 * LIMITS.memory.pressure_s else 1000)(time_s)

    assert ends("agent", read).cause is Cause.AGENT_CRASH


def test_a_full_card_is_no_matter_of_an_agent_on_the_cpu_nor_of_one_that_holds_nothing_of_it() -> None:
    assert ends("agent", card("agent", free=40), device="cpu").cause is Cause.AGENT_CRASH
    empty = vram(simulator=3000, agent=0, foreign=TOTAL_MIB - 3040)
    assert ends("agent", lambda _: empty).cause is Cause.AGENT_CRASH


@pytest.mark.parametrize("code", [137, 143])
def test_a_kill_from_outside_is_no_matter_of_the_card(code: int) -> None:
    assert ends("agent", card("agent", free=40), code).cause is Cause.AGENT_CRASH
    assert ends("simulator", card("simulator", free=40), code).cause is Cause.SIMULATOR_CRASH


@pytest.mark.parametrize("code", [2, 65, 69])
def test_an_end_with_a_reason_of_its_own_keeps_it_on_a_full_card(code: int) -> None:
    assert ends("agent", card("agent", free=40), code).cause not in (Cause.AGENT_CUDA_OOM, Cause.AGENT_CRASH)


@pytest.mark.parametrize(
    ("sign", "cause"),
    [
        (Sign.DEVICE_LOST, Cause.SIMULATOR_OUT_OF_VRAM),
        (Sign.RENDERER_HUNG, Cause.SIMULATOR_OUT_OF_VRAM),
        (Sign.OUT_OF_RAM, Cause.SIMULATOR_HOST_OOM),
        (Sign.PORT_TAKEN, Cause.SIMULATOR_CRASH),
        (Sign.NO_VULKAN, Cause.MISCONFIGURATION),
    ],
)
def test_on_a_full_card_only_a_sign_of_another_cause_outweighs_the_memory(sign: Sign, cause: Cause) -> None:
    assert ends("simulator", card("simulator", free=40), 139, sign=sign).cause is cause


@pytest.mark.parametrize("program", ["agent", "simulator"])
def test_one_that_ends_before_it_is_seen_alive_is_judged_by_its_own_end(program: str) -> None:
    """The one before ran out of memory on a full card; this one, in an empty one, has nothing to do with that."""

    def look(time_s: float) -> Observation:
        memory = card(program, free=40)(time_s) if time_s <= END_S else vram(simulator=0, agent=0)
        seen = replace(driving(min(time_s, END_S)), time_s=time_s, memory=memory)
        if time_s < END_S:
            return seen
        pid = (200 if program == "agent" else 100) + int(time_s > END_S)
        ended = {"running": False, "ended": Ended(139), "pid": pid}
        return with_agent(seen, **ended) if program == "agent" else with_simulator(seen, **ended)

    found = [finding.cause for _, finding in diagnosed(map(look, seconds(END_S + 2))) if finding.exit_code]
    assert found[-1] in (Cause.AGENT_CRASH, Cause.SIMULATOR_CRASH)
    assert found[0] not in (Cause.AGENT_CRASH, Cause.SIMULATOR_CRASH)
