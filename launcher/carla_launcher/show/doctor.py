"""``doctor``: runs all checks of a machine at the same time, within a time limit, and prints a table or JSON.

A check that fails or gives no answer counts as unknown. Starts no run and changes nothing.
"""

from __future__ import annotations

import json
import sys
import threading
import time
from collections.abc import Callable, Mapping

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from carla_launcher.act.container_words import container_of
from carla_launcher.show.checks import cards, command, engines, host
from carla_launcher.show.checks.machine import Finding, Machine, Verdict, unknown

Check = Callable[[Machine], Finding]

CHECKS: Mapping[str, Check] = {
    "GPU driver": engines.driver,
    "Docker engine": engines.engine,
    "Docker Compose": engines.compose,
    "container toolkit": engines.toolkit,
    "Vulkan in the image": cards.vulkan_in_the_image,
    "simulator's ports": host.ports,
    "disk": host.disk,
    "/dev/shm": host.shared_memory,
    "runs folder": host.runs_folder,
    "Python": host.python,
    "carla client": host.carla_client,
    "PyTorch": cards.torch_here,
    "PyTorch in the image": cards.torch_in_the_image,
    "allocator's setting": host.allocator,
    ".env": host.dotenv,
}
OF_AGENT = ("carla client", "PyTorch", "PyTorch in the image", "allocator's setting")
"""Checks that another command doesn't need."""
OF_COMMAND: Mapping[str, Check] = {
    "command": command.command,
    "its carla client": command.client,
    "its PyTorch": command.torch,
}
OF_CONTAINER: Mapping[str, Check] = {"command": command.command, "its image": command.image}
"""Checks of a command that runs a container."""
LIMIT_S = 60.0
"""Time limit for all checks together; they run at the same time, and the slowest imports torch in a container."""

_STYLES = {Verdict.OK: "green", Verdict.PROBLEM: "bold red", Verdict.UNKNOWN: "yellow"}
_WIDTH = 140  # in a pipe or a log


def run(machine: Machine, as_json: bool = False) -> int:
    """Print the findings; return 0, or 1 if there is a problem."""
    others = {name: check for name, check in CHECKS.items() if name not in OF_AGENT}
    its = OF_COMMAND if container_of(machine.asked.command) is None else OF_CONTAINER
    found = examine(machine, {**its, **others} if machine.asked.command else CHECKS)
    if as_json:
        rows = [{"check": name, "verdict": one.verdict.value, "found": one.found, "do": one.do} for name, one in found]
        print(json.dumps(rows, indent=1))
    else:
        Console(width=None if sys.stdout.isatty() else _WIDTH).print(table(found))
    return int(any(one.verdict is Verdict.PROBLEM for _, one in found))


def examine(
    machine: Machine, checks: Mapping[str, Check] = CHECKS, limit_s: float = LIMIT_S
) -> list[tuple[str, Finding]]:
    """Return what each check found, in their order; one that fails or takes too long is unknown."""
    silent = unknown(f"no answer within {limit_s:g} s", "try again, or check by hand")
    found = dict.fromkeys(checks, silent)

    def answer(name: str, check: Check) -> None:
        try:
            found[name] = check(machine)
        except Exception as error:  # any error: the other checks are still useful
            found[name] = unknown(f"the check failed: {type(error).__name__}: {error}", "")

    # Daemons: a check that hangs in the kernel must not keep this process.
    threads = [threading.Thread(target=answer, args=check, daemon=True) for check in checks.items()]
    for thread in threads:
        thread.start()
    until = time.monotonic() + limit_s
    for thread in threads:
        thread.join(max(0.0, until - time.monotonic()))
    return list(found.items())


def table(found: list[tuple[str, Finding]]) -> Table:
    """Return the findings as a table."""
    view = Table(title="doctor", title_justify="left")
    for column in ("check", "", "found", "what to do"):
        view.add_column(column, overflow="fold")
    for name, one in found:
        view.add_row(name, one.verdict.value, escape(one.found), escape(one.do), style=_STYLES[one.verdict])
    return view
