"""From resolved options to a plan: device, simulator, watermarks, ladder and sizes, brought together in order.

Owns that order and the sentences about a machine that lacks what was asked for. The reading and the agent's footprint
are given. ``plan`` shows what comes out, ``up`` starts by it.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

from carla_launcher.config import LauncherConfig
from carla_launcher.decide import plan
from carla_launcher.decide.fit import Situation
from carla_launcher.decide.ladder import Rungs, build_ladder, picked_rungs, with_program
from carla_launcher.decide.nodes import AgentParts
from carla_launcher.decide.plan import Plan
from carla_launcher.observe.pools import Cards, Gpu, PoolKind, Reading
from carla_launcher.options import RefusedError, RunOptions
from carla_launcher.resolve import watermarks
from carla_launcher.resolve.footprint import Footprint, program
from carla_launcher.simulators import simulator_of
from carla_launcher.sizes import CPU, CUDA, DEVICE, LITE, Simulator, SizesOf, Values
from carla_run.exits import Exit

SOMEWHERE = "127.0.0.1:6379"
"""A cluster's address, for the question what an agent takes that has one."""
NO_RUNS = Path("/nonexistent")
"""Where no run has measured anything."""


@dataclass(frozen=True)
class PlanResult:
    """A plan, what it was made of, what else of the agent can be asked, and which measured figures were left out."""

    situation: Situation
    plan: Plan
    sizes_of: SizesOf
    rungs: Rungs
    notes: tuple[str, ...] = ()


def make_plan(
    asked: RunOptions, runs: Path, limits: LauncherConfig, reading: Reading, footprint: Footprint
) -> PlanResult:
    """Return what fits, from nothing taken.

    Args:
        asked: with the simulator chosen; ``gpu`` are the cards that are read, None for the first.
        runs: where earlier runs lie, whose watermarks count: for the simulator only those on this map.
        limits: the launcher's configuration.
        reading: all pools.
        footprint: of the agent's configuration.

    Raises:
        FootprintError: the agent's configuration is wrong.
        RefusedError: the machine has not what was asked for (65), or has lost it (71).
        PolicyError: the policy names rungs that don't exist.
        RungError: a rung sets what the agent hasn't.
    """
    agent = program()
    rungs = picked_rungs(with_program(limits.ladder, agent), asked.policy)
    config = footprint.config()
    device = _device(asked.device or str(config[DEVICE]), reading)
    measuring = NO_RUNS if asked.ignore_measured else runs
    simulator, notes = _simulator(asked, measuring, limits, reading, count_of(config))
    if lost := plan.lost_gpu(reading, device, simulator.quality if simulator else None):
        raise RefusedError(lost, Exit.OUT_OF_MEMORY)
    base = {**config, DEVICE: device}
    sized = {key: value for key, value in base.items() if key not in agent.keys.of_time}
    with_context = watermarks.with_context(footprint.sizes, watermarks.agent_context(measuring))
    marks = watermarks.agent_marks(measuring, sized, footprint.pinned(), agent)
    sizes_of = watermarks.corrected(with_context, marks, sized, agent)
    ladder = build_ladder(rungs, agent.present(base), simulator, sizes_of)
    cards = asked.gpu or Cards()
    smaller = {PoolKind(kind): key for kind, key in agent.smaller.items()}
    situation = Situation(reading, simulator, base, ladder, limits.memory.reserve_mib, cards, str(runs), smaller)
    return PlanResult(situation, plan.make_plan(situation, sizes_of), sizes_of, rungs, notes)


def cpu_base(found: PlanResult) -> Values:
    """Return the agent's values as they are planned with where it can't use the card."""
    return {**found.situation.base, DEVICE: CPU}


def on_cpu(found: PlanResult, sizes_of: SizesOf) -> PlanResult:
    """Return what the plan was made of as it is for an agent that can't use the card; what was chosen stands.

    Raises:
        FootprintError: of ``sizes_of``: what the agent takes there is unknown; the ladder stays as it is.
    """
    base = cpu_base(found)
    ladder = build_ladder(found.rungs, program().present(base), found.situation.simulator, sizes_of)
    return replace(found, situation=replace(found.situation, base=base, ladder=ladder))


def agent_parts(found: PlanResult, collectors: int) -> AgentParts:
    """Return what the parts of an agent take whose collectors drive on a cluster.

    Raises:
        FootprintError: what it takes is unknown.
        RefusedError: there can't be such a configuration.
    """
    device, keys = {DEVICE: found.situation.base[DEVICE]}, program().keys
    here = {**device, keys.simulators: 1}
    learner, one, two, unseen = found.sizes_of(
        [
            {**device, keys.simulators: collectors, keys.cluster: SOMEWHERE},
            here,
            {**here, keys.simulators: 2},
            {**here, **program().without_evaluation},
        ]
    )
    for each in (learner, one, two, unseen):
        if each.refusal:
            raise RefusedError(each.refusal)
    ram = [each.mib.get(PoolKind.RAM, 0.0) for each in (one, two, unseen)]
    return AgentParts(learner, max(0.0, ram[1] - ram[0]), max(0.0, ram[0] - ram[2]))


def _device(wanted: str, reading: Reading) -> str:
    no_gpu = reading.gpu in (Gpu.NONE, Gpu.UNREADABLE)
    if wanted == CUDA and no_gpu:
        raise RefusedError("device is cuda, but the driver shows no GPU: use --device auto or --device cpu.")
    return CPU if wanted == CPU or no_gpu else CUDA


def count_of(config: Values) -> int:
    """Return how many simulators an agent's configuration asks for."""
    return int(config.get(program().keys.simulators) or 1)


def _simulator(
    asked: RunOptions, runs: Path, limits: LauncherConfig, reading: Reading, count: int
) -> tuple[Simulator | None, tuple[str, ...]]:
    kind = simulator_of(asked)
    if not kind.ours:
        return None, ()
    if kind.needs_card and reading.gpu is Gpu.NONE:
        raise RefusedError(
            "CARLA needs a GPU, and the driver shows none: use carla-lite, or mend the driver. (Of a cluster's "
            "nodes, say what their cards have: plan --nodes N --node-vram GIB.)"
        )
    first = watermarks.first_figures(limits.sizes)
    peaks, notes = watermarks.plausible(watermarks.simulator_peaks(runs, asked.map, first), first)
    return Simulator(kind.quality(limits.simulator) or LITE, peaks, count), notes if kind.needs_card else ()
