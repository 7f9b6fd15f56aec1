"""``plan``: looks, works out what fits, prints it. Starts and changes nothing.

Owns the exit codes: 0 something fits, 71 nothing does, 65 what was asked for can't be.
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
        run_: of no run: what a question leaves of it is removed.
        options: what a run would be asked for.
        as_json: one object instead of tables.
        nodes: of a cluster, each as this machine but for ``node_gib``: what they hold; None: this machine alone.
        cards: of each node.
        node_gib: RAM and VRAM of each node and card; None, or one that is missing: this machine's.

    Raises:
        ExitError: what was asked for can't be.
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
    """Print what each node of a cluster holds, and return the exit code that it comes to."""
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
    """Print a plan, and return the exit code that it comes to.

    Args:
        planned: of memory.
        as_json: one object instead of tables.
        obstacle: a sentence on why it can't be started, whatever fits; empty if nothing says so.
    """
    if as_json:
        print(json.dumps(show_plan.plain(planned, obstacle), indent=1))
    else:
        show_plan.show(planned, Console(width=None if sys.stdout.isatty() else _WIDTH), obstacle)
    if planned.plan.asked.refusal or obstacle:
        return Exit.BAD_CONFIG
    return Exit.OUT_OF_MEMORY if planned.plan.start is None else Exit.FINISHED
