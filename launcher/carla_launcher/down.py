"""``down``: stops a run from outside, whether its launcher lives or not. Touches nothing of other runs."""

from __future__ import annotations

import contextlib
import os
import signal
import time

import psutil

from carla_launcher import hooks
from carla_launcher.act.compose import project
from carla_launcher.act.launcher_state import UnusableStateError
from carla_launcher.act.leftovers import await_leftovers, owner_of
from carla_launcher.config import LauncherConfig
from carla_launcher.resolve.machine import compose_of, spec_of
from carla_launcher.resolve.resuming import previous_run
from carla_launcher.show.report_process import LIMIT_S, write_report
from carla_run.exits import Exit, ExitError
from carla_run.locks import is_held
from carla_run.paths import RunPaths
from carla_run.readers import read_object

POLL_S = 0.2
MARGIN_S = 15.0
"""Wait beyond both grace periods and the report's time limit."""


def run(stopped: RunPaths, limits: LauncherConfig) -> str:
    """Stop a run and return a sentence on the result.

    Raises:
        ExitError: it still runs, or its job is queued and will start it again.
        StartError: its containers can't be removed.
    """
    patience_s = limits.agent.stop_grace_s + limits.simulator.stop_grace_s + LIMIT_S + MARGIN_S
    was_held = is_held(stopped.launcher_lock)
    pid = owner_of(stopped.launcher_lock)
    if pid is not None:
        try:
            os.kill(pid, signal.SIGTERM)
        except ProcessLookupError:
            pass
        except PermissionError:
            raise ExitError(
                f"{stopped.path} is another user's run (process {pid} of {_user_of(pid)}): ask that user to stop it.",
                Exit.BAD_CONFIG,
            ) from None
    deadline_s = time.monotonic() + patience_s
    while is_held(stopped.launcher_lock) and time.monotonic() < deadline_s:
        if pid is not None and owner_of(stopped.launcher_lock) != pid and await_leftovers(stopped, POLL_S):
            break
        time.sleep(POLL_S)
    if is_held(stopped.launcher_lock):
        said = f"{stopped.path} is still in use after {patience_s:.0f} s: check `status`, then try again."
        raise ExitError(said, Exit.BAD_CONFIG)
    _remove_containers(stopped, limits)
    if was_held and read_object(stopped.launcher_state).get("state", "stopped") != "stopped":
        write_report(stopped)  # a killed launcher wrote none
    if job := hooks.waiting_job(stopped):
        said = f"{stopped.path} is down, but its job {job} waits in Slurm's queue and starts it: scancel {job}."
        raise ExitError(said, Exit.BAD_CONFIG)
    return f"{stopped.path} is down." if was_held else f"{stopped.path} was down already."


def _remove_containers(stopped: RunPaths, limits: LauncherConfig) -> None:
    try:
        before = previous_run(stopped)
    except UnusableStateError as error:
        left = f"docker ps --filter label=com.docker.compose.project={project.name_of(stopped)}"
        said = f"{error}; its processes have ended, `{left}` shows its containers, if any."
        raise ExitError(said, Exit.BAD_CONFIG) from None
    # Of a command nothing is started, so it needn't be there any more.
    asked = None if before is None else before.believed.model_copy(update={"command": ()})
    spec = None if before is None or asked is None else spec_of(stopped, asked, before.state.port)
    if spec is not None and spec.in_containers:
        with contextlib.closing(compose_of(spec, limits)) as runtime:
            runtime.clear()


def _user_of(pid: int) -> str:
    try:
        return psutil.Process(pid).username()
    except psutil.Error:
        return "an unknown user"
