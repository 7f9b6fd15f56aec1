"""``up``: from a wish to a finished run — lock, port, jobs, supervision, report, summary.

Owns the real edges (clock, signals, processes) and hands them to the supervisor, which owns the order of things.
"""

from __future__ import annotations

import contextlib
import dataclasses
import random
import time
from collections.abc import Callable
from pathlib import Path

from launcher import jobs
from launcher.config import LauncherConfig
from launcher.exits import Ending, Exit
from launcher.jobs import Wish
from launcher.journal import Journal, LauncherState, RunLock
from launcher.run_directory import RunDirectory, read_object
from launcher.runtimes.processes import ProcessRuntime, free_port_pair
from launcher.signals import StopRequests
from launcher.supervisor import Edges, Supervisor
from launcher.telling import report
from launcher.watching import health

RUNTIME = "process"
CARLA_PORT = 2000
DEFAULT_CONFIG = Path("config/td3_config_lowmem.yaml")
Say = Callable[[str], None]


class RefusedError(Exception):
    """The wish can't be granted; the message is one sentence, nothing was started or changed."""

    def __init__(self, sentence: str, code: Exit = Exit.CONFIGURATION) -> None:
        super().__init__(sentence)
        self.code = code


def default_config(run: RunDirectory, resume: bool) -> Path:
    """Return the configuration that is used when none is named: a resumed run goes on as it was."""
    return run.config if resume and run.config.is_file() else DEFAULT_CONFIG


def default_name(now: float) -> str:
    """Return ``run-20260131-235959``: the start in local time."""
    return time.strftime("run-%Y%m%d-%H%M%S", time.localtime(now))


def run(wish: Wish, limits: LauncherConfig, say: Say) -> Ending:
    """Run the wish to its end, leave the report, and return how it ended.

    Raises:
        RefusedError: configuration or run directory can't be used, or no port is free.
        RunInUseError: another launcher runs there.
    """
    requests = StopRequests()
    requests.install()
    _refuse_what_cannot_be(wish)
    try:
        wish.run.logs.mkdir(parents=True, exist_ok=True)
        lock = RunLock(wish.run)
    except OSError as error:
        raise RefusedError(
            f"{wish.run.path}: can't be written ({error.strerror}); choose another --runs-dir."
        ) from None
    try:
        wish = _as_before(wish) if wish.resume else wish
        journal = Journal(wish.run, _state(wish, _port(wish)), time.time)
        journal.event("run_started", resume=wish.resume, config=str(wish.config))
        say(f"run {wish.run.path}")
        runtime = ProcessRuntime(inherited=(lock.descriptor,))
        edges = _real_edges(runtime, limits.simulator.check_timeout_s, requests, say)
        ending = Supervisor(jobs.plan(wish, limits, journal.state.port), limits, edges, journal).run()
    finally:
        lock.release()
    with contextlib.suppress(OSError):  # a full disk doesn't change how the run ended
        report.write(wish.run)
    _sum_up(wish.run, ending, say)
    return ending


def _refuse_what_cannot_be(wish: Wish) -> None:
    if not wish.config.is_file():
        raise RefusedError(f"{wish.config}: there is no such file; give the path of the agent's YAML with --config.")
    if wish.run.holds_a_run() and not wish.resume:
        raise RefusedError(
            f"{wish.run.path} already holds a run: add --resume to go on with it, or choose another --run-name."
        )


def _as_before(wish: Wish) -> Wish:
    """Return the wish with the map and seed of the run that it resumes, where it names none."""
    before = read_object(wish.run.launcher_state)
    seed = before.get("seed") if wish.seed is None else wish.seed
    return dataclasses.replace(wish, map=wish.map or before.get("map"), seed=seed)


def _port(wish: Wish) -> int:
    if wish.port is not None:
        return wish.port
    if wish.simulator_host is not None:
        return CARLA_PORT
    port = free_port_pair(random.Random())
    if port is None:
        raise RefusedError("No two neighbouring ports are free on 127.0.0.1: name one with --port.", Exit.NO_SIMULATOR)
    return port


def _state(wish: Wish, port: int) -> LauncherState:
    return LauncherState(
        run=wish.run.path.name,
        runtime=RUNTIME,
        host=wish.simulator_host or jobs.LOOPBACK,
        port=port,
        map=wish.map,
        seed=wish.seed,
    )


def _real_edges(runtime: ProcessRuntime, check_timeout_s: float, requests: StopRequests, say: Say) -> Edges:
    spread = random.Random()
    return Edges(
        runtime=runtime,
        check=lambda address, in_use: health.check(address, check_timeout_s, in_use),
        clock=time,
        draw=lambda: spread.uniform(-1.0, 1.0),
        requests=requests,
        say=say,
    )


def _sum_up(run: RunDirectory, ending: Ending, say: Say) -> None:
    say(f"the run ended with exit code {int(ending.code)}: {ending.reason}")
    tables = [run.evaluation, run.evaluation.with_suffix(".csv")]
    found: list[tuple[str, list[Path]]] = [
        ("run directory", [run.path]),
        ("evaluation", [path for path in tables if path.exists()]),
        ("videos", list(run.videos)),
        ("report", [path for path in [run.report] if path.exists()]),
    ]
    for label, paths in found:
        if paths:
            say(f"  {label:<14}{', '.join(str(path) for path in paths)}")
    if ending.code == Exit.STOPPED:
        say(f"  go on with    the same command with --run-name {run.path.name} --resume")
