"""Decisions as pure functions: budgets and delays, which step frees enough, what follows from which finding."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from carla_launcher import config
from carla_launcher.decide import policy
from carla_launcher.decide.choose import Context, Deficit
from carla_launcher.decide.decisions import Degrade, Ending, Nothing, RestartAgent, RestartSimulator, Stop
from carla_launcher.decide.detectors.causes import Cause, Finding
from carla_launcher.decide.ladder import AppliedRung, Ladder, RungStep, overrides
from carla_launcher.decide.restarts import delay_s, failures_in_a_row
from carla_launcher.decide.restore import Hold, fits_without_last
from carla_launcher.observe.pools import UNKNOWN, Owner, OwnerKind, Pool, PoolKind, Reading, measured
from carla_launcher.rungs.apply import Apply
from carla_launcher.rungs.quality import Quality
from carla_launcher.rungs.restart_agent import FreshAgent
from carla_launcher.rungs.restart_simulator import FreshSimulator
from carla_launcher.rungs.stop import EndRun
from carla_run.exits import Exit
from tests.unit.launcher.simulated import needs_by

LIMITS = config.load()
BUDGET = LIMITS.simulator.restarts
STOP = RungStep("stop", EndRun, "the run")


def micro(size: int, frees_mib: float) -> RungStep:
    return RungStep("micro_batches", Apply, "slower", {"td3.micro_batch": size}, frees_mib={PoolKind.VRAM: frees_mib})


OFFLOADS = "offload (memory.offload = ['optimizer'])"
OFFLOAD = RungStep(
    "offload",
    FreshAgent,
    "",
    {"memory.offload": ["optimizer"]},
    frees_mib={PoolKind.VRAM: 50, PoolKind.RAM: -50},
)
RESTART = RungStep("restart_simulator", FreshSimulator, "an episode")
LADDER: Ladder = {PoolKind.VRAM: (micro(128, 80), micro(64, 40), RESTART, OFFLOAD, STOP), PoolKind.RAM: (RESTART, STOP)}


def context(
    taken: tuple[AppliedRung, ...] = (),
    ram_free_mib: float = 8000,
    simulator_mib: float = 4800,
    ladder: Ladder = LADDER,
) -> Context:
    owners = (Owner("simulator", OwnerKind.SIMULATOR, (5,), measured(simulator_mib)),)
    pools = (
        Pool("vram:0", PoolKind.VRAM, measured(5745), measured(20), owners),
        Pool("ram", PoolKind.RAM, measured(16000), measured(ram_free_mib)),
    )
    return Context(
        ladder,
        taken,
        lambda values: needs_by(ladder, 1000, values),
        Reading(pools),
        LIMITS.memory.reserve_mib,
        {PoolKind.VRAM: 4700},
    )


def took(step: RungStep) -> AppliedRung:
    return AppliedRung(step.rung, "vram", "short", dict(step.values), step.quality)


def chosen(stands: Context, kind: PoolKind, deficit_mib: float, pool: str = "") -> list[str]:
    return [str(step) for step in stands.choose(Deficit(kind, deficit_mib, pool))]


def test_exactly_the_budget_of_restarts_is_given() -> None:
    delays = [delay_s(count, BUDGET, 0.0) for count in range(1, BUDGET.budget + 2)]
    assert None not in delays[:-1]
    assert delays[-1] is None


@given(st.integers(1, BUDGET.budget), st.floats(-1, 1))
def test_delays_double_within_jitter_and_limit(count: int, draw: float) -> None:
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
        (121, "micro_batches (td3.micro_batch = 128), restart_simulator"),
        (150, "micro_batches (td3.micro_batch = 128), restart_simulator"),
        (210, "micro_batches (td3.micro_batch = 64), restart_simulator"),
        (230, f"micro_batches (td3.micro_batch = 128), restart_simulator, {OFFLOADS}"),
        (270, f"micro_batches (td3.micro_batch = 64), restart_simulator, {OFFLOADS}"),
        (271, ""),
    ],
)
def test_first_step_that_frees_the_deficit(deficit_mib: float, expected: str) -> None:
    assert ", ".join(chosen(context(), PoolKind.VRAM, deficit_mib)) == expected


def test_simulator_restart_frees_its_growth() -> None:
    taken = (took(micro(64, 40)),)
    assert chosen(context(taken), PoolKind.VRAM, 60) == ["restart_simulator"]
    shrunk = dataclasses.replace(context(taken), fresh_mib={PoolKind.VRAM: 4700, PoolKind.RAM: 9000})
    assert chosen(shrunk, PoolKind.VRAM, 60) == ["restart_simulator"], "it takes no more of RAM than it did"
    assert chosen(context(taken, simulator_mib=4720), PoolKind.VRAM, 45) == [OFFLOADS]


def test_overfilling_step_is_skipped() -> None:
    taken = (took(micro(64, 40)),)
    room = LIMITS.memory.reserve_mib[PoolKind.RAM] + 50
    assert chosen(context(taken, room, 4700), PoolKind.VRAM, 40) == [OFFLOADS]
    assert chosen(context(taken, room - 1, 4700), PoolKind.VRAM, 40) == []


def test_container_pool_takes_its_programs_steps() -> None:
    slower = dataclasses.replace(micro(64, 0), frees_mib={PoolKind.RAM: 40})
    stands = dataclasses.replace(
        context(ladder={PoolKind.RAM: (RESTART, slower, STOP)}),
        reading=Reading(
            (
                Pool(
                    "ram", PoolKind.RAM, measured(9), measured(9), (Owner("s", OwnerKind.SIMULATOR, (), measured(900)),)
                ),
            )
        ),
        fresh_mib={PoolKind.RAM: 100},
    )
    assert chosen(stands, PoolKind.RAM, 30, "ram") == ["restart_simulator"]
    assert chosen(stands, PoolKind.RAM, 30, "ram:agent") == ["micro_batches (td3.micro_batch = 64)"]
    assert chosen(stands, PoolKind.RAM, 30, "ram:simulator") == ["restart_simulator"]
    elsewhere = Pool("ram:simulator", PoolKind.RAM, measured(9), measured(9))  # its owner is seen in one pool only
    seen_once = dataclasses.replace(stands, reading=Reading((*stands.reading.pools, elsewhere)))
    assert chosen(seen_once, PoolKind.RAM, 30, "ram:simulator") == ["restart_simulator"]
    grown_by_nothing = dataclasses.replace(stands, fresh_mib={PoolKind.RAM: 900})
    assert chosen(grown_by_nothing, PoolKind.RAM, 30, "ram:simulator") == []


def test_a_step_above_the_one_that_holds_is_behind_us() -> None:
    assert context((took(micro(64, 40)),)).is_taken(micro(128, 80))
    assert not context((took(micro(128, 80)),)).is_taken(micro(64, 40))


def test_rung_of_another_ladder_goes_on() -> None:
    cars = tuple(
        RungStep(
            "less_traffic",
            FreshAgent,
            "",
            {"environment.traffic.vehicles": count},
            frees_mib={PoolKind.RAM: 40},
        )
        for count in (10, 5)
    )
    stands = context((took(cars[0]),), ladder={PoolKind.VRAM: (micro(128, 80), STOP), PoolKind.RAM: (*cars, STOP)})
    assert stands.is_taken(cars[0])
    assert stands.choose(Deficit(PoolKind.RAM, 30)) == (cars[1],)


def test_step_frees_what_is_left() -> None:
    stands = context((took(micro(128, 80)),))
    assert stands.frees((micro(64, 40),))[PoolKind.VRAM] == 40
    assert overrides([took(micro(128, 80)), took(micro(64, 40))]) == {"td3.micro_batch": 64}
    reported = dataclasses.replace(micro(64, 40), unseen_mib={PoolKind.VRAM: 7.0})
    assert stands.frees((reported,))[PoolKind.VRAM] == 47


@given(
    st.lists(st.integers(1, 500), min_size=1, max_size=8), st.integers(1, 3000), st.sets(st.integers(0, 7), max_size=4)
)
def test_chosen_steps_are_new_needed_and_enough(frees_mib: list[int], deficit_mib: int, taken_at: set[int]) -> None:
    steps = tuple(
        RungStep(f"rung {index}", FreshAgent, "", {f"key.{index}": 1}, frees_mib={PoolKind.VRAM: mib})
        for index, mib in enumerate(frees_mib)
    )
    taken = tuple(took(steps[index]) for index in taken_at if index < len(steps))
    way = context(taken, ladder={PoolKind.VRAM: (*steps, STOP)}).choose(Deficit(PoolKind.VRAM, deficit_mib))
    left = [step for step in steps if took(step) not in taken]
    freed = sum(step.frees_mib[PoolKind.VRAM] for step in way)
    if not way:
        assert sum(step.frees_mib[PoolKind.VRAM] for step in left) < deficit_mib
        return
    assert set(map(id, way)) <= set(map(id, left))
    assert freed >= deficit_mib
    assert all(freed - step.frees_mib[PoolKind.VRAM] < deficit_mib for step in way), "each is needed"
    if enough := [step for step in left if step.frees_mib[PoolKind.VRAM] >= deficit_mib]:
        assert way == (enough[0],)


LOW = RungStep("carla_low", Quality, "", quality="Low", frees_mib={PoolKind.VRAM: 717})
WITH_RAM = RungStep("less_traffic", FreshAgent, "", {"environment.traffic.vehicles": 16}, frees_mib={PoolKind.RAM: 60})
RESTORE = LIMITS.restore
KEPT = {kind: LIMITS.memory.reserve_mib[kind] + RESTORE.margin_mib for kind in (PoolKind.VRAM, PoolKind.RAM)}


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
def test_restore_wants_cost_reserve_and_margin(
    taken: tuple[RungStep, ...], vram_costs_mib: float, ram_costs_mib: float | None
) -> None:
    """A pool that it fills no further hinders it only if the step was taken for it; ``None``: it may be full."""
    ladder: Ladder = {PoolKind.VRAM: (micro(128, 80), micro(64, 40), LOW, OFFLOAD, WITH_RAM)}

    def fits(vram_free_mib: float | None, ram_free_mib: float | None) -> bool:
        free = {PoolKind.VRAM: vram_free_mib, PoolKind.RAM: ram_free_mib}
        pools = tuple(
            Pool(kind.value, kind, measured(16_000), UNKNOWN if mib is None else measured(mib))
            for kind, mib in free.items()
        )
        stands = dataclasses.replace(context(tuple(map(took, taken)), ladder=ladder), reading=Reading(pools))
        return fits_without_last(stands, RESTORE)

    vram, ram = (
        KEPT[PoolKind.VRAM] + vram_costs_mib,
        0.0 if ram_costs_mib is None else KEPT[PoolKind.RAM] + ram_costs_mib,
    )
    assert fits(vram, ram)
    assert not fits(vram - 1, ram)
    assert not fits(None, ram)
    if ram_costs_mib is not None:
        assert not fits(vram, ram - 1)
        assert not fits(vram, None)


def test_hold_counts_without_a_break() -> None:
    hold = Hold(60)
    assert not hold.is_over(0)
    for now_s, fits in ((0, True), (50, True), (55, False), (70, True), (80, True)):
        hold.look(now_s, fits)
    assert not hold.is_over(129)
    assert hold.is_over(130)
    hold.reset()
    assert not hold.is_over(1000)


def test_failed_restore_doubles_the_hold() -> None:
    hold = Hold(RESTORE.hold_s)
    assert not hold.degraded(0, RESTORE), "there was no restore"
    assert hold.hold_s == RESTORE.hold_s
    hold.restored(0)
    assert not hold.passed_probation(RESTORE.probation_s, RESTORE)
    assert hold.degraded(RESTORE.probation_s, RESTORE)
    assert hold.hold_s == 2 * RESTORE.hold_s
    assert not hold.degraded(RESTORE.probation_s, RESTORE), "one restore fails once"
    hold.restored(0)
    assert not hold.degraded(RESTORE.probation_s + 1, RESTORE)
    for _ in range(20):
        hold.restored(0)
        hold.degraded(1, RESTORE)
    assert hold.hold_s == RESTORE.longest_hold_s


def test_restore_that_stands_forgives_once() -> None:
    hold = Hold(4 * RESTORE.hold_s)
    hold.look(0, True)
    hold.restored(0)
    assert not hold.is_over(1e9), "what is above that rung has yet to fit"
    assert hold.passed_probation(RESTORE.probation_s + 1, RESTORE)
    assert hold.hold_s == RESTORE.hold_s
    assert not hold.passed_probation(RESTORE.probation_s + 2, RESTORE)


def decide(
    cause: Cause, failures: int = 1, ever_healthy: bool = True, stands: Context | None = None, **given_: object
) -> Nothing | RestartSimulator | RestartAgent | Degrade | Stop:
    finding = Finding(cause, "something happened", **given_)  # type: ignore[arg-type]
    decision = policy.decide(finding, failures, ever_healthy, stands or context(), LIMITS, 0.0)
    assert isinstance(decision, Nothing | RestartSimulator | RestartAgent | Degrade | Stop)
    return decision


BARE = context(ladder={PoolKind.VRAM: (STOP,), PoolKind.RAM: (STOP,)})
SPENT = BUDGET.budget + 1
FIRST, THEIRS = {"ever_healthy": False}, {"stands": dataclasses.replace(context(), simulator_ours=False)}
CRASH, NOT_READY, OUT_OF_VRAM = Cause.SIMULATOR_CRASH, Cause.SIMULATOR_NOT_READY, Cause.SIMULATOR_OUT_OF_VRAM


@pytest.mark.parametrize(
    ("cause", "failures", "given_", "expected"),
    [
        *((CRASH, 1, {**FIRST, "exit_code": code}, code) for code in policy.SIMULATOR_REFUSALS),
        *((NOT_READY, 1, {**FIRST, "exit_code": code}, Exit.NO_SIMULATOR) for code in (0, 1)),
        (CRASH, 1, {**FIRST, "exit_code": 139}, RestartSimulator),
        (NOT_READY, BUDGET.budget, FIRST, RestartSimulator),
        (NOT_READY, SPENT, FIRST, Exit.NO_SIMULATOR),
        (NOT_READY, 1, {**FIRST, **THEIRS}, Exit.NO_SIMULATOR),
        (Cause.SIMULATOR_HANG, SPENT, {}, Exit.BUDGET_SPENT),
        (OUT_OF_VRAM, 1, {"exit_code": 139}, RestartSimulator),
        (OUT_OF_VRAM, 2, {"exit_code": 139}, Degrade),
        (OUT_OF_VRAM, BUDGET.budget, {"stands": BARE, "exit_code": 139}, RestartSimulator),
        (OUT_OF_VRAM, SPENT, {"stands": BARE, "exit_code": 139}, Exit.BUDGET_SPENT),
        (Cause.AGENT_CUDA_OOM, BUDGET.budget, {"stands": BARE, "exit_code": 71}, RestartAgent),
        (Cause.AGENT_CUDA_OOM, SPENT, {"stands": BARE, "exit_code": 139}, Exit.OUT_OF_MEMORY),
        (Cause.AGENT_CRASH, SPENT, {"stands": BARE, "exit_code": 139}, Exit.BUDGET_SPENT),
        (Cause.AGENT_HOST_OOM, SPENT, {"stands": BARE}, Nothing),
        (Cause.MISCONFIGURATION, 1, {}, Exit.BAD_CONFIG),
        (Cause.GPU_LOST, 1, {}, Exit.NO_SIMULATOR),
        (Cause.CONTAINER_LOST_GPU, BUDGET.budget, {"exit_code": 1}, RestartAgent),
        (Cause.CONTAINER_LOST_GPU, SPENT, {"exit_code": 1}, Exit.NO_SIMULATOR),
        (Cause.LEAK, 1, {"pool": "vram:0", "owner": "chrome", "exhausted_in_s": 60}, Nothing),
        (Cause.COLLECTOR_HANG, 1, {}, Nothing),
        (Cause.OUT_OF_BAND, 1, {}, Nothing),
    ],
)
def test_decisions(cause: Cause, failures: int, given_: dict[str, Any], expected: type | int) -> None:
    """An exit code stands for a stop."""
    decision = decide(cause, failures, **given_)
    if not isinstance(decision, Stop):
        assert type(decision) is expected
        assert not isinstance(decision, Nothing) or bool(decision.reason) is (cause is Cause.AGENT_HOST_OOM)
        return
    assert decision.ending.code == expected
    assert decision.ending.reason.startswith("something happened")


@pytest.mark.parametrize(
    ("cause", "failures", "expected"),
    [
        (CRASH, 1, RestartSimulator("something happened", BUDGET.first_delay_s, waits=False)),
        (Cause.AGENT_CRASH, 1, RestartAgent("something happened", BUDGET.first_delay_s, waits=False)),
        (Cause.AGENT_CRASH, 2, RestartAgent("something happened", 2 * BUDGET.first_delay_s)),
        (Cause.AGENT_HANG, 1, RestartAgent("something happened", BUDGET.first_delay_s)),
        (Cause.AGENT_HANG, 2, RestartAgent("something happened", 2 * BUDGET.first_delay_s, simulator_too=True)),
    ],
)
def test_restarts_after_failures(cause: Cause, failures: int, expected: object) -> None:
    assert decide(cause, failures, exit_code=139) == expected


@pytest.mark.parametrize("cause", [Cause.SIMULATOR_OUT_OF_VRAM, Cause.AGENT_CUDA_OOM])
def test_out_of_memory_frees_what_lacked_or_the_least_step(cause: Cause) -> None:
    least_mib = LIMITS.memory.oom_step_mib[PoolKind.VRAM]
    ladder: Ladder = {PoolKind.VRAM: (micro(128, least_mib - 1), micro(64, 1), micro(32, 100), STOP)}
    for deficit_mib, size in ((0.0, 64), (least_mib - 5, 128), (least_mib, 64), (least_mib + 1, 32)):
        decision = decide(cause, 2, stands=context(ladder=ladder), exit_code=71, deficit_mib=deficit_mib)
        assert isinstance(decision, Degrade)
        assert decision.steps[0].values == {"td3.micro_batch": size}
        assert (decision.kind, decision.cause) == (PoolKind.VRAM, "something happened")


@pytest.mark.parametrize(
    ("deficit_mib", "ladder", "expected"),
    [
        (0.0, (micro(128, 1), micro(64, 2), STOP), [{"td3.micro_batch": 128}]),
        (5.0, (micro(128, 1), micro(64, 2), STOP), []),
        (0.0, (RESTART, STOP), []),
    ],
    ids=["unknown", "known", "nothing-that-lasts"],
)
def test_out_of_memory_of_unknown_size_takes_a_small_rung(
    deficit_mib: float, ladder: tuple[RungStep, ...], expected: list[object]
) -> None:
    """Not one that frees nothing for long: it could be taken for ever."""
    stands = context(ladder={PoolKind.VRAM: ladder}, simulator_mib=4710)
    decision = decide(Cause.AGENT_CUDA_OOM, 2, stands=stands, exit_code=71, deficit_mib=deficit_mib)
    assert [step.values for step in getattr(decision, "steps", ())] == expected
    assert expected or isinstance(decision, RestartAgent)


def test_leak_restart_waits_for_an_episode_unless_urgent() -> None:
    calm = decide(Cause.LEAK, pool="vram:0", owner="simulator", exhausted_in_s=500)
    assert calm == RestartSimulator("something happened", failed=False, waits=True)
    hasty = decide(Cause.LEAK, pool="vram:0", owner="agent", exhausted_in_s=60)
    assert hasty == RestartAgent("something happened", failed=False, waits=False)


@pytest.mark.parametrize("cause", [Cause.PRESSURE, Cause.FOREIGN_PROCESS])
def test_pressure_degrades_only_by_a_deficit(cause: Cause) -> None:
    lacking = decide(cause, pool="vram:0", owner="chrome", deficit_mib=60)
    assert lacking == Degrade((micro(128, 80),), PoolKind.VRAM, "something happened")
    assert decide(cause, pool="vram:0", owner="chrome", deficit_mib=0, exhausted_in_s=10) == Nothing()


DISK: Ladder = {
    PoolKind.DISK: (
        RungStep("fewer_checkpoints", FreshAgent, "", {"training.keep_checkpoints": 1}, frees_mib={PoolKind.DISK: 90}),
        STOP,
    ),
    PoolKind.RAM: (micro(128, 80), STOP),
}


@pytest.mark.parametrize(("deficit_mib", "expected"), [(50.0, "fewer_checkpoints"), (500.0, "")])
def test_disk_refusal_takes_the_disks_ladder(deficit_mib: float, expected: str) -> None:
    finding = Finding(Cause.AGENT_DISK_FULL, "refused for disk", "disk", deficit_mib=deficit_mib, exit_code=71)
    stands = dataclasses.replace(context(ladder=DISK), needs=lambda _: {})
    decision = policy.decide(finding, 1, True, stands, LIMITS, 0.0)
    assert isinstance(decision, Degrade if expected else RestartAgent)
    assert not expected or (decision.steps[0].rung, decision.kind.value) == (expected, "disk")  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("cause", "freed"),
    [
        (Cause.AGENT_DISK_FULL, "free some of the disk that the run is on"),
        (Cause.AGENT_CUDA_OOM, "free some of the GPU's memory"),
        (Cause.AGENT_HOST_OOM, "free some of the host's memory"),
    ],
)
def test_ending_says_what_to_free(cause: Cause, freed: str) -> None:
    finding = Finding(cause, "refused", deficit_mib=9000, exit_code=71)
    decision = policy.decide(finding, BUDGET.budget + 1, True, context(ladder={}), LIMITS, 0.0)
    assert decision == Stop(
        Ending(Exit.OUT_OF_MEMORY, f"refused, and no rung of the ladder is left that helps: {freed}")
    )


LEAKS = LIMITS.memory.leak_restarts


@pytest.mark.parametrize("owner", ["simulator", "agent"])
@pytest.mark.parametrize("exhausted_in_s", [500, 10])
def test_leak_budget(owner: str, exhausted_in_s: float) -> None:
    made = [
        decide(Cause.LEAK, failures=count, pool="vram:0", owner=owner, exhausted_in_s=exhausted_in_s, deficit_mib=0)
        for count in range(1, LEAKS.budget + 2)
    ]
    assert all(isinstance(each, RestartSimulator | RestartAgent) for each in made[:-1])
    assert made[-1] == Nothing(
        f"its {LEAKS.budget} restarts for leaks are used up, and the run continues until memory is short"
    )
