"""``plan``: prints what fits on this machine. Starts and changes nothing.

Exit codes: 0 it fits, if need be with steps down the ladder; 71 nothing fits; 65 the options can't be met.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping

from rich.console import Console

from carla_launcher import config
from carla_launcher.decide.nodes import node_plans
from carla_launcher.observe.pools import PoolKind
from carla_launcher.options import RunOptions
from carla_launcher.resolve.machine import resolve
from carla_launcher.resolve.planning import PlanResult, agent_parts, count_of
from carla_launcher.show import plan as show_plan
from carla_run.exits import Exit
from carla_run.paths import RunPaths

_WIDTH = 120  # in a pipe or a log


def run(
    run_: RunPaths,
    options: RunOptions,
    as_json: bool,
    nodes: int | None = None,
    cards: int = 1,
    node_gib: Mapping[PoolKind, float | None] | None = None,
) -> Exit:
    """Print the plan for this machine as it is now, and return the exit code.

    Args:
        run_: a folder that belongs to no run; it is removed if a query creates it.
        options: options of a run.
        as_json: print one JSON object instead of tables.
        nodes: number of a cluster's nodes to plan for; None for this machine.
        cards: GPUs of each node.
        node_gib: RAM of each node and VRAM of each GPU; what is left out is this machine's.

    Raises:
        ExitError: the options can't be met.
    """
    limits = config.load(options.launcher_config)
    said_mib = {kind: 1024.0 * gib for kind, gib in (node_gib or {}).items() if gib is not None}
    resolved = resolve(run_, options, limits, node_mib=None if nodes is None else said_mib, starts=False)
    if not as_json:
        runtime = "compose" if resolved.spec.in_containers else "process"
        print(f"launcher: {resolved.spec.simulator.kind.value}, {runtime} ({resolved.reason})", file=sys.stderr)
    if resolved.note:
        print(f"launcher: {resolved.note}", file=sys.stderr)
    try:
        planned = resolved.plan(limits)
        for note in planned.notes:
            print(f"launcher: {note}", file=sys.stderr)
        if nodes is not None:
            return _show_nodes(planned, nodes, cards, as_json)
    finally:
        resolved.clear()
    return show(planned, as_json, resolved.obstacle)


def _show_nodes(planned: PlanResult, nodes: int, cards: int, as_json: bool) -> Exit:
    """Print the plan of each node of a cluster, and return the exit code."""
    collectors = count_of(planned.situation.base, planned.program)
    parts = agent_parts(planned, collectors)
    cards = cards if planned.situation.reading.of(PoolKind.VRAM) else 0
    found = node_plans(planned.situation, parts, nodes, collectors, cards)
    if as_json:
        print(json.dumps(show_plan.plain_nodes(found), indent=1))
    else:
        show_plan.show_nodes(found, Console(width=None if sys.stdout.isatty() else _WIDTH))
    return Exit.FINISHED if all(each.fits for each in found) else Exit.OUT_OF_MEMORY


def show(planned: PlanResult, as_json: bool = False, obstacle: str = "") -> Exit:
    """Print a plan, and return the exit code.

    Args:
        planned: the plan.
        as_json: print one JSON object instead of tables.
        obstacle: why the run can't be started even if it fits, a sentence; empty if it can.
    """
    if as_json:
        print(json.dumps(show_plan.plain(planned, obstacle), indent=1))
    else:
        show_plan.show(planned, Console(width=None if sys.stdout.isatty() else _WIDTH), obstacle)
    if planned.plan.asked.refusal or obstacle:
        return Exit.BAD_CONFIG
    return Exit.OUT_OF_MEMORY if planned.plan.start is None else Exit.FINISHED
