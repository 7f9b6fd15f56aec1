"""``plan``: looks, works out what fits, prints it. Starts and changes nothing.

Owns the exit codes: 0 something fits, 71 nothing does, 65 what was asked for can't be.
"""

from __future__ import annotations

import json
import sys

from rich.console import Console

from contract.exits import Exit
from launcher.config import LauncherConfig
from launcher.decide.ladder import PolicyError
from launcher.observe.pools import Reading
from launcher.resolve import planning
from launcher.resolve.footprint import Footprint, FootprintError
from launcher.resolve.planning import ImpossibleError, PlanRequest
from launcher.show import plan as show_plan

_WIDTH = 120  # in a pipe or a log


def run(
    asked: PlanRequest, limits: LauncherConfig, reading: Reading, footprint: Footprint, as_json: bool = False
) -> Exit:
    """Print the plan for this machine as it is now, and return the exit code.

    Args:
        asked: what for.
        limits: the launcher's configuration.
        reading: all pools.
        footprint: of the agent's configuration.
        as_json: one object instead of tables.
    """
    try:
        found = planning.make_plan(asked, limits, reading, footprint)
    except (FootprintError, ImpossibleError, PolicyError) as error:
        print(f"launcher: {error}", file=sys.stderr)
        return error.code
    if as_json:
        print(json.dumps(show_plan.plain(found), indent=1))
    else:
        show_plan.show(found, Console(width=None if sys.stdout.isatty() else _WIDTH))
    if found.plan.asked.refusal:
        return Exit.BAD_CONFIG
    return Exit.OUT_OF_MEMORY if found.plan.start is None else Exit.FINISHED
