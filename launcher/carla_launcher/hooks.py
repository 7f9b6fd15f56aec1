"""What plugins add to a run: limits of this place, how the step before ended, what there is to show, the live page.

A plugin is a module that an entry point names, so that the core imports none; one that isn't installed adds nothing.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any

from carla_run.exits import Exit, ExitError
from carla_run.paths import RunPaths

GROUP = "carla_launcher.plugins"


@dataclass(frozen=True)
class StepBefore:
    """The step of a batch system's job in which the launcher before was killed.

    Attributes:
        sentence: which one ended how, for a person.
        code: its exit code; None if none is known.
        out_of_memory: its host memory ran out.
    """

    sentence: str
    code: int | None
    out_of_memory: bool


@functools.cache
def plugin(name: str) -> Any:
    """Return a plugin's module; None where it isn't installed."""
    for found in entry_points(group=GROUP, name=name):
        return found.load()
    return None


def needed(name: str) -> Any:
    """Return the module of a plugin that a command can't do without.

    Raises:
        ExitError: it isn't installed.
    """
    if (found := plugin(name)) is None:
        raise ExitError(f"The plugin {name!r} isn't installed: install carla-td3-lowmem again.", Exit.BAD_CONFIG)
    return found


def page_beside(
    run: RunPaths, port: int | None, say: Callable[[str], None], launcher_config: Path, *, to_terminal: bool
) -> AbstractContextManager[int | None]:
    """Serve a run's page beside it, where a port is given; the block gets its process id, None without a page."""
    if port is None:
        return nullcontext()
    if (page := plugin("page")) is None:
        say("The live page's plugin isn't installed: install carla-td3-lowmem again. The run goes on without its page.")
        return nullcontext()
    serving: AbstractContextManager[int | None] = page.beside(run, port, say, launcher_config, to_terminal=to_terminal)
    return serving


def memory_limit_mib() -> float | None:
    """Return what this place lets the run take of the machine's RAM, where the kernel doesn't know; None for all."""
    limits = plugin("limits")
    found: float | None = None if limits is None else limits.allotted_mib(os.environ)
    return found


def begin_step(run: RunPaths, environment: Mapping[str, str], now_s: float) -> StepBefore | None:
    """Tell a batch system's record that a launcher begins; return the step before, None where there was none."""
    slurm = plugin("slurm")
    found: StepBefore | None = None if slurm is None else slurm.step_before(run, environment, now_s)
    return found


def job(run: RunPaths) -> dict[str, Any] | None:
    """Return where a run's job stands, for ``status``; None for a run without one."""
    slurm = plugin("slurm")
    found: dict[str, Any] | None = None if slurm is None else slurm.seen(run)
    return found


def steps(run: RunPaths) -> list[Any]:
    """Return the steps of a run's jobs, for the report."""
    slurm = plugin("slurm")
    return [] if slurm is None else list(slurm.told(run))


def nodes(run: RunPaths) -> list[str]:
    """Return a line for each node of a cluster that a run's collectors are on, as they last were."""
    ray = plugin("ray")
    return [] if ray is None else list(ray.nodes(run))


def lost_with_nodes(events: Sequence[Mapping[str, Any]]) -> str:
    """Return how many steps were lost with nodes, by the agent's events; empty for none."""
    ray = plugin("ray")
    return "" if ray is None else str(ray.lost_with_nodes(events))
