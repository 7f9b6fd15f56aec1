"""The agent's memory is known before a decision needs it: no decision asks, and the ladder's figures stand in."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from pathlib import Path

import pytest

from carla_launcher.decide import plan
from carla_launcher.decide.choose import Context, Deficit
from carla_launcher.decide.fit import planned_bands
from carla_launcher.decide.ladder import AppliedRung, LadderPosition, overrides
from carla_launcher.observe.pools import PoolKind
from carla_launcher.resolve.agent_sizes import AgentSizes
from carla_launcher.resolve.footprint import FootprintError
from carla_launcher.sizes import Sizes, Values
from carla_run.paths import RunPaths
from tests.crowd import PATIENCE_S
from tests.unit.launcher.planned import BASE, LIMITS, Rule, reading, simulator, situation
from tests.unit.launcher.simulated import World

CPU: Values = {"device": "cpu"}


def test_a_look_up_never_asks() -> None:
    asked: list[Sequence[Values]] = []

    def sizes_of(variants: Sequence[Values]) -> list[Sizes]:
        asked.append(variants)
        return Rule()(variants)

    sizes = AgentSizes(sizes_of)
    with pytest.raises(FootprintError):
        sizes.look_up([CPU])
    assert not asked
    for _ in range(2):
        sizes.ask([CPU], wait=True)
        assert sizes.look_up([CPU]) == Rule()([CPU])
    assert len(asked) == 1, "what is known isn't asked for again"


def test_asking_takes_no_time_and_the_end_waits_for_the_answer() -> None:
    may_answer = threading.Event()

    def sizes_of(variants: Sequence[Values]) -> list[Sizes]:
        assert may_answer.wait(PATIENCE_S)
        return Rule()(variants)

    sizes = AgentSizes(sizes_of)
    sizes.ask([CPU])
    sizes.ask([CPU, BASE])
    with pytest.raises(FootprintError):
        sizes.look_up([CPU])
    may_answer.set()
    sizes.close()
    assert len(sizes.look_up([CPU, BASE])) == 2


@pytest.mark.parametrize("error", [FootprintError("no answer within 60 s"), KeyError("device")])
def test_a_question_that_failed_is_asked_again(error: Exception) -> None:
    answers = [error, None]

    def sizes_of(variants: Sequence[Values]) -> list[Sizes]:
        if error := answers.pop(0):
            raise error
        return Rule()(variants)

    sizes = AgentSizes(sizes_of)
    sizes.ask([CPU], wait=True)
    sizes.ask([CPU], wait=True)
    assert sizes.look_up([CPU])[0].mib


def test_no_room_for_a_thread_costs_the_answer_only(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    sizes = AgentSizes(Rule())
    with monkeypatch.context() as full:
        full.setattr(threading.Thread, "start", refuse)
        sizes.ask([CPU], wait=True)
    sizes.ask([CPU], wait=True)
    assert sizes.look_up([CPU])[0].mib


def test_where_nobody_knows_yet_the_ladders_own_figures_stand() -> None:
    made = situation(reading(), Rule())
    (step,) = (each for each in made.ladder[PoolKind.VRAM] if each.values.get("td3.micro_batch") == 64)
    base = Rule().one({}).mib
    taken = (AppliedRung(step.rung, "vram", "short", dict(step.values)),)

    def needs(values: Values) -> dict[PoolKind, float]:
        return {} if values else dict(base)

    freed = base[PoolKind.VRAM] - Rule().one(step.values).mib[PoolKind.VRAM]
    assert LadderPosition(made.ladder, taken, needs).predicted()[PoolKind.VRAM] == base[PoolKind.VRAM] - freed
    context = Context(made.ladder, (), lambda _: {}, made.reading, LIMITS.memory.reserve_mib, {})
    assert context.choose(Deficit(PoolKind.VRAM, freed, "vram:0")) == (step,)


def test_what_a_choice_asks_about_is_asked_ahead() -> None:
    """Each step by itself, and each after the rungs before it as far as they go, as the search tries them."""
    made = situation(reading(vram=5400), Rule())
    start = plan.make_plan(made, Rule()).start
    assert start is not None
    reach = LadderPosition(made.ladder, (), lambda _: {}).within_reach()
    for step in (each for steps in made.ladder.values() for each in steps if each.values):
        assert dict(step.values) in reach
    taken = [AppliedRung(step.rung, "vram", "", dict(step.values)) for step in start.steps]
    assert {key: value for key, value in overrides(taken).items() if key != "device"} in [
        {key: value for key, value in each.items() if key != "device"} for each in reach
    ]
    reach = LadderPosition(made.ladder, taken, lambda _: {}).within_reach()
    assert overrides(taken[:-1]) in reach, "what taking the last back comes to"


def test_bands_are_the_plans_figures_and_follow_the_rung() -> None:
    made = situation(reading(), Rule(), simulator("Epic"))
    (agent,) = Rule()([{"device": "cuda"}])
    bands = planned_bands(made, agent, "Low")
    assert bands["simulator", "vram:0", ""] == 4813
    assert bands["agent", "vram:0", "updating"] == agent.mib[PoolKind.VRAM]
    assert ("agent", "disk", "updating") not in bands
    (offloaded,) = Rule()([{"device": "cuda", "td3.micro_batch": 1}])
    assert planned_bands(made, offloaded, "Low")["agent", "vram:0", "updating"] < agent.mib[PoolKind.VRAM]
    assert not any(owner == "agent" for owner, _, _ in planned_bands(made, None, "Low"))


def test_a_run_says_what_is_planned_once_for_each_rung(tmp_path: Path) -> None:
    world = World(RunPaths(tmp_path / "run"), agent_mib=600)
    world.steps_for(200)
    (reported,) = world.events("planned_bands")
    assert reported["bands_mib"] == {"agent": {"vram:0": {"updating": 600.0}}}
    assert world.journal.state.planned_bands_mib == reported["bands_mib"]
    assert world.planned == {("agent", "vram:0", "updating"): 600.0}
