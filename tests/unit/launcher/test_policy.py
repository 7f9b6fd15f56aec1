"""Decisions as pure functions: budgets and delays, which step frees enough, what follows from which finding."""

from __future__ import annotations

import dataclasses

import pytest
from hypothesis import given
from hypothesis import strategies as st

from launcher import config
from launcher.diagnosis.causes import Cause, Finding
from launcher.exits import Ending, Exit
from launcher.ladder.rungs import Does, Ladder, Step
from launcher.memory.pools import Kind, Owner, Pool, Reading, Whose, measured
from launcher.policy import verdict
from launcher.policy.decisions import Nothing, RestartAgent, RestartSimulator, StepDown, Stop, Taken, overrides
from launcher.policy.descent import Ground, frees, is_taken, next_step
from launcher.policy.restarts import delay_s, failures_in_a_row
from tests.unit.launcher.simulated import needs_by

LIMITS = config.load()
BUDGET = LIMITS.simulator.restarts
STOP = Step("stop", Does.STOP, "the run")


def micro(size: int, frees_mib: float) -> Step:
    return Step("micro_batches", Does.APPLY, "slower", {"td3.micro_batch": size}, frees_mib={Kind.VRAM: frees_mib})


OFFLOAD = Step(
    "offload", Does.RESTART_AGENT, "", {"memory.offload": ["optimizer"]}, frees_mib={Kind.VRAM: 50, Kind.RAM: -50}
)
RESTART = Step("restart_simulator", Does.RESTART_SIMULATOR, "an episode")
LADDER: Ladder = {Kind.VRAM: (micro(128, 80), micro(64, 40), RESTART, OFFLOAD, STOP), Kind.RAM: (RESTART, STOP)}


def ground(
    taken: tuple[Taken, ...] = (), ram_free_mib: float = 8000, simulator_mib: float = 4800, ladder: Ladder = LADDER
) -> Ground:
    owners = (Owner("simulator", Whose.SIMULATOR, (5,), measured(simulator_mib)),)
    pools = (
        Pool("vram:0", Kind.VRAM, measured(5745), measured(20), owners),
        Pool("ram", Kind.RAM, measured(16000), measured(ram_free_mib)),
    )
    return Ground(
        ladder, taken, Reading(pools), LIMITS.memory, lambda values: needs_by(ladder, 1000, values), {Kind.VRAM: 4700}
    )


def took(step: Step) -> Taken:
    return Taken(step.rung, "vram", "short", dict(step.values), step.quality)


def name(step: Step | None) -> str:
    return "none" if step is None else str(step)


def test_exactly_the_budget_of_restarts_is_given() -> None:
    delays = [delay_s(count, BUDGET, 0.0) for count in range(1, BUDGET.budget + 2)]
    assert None not in delays[:-1]
    assert delays[-1] is None


@given(st.integers(1, BUDGET.budget), st.floats(-1, 1))
def test_delays_double_within_their_jitter_and_their_limit(count: int, draw: float) -> None:
    middle_s = min(BUDGET.first_delay_s * 2 ** (count - 1), BUDGET.longest_delay_s)
    assert delay_s(count, BUDGET, draw) == pytest.approx(middle_s, rel=BUDGET.jitter + 1e-9)


def test_a_stable_time_forgives_earlier_failures() -> None:
    assert failures_in_a_row(4, BUDGET.stable_after_s - 1, BUDGET) == 5
    assert failures_in_a_row(4, BUDGET.stable_after_s, BUDGET) == 1


@pytest.mark.parametrize(
    ("deficit_mib", "expected"),
    [
        (60, "micro_batches (td3.micro_batch = 128)"),
        (100, "micro_batches (td3.micro_batch = 64)"),
        (121, "micro_batches (td3.micro_batch = 64)"),
        (500, "stop"),
    ],
)
def test_the_first_step_that_frees_the_deficit_is_next_and_a_rungs_steps_add_up(
    deficit_mib: float, expected: str
) -> None:
    assert name(next_step(ground(), Kind.VRAM, deficit_mib)) == expected


def test_the_simulators_restart_frees_what_it_grew_by_and_counts_only_if_that_is_enough() -> None:
    taken = (took(micro(64, 40)),)
    assert name(next_step(ground(taken), Kind.VRAM, 60)) == "restart_simulator"
    assert name(next_step(ground(taken, simulator_mib=4720), Kind.VRAM, 45)).startswith("offload")


def test_a_step_that_would_overfill_another_pool_is_skipped() -> None:
    taken = (took(micro(64, 40)),)
    room = LIMITS.memory.reserve_mib[Kind.RAM] + 50
    assert name(next_step(ground(taken, room, 4700), Kind.VRAM, 40)).startswith("offload")
    assert name(next_step(ground(taken, room - 1, 4700), Kind.VRAM, 40)) == "stop"


def test_in_the_pool_of_a_container_only_its_own_programs_steps_help() -> None:
    slower = dataclasses.replace(micro(64, 0), frees_mib={Kind.RAM: 40})
    stands = dataclasses.replace(
        ground(ladder={Kind.RAM: (RESTART, slower, STOP)}),
        reading=Reading(
            (Pool("ram", Kind.RAM, measured(9), measured(9), (Owner("s", Whose.SIMULATOR, (), measured(900)),)),)
        ),
        fresh_mib={Kind.RAM: 100},
    )
    assert name(next_step(stands, Kind.RAM, 30, "ram")) == "restart_simulator"
    assert name(next_step(stands, Kind.RAM, 30, "ram:agent")) == "micro_batches (td3.micro_batch = 64)"
    assert name(next_step(stands, Kind.RAM, 30, "ram:simulator")) == "restart_simulator"
    grown_by_nothing = dataclasses.replace(stands, fresh_mib={Kind.RAM: 900})
    assert name(next_step(grown_by_nothing, Kind.RAM, 30, "ram:simulator")) == "stop"


def test_a_step_above_the_one_that_holds_is_behind_us() -> None:
    assert is_taken(micro(128, 80), ground((took(micro(64, 40)),)))
    assert not is_taken(micro(64, 40), ground((took(micro(128, 80)),)))


def test_a_step_frees_what_is_left_to_free_and_what_only_the_configuration_knows() -> None:
    stands = ground((took(micro(128, 80)),))
    assert frees(stands, micro(64, 40))[Kind.VRAM] == 40
    assert overrides([took(micro(128, 80)), took(micro(64, 40))]) == {"td3.micro_batch": 64}
    told = dataclasses.replace(micro(64, 40), unseen_mib={Kind.VRAM: 7.0})
    assert frees(stands, told)[Kind.VRAM] == 47


@given(
    st.lists(st.integers(1, 500), min_size=1, max_size=8), st.integers(1, 3000), st.sets(st.integers(0, 7), max_size=4)
)
def test_a_step_that_is_chosen_is_new_and_helps_and_stop_comes_only_when_all_that_is_left_is_too_little(
    frees_mib: list[int], deficit_mib: int, taken_at: set[int]
) -> None:
    steps = tuple(
        Step(f"rung {index}", Does.RESTART_AGENT, "", {f"key.{index}": 1}, frees_mib={Kind.VRAM: mib})
        for index, mib in enumerate(frees_mib)
    )
    taken = tuple(took(steps[index]) for index in taken_at if index < len(steps))
    chosen = next_step(ground(taken, ladder={Kind.VRAM: (*steps, STOP)}), Kind.VRAM, deficit_mib)
    left = [step for step in steps if took(step) not in taken]
    assert chosen is not None
    if chosen.does is Does.STOP:
        assert sum(step.frees_mib[Kind.VRAM] for step in left) < deficit_mib
    else:
        assert chosen in left
        enough = [step for step in left if step.frees_mib[Kind.VRAM] >= deficit_mib]
        assert chosen == (enough[0] if enough else max(left, key=lambda step: step.frees_mib[Kind.VRAM]))


def decide(
    cause: Cause, failures: int = 1, ever_healthy: bool = True, **given_: object
) -> Nothing | RestartSimulator | RestartAgent | StepDown | Stop:
    finding = Finding(cause, "something happened", **given_)  # type: ignore[arg-type]
    decision = verdict.decide(finding, failures, ever_healthy, ground(), LIMITS, 0.0)
    assert isinstance(decision, Nothing | RestartSimulator | RestartAgent | StepDown | Stop)
    return decision


@pytest.mark.parametrize("code", [2, 65, 69])
def test_a_simulator_that_refuses_to_start_ends_the_run_with_its_own_code_and_words(code: int) -> None:
    decision = decide(Cause.SIMULATOR_CRASH, ever_healthy=False, exit_code=code)
    assert isinstance(decision, Stop)
    assert (decision.ending.code, decision.ending.reason) == (code, "something happened")


@pytest.mark.parametrize("code", [1, 0, None])
def test_a_first_start_that_just_fails_is_not_tried_again(code: int | None) -> None:
    decision = decide(Cause.SIMULATOR_NOT_READY, ever_healthy=False, exit_code=code)
    assert isinstance(decision, Stop)
    assert decision.ending.code == Exit.NO_SIMULATOR


def test_a_first_start_that_crashes_is_tried_again() -> None:
    assert isinstance(decide(Cause.SIMULATOR_CRASH, ever_healthy=False, exit_code=139), RestartSimulator)


def test_a_simulator_that_ran_out_of_memory_once_is_started_again_and_twice_something_gives_way() -> None:
    assert isinstance(decide(Cause.SIMULATOR_OUT_OF_VRAM, exit_code=139), RestartSimulator)
    assert isinstance(decide(Cause.SIMULATOR_OUT_OF_VRAM, failures=2, exit_code=139), StepDown)


@pytest.mark.parametrize(
    ("cause", "code"), [(Cause.MISCONFIGURATION, Exit.CONFIGURATION), (Cause.GPU_LOST, Exit.NO_SIMULATOR)]
)
def test_what_no_restart_mends_ends_the_run_and_takes_no_rung(cause: Cause, code: Exit) -> None:
    decision = decide(cause)
    assert isinstance(decision, Stop)
    assert decision.ending.code == code


def test_a_leak_is_restarted_at_an_episodes_end_or_at_once_when_time_is_short_and_a_strangers_isnt_ours() -> None:
    calm = decide(Cause.LEAK, pool="vram:0", owner="simulator", exhausted_in_s=500)
    assert calm == RestartSimulator("something happened", failed=False, waits=True)
    hasty = decide(Cause.LEAK, pool="vram:0", owner="agent", exhausted_in_s=60)
    assert hasty == RestartAgent("something happened", failed=False, waits=False)
    assert isinstance(decide(Cause.LEAK, pool="vram:0", owner="chrome", exhausted_in_s=60), Nothing)


DISK: Ladder = {
    Kind.DISK: (
        Step("fewer_checkpoints", Does.RESTART_AGENT, "", {"training.keep_checkpoints": 1}, frees_mib={Kind.DISK: 90}),
        STOP,
    ),
    Kind.RAM: (micro(128, 80), STOP),
}


@pytest.mark.parametrize(("deficit_mib", "expected"), [(50.0, "fewer_checkpoints"), (500.0, "")])
def test_an_agent_refused_for_disk_gives_way_on_the_disks_ladder_and_never_cuts_its_batch(
    deficit_mib: float, expected: str
) -> None:
    finding = Finding(Cause.AGENT_DISK_FULL, "refused for disk", "disk", deficit_mib=deficit_mib, exit_code=71)
    stands = dataclasses.replace(ground(ladder=DISK), needs=lambda _: {})
    decision = verdict.decide(finding, 1, True, stands, LIMITS, 0.0)
    assert isinstance(decision, StepDown if expected else RestartAgent)
    assert not expected or (decision.step.rung, decision.kind) == (expected, "disk")  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("cause", "freed"),
    [
        (Cause.AGENT_DISK_FULL, "free some of the disk that the run is on"),
        (Cause.AGENT_CUDA_OOM, "free some of the GPU's memory"),
        (Cause.AGENT_HOST_OOM, "free some of the host's memory"),
    ],
)
def test_a_run_that_ends_because_nothing_is_left_says_what_to_free(cause: Cause, freed: str) -> None:
    finding = Finding(cause, "refused", deficit_mib=9000, exit_code=71)
    decision = verdict.decide(finding, BUDGET.budget + 1, True, ground(ladder={}), LIMITS, 0.0)
    assert decision == Stop(Ending(Exit.CANNOT_FIT, f"refused, and no rung of the ladder is left that helps: {freed}"))


LEAKS = LIMITS.memory.leak_restarts


@pytest.mark.parametrize("owner", ["simulator", "agent"])
@pytest.mark.parametrize("exhausted_in_s", [500, 10])
def test_exactly_the_budget_of_restarts_for_a_leak_is_given_and_then_it_is_left_alone(
    owner: str, exhausted_in_s: float
) -> None:
    made = [
        decide(Cause.LEAK, failures=count, pool="vram:0", owner=owner, exhausted_in_s=exhausted_in_s, deficit_mib=0)
        for count in range(1, LEAKS.budget + 2)
    ]
    assert all(isinstance(each, RestartSimulator | RestartAgent) for each in made[:-1])
    assert made[-1] == Nothing(f"its {LEAKS.budget} restarts for that are spent: goes on until memory is short")


@pytest.mark.parametrize("cause", [Cause.COLLECTOR_HANG, Cause.OUT_OF_BAND])
def test_what_mends_itself_is_left_alone(cause: Cause) -> None:
    assert decide(cause) == Nothing()
