"""Prints a plan as tables or as JSON. Decides nothing."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from carla_launcher.decide.fit import Candidate, PoolSum
from carla_launcher.decide.ladder import Ladder
from carla_launcher.decide.nodes import NodePlan
from carla_launcher.observe.pools import PROCESS_POOLS, Figure, PoolKind, Provenance
from carla_launcher.resolve.planning import PlanResult
from carla_launcher.show.formatting import counted
from carla_launcher.sizes import Sizes

_WITH = {PoolKind.VRAM: "vram, CUDA context included", PoolKind.RAM: "ram"}


def plain(found: PlanResult, obstacle: str = "") -> dict[str, Any]:
    """Return the plan as plain data, in MiB; with an obstacle nothing fits."""
    situation, plan = found.situation, found.plan
    return {
        "gpu": situation.reading.gpu.value,
        "cards": asdict(situation.cards),
        "problem": situation.reading.problem,
        "simulator": situation.simulator.name if situation.simulator else None,
        "asked": _candidate(plan.asked) | {"items_mib": {each.pool: _items(each) for each in plan.asked.sums}},
        "agent_by_phase_mib": {kind.value: dict(rows) for kind, rows in plan.asked.agent.by_phase.items() if rows},
        "configurations": [_candidate(each) for each in plan.configurations],
        "ladder": _ladder(situation.ladder),
        "fits": plan.start is not None and not obstacle,
        "obstacle": obstacle,
        "start": None if plan.start is None else _candidate(plan.start),
        "reason": plan.reason,
    }


def _candidate(candidate: Candidate) -> dict[str, Any]:
    return {
        "name": str(candidate),
        "quality": candidate.quality,
        "device": candidate.device,
        "rungs": [step.rung for step in candidate.steps],
        "values": dict(candidate.values),
        "fits": candidate.fits,
        "refusal": candidate.refusal,
        "pools": {each.pool: _amounts(each) for each in candidate.sums},
    }


def _amounts(each: PoolSum) -> dict[str, float | None]:
    return {"needed_mib": each.needed_mib, "total_mib": each.total.mib, "left_mib": each.left_mib}


def _items(each: PoolSum) -> list[dict[str, Any]]:
    return [{"what": line.what, "mib": line.figure.mib, "known": line.figure.provenance.value} for line in each.lines]


def _ladder(ladder: Ladder) -> dict[str, list[dict[str, Any]]]:
    return {
        kind.value: [
            {
                "step": str(step),
                "rung": step.rung,
                "does": step.does.kind(),
                "frees_mib": {each.value: mib for each, mib in step.frees_mib.items()},
                "cost": step.cost,
            }
            for step in steps
        ]
        for kind, steps in ladder.items()
    }


def show(found: PlanResult, console: Console, obstacle: str = "") -> None:
    """Print the sums of the configuration that was asked for, all configurations, and how a run would start."""
    plan = found.plan
    if found.situation.reading.problem:
        console.print(found.situation.reading.problem, highlight=False, soft_wrap=True)
    if plan.asked.sums:
        console.print(_added(f"Memory of {plan.asked}, MiB", plan.asked.sums))
        if any(plan.asked.agent.by_phase.values()):
            console.print(_phases(plan.asked.agent))
        console.print(_configurations(plan.configurations))
    start = "A run can't start" if plan.start is None else f"A run would start with {plan.start}"
    reason = f"A run can't start: {obstacle}" if obstacle else f"{start}: {plan.reason}."
    console.print(reason, highlight=False, soft_wrap=True)


def plain_nodes(found: list[NodePlan]) -> list[dict[str, Any]]:
    """Return the plans of nodes as plain data, in MiB."""
    return [
        {
            "nodes": each.name,
            "collectors": each.collectors,
            "fits": each.fits,
            "pools": {one.kind.value: _amounts(one) for one in each.sums},
            "items_mib": {one.kind.value: _items(one) for one in each.sums},
        }
        for each in found
    ]


def show_nodes(found: list[NodePlan], console: Console) -> None:
    """Print the plans of nodes, and what doesn't fit."""
    for each in found:
        console.print(_added(f"{each.name}: {counted(each.collectors, 'collector')}, MiB", each.sums))
    wrong = [
        f"{each.name}: {one.kind.value} by {one.short_mib:.0f} MiB"
        for each in found
        for one in each.sums
        if one.short_mib
    ]
    said = "It fits." if not wrong else f"It doesn't fit: {'; '.join(wrong)}."
    console.print(
        f"{said} A figure of a node that you didn't give is that of this machine.", highlight=False, soft_wrap=True
    )


def _added(title: str, sums: Iterable[PoolSum]) -> Table:
    table = _table(title, "pool", "what", right=("at its peak", "figure is"))
    for each in sums:
        for line in each.lines:
            table.add_row(each.pool, Text(line.what), *_shown(line.figure))
        table.add_row("", "needed", f"{each.needed_mib:.0f}", "")
        table.add_row("", "total", *_shown(each.total), style="bold")
        left = "" if each.left_mib is None else f"{each.left_mib:+.0f}"
        table.add_row("", "short" if each.short_mib else "left", left, "", style="red" if each.short_mib else "green")
        table.add_section()
    return table


def _phases(agent: Sizes) -> Table:
    kinds = [kind for kind in PROCESS_POOLS if any(agent.by_phase.get(kind, {}).values())]
    table = _table("Agent by phase, MiB", "phase", right=tuple(_WITH[kind] for kind in kinds))
    for phase in next((agent.by_phase[kind] for kind in kinds), {}):
        table.add_row(phase, *(f"{agent.by_phase[kind].get(phase, 0.0):.0f}" for kind in kinds))
    table.add_section()
    table.add_row("at its peak", *(f"{agent.mib.get(kind, 0.0):.0f}" for kind in kinds))
    return table


def _configurations(candidates: tuple[Candidate, ...]) -> Table:
    pools = [each.pool for each in candidates[0].sums]
    table = _table("What fits, MiB left", "configuration", "fits", right=tuple(pools))
    for each in candidates:
        lefts = {one.pool: one.left_mib for one in each.sums}
        shown = ("unknown" if (left := lefts.get(pool)) is None else f"{left:+.0f}" for pool in pools)
        table.add_row(str(each), "yes" if each.fits else "no", *shown, style="" if each.fits else "dim")
    return table


def _table(title: str, *columns: str, right: tuple[str, ...]) -> Table:
    table = Table(title=title, title_justify="left")
    for column in columns:
        table.add_column(column)
    for column in right:
        table.add_column(column, justify="right")
    return table


def _shown(figure: Figure) -> tuple[str, str]:
    if figure.mib is None:
        return "–", Provenance.UNKNOWN.value
    return f"{figure.mib:.0f}", figure.provenance.value
