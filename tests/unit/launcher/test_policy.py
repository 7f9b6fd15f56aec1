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
from launcher.memory.pools import UNKNOWN, Kind, Owner, Pool, Reading, Whose, measured
from launcher.policy import verdict
from launcher.policy.climbing import Hold, fits_without_last
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


def test_a_rung_that_only_another_pools_ladder_has_goes_on_from_where_it_stands() -> None:
    cars = tuple(
        Step("less_traffic", Does.RESTART_AGENT, "", {"environment.traffic.vehicles": count}, frees_mib={Kind.RAM: 40})
        for count in (10, 5)
    )
    stands = ground((took(cars[0]),), ladder={Kind.VRAM: (micro(128, 80), STOP), Kind.RAM: (*cars, STOP)})
    assert is_taken(cars[0], stands)
    assert next_step(stands, Kind.RAM, 30) == cars[1]


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


LOW = Step("carla_low", Does.QUALITY, "", quality="Low", frees_mib={Kind.VRAM: 717})
WITH_RAM = Step("less_ahead", Does.RESTART_AGENT, "", {"training.max_lead_steps": 16}, frees_mib={Kind.RAM: 60})
CLIMB = LIMITS.climb
KEPT = {kind: LIMITS.memory.reserve_mib[kind] + CLIMB.margin_mib for kind in (Kind.VRAM, Kind.RAM)}


@pytest.mark.parametrize(
    ("taken", "vram_costs_mib", "ram_costs_mib"),
    [
        ((micro(128, 80),), 80, None),
        ((micro(128, 80), micro(64, 40)), 40, None),
        ((LOW,), 717, None),
        ((LOW, micro(128, 80)), 80, None),
        ((OFFLOAD,), 50, None),
        ((WITH_RAM,), 0, 60),
    ],
)
def test_a_climb_wants_room_for_what_comes_back_and_the_reserve_and_the_margin(
    taken: tuple[Step, ...], vram_costs_mib: float, ram_costs_mib: float | None
) -> None:
    """A pool that it fills no further hinders it only if the step was taken for it; ``None``: it may be full."""
    ladder: Ladder = {Kind.VRAM: (micro(128, 80), micro(64, 40), LOW, OFFLOAD, WITH_RAM)}

    def fits(vram_free_mib: float | None, ram_free_mib: float | None) -> bool:
        free = {Kind.VRAM: vram_free_mib, Kind.RAM: ram_free_mib}
        pools = tuple(
            Pool(kind.value, kind, measured(16_000), UNKNOWN if mib is None else measured(mib))
            for kind, mib in free.items()
        )
        stands = dataclasses.replace(ground(tuple(map(took, taken)), ladder=ladder), reading=Reading(pools))
        return fits_without_last(stands, CLIMB)

    vram, ram = KEPT[Kind.VRAM] + vram_costs_mib, 0.0 if ram_costs_mib is None else KEPT[Kind.RAM] + ram_costs_mib
    assert fits(vram, ram)
    assert not fits(vram - 1, ram)
    assert not fits(None, ram)
    if ram_costs_mib is not None:
        assert not fits(vram, ram - 1)
        assert not fits(vram, None)


def test_a_hold_counts_from_when_it_began_to_fit_without_a_break() -> None:
    hold = Hold(60)
    assert not hold.is_over(0)
    for now_s, fits in ((0, True), (50, True), (55, False), (70, True), (80, True)):
        hold.look(now_s, fits)
    assert not hold.is_over(129)
    assert hold.is_over(130)
    hold.begin_again()
    assert not hold.is_over(1000)


def test_a_climb_that_is_stepped_down_from_on_probation_doubles_the_hold_up_to_its_limit() -> None:
    hold = Hold(CLIMB.hold_s)
    assert not hold.stepped_down(0, CLIMB), "there was no climb"
    assert hold.hold_s == CLIMB.hold_s
    hold.climbed(0)
    assert not hold.passed(CLIMB.probation_s, CLIMB)
    assert hold.stepped_down(CLIMB.probation_s, CLIMB)
    assert hold.hold_s == 2 * CLIMB.hold_s
    assert not hold.stepped_down(CLIMB.probation_s, CLIMB), "one climb fails once"
    hold.climbed(0)
    assert not hold.stepped_down(CLIMB.probation_s + 1, CLIMB)
    for _ in range(20):
        hold.climbed(0)
        hold.stepped_down(1, CLIMB)
    assert hold.hold_s == CLIMB.longest_hold_s


def test_a_climb_that_stood_its_probation_forgives_once() -> None:
    hold = Hold(4 * CLIMB.hold_s)
    hold.look(0, True)
    hold.climbed(0)
    assert not hold.is_over(1e9), "what is above that rung has yet to fit"
    assert hold.passed(CLIMB.probation_s + 1, CLIMB)
    assert hold.hold_s == CLIMB.hold_s
    assert not hold.passed(CLIMB.probation_s + 2, CLIMB)


def decide(
    cause: Cause, failures: int = 1, ever_healthy: bool = True, stands: Ground | None = None, **given_: object
) -> Nothing | RestartSimulator | RestartAgent | StepDown | Stop:
    finding = Finding(cause, "something happened", **given_)  # type: ignore[arg-type]
    decision = verdict.decide(finding, failures, ever_healthy, stands or ground(), LIMITS, 0.0)
    assert isinstance(decision, Nothing | RestartSimulator | RestartAgent | StepDown | Stop)
    return decision


@pytest.mark.parametrize("code", [2, 65, 69])
def test_a_simulator_that_refuses_to_start_ends_the_run_with_its_own_code_and_words(code: int) -> None:
    decision = decide(Cause.SIMULATOR_CRASH, ever_healthy=False, exit_code=code)
    assert isinstance(decision, Stop)
    assert (decision.ending.code, decision.ending.reason) == (code, "something happened")


@pytest.mark.parametrize("code", [1, 0])
def test_a_first_start_that_just_fails_is_not_tried_again(code: int) -> None:
    decision = decide(Cause.SIMULATOR_NOT_READY, ever_healthy=False, exit_code=code)
    assert isinstance(decision, Stop)
    assert decision.ending.code == Exit.NO_SIMULATOR


def test_a_first_start_that_takes_too_long_is_tried_again_within_the_budget_and_then_there_is_no_simulator() -> None:
    budget = LIMITS.simulator.restarts.budget
    for failures in range(1, budget + 1):
        slow = decide(Cause.SIMULATOR_NOT_READY, failures, ever_healthy=False, exit_code=None)
        assert isinstance(slow, RestartSimulator)
    last = decide(Cause.SIMULATOR_NOT_READY, budget + 1, ever_healthy=False, exit_code=None)
    assert isinstance(last, Stop)
    assert last.ending.code == Exit.NO_SIMULATOR


def test_somebody_elses_simulator_that_is_not_there_is_not_waited_for_again() -> None:
    finding = Finding(Cause.SIMULATOR_NOT_READY, "something happened")
    theirs = dataclasses.replace(ground(), simulator_ours=False)
    decision = verdict.decide(finding, 1, False, theirs, LIMITS, 0.0)
    assert isinstance(decision, Stop)
    assert decision.ending.code == Exit.NO_SIMULATOR


def test_what_failed_is_started_again_after_its_delay_and_waits_for_no_episode() -> None:
    delay = BUDGET.first_delay_s
    assert decide(Cause.SIMULATOR_CRASH, exit_code=139) == RestartSimulator("something happened", delay, waits=False)
    assert decide(Cause.AGENT_CRASH, exit_code=139) == RestartAgent("something happened", delay, waits=False)


def test_a_first_start_that_crashes_is_tried_again() -> None:
    assert isinstance(decide(Cause.SIMULATOR_CRASH, ever_healthy=False, exit_code=139), RestartSimulator)


def test_a_simulator_that_ran_out_of_memory_once_is_started_again_and_twice_something_gives_way() -> None:
    assert isinstance(decide(Cause.SIMULATOR_OUT_OF_VRAM, exit_code=139), RestartSimulator)
    assert isinstance(decide(Cause.SIMULATOR_OUT_OF_VRAM, failures=2, exit_code=139), StepDown)


@pytest.mark.parametrize("cause", [Cause.SIMULATOR_OUT_OF_VRAM, Cause.AGENT_CUDA_OOM])
def test_what_ran_out_gives_way_by_what_it_lacked_but_never_by_less_than_a_shortage_is_worth(cause: Cause) -> None:
    least_mib = LIMITS.memory.oom_step_mib[Kind.VRAM]
    ladder: Ladder = {Kind.VRAM: (micro(128, least_mib - 1), micro(64, 1), micro(32, 100), STOP)}
    for deficit_mib, size in ((0.0, 64), (least_mib, 64), (least_mib + 1, 32)):
        decision = decide(cause, 2, stands=ground(ladder=ladder), exit_code=71, deficit_mib=deficit_mib)
        assert isinstance(decision, StepDown)
        assert decision.step.values == {"td3.micro_batch": size}
        assert (decision.kind, decision.cause) == ("vram", "something happened")


def test_with_no_rung_left_what_ran_out_is_started_again_while_the_budget_lasts() -> None:
    bare = ground(ladder={Kind.VRAM: (STOP,), Kind.RAM: (STOP,)})
    spent = BUDGET.budget + 1
    for failures in (2, BUDGET.budget):
        assert isinstance(decide(Cause.SIMULATOR_OUT_OF_VRAM, failures, stands=bare, exit_code=139), RestartSimulator)
        assert isinstance(decide(Cause.AGENT_CUDA_OOM, failures, stands=bare, exit_code=71), RestartAgent)
    for cause, code in (
        (Cause.SIMULATOR_OUT_OF_VRAM, Exit.BUDGET_SPENT),
        (Cause.AGENT_CUDA_OOM, Exit.CANNOT_FIT),
        (Cause.AGENT_CRASH, Exit.BUDGET_SPENT),
    ):
        decision = decide(cause, spent, stands=bare, exit_code=139)
        assert isinstance(decision, Stop)
        assert decision.ending.code == code
    lives = decide(Cause.AGENT_HOST_OOM, spent, stands=bare, exit_code=None)
    assert isinstance(lives, Nothing)
    assert lives.reason


def test_only_an_agent_that_stands_still_again_gets_a_fresh_simulator() -> None:
    again = [(Cause.AGENT_HANG, 1), (Cause.AGENT_HANG, 2), (Cause.AGENT_CRASH, 2)]
    decisions = [decide(cause, failures) for cause, failures in again]
    assert [isinstance(each, RestartAgent) and each.simulator_too for each in decisions] == [False, True, False]


@pytest.mark.parametrize(
    ("cause", "code"), [(Cause.MISCONFIGURATION, Exit.CONFIGURATION), (Cause.GPU_LOST, Exit.NO_SIMULATOR)]
)
def test_what_no_restart_mends_ends_the_run_and_takes_no_rung(cause: Cause, code: Exit) -> None:
    decision = decide(cause)
    assert isinstance(decision, Stop)
    assert decision.ending.code == code


def test_a_leak_is_restarted_at_an_episodes_end_or_whole_batch_when_time_is_short_and_a_strangers_isnt_ours() -> None:
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
