"""The fit rule and the choice: sums by hand, the ladder's order, and properties that hold on every machine."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from carla_launcher.decide import plan
from carla_launcher.decide.fit import Candidate, Fits, PoolSum, Situation
from carla_launcher.decide.ladder import RungStep
from carla_launcher.decide.plan import Plan
from carla_launcher.observe.pools import (
    UNKNOWN,
    Figure,
    Gpu,
    Owner,
    OwnerKind,
    Pool,
    PoolKind,
    Provenance,
    Reading,
    measured,
)
from carla_launcher.sizes import Simulator
from tests.unit.launcher.planned import LIMITS, LITE, Rule, card, reading, simulator, situation

RULE = Rule()
RESERVE = LIMITS.memory.reserve_mib[PoolKind.VRAM]


def planned(seen: Reading, agent: Rule = RULE, quality: str = "Epic", policy: list[str] | None = None) -> Plan:
    runs = simulator(quality if seen.gpu is Gpu.OK else LITE)
    return plan.make_plan(situation(seen, agent, runs, policy), agent)


def items(found: Candidate, pool: str = "vram:0") -> dict[str, float | None]:
    return {line.what: line.figure.mib for line in found.sum_of(pool).lines}


def rungs(found: Candidate | None) -> list[str]:
    assert found is not None
    return [step.rung for step in found.steps]


def taken(found: Candidate | None, rung: str) -> RungStep:
    assert found is not None
    return next(step for step in found.steps if step.rung == rung)


def test_the_sum_names_simulator_others_context_agent_and_reserve() -> None:
    asked = planned(reading()).asked
    agent = RULE.one({}).mib[PoolKind.VRAM] - 400
    expected = {"CARLA at Epic": 5530, "Xorg": 85, "CUDA context": 400, "agent at its peak": agent, "reserve": RESERVE}
    assert items(asked) == expected
    assert asked.sum_of("vram:0").left_mib == 5745 - sum(expected.values())
    assert not asked.fits


def test_of_several_simulators_as_many_are_started_as_fit() -> None:
    several = replace(simulator("Low"), count=3)
    values: dict[str, Any] = {"training.collectors": 3, "collector.at_work": None}
    found = plan.make_plan(situation(reading(vram=11_000), RULE, several, **values), RULE)
    assert items(found.asked)["3 × CARLA at Low"] == 3 * 4813
    assert rungs(found.start) == ["one_simulator_less"]
    assert taken(found.start, "one_simulator_less").values == {"collector.at_work": 2}
    assert found.start is not None
    assert items(found.start)["3 × CARLA at Low"] == 2 * 4813
    alone = plan.make_plan(situation(reading(vram=11_000), RULE, simulator("Low"), **values), RULE)
    assert "CARLA at Low" in items(alone.asked)


OURS = Owner("simulator", OwnerKind.SIMULATOR, (1,), measured(4800))


def hidden(owner: Owner, free: float) -> Pool:
    """Return a card of which the driver doesn't say how much an owner holds: WSL, WDDM, MIG."""
    owners = (replace(owner, held=UNKNOWN),)
    return Pool("vram:0", PoolKind.VRAM, measured(5745), measured(free), owners)


@pytest.mark.parametrize(
    ("pool", "others"),
    [
        (card(5745, OURS, Owner("agent", OwnerKind.AGENT, (2,), measured(500))), {}),
        (card(5745, unnamed=64), {"others, unnamed": 64}),
        (hidden(OURS, 700), {}),  # the rest is taken for this run's own
        (hidden(Owner("game", OwnerKind.FOREIGN, (7,), UNKNOWN), 5545), {"game": None, "others, unnamed": 200}),
    ],
    ids=["this run's own", "nobody's", "this run's, hidden", "a foreign process's, hidden"],
)
def test_only_what_others_hold_counts_beside_the_run(pool: Pool, others: dict[str, float | None]) -> None:
    alone = items(planned(Reading((card(5745),), Gpu.OK)).asked)
    assert items(planned(Reading((pool,), Gpu.OK)).asked) == alone | others


def test_a_container_s_limit_counts_for_its_own_side_alone() -> None:
    limits = [Pool(f"ram:{role}", PoolKind.RAM, measured(2000), measured(2000)) for role in ("agent", "simulator")]
    asked = planned(Reading((*reading().pools, *limits), Gpu.OK)).asked
    assert set(items(asked, "ram:agent")) == {"agent at its peak", "reserve"}
    assert set(items(asked, "ram:simulator")) == {"CARLA at Epic", "reserve"}
    assert asked.sum_of("ram:simulator").short_mib == 4096 + 256 - 2000


def test_a_total_that_nobody_says_hinders_nothing() -> None:
    pool = Pool("vram:0", PoolKind.VRAM, UNKNOWN, UNKNOWN)
    found = planned(Reading((pool,), Gpu.OK))
    assert found.start is found.asked
    assert found.asked.sum_of("vram:0").left_mib is None
    assert found.reason.endswith("with no pool that could be read")


def need(kind: PoolKind, agent: Rule = RULE) -> float:
    """Return what CARLA at Low, others, the agent and the reserve come to."""
    beside = {PoolKind.VRAM: 4813 + 85, PoolKind.RAM: 4096 + 3000, PoolKind.DISK: 0}
    return beside[kind] + LIMITS.memory.reserve_mib[kind] + agent.one({}).mib[kind]


NEEDED = {kind: need(kind) for kind in PoolKind}
NO_ROWS = Rule(row=0.0)
VRAM_NO_ROWS = need(PoolKind.VRAM, NO_ROWS)
RAM_NO_ROWS = need(PoolKind.RAM, NO_ROWS)


@pytest.mark.parametrize(
    ("seen", "quality", "agent", "policy", "expected"),
    [
        ({"vram": 8192}, "Epic", RULE, None, []),
        ({}, "Epic", RULE, None, ["agent_cpu"]),
        ({}, "Epic", RULE, ["carla_low", "agent_cpu"], ["carla_low"]),
        # 5 400 MiB hold neither Epic at all nor Low with the agent beside it: several, and none for nothing.
        ({"vram": 5400}, "Epic", RULE, None, ["agent_cpu", "carla_low"]),
        ({"vram": VRAM_NO_ROWS - 15}, "Low", NO_ROWS, None, ["offload"]),
        # Offload takes 40 MiB of the host: where those aren't there it is passed over,
        ({"vram": VRAM_NO_ROWS - 15, "ram": RAM_NO_ROWS + 10}, "Low", NO_ROWS, None, ["agent_cpu"]),
        # or taken with the rung of RAM's own ladder that gives them back.
        (
            {"vram": VRAM_NO_ROWS - 15, "ram": RAM_NO_ROWS + 10},
            *("Low", NO_ROWS, ["offload", "no_video"], ["no_video", "offload"]),
        ),
        ({"vram": 8192, "ram": NEEDED[PoolKind.RAM] - 3}, "Epic", RULE, None, ["no_video"]),
        ({"vram": 8192, "ram": NEEDED[PoolKind.RAM] - 30}, "Epic", RULE, None, ["no_video"]),
        ({"vram": 8192, "disk": NEEDED[PoolKind.DISK] - 50}, "Epic", RULE, None, ["fewer_checkpoints"]),
    ],
)
def test_the_first_rungs_that_are_enough_are_taken(
    seen: dict[str, float], quality: str, agent: Rule, policy: list[str] | None, expected: list[str]
) -> None:
    assert sorted(rungs(planned(reading(**seen), agent, quality, policy).start)) == expected


def test_of_a_rung_only_as_many_halves_are_taken_as_are_needed() -> None:
    found = planned(reading(vram=NEEDED[PoolKind.VRAM] - 40), quality="Low")
    assert taken(found.start, "micro_batches").values == {"td3.micro_batch": 64}, "32 MiB by the first, 48 by both"


NEAREST = f"the nearest, Low, agent on the CPU, is {4813 + 85 + RESERVE - 4000:.0f} MiB short in vram:0"
ESTIMATE = "The memory of CARLA at Low is an estimate until a run has measured it"
CHANGED = "(sizes.vram_mib.Low); if it takes less on this machine, change that key of the launcher's configuration"
UNREACHED = "Low, agent on the CPU would fit, but no allowed rung leads there"


@pytest.mark.parametrize(
    ("vram", "quality", "policy", "starts", "said", "unsaid"),
    [
        (8192, "Epic", None, True, ["as requested"], ""),
        (5745, "Epic", None, True, ["with micro_batches (td3.micro_batch = 1) ", "with offload"], "carla_low"),
        (4000, "Epic", None, False, [NEAREST, "free some memory, or choose a smaller configuration"], ""),
        (4096, "Low", None, False, [ESTIMATE, CHANGED], ""),
        (5400, "Epic", ["carla_low"], False, [UNREACHED], ""),
    ],
)
def test_the_reason_says_what_was_passed_over_or_is_short(
    vram: float, quality: str, policy: list[str] | None, starts: bool, said: list[str], unsaid: str
) -> None:
    found = planned(reading(vram=vram), quality=quality, policy=policy)
    assert (found.start is not None) is starts
    assert all(words in found.reason for words in said), found.reason
    assert not unsaid or unsaid not in found.reason


@pytest.mark.parametrize("known", [Provenance.MEASURED, Provenance.ESTIMATED])
def test_a_figure_that_was_measured_or_would_change_nothing_is_not_named(known: Provenance) -> None:
    small = 4813.0 if known is Provenance.MEASURED else 10.0
    peaks = {"Low": {PoolKind.VRAM: Figure(small, known)}}
    found = plan.make_plan(situation(reading(vram=150), RULE, Simulator("Low", peaks)), RULE)
    assert found.start is None
    assert "sizes.vram_mib" not in found.reason


def test_a_disk_that_nothing_helps_is_said_to_be_the_disk_and_where_it_is() -> None:
    stands = situation(reading(vram=8192, disk=10), RULE, simulator("Low"))
    reason = plan.make_plan(
        replace(stands, folder="runs/night", smaller={PoolKind.DISK: "replay.capacity"}), RULE
    ).reason
    assert "MiB short in disk; free some disk in runs/night, or choose a smaller replay.capacity" in reason
    assert "memory" not in reason


def test_each_configuration_is_listed_once_with_every_quality_and_device() -> None:
    found = planned(reading())
    listed = [(each.quality, tuple(sorted(map(str, each.values.items())))) for each in found.configurations]
    assert len(listed) == len(set(listed))
    plain = {(each.quality, each.device) for each in found.configurations if set(each.values) == {"device"}}
    assert plain == {("Epic", "cuda"), ("Epic", "cpu"), ("Low", "cuda"), ("Low", "cpu")}


def test_a_lost_gpu_is_one_sentence_with_the_driver_s_words() -> None:
    lost = Reading((), Gpu.LOST, "NVML_ERROR_GPU_IS_LOST.")
    sentence = plan.lost_gpu(lost, needed=True)
    assert sentence == (
        "The driver has lost the GPU (NVML_ERROR_GPU_IS_LOST): restart the machine, "
        "or use carla-lite (agent: --device cpu)."
    )
    assert plan.lost_gpu(lost, needed=False) == ""
    assert plan.lost_gpu(reading(), needed=True) == ""


rules = st.builds(
    Rule,
    networks=st.floats(1, 400),
    optimizer=st.floats(0, 200),
    row=st.floats(0, 2),
    processes=st.floats(100, 1000),
)
machines: Any = st.fixed_dictionaries(
    {
        "vram": st.floats(500, 12_000),
        "xorg": st.floats(0, 400),
        "ram": st.floats(3_100, 10_000),
        "disk": st.floats(0, 3_000),
    }
)


@given(seen=machines, agent=rules, quality=st.sampled_from(["Epic", "Low"]))
def test_what_is_chosen_fits_by_its_own_numbers_and_takes_nothing_for_nothing(
    seen: dict[str, float], agent: Rule, quality: str
) -> None:
    found = planned(reading(**seen), agent, quality)
    start = found.start
    assert (start is found.asked) is found.asked.fits
    if start is None:
        assert not any(each.fits for each in found.configurations if len(each.steps) == 1)
        return
    assert start.fits
    for each in start.sums:
        needed = sum(line.figure.mib or 0 for line in each.lines)
        assert each.total.mib is not None
        assert needed <= each.total.mib + 0.1
    made = situation(reading(**seen), agent, simulator(quality))
    for step in start.steps:
        rest = tuple(each for each in start.steps if each is not step)
        (without,) = Fits(made, agent).judge([rest])
        assert not without.fits, f"{step} is not needed"


@given(seen=machines, agent=rules)
def test_no_step_of_a_ladder_makes_its_own_pool_fuller(seen: dict[str, float], agent: Rule) -> None:
    made: Situation = situation(reading(**seen), agent)
    fits = Fits(made, agent)
    (asked,) = fits.judge([()])
    for kind, ladder in made.ladder.items():
        before: dict[str, list[PoolSum]] = {}
        for step in (each for each in ladder if each.lasting):
            (after,) = fits.judge([(step,)])
            sums = [each for each in after.sums if each.kind is kind]
            highest = before.get(step.rung, [each for each in asked.sums if each.kind is kind])
            assert all(now.needed_mib <= then.needed_mib for now, then in zip(sums, highest, strict=True))
            before[step.rung] = sums


@given(vram=st.floats(500, 12_000), more=st.floats(0, 2000), agent=rules)
def test_a_bigger_card_never_fits_less(vram: float, more: float, agent: Rule) -> None:
    small, large = (planned(reading(vram=size, ram=60_000), agent) for size in (vram, vram + more))
    assert small.start is None or large.start is not None


@pytest.mark.parametrize("total", [0, 1])
def test_a_machine_with_no_memory_at_all_is_a_refusal_and_no_traceback(total: float) -> None:
    assert (
        planned(Reading((card(total), Pool("ram", PoolKind.RAM, measured(total), measured(0))), Gpu.OK)).start is None
    )
