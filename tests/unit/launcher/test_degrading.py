"""Steps down, repairs and restores, what is done, in which order; what is kept."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from carla_launcher.act.effects import State
from carla_launcher.act.runtime import Role
from carla_launcher.decide.detectors.causes import Cause, Finding
from carla_launcher.decide.ladder import RungStep
from carla_launcher.hooks import StepBefore
from carla_launcher.observe.observation import Observation
from carla_launcher.observe.pools import PoolKind
from carla_launcher.rungs.restart_agent import FreshAgent
from carla_launcher.rungs.stop import EndRun
from carla_run.exits import Exit
from carla_run.paths import RunPaths
from carla_run.readers import read_object
from tests.unit.launcher.simulated import BASE, HEALTHY, LADDER, LIMITS, World

RESTORE = LIMITS.restore
SHORT = Finding(Cause.PRESSURE, "vram:0 has 40 MiB free, 100 are reserved", pool="vram:0", deficit_mib=60)

AGAIN = "ask checkpoint, terminate agent, start agent"


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(RunPaths(tmp_path / "run"), free_mib=300)


def settle(world: World) -> None:
    world.steps_until(State.RUNNING)
    world.steps_for(RESTORE.settle_s)


def press(world: World, deficit_mib: float) -> None:
    """Have memory be short until the launcher has given way once."""
    before = len(world.events("rung_taken"))
    world.findings = (Finding(Cause.PRESSURE, "vram:0 is short", pool="vram:0", deficit_mib=deficit_mib),)
    world.steps_while(lambda: len(world.events("rung_taken")) == before, at_most=2000)
    world.findings = ()
    settle(world)


def taken(world: World) -> list[str]:
    return [str(each) for each in world.journal.state.taken]


@pytest.mark.parametrize(
    ("deficit_mib", "refused", "rung", "overrides", "quality", "done"),
    [
        (60, "", "micro_batches (td3.micro_batch = 128)", {"td3.micro_batch": 128}, "Epic", "ask apply"),
        (60, "apply", "micro_batches (td3.micro_batch = 128)", {"td3.micro_batch": 128}, "Epic", f"ask apply, {AGAIN}"),
        (400, "", "agent_cpu (device = cpu)", {"device": "cpu"}, "Epic", AGAIN),
        (650, "", "carla_low (Low)", {}, "Low", "ask drain, terminate simulator, start simulator, ask resume"),
    ],
)
def test_one_step_down(
    world: World,
    deficit_mib: float,
    refused: str,
    rung: str,
    overrides: dict[str, object],
    quality: str,
    done: str,
) -> None:
    world.answers = lambda kind: kind != refused
    settle(world)
    press(world, deficit_mib)
    assert taken(world) == [rung]
    assert world.laid == world.last(Role.AGENT).overrides == overrides, "its next start must begin there too"
    assert world.last(Role.SIMULATOR).start.quality == quality
    assert ", ".join(world.diary[2:]) == done
    assert world.last(Role.AGENT).start.resume is ("start agent" in done)


def test_several_steps_share_one_restart(world: World) -> None:
    settle(world)
    press(world, 1000)
    assert taken(world) == ["agent_cpu (device = cpu)", "carla_low (Low)"]
    assert [row["frees_mib"]["vram"] for row in world.events("rung_taken")] == [600, 700]
    assert len({row["cause"] for row in world.events("rung_taken")}) == 1
    assert world.diary[2:] == [
        "ask checkpoint",
        "terminate agent",
        "terminate simulator",
        "start simulator",
        "start agent",
    ]
    assert (world.last(Role.AGENT).overrides, world.last(Role.SIMULATOR).start.quality) == ({"device": "cpu"}, "Low")


def test_step_for_a_failing_simulator_brings_agent_back(world: World) -> None:
    """The agent is stopped for the step's sake, which is no request to end the run."""

    def out_of_vram(seen: Observation) -> tuple[Finding, ...]:
        ended = seen.simulator.ended
        cause = Cause.SIMULATOR_OUT_OF_VRAM
        return () if ended is None or ended.planned else (Finding(cause, "it ended", deficit_mib=500.0, exit_code=139),)

    world.diagnose = out_of_vram
    settle(world)
    world.last(Role.SIMULATOR).end(139)
    world.steps_while(lambda: world.diary.count("start simulator") < 2)
    world.last(Role.SIMULATOR).end(139)
    world.steps_while(lambda: world.diary.count("start agent") < 2)
    settle(world)
    assert taken(world) == ["agent_cpu (device = cpu)"]
    assert world.last(Role.AGENT).overrides == {"device": "cpu"}
    assert world.last(Role.AGENT).start.resume


def test_steady_pressure_without_a_rung_goes_on(world: World) -> None:
    settle(world)
    world.findings = (Finding(Cause.PRESSURE, "vram:0 is short", pool="vram:0", deficit_mib=9000),)
    world.steps_for(600)
    assert world.supervisor.state is State.PRESSURE
    assert len(world.events("waiting")) == 1, "said once"
    assert taken(world) == []


def test_exhaustion_without_a_rung_ends_with_71(world: World) -> None:
    settle(world)
    world.findings = (Finding(Cause.PRESSURE, "vram:0 is short", pool="vram:0", deficit_mib=9000, exhausted_in_s=30.0),)
    world.steps_until(State.STOPPED)
    assert world.code() == Exit.OUT_OF_MEMORY
    assert world.diary[-2:] == ["terminate agent", "terminate simulator"]


def test_foreign_process_is_waited_for(world: World) -> None:
    settle(world)
    world.findings = (
        Finding(Cause.FOREIGN_PROCESS, "blender took 2048 MiB", pool="vram:0", owner="blender", deficit_mib=9000),
    )
    world.steps_for(300)
    (waiting,) = world.events("waiting")
    assert "blender" in waiting["cause"] + waiting["reason"]
    assert world.diary == ["start simulator", "start agent"]


def test_agent_out_of_memory_takes_a_rung(world: World) -> None:
    settle(world)
    world.last(Role.AGENT).end(71)
    world.steps_for(5)
    settle(world)
    assert taken(world) == ["micro_batches (td3.micro_batch = 128)"]
    assert world.last(Role.AGENT).overrides == {"td3.micro_batch": 128}
    assert world.last(Role.AGENT).start.resume


def test_agent_out_of_memory_on_every_rung_ends_with_71(world: World) -> None:
    while world.supervisor.state is not State.STOPPED:
        if world.living(Role.AGENT) and world.clock.now_s - world.last(Role.AGENT).began_s > 10:
            world.last(Role.AGENT).end(71)
        world.step()
    assert world.code() == Exit.OUT_OF_MEMORY
    rungs = [row["rung"] for row in world.events("rung_taken")]
    starts = [program for program in world.programs if program.role is Role.AGENT]
    assert len(starts) <= 1 + len(rungs) + LIMITS.agent.restarts.budget
    assert rungs == [
        "micro_batches (td3.micro_batch = 128)",
        "agent_cpu (device = cpu)",
        "carla_low (Low)",
        "micro_batches (td3.micro_batch = 64)",  # believed to free less than the least step
    ]


def test_agent_hanging_again_gets_a_fresh_simulator(world: World) -> None:
    for count in range(2):
        settle(world)
        world.findings = (Finding(Cause.AGENT_HANG, "the agent stands still"),)
        while world.diary.count("kill agent") == count:
            world.step()
        world.findings = ()
    settle(world)
    assert [line for line in world.diary if line.startswith(("kill", "start"))] == [
        "start simulator", "start agent", "kill agent", "start agent",
        "kill agent", "kill simulator", "start simulator", "start agent",
    ]  # fmt: skip


def test_what_the_agent_gave_up_is_adopted(world: World) -> None:
    settle(world)
    world.last(Role.AGENT).overrides["td3.micro_batch"] = 64
    world.last(Role.AGENT).gave_way = "out_of_memory"
    world.steps_for(5)
    assert taken(world) == ["micro_batches (td3.micro_batch = 64)"]
    assert world.laid == {"td3.micro_batch": 64}
    assert world.asked == [], "it is done already"
    (adopted,) = world.events("rung_adopted")
    assert adopted["cause"] == "the agent ran out of memory"


def test_only_a_dead_launchers_drain_is_ended(world: World) -> None:
    settle(world)
    world.drained = world.person_drained = True
    settle(world)
    assert world.diary[2:] == []
    world.person_drained = False
    world.steps_while(lambda: world.drained)
    assert world.diary[2:] == ["ask resume"]


def test_what_open_rungs_would_free_is_recorded(world: World) -> None:
    settle(world)
    frees = read_object(world.run.launcher_state)["rungs_free_mib"]["vram"]
    assert "stop" not in frees
    assert frees["agent_cpu (device = cpu)"]["vram"] == 600
    assert frees["carla_low (Low)"]["vram"] == 700
    press(world, 650)
    settle(world)
    assert "carla_low (Low)" not in read_object(world.run.launcher_state)["rungs_free_mib"]["vram"]


def leak(exhausted_in_s: float) -> Finding:
    return Finding(
        Cause.LEAK, "the simulator grows by 20 MiB a minute", pool="vram:0", owner="simulator",
        exhausted_in_s=exhausted_in_s,
    )  # fmt: skip


def test_leaking_simulator_restarts_at_episode_end(world: World) -> None:
    settle(world)
    episode = world.beat(world.last(Role.AGENT)).episode  # type: ignore[union-attr]
    world.findings = (leak(500),)
    world.steps_while(lambda: "ask drain" not in world.diary)
    assert world.beat(world.last(Role.AGENT)).episode == episode + 1  # type: ignore[union-attr]
    world.findings = ()
    settle(world)
    assert world.diary[2:] == ["ask drain", "terminate simulator", "start simulator", "ask resume"]
    assert world.journal.state.simulator_failures == 0, "a restart that was planned is no failure"


def leaks_again(world: World, after_s: float) -> None:
    """Have a simulator that is so old leak until it is started again, or for ten minutes."""
    settle(world)
    world.clock.sleep(after_s)
    before = len(world.events("simulator_restart"))
    world.findings = (leak(500),)
    until_s = world.clock.now_s + 600
    world.steps_while(lambda: len(world.events("simulator_restart")) == before and world.clock.now_s < until_s)
    world.findings = ()


def test_leak_budget_spent_leaves_it_alone(
    world: World,
) -> None:
    limits = LIMITS.memory.leak_restarts
    for _ in range(limits.budget + 1):
        leaks_again(world, after_s=0)
    assert len(world.events("simulator_restart")) == limits.budget
    (waiting,) = world.events("waiting")
    assert waiting["diagnosis"] == "leak"
    assert f"its {limits.budget} restarts for leaks are used up" in waiting["reason"]
    assert world.supervisor.state in (State.RUNNING, State.PRESSURE)
    press(world, 60)
    assert taken(world) == ["micro_batches (td3.micro_batch = 128)"], "until memory is short"
    world.launch()
    assert world.journal.state.leak_restarts == {"simulator": limits.budget}, "the next launcher knows it"
    leaks_again(world, after_s=limits.stable_after_s)
    assert len(world.events("simulator_restart")) == limits.budget + 1, "a slow leak never spends it"
    assert world.journal.state.leak_restarts == {"simulator": 1}


def test_urgent_leak_waits_for_no_episode(world: World) -> None:
    world.episode_s = 1e9
    settle(world)
    world.findings = (leak(LIMITS.memory.urgent_s - 1),)
    asked_s = world.clock.now_s
    world.steps_while(lambda: "ask drain" not in world.diary)
    assert world.clock.now_s - asked_s < 2


def test_a_planned_stop_that_ends_in_137_is_no_crash(world: World) -> None:
    world.simulator_stops_with = None
    settle(world)
    world.findings = (leak(10),)
    world.steps_while(lambda: "kill simulator" not in world.diary)
    world.findings = ()
    settle(world)
    assert world.last(Role.SIMULATOR).poll() is None
    assert not world.events("finding")[1:], "only the leak"
    assert world.journal.state.simulator_failures == 0


def test_restore_after_a_hold_at_episode_end(world: World) -> None:
    settle(world)
    press(world, 60)
    press(world, 30)
    assert len(taken(world)) == 2
    world.free_mib = 2000
    went_down_s = world.clock.now_s
    world.steps_while(lambda: len(taken(world)) == 2)
    assert RESTORE.hold_s <= world.clock.now_s - went_down_s <= RESTORE.hold_s + RESTORE.settle_s + 2 * world.episode_s
    assert world.asked[-1][1] == {"td3.micro_batch": 128}
    restored_s = world.clock.now_s
    world.steps_while(lambda: len(taken(world)) == 1)
    assert world.clock.now_s - restored_s >= RESTORE.hold_s
    assert world.asked[-1][1] == {"td3.micro_batch": None}, "as the configuration has it"
    assert world.laid == {}


def test_memory_that_is_only_just_enough_is_not_restored(world: World) -> None:
    settle(world)
    press(world, 60)
    world.free_mib = LIMITS.memory.reserve_mib["vram"] + 80 + RESTORE.margin_mib - 1  # type: ignore[index]
    world.steps_for(2 * RESTORE.hold_s)
    assert len(taken(world)) == 1


def test_restore_that_fails_doubles_the_hold(world: World) -> None:
    settle(world)
    press(world, 60)
    world.free_mib = 2000
    world.steps_while(lambda: bool(taken(world)))
    press(world, 60)
    assert world.events("restore_failed")[0]["hold_s"] == 2 * RESTORE.hold_s
    assert read_object(world.run.launcher_state)["hold_s"] == 2 * RESTORE.hold_s
    went_down_s = world.clock.now_s
    world.steps_while(lambda: bool(taken(world)))
    assert world.clock.now_s - went_down_s >= 2 * RESTORE.hold_s - RESTORE.settle_s
    world.steps_for(RESTORE.probation_s + 2)
    press(world, 60)
    assert len(world.events("restore_failed")) == 1
    assert world.journal.state.hold_s == RESTORE.hold_s


@pytest.mark.parametrize(("device", "kind"), [("cuda", "vram"), ("cpu", "ram")])
def test_adopted_rung_is_of_the_devices_pool(
    world: World, monkeypatch: pytest.MonkeyPatch, device: str, kind: str
) -> None:
    monkeypatch.setitem(BASE, "device", device)
    world.ladder = {PoolKind.VRAM: (), PoolKind.RAM: ()}
    world.launch()
    settle(world)
    world.last(Role.AGENT).overrides["td3.micro_batch"] = 64
    world.last(Role.AGENT).gave_way = "out_of_memory"
    world.steps_for(5)
    (adopted,) = world.events("rung_adopted")
    assert adopted["kind"] == kind


def test_an_agent_that_wont_fit_starts_on_a_rung_that_does(tmp_path: Path) -> None:
    world = World(RunPaths(tmp_path / "run"), free_mib=500, agent_mib=600)
    world.steps_until(State.RUNNING)
    assert taken(world) == ["agent_cpu (device = cpu)"]
    assert world.diary == ["start simulator", "start agent"]
    assert world.last(Role.AGENT).overrides == {"device": "cpu"}


def test_start_waits_for_a_foreign_process(
    tmp_path: Path,
) -> None:
    world = World(RunPaths(tmp_path / "run"), free_mib=1000, agent_mib=600, foreign_mib=800)
    world.ladder = {}
    world.launch()
    world.steps_for(30)
    assert not world.living(Role.AGENT)
    assert any("Xorg (process 7) holds 885 MiB" in line for line in world.said)
    world.foreign_mib = 0
    world.steps_until(State.RUNNING)
    assert world.supervisor.ending is None


def test_start_without_room_ends_with_71(tmp_path: Path) -> None:
    world = World(RunPaths(tmp_path / "run"), free_mib=1000, agent_mib=600, foreign_mib=800)
    world.ladder = {}
    world.launch()
    world.steps_until(State.STOPPED)
    assert world.code() == 71
    assert world.supervisor.ending is not None
    reason = world.supervisor.ending.reason
    assert "; Xorg (process 7) holds 885 MiB; `bash scripts/wait_and_run.sh --gpu 0 --min-free 700 -- true`" in reason


def test_newcomer_is_named_among_foreign_processes(tmp_path: Path) -> None:
    world = World(RunPaths(tmp_path / "run"), free_mib=1800, agent_mib=600, foreign_mib=800)
    world.ladder = {}
    world.launch()
    world.health = lambda: replace(HEALTHY, problem="it is busy")
    world.steps_for(2)
    world.newcomer_mib = 500
    world.health = lambda: HEALTHY
    world.steps_for(30)
    assert any("game (process 8) holds 500 MiB" in line for line in world.said)
    assert not any("Xorg" in line for line in world.said)


KILLED = "job 7, step 0 on n1: ended by the job's memory limit of 4,096 MiB"


def killed_with_its_job(world: World, rung: RungStep) -> World:
    """Have Slurm end launcher and programs at once for the job's memory limit, and begin again."""
    world.ladder = {**LADDER, PoolKind.RAM: (rung, RungStep("stop", EndRun, "the run"))}
    settle(world)
    for program in world.programs:
        program.end(137)
    world.step_before = StepBefore(KILLED, code=137, out_of_memory=True)
    world.launch()
    return world


def test_slurm_memory_end_starts_a_rung_lower(world: World) -> None:
    rung = RungStep("no_video", FreshAgent, "no video", {"evaluation.video": False}, frees_mib={PoolKind.RAM: 40})
    killed_with_its_job(world, rung)
    settle(world)
    assert world.laid == {"evaluation.video": False}
    (row,) = world.events("rung_taken")
    assert row["cause"] == KILLED
    assert row["incident"] == "i1", "the launcher's death is the incident"
    assert world.diary.count("start agent") == 2, "none is started only to be stopped"


def test_slurm_memory_end_without_a_rung(world: World) -> None:
    rung = RungStep("no_video", FreshAgent, "no video", {"evaluation.video": False}, frees_mib={PoolKind.VRAM: 4})
    killed_with_its_job(world, rung)
    settle(world)
    assert not world.events("rung_taken")
    assert world.laid == {}
