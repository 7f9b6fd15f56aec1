"""From rungs to steps: halves, what is left out, what each frees, and the order that a person asks for."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from carla_launcher.config import Does, Rung
from carla_launcher.decide.ladder import (
    AT_WORK,
    HALF,
    PolicyError,
    Step,
    Taken,
    build_ladder,
    of_simulators,
    picked_rungs,
    relief,
    unrolled,
)
from carla_launcher.decide.sizes import Sizes, Values
from carla_launcher.observe.pools import PoolKind
from tests.unit.launcher.planned import BASE, CONTEXT_MIB, LIMITS, LITE, Rule, simulator

ALL = picked_rungs(LIMITS.ladder, None)


def ladder_of(kind: PoolKind, policy: list[str] | None = None, quality: str = "Epic", **base: Any) -> tuple[Step, ...]:
    rungs = picked_rungs(LIMITS.ladder, policy)
    return build_ladder(rungs, {**BASE, **base}, simulator(quality), Rule())[kind]


def named(found: tuple[Step, ...], rung: str) -> list[Step]:
    return [step for step in found if step.rung == rung]


def test_half_halves_again_and_again_down_to_one() -> None:
    rung = Rung(name="r", does=Does.APPLY, values={"td3.micro_batch": "half"}, cost="")
    assert unrolled(rung, BASE) == [{"td3.micro_batch": size} for size in (128, 64, 32, 16, 8, 4, 2, 1)]
    assert unrolled(rung, {**BASE, "td3.micro_batch": 5}) == [{"td3.micro_batch": 2}, {"td3.micro_batch": 1}]
    assert unrolled(rung, {**BASE, "td3.micro_batch": 1}) == []


def test_fewer_takes_one_away_and_frees_a_simulator_and_a_collector() -> None:
    rung = Rung(name="r", does=Does.APPLY, values={AT_WORK: "fewer"}, cost="")
    assert unrolled(rung, {**BASE, "training.collectors": 3, AT_WORK: None}) == [{AT_WORK: 2}, {AT_WORK: 1}]
    assert unrolled(rung, {**BASE, "training.collectors": 3, AT_WORK: 2}) == [{AT_WORK: 1}]
    assert unrolled(rung, {**BASE, "training.collectors": 1, AT_WORK: None}) == unrolled(rung, BASE) == []
    several = replace(simulator("Low"), count=3)
    base = {**BASE, "training.collectors": 3, AT_WORK: None}
    found = build_ladder({PoolKind.VRAM: (rung,)}, base, several, Rule())[PoolKind.VRAM]
    one = simulator("Low").peak("Low", PoolKind.VRAM).mib
    assert [step.frees_mib[PoolKind.VRAM] for step in found] == [one, one]
    assert [step.simulators_mib[PoolKind.VRAM] for step in found] == [one, 2 * (one or 0)]
    ladder = {PoolKind.VRAM: found}
    assert of_simulators(found[1:], ladder, ())[PoolKind.VRAM] == 2 * (one or 0)
    first = Taken("r", "vram", "short", {AT_WORK: 2})
    assert of_simulators(found[1:], ladder, (first,))[PoolKind.VRAM] == one
    assert relief(found[1:], ladder, (), lambda _: {})[PoolKind.VRAM] == 0, "the agent's own"
    assert build_ladder({PoolKind.VRAM: (rung,)}, base, None, Rule())[PoolKind.VRAM] == ()


def test_each_step_of_a_rung_frees_what_it_adds_to_the_one_before() -> None:
    found = named(ladder_of(PoolKind.VRAM), "micro_batches")
    assert [step.frees_mib[PoolKind.VRAM] for step in found] == [32, 16, 8, 4, 2, 1, 0.5, 0.2]


def test_moving_to_the_cpu_frees_the_context_and_costs_what_the_agent_says() -> None:
    (step,) = named(ladder_of(PoolKind.VRAM), "agent_cpu")
    on_gpu, on_cpu = Rule()([{"device": "cuda"}, {"device": "cpu"}])
    assert step.frees_mib[PoolKind.VRAM] == on_gpu.mib[PoolKind.VRAM] > CONTEXT_MIB
    assert step.frees_mib[PoolKind.RAM] == on_gpu.mib[PoolKind.RAM] - on_cpu.mib[PoolKind.RAM]


def test_a_running_agent_that_only_moves_to_the_cpu_keeps_its_context() -> None:
    rung = Rung(name="move", does=Does.APPLY, values={"device": "cpu"}, cost="")
    (step,) = build_ladder({PoolKind.VRAM: (rung,)}, BASE, None, Rule())[PoolKind.VRAM]
    assert step.frees_mib[PoolKind.VRAM] == Rule().one({}).mib[PoolKind.VRAM] - CONTEXT_MIB


def test_what_offload_takes_of_the_host_is_negative() -> None:
    (step,) = named(ladder_of(PoolKind.VRAM), "offload")
    assert step.frees_mib[PoolKind.VRAM] > 0 > step.frees_mib[PoolKind.RAM]


def test_the_configuration_s_own_figure_wins_and_what_the_agent_did_not_see_is_noted() -> None:
    cars = named(ladder_of(PoolKind.RAM), "less_traffic")
    assert [step.values["environment.traffic.vehicles"] for step in cars] == [10, 5, 2, 1]
    assert all(step.values["environment.traffic.walkers"] == 0 for step in cars)
    assert all(step.frees_mib == {PoolKind.RAM: 8} for step in cars)
    assert [step.unseen_mib[PoolKind.RAM] for step in cars] == [8, 16, 24, 32]


def test_less_traffic_is_fewer_people_as_well_and_where_there_are_no_cars_of_them_alone() -> None:
    people_too: dict[str, Any] = {"environment.traffic.walkers": [0, 40]}
    both = named(ladder_of(PoolKind.RAM, **people_too), "less_traffic")
    assert both[0].values == {"environment.traffic.vehicles": 10, "environment.traffic.walkers": [0, 20]}
    nobody_drives: dict[str, Any] = {"environment.traffic.vehicles": 0, "environment.traffic.walkers": 4}
    people = named(ladder_of(PoolKind.RAM, **nobody_drives), "less_traffic")
    assert [step.values["environment.traffic.walkers"] for step in people] == [2, 1]


def test_of_a_figure_of_its_own_only_what_the_agent_did_not_see_is_unseen() -> None:
    """The agent sees 32, 16 and 8 MiB less; the configuration says 40 each time."""
    rung = Rung(name="r", does=Does.APPLY, values={"td3.micro_batch": "half"}, frees_mib={PoolKind.VRAM: 40}, cost="")
    found = build_ladder({PoolKind.VRAM: (rung,)}, BASE, None, Rule())[PoolKind.VRAM][:3]
    assert [step.frees_mib[PoolKind.VRAM] for step in found] == [40, 40, 40]
    assert [step.unseen_mib[PoolKind.VRAM] for step in found] == [8, 8 + 24, 8 + 24 + 32]


def test_coarser_quality_frees_the_difference_of_carla_s_peaks() -> None:
    (step,) = named(ladder_of(PoolKind.VRAM), "carla_low")
    assert step.quality == "Low"
    assert step.frees_mib == {PoolKind.VRAM: 5530 - 4813}


@pytest.mark.parametrize(
    ("rung", "kind", "changed"),
    [
        ("agent_cpu", PoolKind.VRAM, {"device": "cpu"}),
        ("offload", PoolKind.VRAM, {"device": "cpu"}),
        ("micro_batches", PoolKind.VRAM, {"td3.micro_batch": 1}),
        ("micro_batches", PoolKind.VRAM, {"device": "cpu"}),
        ("micro_batches", PoolKind.RAM, {}),
        ("less_traffic", PoolKind.RAM, {"environment.traffic.vehicles": 0}),
        ("no_video", PoolKind.RAM, {"evaluation.video": False}),
        ("fewer_checkpoints", PoolKind.DISK, {"training.keep_checkpoints": 1}),
        ("smaller_batch", PoolKind.VRAM, {"td3.batch_size": 1}),
    ],
)
def test_a_step_that_changes_or_frees_nothing_there_is_left_out(
    rung: str, kind: PoolKind, changed: dict[str, Any]
) -> None:
    assert not named(ladder_of(kind, **changed), rung)


@pytest.mark.parametrize("quality", ["Low", LITE])
def test_there_is_no_coarser_quality_than_low_and_none_at_all_for_carla_lite(quality: str) -> None:
    assert not named(ladder_of(PoolKind.VRAM, quality=quality), "carla_low")


def test_a_configuration_that_cannot_be_is_no_step() -> None:
    assert not named(ladder_of(PoolKind.VRAM, ["smaller_observation", "agent_cpu"]), "smaller_observation")


def test_a_simulator_that_somebody_else_runs_is_neither_restarted_nor_made_coarser() -> None:
    found = build_ladder(ALL, BASE, None, Rule())
    assert not {Does.RESTART_SIMULATOR, Does.QUALITY} & {step.does for ladder in found.values() for step in ladder}


def test_a_policy_picks_and_orders_and_stop_stays_last() -> None:
    found = ladder_of(PoolKind.VRAM, ["stop", "carla_low", "agent_cpu"])
    assert [step.rung for step in found] == ["carla_low", "agent_cpu", "stop"]


def test_a_policy_takes_rungs_that_are_not_allowed_by_themselves() -> None:
    assert not named(ladder_of(PoolKind.DISK), "smaller_replay")
    assert named(ladder_of(PoolKind.DISK, ["smaller_replay"]), "smaller_replay")


def test_a_policy_leaves_a_pool_alone_none_of_whose_rungs_it_names() -> None:
    assert picked_rungs(LIMITS.ladder, ["carla_low"])[PoolKind.RAM] == ALL[PoolKind.RAM]


def test_a_policy_with_an_unknown_name_is_told_which_exist() -> None:
    with pytest.raises(PolicyError, match=r"names cpu, nope, .* there are agent_cpu, carla_low, .*stop\.$"):
        picked_rungs(LIMITS.ladder, ["cpu", "agent_cpu", "nope"])


sizes = st.floats(0, 6000)


@given(st.data())
def test_no_step_is_predicted_to_take_memory_in_the_pool_that_it_serves(data: st.DataObject) -> None:
    """Whatever the agent answers."""

    def anything(variants: Sequence[Values]) -> list[Sizes]:
        return [Sizes(values, {kind: data.draw(sizes) for kind in PoolKind}) for values in variants]

    for kind, ladder in build_ladder(ALL, BASE, simulator(), anything).items():
        worked_out = [step for step in ladder if step.stays]
        assert all(step.frees_mib[kind] > 0 for step in worked_out)
        assert ladder[-1].does is Does.STOP


def test_of_a_range_both_ends_are_halved() -> None:
    cars = Rung(name="less_traffic", does=Does.RESTART_AGENT, values={"environment.traffic.vehicles": HALF}, cost="")
    steps = unrolled(cars, {"environment.traffic.vehicles": [2, 20]})
    assert [step["environment.traffic.vehicles"] for step in steps] == [[1, 10], [1, 5], [1, 2], [1, 1]]
