"""The plan of each node of a cluster, by the sums of one machine."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from carla_launcher.decide.fit import Situation
from carla_launcher.decide.nodes import RAY_ACTOR_MIB, RAY_NODE_MIB, AgentParts, NodePlan, node_plans, node_reading
from carla_launcher.observe.pools import Gpu, Pool, PoolKind, Reading, measured
from carla_launcher.sizes import Simulator, Sizes

RAM, VRAM, DISK = PoolKind.RAM, PoolKind.VRAM, PoolKind.DISK
TOTALS = {"ram": (RAM, 64_000), "vram:0": (VRAM, 24_000), "disk": (DISK, 100_000)}
CARLA = Simulator("Low", {"Low": {VRAM: measured(4800), RAM: measured(4000)}}, count=16)
PARTS = AgentParts(Sizes({}, {RAM: 2000, VRAM: 3000, DISK: 7000}), collector_mib=300, evaluation_mib=60)


def planned(
    nodes: int,
    collectors: int,
    cards: int = 4,
    ram_mib: float = 64_000,
    totals_mib: Mapping[PoolKind, float] | None = None,
) -> list[NodePlan]:
    totals = {**TOTALS, "ram": (RAM, ram_mib)}
    pools = tuple(Pool(name, kind, measured(mib), measured(mib)) for name, (kind, mib) in totals.items())
    reading = node_reading(Reading(pools, Gpu.OK), totals_mib or {})
    situation = Situation(reading, CARLA, {"device": "cuda"}, {}, {RAM: 256, VRAM: 100, DISK: 512})
    return node_plans(situation, PARTS, nodes, collectors, cards)


def needed(plan: NodePlan) -> dict[PoolKind, float]:
    return {each.kind: each.needed_mib for each in plan.sums}


def test_sixteen_collectors_on_four_nodes_with_four_cards_each() -> None:
    first, others = planned(4, 16)
    assert (first.name, others.name) == ("node 0, with the learner", "nodes 1 to 3, each")
    assert (first.collectors, others.collectors) == (4, 4)
    driving = 4 * (300 + RAY_ACTOR_MIB + 4000) + RAY_NODE_MIB
    assert needed(others) == {RAM: driving + 256, VRAM: 4800 + 100}
    assert needed(first) == {RAM: driving + 2000 + 60 + 256, VRAM: 3000 + 4800 + 100, DISK: 7000 + 512}
    assert first.fits
    assert others.fits


@pytest.mark.parametrize(
    ("nodes", "collectors", "expected"),
    [
        (1, 3, [("node 0, with the learner", 3)]),
        (3, 5, [("node 0, with the learner", 2), ("node 1", 2), ("node 2", 1)]),
        (3, 1, [("node 0, with the learner", 1), ("nodes 1 to 2, each", 0)]),
    ],
)
def test_collectors_are_spread_evenly(nodes: int, collectors: int, expected: list[tuple[str, int]]) -> None:
    assert [(each.name, each.collectors) for each in planned(nodes, collectors)] == expected


def test_what_does_not_fit_is_found_on_the_node_that_it_is_on() -> None:
    first, others = planned(4, 16, ram_mib=19_500)
    assert not first.fits
    assert others.fits
    assert [each.fits for each in planned(4, 16, totals_mib={RAM: 19_456})] == [False, True], (
        "whatever this machine has"
    )
    assert [each.fits for each in planned(4, 16, totals_mib={VRAM: 6_144})] == [False, True], "no room beside a learner"
    assert [each.fits for each in planned(2, 16, cards=1)] == [False, False], "eight simulators on a card"


def test_cards_that_are_said_are_planned_for() -> None:
    ram = Pool("ram", RAM, measured(64_000), measured(64_000))
    reading = node_reading(Reading((ram,), Gpu.UNREADABLE, "the driver fails"), {VRAM: 8192})
    assert (reading.gpu, reading.problem) == (Gpu.OK, "")
    situation = Situation(reading, CARLA, {"device": "cuda"}, {}, {RAM: 256, VRAM: 100})
    (only,) = node_plans(situation, PARTS, 1, 2, 2)
    assert needed(only)[VRAM] == 3000 + 4800 + 100
    assert only.fits


def test_without_cards_no_node_has_a_pool_of_theirs() -> None:
    situation = Situation(
        Reading((Pool("ram", RAM, measured(8000), measured(8000)),)), None, {"device": "cpu"}, {}, {RAM: 0}
    )
    (only,) = node_plans(situation, PARTS, 1, 2, 0)
    assert set(needed(only)) == {RAM}
