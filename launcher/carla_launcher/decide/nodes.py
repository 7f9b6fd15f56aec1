"""What each node of a cluster holds at most, and what of it doesn't fit: sums as of one machine, node by node. Pure.

Every node is taken to be as the machine that plans, but for what is said of it; the learner is on the first, and
collectors are spread evenly.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from itertools import groupby

from carla_launcher.decide.fit import Line, Situation, Sum
from carla_launcher.observe.pools import Gpu, Pool, PoolKind, Reading, estimated
from carla_launcher.sizes import Sizes

RAY_NODE_MIB = 170.0
"""Anonymous memory of a node's raylet, agents and log monitor, measured with Ray 2.60; a head has 80 more."""
RAY_ACTOR_MIB = 180.0
"""The same of the worker that holds one collector."""
_NAMES = {PoolKind.RAM: "ram", PoolKind.VRAM: "vram:0"}


@dataclass(frozen=True)
class AgentParts:
    """What parts of the agent take.

    Attributes:
        learner: with its driver and all rings, and no collector.
        collector_mib: of RAM, one.
        evaluation_mib: of RAM, what the one that evaluates takes beyond.
    """

    learner: Sizes
    collector_mib: float
    evaluation_mib: float


@dataclass(frozen=True)
class NodePlan:
    """One node, or several that are alike.

    Attributes:
        name: for people.
        collectors: of each; each with a simulator.
        sums: by pool; of several cards the fullest one.
    """

    name: str
    collectors: int
    sums: tuple[Sum, ...]

    @property
    def fits(self) -> bool:
        """Whether no pool is short."""
        return not any(each.short_mib for each in self.sums)


def node_reading(here: Reading, totals_mib: Mapping[PoolKind, float]) -> Reading:
    """Return what a reading of a node would be.

    Args:
        here: of the machine that plans.
        totals_mib: what each node, or one card of it, has; of kinds that aren't there, what the machine that plans has.
    """
    said = [Pool(_NAMES[kind], kind, estimated(mib), estimated(mib)) for kind, mib in totals_mib.items()]
    pools = (*said, *(pool for pool in here.pools if pool.kind not in totals_mib))
    return Reading(pools, Gpu.OK) if PoolKind.VRAM in totals_mib else replace(here, pools=pools)


def node_plans(situation: Situation, parts: AgentParts, nodes: int, collectors: int, cards: int) -> list[NodePlan]:
    """Return what nodes hold, alike ones together.

    Args:
        situation: of a node; its simulator is one's, whatever its count.
        parts: of the agent.
        nodes: how many.
        collectors: of them all.
        cards: of each node; 0 for none.
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


def _sums(situation: Situation, parts: AgentParts, learns: bool, count: int, cards: int) -> tuple[Sum, ...]:
    wanted: dict[PoolKind, list[Line]] = {PoolKind.RAM: [], PoolKind.VRAM: [], PoolKind.DISK: []}
    if learns:
        for kind, lines in wanted.items():
            lines.append(Line("learner", parts.learner.figure(kind)))
        wanted[PoolKind.RAM].append(Line("evaluation, with collector 0", estimated(parts.evaluation_mib)))
    wanted[PoolKind.RAM].append(Line("Ray's own processes", estimated(RAY_NODE_MIB)))
    if count:
        both_mib = count * (parts.collector_mib + RAY_ACTOR_MIB)
        wanted[PoolKind.RAM].append(Line(f"{count} × collector and its Ray worker", estimated(both_mib)))
        wanted[PoolKind.RAM].append(_simulators(situation, PoolKind.RAM, count))
        wanted[PoolKind.VRAM].append(_simulators(situation, PoolKind.VRAM, -(-count // max(1, cards))))
    reserves: Mapping[PoolKind, float] = situation.reserve_mib
    found = []
    for kind, lines in wanted.items():
        pool = next(iter(situation.reading.of(kind)), None)
        held = [line for line in lines if line.figure.mib]
        if pool is not None and held:
            reserve = Line("reserve", estimated(reserves.get(kind, 0.0)))
            found.append(Sum(pool.name, kind, (*held, reserve), pool.total))
    return tuple(found)


def _simulators(situation: Situation, kind: PoolKind, count: int) -> Line:
    simulator = situation.simulator
    if simulator is None:
        return Line("no simulator", estimated(0.0))
    one = simulator.peaks.get(simulator.quality, {}).get(kind, estimated(0.0))
    return Line(f"{count} × simulator ({simulator.quality})", estimated(count * (one.mib or 0.0)))
