"""From rungs to steps: halves, what is left out, what each frees, and the order that a person asks for."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from carla_launcher import config, rungs
from carla_launcher.decide.ladder import (
    AppliedRung,
    Ladder,
    LadderPosition,
    Rungs,
    RungStep,
    build_ladder,
    picked_rungs,
    with_program,
)
from carla_launcher.observe.pools import PoolKind
from carla_launcher.resolve import footprint
from carla_launcher.rungs.apply import Apply
from carla_launcher.rungs.one_simulator_less import OneSimulatorLess
from carla_launcher.rungs.quality import Quality
from carla_launcher.rungs.restart_agent import FreshAgent
from carla_launcher.rungs.restart_simulator import FreshSimulator
from carla_launcher.rungs.rung import Rung, kinds
from carla_launcher.rungs.stop import EndRun
from carla_launcher.sizes import Simulator, Sizes, Values
from carla_run.configuration import program_file
from carla_run.exits import ExitError
from carla_td3 import config as agent_config
from carla_td3.memory import estimate
from tests.unit.launcher.planned import AGENT, BASE, CONTEXT_MIB, LIMITS, LITE, RUNGS, Rule, simulator

ALL = picked_rungs(RUNGS, None)
AT_WORK = AGENT.keys.simulators_at_work


def built(rung: Rung, base: Values = BASE, runs: Simulator | None = None) -> tuple[RungStep, ...]:
    return build_ladder({PoolKind.VRAM: (rung,)}, AGENT.present(base), runs, Rule())[PoolKind.VRAM]


def ladder_of(
    kind: PoolKind, policy: list[str] | None = None, quality: str = "Epic", **base: Any
) -> tuple[RungStep, ...]:
    values = AGENT.present({**BASE, **base})
    return build_ladder(picked_rungs(RUNGS, policy), values, simulator(quality), Rule())[kind]


def sets(rung: Rung, **changed: Any) -> list[dict[str, object]]:
    return rung.sets(AGENT.present({**BASE, **changed}))


def named(found: tuple[RungStep, ...], rung: str) -> list[RungStep]:
    return [step for step in found if step.rung == rung]


@pytest.mark.parametrize(
    ("key", "wanted", "present", "then"),
    [
        ("td3.micro_batch", "half", {}, [128, 64, 32, 16, 8, 4, 2, 1]),
        ("td3.micro_batch", "half", {"td3.micro_batch": 5}, [2, 1]),
        ("td3.micro_batch", "half", {"td3.micro_batch": 1}, []),
        ("traffic", "half", {"traffic": [2, 20]}, [[1, 10], [1, 5], [1, 2], [1, 1]]),
        (AT_WORK, "fewer", {"training.collectors": 3}, [2, 1]),
        (AT_WORK, "fewer", {"training.collectors": 3, AT_WORK: 2}, [1]),
        (AT_WORK, "fewer", {}, []),
        ("device", ("cuda", "mps", "cpu"), {}, ["mps", "cpu"]),
        ("td3.batch_size", (512, 128, 64), {}, [128, 64]),
        ("td3.batch_size", (512, 128, 64), {"td3.batch_size": 128}, [64]),
        ("td3.batch_size", 64, {}, [64]),
    ],
)
def test_a_rung_s_values_fall(key: str, wanted: object, present: dict[str, Any], then: list[object]) -> None:
    assert sets(Apply(name="r", values={key: wanted}, cost=""), **present) == [{key: value} for value in then]


def test_one_simulator_less_frees_it_and_its_collector() -> None:
    less = OneSimulatorLess(name="r", values={AT_WORK: "fewer"}, cost="")
    several = replace(simulator("Low"), count=3)
    base = {**BASE, "training.collectors": 3}
    found = built(less, base, several)
    one = simulator("Low").peak("Low", PoolKind.VRAM).mib
    assert [step.frees_mib[PoolKind.VRAM] for step in found] == [one, one]
    assert [step.simulators_mib[PoolKind.VRAM] for step in found] == [one, 2 * (one or 0)]
    stands = LadderPosition({PoolKind.VRAM: found}, (), lambda _: {})
    assert stands.freed_by_simulators(found[1:])[PoolKind.VRAM] == 2 * (one or 0)
    first = AppliedRung("r", "vram", "short", {AT_WORK: 2})
    assert replace(stands, taken=(first,)).freed_by_simulators(found[1:])[PoolKind.VRAM] == one
    assert stands.relief(found[1:])[PoolKind.VRAM] == 0, "the agent's own"
    assert built(less, base) == ()


def test_unknown_sizes_count_from_the_step_that_holds() -> None:
    found = named(ladder_of(PoolKind.VRAM), "micro_batches")
    holds = AppliedRung("micro_batches", "vram", "short", dict(found[0].values))
    stands = LadderPosition({PoolKind.VRAM: tuple(found)}, (holds,), lambda _: {})
    assert stands.relief([found[2]]) == {PoolKind.VRAM: 16 + 8}
    assert replace(stands, taken=()).relief([found[2]])[PoolKind.VRAM] == 32 + 16 + 8


def test_a_copy_of_the_earlier_file_has_the_same_ladder() -> None:
    earlier = yaml.safe_load(Path(__file__).with_name("ladder_before.yaml").read_text(encoding="utf-8"))["ladder"]
    copied = config.validate({**LIMITS.model_dump(mode="json"), "ladder": earlier}, "own.yaml").ladder
    assert {rung.after for rungs in copied.values() for rung in rungs} == {()}

    def ladder(rungs: Rungs, policy: list[str] | None) -> Ladder:
        base, several = AGENT.present({**BASE, "training.collectors": 2}), replace(simulator(), count=2)
        return build_ladder(picked_rungs(with_program(rungs, AGENT), policy), base, several, Rule())

    for policy in (None, ["agent_cpu", "smaller_replay", "less_traffic"]):
        assert ladder(LIMITS.ladder, policy) == ladder(copied, policy)


def test_a_rung_of_the_user_stands_for_the_program_s_of_that_name() -> None:
    own = FreshAgent(name="no_video", values={"evaluation.video": False}, cost="the user's")
    merged = with_program({PoolKind.RAM: (own, *LIMITS.ladder[PoolKind.RAM])}, AGENT)
    assert [rung.cost for rung in merged[PoolKind.RAM] if rung.name == "no_video"] == ["the user's"]


def test_another_program_s_rungs_are_read_by_the_same_code() -> None:
    """Values in order, and what each is believed to free: its sizes are unknown."""
    batches = {"name": "batch", "values": {"batch_size": [256, 128, 64]}, "frees_mib": {"vram": 100}}
    cpu = {"name": "cpu", "values": {"device": "cpu"}, "pools": ["vram"], "loses": "time", "frees_mib": {"vram": 300}}
    other = program_file.validate({"rungs": [batches, cpu]}, "train.yaml")
    rungs = picked_rungs(with_program(LIMITS.ladder, other), None)
    base = {"device": "cuda", "batch_size": 256}
    found = build_ladder(rungs, base, simulator(), lambda variants: [Sizes(values) for values in variants])
    assert [str(step) for step in found[PoolKind.VRAM]] == [
        *("restart_simulator", "cpu (device = cpu)", "carla_low (Low)"),
        *("batch (batch_size = 128)", "batch (batch_size = 64)", "stop"),
    ]
    assert [step.unseen_mib.get(PoolKind.VRAM) for step in found[PoolKind.VRAM] if step.values] == [300, 100, 200]


def test_each_file_of_a_kind_has_the_name_that_a_ladder_says() -> None:
    assert {name: kind.__module__ for name, kind in kinds().items()} == {
        path.stem: f"carla_launcher.rungs.{path.stem}"
        for path in Path(rungs.__file__).parent.glob("*.py")
        if path.stem not in ("__init__", "rung")
    }


def test_each_step_of_a_rung_frees_what_it_adds_to_the_one_before() -> None:
    found = named(ladder_of(PoolKind.VRAM), "micro_batches")
    assert [step.frees_mib[PoolKind.VRAM] for step in found] == [32, 16, 8, 4, 2, 1, 0.5, 0.2]


def test_moving_to_the_cpu_frees_the_context_and_costs_what_the_agent_says() -> None:
    (step,) = named(ladder_of(PoolKind.VRAM), "agent_cpu")
    on_gpu, on_cpu = Rule()([{"device": "cuda"}, {"device": "cpu"}])
    assert step.frees_mib[PoolKind.VRAM] == on_gpu.mib[PoolKind.VRAM] > CONTEXT_MIB
    assert step.frees_mib[PoolKind.RAM] == on_gpu.mib[PoolKind.RAM] - on_cpu.mib[PoolKind.RAM]


def test_a_running_agent_that_only_moves_to_the_cpu_keeps_its_context() -> None:
    rung = Apply(name="move", values={"device": "cpu"}, cost="")
    (step,) = built(rung)
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
    rung = Apply(name="r", values={"td3.micro_batch": "half"}, frees_mib={PoolKind.VRAM: 40}, cost="")
    found = built(rung)[:3]
    assert [step.frees_mib[PoolKind.VRAM] for step in found] == [40, 40, 40]
    assert [step.unseen_mib[PoolKind.VRAM] for step in found] == [8, 8 + 24, 8 + 24 + 32]


def test_cuda_graphs_are_given_up_before_all_else() -> None:
    base = AGENT.present({**BASE, "td3.cuda_graph": True})
    first = build_ladder(ALL, base, simulator("Epic"), Rule(graphs=96.0))[PoolKind.VRAM][0]
    assert (first.rung, first.values, first.frees_mib[PoolKind.VRAM]) == (
        "no_cuda_graph",
        {"td3.cuda_graph": False},
        96,
    )


def test_coarser_quality_frees_the_difference_of_carla_s_peaks() -> None:
    (step,) = named(ladder_of(PoolKind.VRAM), "carla_low")
    assert step.quality == "Low"
    assert step.frees_mib == {PoolKind.VRAM: 5530 - 4813}


@pytest.mark.parametrize(
    ("rung", "kind", "changed"),
    [
        ("agent_cpu", PoolKind.VRAM, {"device": "cpu"}),
        ("offload", PoolKind.VRAM, {"device": "cpu"}),
        ("no_cuda_graph", PoolKind.VRAM, {}),
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
    found = build_ladder(ALL, AGENT.present(BASE), None, Rule())
    assert not {FreshSimulator, Quality} & {step.does for ladder in found.values() for step in ladder}


def test_a_policy_picks_and_orders_and_stop_stays_last() -> None:
    found = ladder_of(PoolKind.VRAM, ["stop", "carla_low", "agent_cpu"])
    assert [step.rung for step in found] == ["carla_low", "agent_cpu", "stop"]


def test_a_policy_takes_rungs_that_are_not_allowed_by_themselves() -> None:
    assert not named(ladder_of(PoolKind.DISK), "smaller_replay")
    assert named(ladder_of(PoolKind.DISK, ["smaller_replay"]), "smaller_replay")


def test_a_policy_leaves_a_pool_alone_none_of_whose_rungs_it_names() -> None:
    assert picked_rungs(RUNGS, ["carla_low"])[PoolKind.RAM] == ALL[PoolKind.RAM]


def test_a_policy_with_an_unknown_name_is_told_which_exist() -> None:
    with pytest.raises(ExitError, match=r"names cpu, nope, .* it has agent_cpu, carla_low, .*stop\.$"):
        picked_rungs(RUNGS, ["cpu", "agent_cpu", "nope"])


sizes = st.floats(0, 6000)


@given(st.data())
def test_no_step_is_predicted_to_take_memory_in_the_pool_that_it_serves(data: st.DataObject) -> None:
    """Whatever the agent answers."""

    def anything(variants: Sequence[Values]) -> list[Sizes]:
        return [Sizes(values, {kind: data.draw(sizes) for kind in PoolKind}) for values in variants]

    for kind, ladder in build_ladder(ALL, AGENT.present(BASE), simulator(), anything).items():
        worked_out = [step for step in ladder if step.lasting]
        assert all(step.frees_mib[kind] > 0 for step in worked_out)
        assert ladder[-1].does is EndRun


def of_the_agent(variants: Sequence[Values]) -> list[Sizes]:
    """Return sizes by the rule, or the agent's own refusal of a variant."""
    asked = [dict(values) for values in variants]
    found = estimate.variants(agent_config.validate({}, "a test"), asked)["variants"]
    return [footprint.read(values, row) for values, row in zip(asked, found, strict=True)]


def checked(rungs: dict[PoolKind, tuple[Rung, ...]]) -> Ladder:
    return build_ladder(rungs, AGENT.present(BASE), None, of_the_agent)


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ({"td3.micro_batch": "halve"}, "`td3.micro_batch` is 'halve'; expected a whole number"),
        ({"td3.micro_batch": -1}, "`td3.micro_batch` is -1; expected at least 1"),
        ({"td3.micro_bach": 8}, "unknown key `td3.micro_bach` (did you mean `td3.micro_batch`?)"),
        ({"td3.micro_bach": "half"}, "needs a key with a whole number, and `td3.micro_bach` is empty; expected one of"),
        ({"device": "half"}, "`device: half` needs a key with a whole number, and `device` is 'cuda'"),
        ({"memory.offload": ["network"]}, "`memory.offload.0` is 'network'; expected 'optimizer' or 'targets'"),
        ({"evaluation.video": "perhaps"}, "`evaluation.video` is 'perhaps'; expected true or false"),
    ],
)
def test_a_rung_that_sets_what_the_agent_has_not_is_refused_by_name(values: dict[str, Any], expected: str) -> None:
    rung = FreshAgent(name="wrong", values=values, cost="")
    with pytest.raises(ExitError, match=r"^Rung wrong of ladder\.ram can't be taken: ") as refused:
        checked({PoolKind.RAM: (*ALL[PoolKind.RAM], rung)})
    assert expected in str(refused.value)


def test_the_shipped_rungs_and_one_that_only_this_configuration_refuses_stand() -> None:
    checked(ALL)
    halved = FreshAgent(name="r", values={"replay.capacity": "half"}, cost="")  # below 1 000 at last
    checked({PoolKind.DISK: (halved,)})
