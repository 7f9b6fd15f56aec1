"""Calls of plugins: memory limits and steps of batch jobs, clusters, lines for status and report, the live page.

A plugin is a module that an entry point names, so the core imports none. A plugin that isn't installed adds nothing.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from importlib.metadata import entry_points
from pathlib import Path
from typing import TYPE_CHECKING, Any

from carla_run.exits import Exit, ExitError
from carla_run.paths import RunPaths

if TYPE_CHECKING:
    from carla_launcher.options import RunOptions

GROUP = "carla_launcher.plugins"


@dataclass(frozen=True)
class StepBefore:
    """The step of a batch job in which the last launcher was killed.

    Attributes:
        sentence: which step ended how, for the user.
        code: its exit code; None if unknown.
        out_of_memory: the step ran out of host memory.
    """

    sentence: str
    code: int | None
    out_of_memory: bool


@functools.cache
def plugin(name: str) -> Any:
    """Return a plugin's module; None if it isn't installed."""
    for found in entry_points(group=GROUP, name=name):
        return found.load()
    return None


def needed(name: str) -> Any:
    """Return the module of a plugin that a command needs.

    Raises:
        ExitError: it isn't installed.
    """
    if (found := plugin(name)) is None:
        raise ExitError(f"The plugin {name!r} isn't installed: install carla-td3-lowmem again.", Exit.BAD_CONFIG)
    return found


def serve_page(
    run: RunPaths, port: int | None, say: Callable[[str], None], launcher_config: Path, *, to_terminal: bool
) -> AbstractContextManager[int | None]:
    """Serve a run's page while the block runs, if a port is given. Gives the page's process id; None without a page."""
    if port is None:
        return nullcontext()
    if (page := plugin("page")) is None:
        say("The live page's plugin isn't installed: install carla-td3-lowmem again. The run continues without a page.")
        return nullcontext()
    serving: AbstractContextManager[int | None] = page.serve_while_running(
        run, port, say, launcher_config, to_terminal=to_terminal
    )
    return serving


def memory_limit_mib() -> float | None:
    """Return the RAM in MiB that a batch system allots to the run without a control group; None for all."""
    limits = plugin("limits")
    found: float | None = None if limits is None else limits.allotted_mib(os.environ)
    return found


def in_job() -> Callable[[int], bool] | None:
    """Return what says of a process whether it belongs to the same batch job; None without a job."""
    limits = plugin("limits")
    found: Callable[[int], bool] | None = None if limits is None else limits.in_job(os.environ)
    return found


def begin_step(run: RunPaths, environment: Mapping[str, str], now_s: float) -> StepBefore | None:
    """Record in a batch job that a launcher starts; return the job's step before, None if there was none."""
    slurm = plugin("slurm")
    found: StepBefore | None = None if slurm is None else slurm.step_before(run, environment, now_s)
    return found


def job(run: RunPaths) -> dict[str, Any] | None:
    """Return the state of a run's batch job, for ``status``; None without a job."""
    slurm = plugin("slurm")
    found: dict[str, Any] | None = None if slurm is None else slurm.seen(run)
    return found


def waiting_job(run: RunPaths) -> str:
    """Return the batch job that waits in a queue and will start the run; empty without one."""
    slurm = plugin("slurm")
    return "" if slurm is None else str(slurm.waiting_job(run))


def steps(run: RunPaths) -> list[Any]:
    """Return the steps of a run's batch jobs, for the report."""
    slurm = plugin("slurm")
    return [] if slurm is None else list(slurm.recorded_steps(run))


def damaged(run: RunPaths) -> list[str]:
    """Return which lines of a plugin's files were left out, as sentences without full stop."""
    slurm = plugin("slurm")
    return [] if slurm is None else list(slurm.damaged(run))


def refuse_cluster(address: str, options: RunOptions) -> None:
    """Refuse options that can't be combined with a cluster, and a cluster that isn't secured.

    Raises:
        RefusedError: the message is one sentence.
    """
    needed("ray").refuse(address, options)


def cluster_settings(options: RunOptions) -> dict[str, str]:
    """Return the values of the agent's keys for the cluster that the options name; empty without one."""
    return {} if options.cluster is None else dict(needed("ray").agent_settings(options.cluster, options))


def nodes(run: RunPaths) -> list[str]:
    """Return a line for each collector on a cluster, with its node's last state."""
    ray = plugin("ray")
    return [] if ray is None else list(ray.nodes(run))


def lost_with_nodes(events: Sequence[Mapping[str, Any]]) -> str:
    """Return how many steps were lost with nodes, as text from the agent's events; empty for none."""
    ray = plugin("ray")
    return "" if ray is None else str(ray.lost_with_nodes(events))
