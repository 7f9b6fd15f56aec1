"""The state machine, with simulated programs and time: who is started and stopped, when and in which order."""

from __future__ import annotations

import itertools
import json
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from carla_launcher.act.effects import State
from carla_launcher.act.run import WAITING_S
from carla_launcher.act.runtime import Role
from carla_launcher.decide.detectors.causes import Cause, Finding
from carla_launcher.decide.restarts import MOST_IN_VAIN
from carla_launcher.observe.health import Health
from carla_launcher.observe.observation import Observation
from carla_run.exits import Exit
from carla_run.paths import RunPaths
from carla_run.readers import read_object
from tests.unit.launcher.simulated import DEAD, HEALTHY, LIMITS, World, plainly

BUDGET = LIMITS.simulator.restarts


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(RunPaths(tmp_path / "run"))


def test_agent_starts_once_simulator_is_healthy(world: World) -> None:
    answers = itertools.chain([DEAD] * 3, itertools.repeat(HEALTHY))
    world.health = lambda: next(answers)
    for _ in range(3):
        world.step()
        assert world.diary == ["start simulator"]
    world.steps_until(State.RUNNING)
    assert world.diary == ["start simulator", "start agent"]


def test_warming_then_verified_with_all_pools(world: World) -> None:
    world.steps_until(State.WARMING)
    world.steps_until(State.VERIFYING)
    (verified,) = world.events("verified")
    assert verified["held_mib"]["vram:0"] == {"simulator": 3000, "agent": 600, "launcher": 0, "foreign": 85}


def test_state_is_on_disk_at_once(world: World) -> None:
    for state in (State.WARMING, State.VERIFYING, State.RUNNING):
        world.steps_until(state)
        assert read_object(world.run.launcher_state)["state"] == state.value
    reported = read_object(world.run.launcher_state)
    assert reported["simulator"]["pid"] > 0
    assert reported["agent"]["pid"] > 0


def test_agent_never_warm_spends_the_budget(world: World) -> None:
    world.beat = lambda _agent: None  # type: ignore[method-assign,assignment]
    world.steps_until(State.STOPPED, at_most=10_000_000)
    assert world.code() == Exit.BUDGET_SPENT
    assert world.diary.count("start agent") == 1 + LIMITS.agent.restarts.budget


@pytest.mark.parametrize("code", [0, 2, 65, 75])
def test_agent_that_ends_in_order_ends_the_run(world: World, code: int) -> None:
    world.steps_until(State.RUNNING)
    world.last(Role.AGENT).end(code)
    world.steps_until(State.STOPPED)
    assert world.diary[2:] == ["terminate simulator"]
    assert world.code() == read_object(world.run.launcher_state)["exit_code"] == code
    assert world.events()[-1]["event"] == "run_ended"


@pytest.mark.parametrize(
    ("ended", "stops_with", "code"),
    [(None, 75, 75), (None, 139, 139), (0, 75, 0), (65, 75, 65), (137, 75, 75), (71, 75, 75)],
)
def test_request_stops_agent_then_simulator(world: World, ended: int | None, stops_with: int, code: int) -> None:
    world.agent_stops_with = stops_with
    world.steps_until(State.RUNNING)
    if ended is not None:  # and nothing has looked at it when the request comes
        world.last(Role.AGENT).end(ended)
    world.stop.count = 1
    world.steps_until(State.STOPPED)
    assert world.diary[2:] == [*["terminate agent"] * (ended is None), "terminate simulator"]
    assert world.code() == code


@pytest.mark.parametrize("code", [1, 69, 71, 139])
def test_request_during_back_off_ends_the_run(world: World, code: int) -> None:
    world.ladder = {}
    world.launch()
    world.steps_until(State.RUNNING)
    world.last(Role.AGENT).end(code)
    world.steps_until(State.BACKOFF)
    world.stop.count = 1
    world.steps_until(State.STOPPED)
    assert world.code() == Exit.STOPPED
    assert world.supervisor.ending is not None
    assert "stopped on request (Ctrl-C); the agent had ended before" in world.supervisor.ending.reason
    assert world.diary[2:] == ["terminate simulator"]


def test_agent_is_killed_after_its_grace(world: World) -> None:
    world.agent_stops_with = None
    world.steps_until(State.RUNNING)
    world.stop.count = 1
    world.steps_until(State.DRAINING)
    asked_s = world.clock.now_s
    world.steps_until(State.STOPPED)
    assert world.diary[2:4] == ["terminate agent", "kill agent"]
    assert world.clock.now_s - asked_s == pytest.approx(LIMITS.agent.stop_grace_s, abs=1.0)
    assert world.code() == Exit.STOPPED


def test_second_request_kills_both(world: World) -> None:
    world.agent_stops_with = world.simulator_stops_with = None
    world.steps_until(State.RUNNING)
    world.stop.count = 1
    world.steps_until(State.DRAINING)
    world.stop.count = 2
    asked_s = world.clock.now_s
    world.steps_until(State.STOPPED)
    assert world.clock.now_s - asked_s < 2.0
    assert world.diary[2:] == ["terminate agent", "kill agent", "terminate simulator", "kill simulator"]
    assert world.code() == Exit.STOPPED


def test_request_during_start_starts_no_agent(world: World) -> None:
    world.health = lambda: DEAD
    world.steps_until(State.STARTING_SIMULATOR)
    world.stop.count = 1
    world.steps_until(State.STOPPED)
    assert world.diary == ["start simulator", "terminate simulator"]
    assert world.code() == Exit.STOPPED


def test_dead_simulator_restarts_while_agent_stays(world: World) -> None:
    world.steps_until(State.RUNNING)
    world.last(Role.SIMULATOR).end(139)
    world.step()
    assert world.supervisor.state is State.BACKOFF
    died_s = world.clock.now_s
    world.steps_until(State.RUNNING)
    assert world.clock.now_s - died_s < BUDGET.first_delay_s + 5
    assert world.diary == ["start simulator", "start agent", "start simulator"]
    assert world.checks_in_use[-1], "the agent may already tick it: the check must not"
    assert world.journal.state.simulator_restarts == 1
    (restart,) = world.events("simulator_restart")
    assert "139" in restart["cause"]


def test_crash_loop_spends_the_budget(world: World) -> None:
    world.steps_until(State.RUNNING)
    starts_s = []
    while world.supervisor.state is not State.STOPPED:
        if world.living(Role.SIMULATOR):
            starts_s.append(world.clock.now_s)
            world.last(Role.SIMULATOR).end(139)
        world.step()
    assert world.diary.count("start simulator") == 1 + BUDGET.budget
    assert world.diary.count("start agent") == 1
    assert world.diary[-1] == "terminate agent"
    assert world.code() == Exit.BUDGET_SPENT
    delays_s = [later - sooner for sooner, later in itertools.pairwise(starts_s)]
    expected_s = [BUDGET.first_delay_s * 2**index for index in range(BUDGET.budget)]
    assert delays_s == pytest.approx(expected_s, abs=3 * LIMITS.poll_s)
    assert world.events("crash_loop")


def test_failures_far_apart_spend_no_budget(world: World) -> None:
    for _ in range(3 * BUDGET.budget):
        world.steps_until(State.RUNNING)
        world.clock.sleep(BUDGET.stable_after_s)
        world.last(Role.SIMULATOR).end(139)
        world.step()
        assert world.supervisor.state is State.BACKOFF
    assert world.journal.state.simulator_failures == 1


def test_simulator_hung_in_restart_counts(world: World) -> None:
    world.steps_until(State.RUNNING)
    world.last(Role.SIMULATOR).end(139)
    world.health = lambda: DEAD
    world.step()
    world.steps_until(State.STARTING_SIMULATOR)
    world.steps_until(State.BACKOFF)
    assert world.diary[-1] == "kill simulator"
    assert world.journal.state.simulator_failures == 2


def test_slow_first_start_is_tried_again(world: World) -> None:
    world.health = lambda: DEAD
    world.steps_until(State.BACKOFF)
    world.health = lambda: HEALTHY
    world.steps_until(State.RUNNING)
    assert world.diary[:3] == ["start simulator", "kill simulator", "start simulator"]


@pytest.mark.parametrize(
    ("quality", "external", "key", "starts"),
    [
        ("Epic", False, "start_limit_s", 1 + BUDGET.budget),
        (None, False, "lite_start_limit_s", 1 + BUDGET.budget),
        ("Epic", True, "running_limit_s", 0),
    ],
)
def test_start_limits(tmp_path: Path, quality: str | None, external: bool, key: str, starts: int) -> None:
    world = World(RunPaths(tmp_path / "run"), quality=quality, external=external)
    (world.run.logs / "simulator.log").write_text("loading\nno memory for a town\n", encoding="utf-8")
    world.health = lambda: DEAD
    began_s, limit_s = world.clock.now_s, getattr(LIMITS.simulator, key)
    world.steps_while(lambda: world.supervisor.state in (State.INIT, State.STARTING_SIMULATOR))
    assert world.clock.now_s - began_s == pytest.approx(limit_s, abs=2)
    waiting = [line for line in world.said if line.startswith("waits for the simulator at ")]
    assert len(waiting) == pytest.approx(limit_s / WAITING_S, abs=1)
    assert all(f"(10 of {limit_s:g} s): {DEAD.problem}" in line for line in waiting[:1])
    world.steps_until(State.STOPPED)
    assert world.code() == Exit.NO_SIMULATOR
    assert world.diary == ["start simulator", "kill simulator"] * starts
    assert f"isn't ready after {limit_s:.0f} s (simulator.{key} is {limit_s:g} s): " in world.journal.state.reason
    assert ("no memory for a town" in "".join(world.said)) is not external


@pytest.mark.parametrize(
    ("code", "finding", "ends_with", "hint"),
    [
        (1, None, 69, True),
        (0, None, 69, True),
        (65, None, 65, False),
        (1, Finding(Cause.SIMULATOR_CRASH, "it ended", numbers={"log": "bind: Address already in use"}), 69, False),
        (1, Finding(Cause.SIMULATOR_OUT_OF_VRAM, "it ended"), 69, False),
    ],
)
def test_silent_end_of_carla_names_vulkan(
    world: World, code: int, finding: Finding | None, ends_with: int, hint: bool
) -> None:
    world.health = lambda: DEAD
    world.steps_until(State.STARTING_SIMULATOR)
    if finding is not None:
        world.diagnose = lambda _seen: (finding,)
    world.last(Role.SIMULATOR).end(code)
    world.steps_until(State.STOPPED)
    assert world.code() == ends_with
    assert ("Vulkan finds no driver" in world.journal.state.reason) is hint
    assert not hint or "GPU_RUNTIME=nvidia" in world.journal.state.reason


def test_external_simulator_is_left_alone(tmp_path: Path) -> None:
    world = World(RunPaths(tmp_path / "run"), external=True)
    world.steps_until(State.RUNNING)
    world.last(Role.AGENT).end(69)
    world.steps_until(State.STOPPED)
    assert world.diary == ["start agent"]
    assert world.code() == 69


def test_crashing_agent_resumes_until_budget(world: World) -> None:
    while world.supervisor.state is not State.STOPPED:
        if world.supervisor.state is State.RUNNING:
            world.last(Role.AGENT).end(134)
        world.step()
    assert world.code() == Exit.BUDGET_SPENT
    assert world.diary.count("start simulator") == 1
    starts = [program.start for program in world.programs if program.role is Role.AGENT]
    assert [start.resume for start in starts] == [False, *[True] * LIMITS.agent.restarts.budget]


@pytest.mark.parametrize(
    ("codes", "first", "ending", "starts"),
    [
        ([1], State.WARMING, Exit.BAD_CONFIG, MOST_IN_VAIN),
        ([3, 1], State.WARMING, Exit.BUDGET_SPENT, 1 + LIMITS.agent.restarts.budget),
        ([139], State.WARMING, Exit.BUDGET_SPENT, 1 + LIMITS.agent.restarts.budget),
        ([1], State.RUNNING, Exit.BUDGET_SPENT, 1 + LIMITS.agent.restarts.budget),
    ],
)
def test_agent_that_always_ends_at_its_start_ends_the_run(
    world: World, codes: list[int], first: State, ending: Exit, starts: int
) -> None:
    (world.run.logs / "agent.log").write_text("Traceback\nNameError: name 'learn' is not defined\n", encoding="utf-8")
    world.steps_until(first)
    for code in itertools.cycle(codes):
        for agent in world.living(Role.AGENT):
            agent.end(code)
        world.step()
        if world.supervisor.state is State.STOPPED:
            break
        world.steps_while(lambda: world.supervisor.state not in (State.WARMING, State.STOPPED))
    assert (world.code(), world.diary.count("start agent")) == (ending, starts)
    in_vain = ending == Exit.BAD_CONFIG
    assert ("Traceback\nNameError" in "".join(world.said)) is in_vain
    assert ("3 times in a row before any progress: no restart mends that" in world.journal.state.reason) is in_vain


@pytest.mark.parametrize(("code", "ending"), [(1, Exit.NO_SIMULATOR), (0, Exit.FINISHED), (75, Exit.STOPPED)])
def test_lost_gpu_ends_the_run(world: World, code: int, ending: Exit) -> None:
    world.steps_until(State.RUNNING)
    world.findings = (Finding(Cause.GPU_LOST, "the agent lost the GPU", owner="agent", exit_code=code),)
    world.last(Role.AGENT).end(code)
    world.steps_until(State.STOPPED)
    assert world.code() == ending
    assert world.diary.count("start agent") == 1


def test_agent_without_simulator_restarts_with_it(world: World) -> None:
    world.steps_until(State.RUNNING)
    world.last(Role.SIMULATOR).end(139)
    world.step()
    world.last(Role.AGENT).end(69)
    world.steps_until(State.RUNNING)
    assert world.diary == ["start simulator", "start agent", "start simulator", "start agent"]


def found_no_simulator(seen: Observation) -> tuple[Finding, ...]:
    """Diagnose as the detectors do: an agent that found no simulator says so of the simulator."""
    agent = seen.agent.ended
    words = "the agent found no simulator in time (exit code 69)"
    late = Finding(Cause.SIMULATOR_NOT_READY, words, owner="agent", exit_code=69)
    others = plainly(replace(seen, agent=replace(seen.agent, ended=None)))
    return (*others, late) if agent is not None and not agent.planned else others


@pytest.mark.parametrize("up_first", [False, True])
def test_agent_that_waited_in_vain_has_not_failed(world: World, up_first: bool) -> None:
    world.diagnose = found_no_simulator
    world.steps_until(State.RUNNING)
    world.last(Role.SIMULATOR).end(139)
    world.health = lambda: DEAD
    world.steps_until(State.STARTING_SIMULATOR)
    if not up_first:
        world.last(Role.AGENT).end(69)
    world.steps_until(State.BACKOFF)
    world.health = lambda: HEALTHY
    if up_first:
        world.steps_while(lambda: len(world.events("simulator_healthy")) < 2)
        world.last(Role.AGENT).end(69)
        world.step()
    world.steps_until(State.RUNNING)
    assert (world.journal.state.agent_failures, world.journal.state.agent_restarts) == (0, 1)
    assert "isn't ready after" in world.events("simulator_failed")[0]["cause"], "the simulator, not its agent"
    (restart,) = world.events("agent_restart")
    assert restart["cause"].startswith("the agent found no simulator in time")
    assert up_first or restart["incident"] == world.events("simulator_restart")[0]["incident"]
    assert Cause.AGENT_CRASH.value not in {row["diagnosis"] for row in world.events("finding")}
    assert world.diary[-2:] == ["start simulator", "start agent"]


def test_agent_that_finds_no_simulator_beside_one_spends_its_budget(world: World) -> None:
    world.diagnose = found_no_simulator
    while world.supervisor.state is not State.STOPPED:
        if world.supervisor.state is State.RUNNING:
            world.last(Role.AGENT).end(69)
        world.step()
    assert world.code() == Exit.BUDGET_SPENT
    assert world.diary.count("start agent") == 1 + LIMITS.agent.restarts.budget


def test_launcher_error_leaves_no_process(world: World) -> None:
    world.steps_until(State.RUNNING)

    def broken() -> Health:
        raise ValueError("a bug")

    world.health = broken
    world.last(Role.SIMULATOR).end(139)
    with pytest.raises(ValueError, match="a bug"):
        world.supervisor.run()
    assert all(program.ended is not None for program in world.programs)


@settings(max_examples=60)
@given(
    st.lists(st.tuples(st.integers(0, 40), st.sampled_from(["simulator", "agent", "request", "sick", "well"]))),
    st.sampled_from([0, 1, 71, 75, 139]),
)
def test_any_faults_leave_nothing(
    tmp_path_factory: pytest.TempPathFactory, faults: list[tuple[int, str]], agent_code: int
) -> None:
    world = World(RunPaths(tmp_path_factory.mktemp("run")))
    for pause, fault in faults:
        for _ in range(pause):
            if world.supervisor.state is not State.STOPPED:
                world.step()
        strike(world, fault, agent_code)
    world.stop.count += 1
    world.steps_until(State.STOPPED)
    assert all(program.ended is not None for program in world.programs)
    changes = world.events("simulator_restart", "agent_restart", "rung_taken")
    assert all(row["cause"] for row in changes)
    assert json.loads(world.run.launcher_state.read_text())["exit_code"] == world.code()


def strike(world: World, fault: str, agent_code: int) -> None:
    if fault in ("simulator", "agent"):
        for program in world.living(Role(fault)):
            program.end(139 if fault == "simulator" else agent_code)
    elif fault == "request":
        world.stop.count += 1
    else:
        world.health = (lambda: DEAD) if fault == "sick" else (lambda: HEALTHY)
