"""Plans the memory of a cluster: for each node the sums of its programs, and what doesn't fit. Pure.

A node is assumed to have the memory of this machine unless options say otherwise. The learner is on the first node,
and collectors are spread evenly.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from itertools import groupby

from carla_launcher.decide.fit import PoolItem, PoolSum, Situation
from carla_launcher.observe.pools import Gpu, Pool, PoolKind, Reading, estimated
from carla_launcher.sizes import Sizes

RAY_NODE_MIB = 170.0
"""Anonymous memory of a node's raylet, agents and log monitor, measured with Ray 2.60; a head has 80 more."""
RAY_ACTOR_MIB = 180.0
"""Anonymous memory of the Ray worker that holds one collector."""
_NAMES = {PoolKind.RAM: "ram", PoolKind.VRAM: "vram:0"}


@dataclass(frozen=True)
class AgentParts:
    """Sizes of the agent's parts.

    Attributes:
        learner: the learner with its driver and all rings, without collectors.
        collector_mib: RAM of one collector.
        evaluation_mib: further RAM of the collector that evaluates.
    """

    learner: Sizes
    collector_mib: float
    evaluation_mib: float


@dataclass(frozen=True)
class NodePlan:
    """The plan of one node, or of several equal nodes.

    Attributes:
        name: for messages.
        collectors: number per node; each has a simulator.
        sums: one per pool; of several GPUs the fullest one.
    """

    name: str
    collectors: int
    sums: tuple[PoolSum, ...]

    @property
    def fits(self) -> bool:
        """Whether all pools suffice."""
        return not any(each.short_mib for each in self.sums)


def node_reading(here: Reading, totals_mib: Mapping[PoolKind, float]) -> Reading:
    """Return the assumed reading of a node.

    Args:
        here: reading of this machine.
        totals_mib: memory of each node, or of one of its GPUs; kinds left out are those of this machine.
    """
    said = [Pool(_NAMES[kind], kind, estimated(mib), estimated(mib)) for kind, mib in totals_mib.items()]
    pools = (*said, *(pool for pool in here.pools if pool.kind not in totals_mib))
    return Reading(pools, Gpu.OK) if PoolKind.VRAM in totals_mib else replace(here, pools=pools)


def node_plans(situation: Situation, parts: AgentParts, nodes: int, collectors: int, cards: int) -> list[NodePlan]:
    """Return the plans of all nodes, equal ones together.

    Args:
        situation: input of the plan, for one node.
        parts: sizes of the agent's parts.
        nodes: number of nodes.
        collectors: number of collectors on all nodes.
        cards: GPUs of each node; 0 for none.
    """
    each, more = divmod(collectors, nodes)
    counts = [(number == 0, each + (number < more)) for number in range(nodes)]
    found, first = [], 0
    for (learns, count), alike in groupby(counts):
        last = first + len(list(alike)) - 1
        name = f"node {first}" if first == last else f"nodes {first} to {last}, each"
        found.append(
            NodePlan(
                name + (", with the learner" if learns else ""), count, _sums(situation, parts, learns, count, cards)
            )
        )
        first = last + 1
    return found


def _sums(situation: Situation, parts: AgentParts, learns: bool, count: int, cards: int) -> tuple[PoolSum, ...]:
    wanted: dict[PoolKind, list[PoolItem]] = {PoolKind.RAM: [], PoolKind.VRAM: [], PoolKind.DISK: []}
    if learns:
        for kind, lines in wanted.items():
            lines.append(PoolItem("learner", parts.learner.figure(kind)))
        wanted[PoolKind.RAM].append(PoolItem("evaluation, with collector 0", estimated(parts.evaluation_mib)))
    wanted[PoolKind.RAM].append(PoolItem("Ray's own processes", estimated(RAY_NODE_MIB)))
    if count:
        both_mib = count * (parts.collector_mib + RAY_ACTOR_MIB)
        wanted[PoolKind.RAM].append(PoolItem(f"{count} × collector and its Ray worker", estimated(both_mib)))
        wanted[PoolKind.RAM].append(_simulators(situation, PoolKind.RAM, count))
        wanted[PoolKind.VRAM].append(_simulators(situation, PoolKind.VRAM, -(-count // max(1, cards))))
    reserves: Mapping[PoolKind, float] = situation.reserve_mib
    found = []
    for kind, lines in wanted.items():
        pool = next(iter(situation.reading.of(kind)), None)
        held = [line for line in lines if line.figure.mib]
        if pool is not None and held:
            reserve = PoolItem("reserve", estimated(reserves.get(kind, 0.0)))
            found.append(PoolSum(pool.name, kind, (*held, reserve), pool.total))
    return tuple(found)


def _simulators(situation: Situation, kind: PoolKind, count: int) -> PoolItem:
    simulator = situation.simulator
    if simulator is None:
        return PoolItem("no simulator", estimated(0.0))
    one = simulator.peaks.get(simulator.quality, {}).get(kind, estimated(0.0))
    return PoolItem(f"{count} × simulator ({simulator.quality})", estimated(count * (one.mib or 0.0)))
