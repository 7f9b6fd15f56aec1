"""Simulator and agent on a card each: memory that either frees, needs or loses counts only on its own card."""

from __future__ import annotations

import io
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from carla_launcher import config
from carla_launcher.act.effects import State
from carla_launcher.act.runtime import Role
from carla_launcher.decide import plan, policy
from carla_launcher.decide.choose import Context, Deficit
from carla_launcher.decide.decisions import Degrade, Nothing
from carla_launcher.decide.detectors.causes import Cause, Finding
from carla_launcher.decide.detectors.diagnostician import Diagnostician
from carla_launcher.decide.detectors.expectations import Expectations
from carla_launcher.decide.fit import planned_bands
from carla_launcher.decide.holders import Holders
from carla_launcher.decide.ladder import AppliedRung, Ladder, RungStep
from carla_launcher.decide.plan import Plan
from carla_launcher.decide.restore import fits_without_last
from carla_launcher.decide.room import missing_for_agent, taken_from_simulator
from carla_launcher.observe.pools import Cards, Gpu, Owner, OwnerKind, Pool, PoolKind, Reading, measured
from carla_launcher.resolve.footprint import program
from carla_launcher.resolve.planning import PlanResult
from carla_launcher.rungs.apply import Apply
from carla_launcher.rungs.quality import Quality
from carla_launcher.rungs.restart_agent import FreshAgent
from carla_launcher.rungs.restart_simulator import FreshSimulator
from carla_launcher.rungs.stop import EndRun
from carla_launcher.show import plan as show_plan
from carla_run.paths import RunPaths
from tests.unit.launcher.planned import CONTEXT_MIB, Rule, card, reading, situation
from tests.unit.launcher.simulated import World, needs_by

LIMITS = config.load()
TWO = Cards(0, 1)
RESERVE = LIMITS.memory.reserve_mib[PoolKind.VRAM]


def planned(simulators_mib: float, agents_mib: float, agent: Rule | None = None, **base: Any) -> Plan:
    """Return the plan for cards of these sizes, with 85 MiB of a desktop on the simulator's."""
    rule = agent or Rule()
    one = reading(vram=simulators_mib)
    second = replace(card(agents_mib), name="vram:1")
    seen = replace(one, pools=(one.pools[0], second, *one.pools[1:]))
    return plan.make_plan(replace(situation(seen, rule, **base), cards=TWO), rule)


def items(found: Plan, pool: str) -> list[str]:
    return [line.what for line in found.asked.sum_of(pool).lines]


def test_each_program_is_in_its_own_card_s_sum() -> None:
    found = planned(6144, 6144)
    assert items(found, "vram:0") == ["CARLA at Epic", "Xorg", "reserve"]
    assert items(found, "vram:1") == ["CUDA context", "agent at its peak", "reserve"]


@pytest.mark.parametrize(
    ("simulators_mib", "agents_mib", "rungs", "quality"),
    [
        (6144, 6144, [], "Epic"),
        (8192, CONTEXT_MIB + RESERVE + 100, ["micro_batches"], "Epic"),
        (8192, 120, ["agent_cpu"], "Epic"),
        (5000, 8192, ["carla_low"], "Low"),
    ],
)
def test_a_short_card_is_served_by_its_own_program_s_rungs(
    simulators_mib: float, agents_mib: float, rungs: list[str], quality: str
) -> None:
    found = planned(simulators_mib, agents_mib)
    assert found.start is not None
    assert ([step.rung for step in found.start.steps], found.start.quality) == (rungs, quality)
    tried = [each.steps[0] for each in found.configurations if each.steps]
    assert all(step.quality == "Low" if quality == "Low" else step.values for step in tried)
    if "agent_cpu" in rungs:
        assert found.start.sum_of("vram:1").lines == (), "nothing is kept free where nothing of this run is"


def test_a_refusal_of_the_agent_s_card_rests_on_no_figure_of_the_simulator() -> None:
    found = planned(8192, 120, policy=["micro_batches"])
    assert found.start is None
    assert "short in vram:1" in found.reason
    assert "The memory of CARLA" not in found.reason


def test_the_plan_shows_both_cards() -> None:
    rule, made = Rule(), planned(8192, 120)
    two = replace(situation(reading(), rule), cards=TWO)
    console = Console(file=io.StringIO(), width=200)
    shown = PlanResult(two, made, rule, {}, program())
    show_plan.show(shown, console)
    assert show_plan.plain(shown)["cards"] == {"simulator": 0, "agent": 1}
    assert isinstance(console.file, io.StringIO)
    for pool in ("vram:0", "vram:1"):
        assert console.file.getvalue().count(pool) >= 2, "its sum, and what each configuration leaves"


def test_the_bands_are_each_on_its_own_card() -> None:
    rule = Rule()
    seen = Reading((card(8192), replace(card(8192), name="vram:1")), Gpu.OK)
    made = replace(situation(seen, rule), cards=TWO)
    bands = planned_bands(made, rule.one({}), "Epic")
    assert {(owner, pool) for owner, pool, _ in bands} == {("simulator", "vram:0"), ("agent", "vram:1")}


MICRO = RungStep("micro_batches", Apply, "slower", {"td3.micro_batch": 64}, frees_mib={PoolKind.VRAM: 100})
RESTART = RungStep("restart_simulator", FreshSimulator, "an episode")
CPU = RungStep("agent_cpu", FreshAgent, "slow", {"device": "cpu"}, frees_mib={PoolKind.VRAM: 500})
LOW = RungStep("carla_low", Quality, "coarse", quality="Low", frees_mib={PoolKind.VRAM: 700})
LADDER: Ladder = {PoolKind.VRAM: (RESTART, MICRO, LOW, CPU, RungStep("stop", EndRun, "the run"))}


def seen(simulators_free_mib: float = 20, agents_free_mib: float = 20) -> Reading:
    return Reading(
        (
            Pool(
                "vram:0",
                PoolKind.VRAM,
                measured(6000),
                measured(simulators_free_mib),
                (Owner("simulator", OwnerKind.SIMULATOR, (5,), measured(4900)),),
            ),
            Pool(
                "vram:1",
                PoolKind.VRAM,
                measured(2000),
                measured(agents_free_mib),
                (Owner("agent", OwnerKind.AGENT, (6,), measured(600)),),
            ),
            Pool("ram", PoolKind.RAM, measured(16_000), measured(8000)),
        ),
        Gpu.OK,
    )


def context(*taken: AppliedRung, **free: float) -> Context:
    return Context(
        LADDER,
        taken,
        lambda values: needs_by(LADDER, 1000, values),
        seen(**free),
        LIMITS.memory.reserve_mib,
        {PoolKind.VRAM: 4500},
        cards=TWO,
    )


@pytest.mark.parametrize(
    ("pool", "mib", "chosen"),
    [
        ("vram:0", 300, [RESTART]),
        ("vram:0", 600, [LOW]),
        ("vram:0", 2000, []),
        ("vram:1", 90, [MICRO]),
        ("vram:1", 550, [CPU]),
        ("vram:1", 2000, []),
    ],
)
def test_a_run_frees_a_card_by_its_own_program_s_rungs(pool: str, mib: float, chosen: list[RungStep]) -> None:
    assert list(context().choose(Deficit(PoolKind.VRAM, mib, pool))) == chosen


@pytest.mark.parametrize(("cause", "step"), [(Cause.AGENT_CUDA_OOM, MICRO), (Cause.SIMULATOR_OUT_OF_VRAM, RESTART)])
def test_who_ran_out_was_short_on_its_own_card(cause: Cause, step: RungStep) -> None:
    decision = policy.decide(Finding(cause, "it ran out"), 2, True, context(), LIMITS, 0.0)
    assert isinstance(decision, Degrade)
    assert decision.steps == (step,)


def test_a_shortage_on_a_card_of_neither_is_no_reason_to_give_way() -> None:
    short = Finding(Cause.FOREIGN_PROCESS, "game", pool="vram:2", owner="game", deficit_mib=300)
    assert isinstance(policy.decide(short, 1, True, context(), LIMITS, 0.0), Nothing)


@pytest.mark.parametrize(
    ("step", "free", "fits"),
    [
        (MICRO, {"agents_free_mib": 20, "simulators_free_mib": 5000}, False),
        (MICRO, {"agents_free_mib": 1500, "simulators_free_mib": 20}, True),
        (LOW, {"agents_free_mib": 20, "simulators_free_mib": 5000}, True),
        (LOW, {"agents_free_mib": 1500, "simulators_free_mib": 20}, False),
    ],
)
def test_a_restore_wants_room_on_the_card_that_it_fills_again(
    step: RungStep, free: dict[str, float], fits: bool
) -> None:
    taken = AppliedRung(step.rung, "vram", "short", dict(step.values), step.quality)
    assert fits_without_last(context(taken, **free), LIMITS.restore) is fits


def test_who_needs_room_needs_it_on_its_own_card() -> None:
    def with_game(pool: Pool) -> Pool:
        return replace(pool, owners=(*pool.owners, Owner("game", OwnerKind.FOREIGN, (9,), measured(1000))))

    holders, reserve_mib = Holders(600.0), LIMITS.memory.reserve_mib
    full = replace(seen(), pools=tuple(map(with_game, seen().pools)))
    holders.look(0.0, seen())
    holders.note_driving()
    holders.look(1.0, full)
    for cards, pool in ((TWO, "vram:1"), (Cards(1, 0), "vram:0")):
        short = missing_for_agent({PoolKind.VRAM: 1000}, reserve_mib, full, holders, cards)
        assert short is not None
        assert short[1].pool == pool
    for cards, pool in ((TWO, "vram:0"), (Cards(1, 0), "vram:1")):
        taken = taken_from_simulator({PoolKind.VRAM: 900}, full, holders, cards)
        assert taken is not None
        assert (taken.pool, taken.owner) == (pool, "game")
    roomy = seen(simulators_free_mib=20, agents_free_mib=1900)
    assert missing_for_agent({PoolKind.VRAM: 1000}, reserve_mib, roomy, holders, TWO) is None


@pytest.fixture
def world(tmp_path: Path) -> World:
    made = World(RunPaths(tmp_path / "run"), free_mib=300, cards=TWO, agent_mib=600)
    made.diagnose = Diagnostician(LIMITS, Expectations(60.0, 60.0, program().exits)).look
    return made


def test_an_agent_whose_card_runs_short_gives_way_and_its_simulator_is_left_alone(world: World) -> None:
    world.steps_until(State.RUNNING)
    world.steps_for(LIMITS.restore.settle_s)
    world.agent_card_free_mib = RESERVE - 50
    world.steps_while(lambda: not world.events("rung_taken"), at_most=5000)
    world.agent_card_free_mib = 2000
    world.steps_for(30)
    assert [row["rung"] for row in world.events("rung_taken")] == ["micro_batches (td3.micro_batch = 128)"]
    assert {row["pool"] for row in world.events("finding")} == {"vram:1"}
    assert not world.events("simulator_restart")
    assert len([each for each in world.programs if each.role is Role.SIMULATOR]) == 1


def test_an_agent_whose_card_has_no_rung_left_takes_none_of_the_simulator_s(world: World) -> None:
    world.ladder = {PoolKind.VRAM: (RESTART, LOW)}
    world.launch()
    world.steps_until(State.RUNNING)
    world.steps_for(LIMITS.restore.settle_s)
    world.agent_card_free_mib = RESERVE - 50
    world.steps_for(120)
    assert world.events("finding")
    assert not world.events("rung_taken", "simulator_restart")
    verified = world.events("verified")[0]["held_mib"]
    assert (verified["vram:0"]["agent"], verified["vram:1"]["agent"]) == (0, 600)
