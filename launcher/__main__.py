"""The command line: ``up``, ``status``, ``report``.

Owns options, what is printed and the exit code. What the commands do is ``up``'s, ``dashboard``'s and ``report``'s.
"""

from __future__ import annotations

import contextlib
import json
import sys
import time
from enum import Enum
from pathlib import Path
from typing import Annotated, NoReturn

import typer

from launcher import config, run_directory
from launcher import up as up_command
from launcher.config import LauncherConfigError
from launcher.exits import Exit
from launcher.jobs import Wish
from launcher.journal import RunInUseError
from launcher.run_directory import RunDirectory
from launcher.telling import dashboard, report

app = typer.Typer(
    help="Run a simulator and the agent together, watched.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
RUNS = Path("runs")


class RuntimeKind(str, Enum):
    """What runs the simulator and the agent."""

    PROCESS = up_command.RUNTIME


RunsDir = Annotated[Path, typer.Option("--runs-dir", help="Where runs lie.")]
RunName = Annotated[str | None, typer.Argument(metavar="[RUN]", help="The run's name; default: the newest.")]


@app.command()
def up(
    *,
    agent_args: Annotated[
        list[str] | None, typer.Argument(metavar="[-- AGENT_ARGS]", help="Passed on to `python -m agent train`.")
    ] = None,
    runtime: Annotated[RuntimeKind, typer.Option(help="What runs simulator and agent.")] = RuntimeKind.PROCESS,
    agent_config: Annotated[
        Path | None,
        typer.Option(
            "--config",
            help=f"The agent's configuration. Default: the resumed run's own, else {up_command.DEFAULT_CONFIG}.",
        ),
    ] = None,
    run_name: Annotated[str | None, typer.Option(help="Default: run-DATE-TIME, the start in local time.")] = None,
    map_name: Annotated[
        str | None, typer.Option("--map", help="Map name or path of an .xodr file; wins over both configurations.")
    ] = None,
    seed: Annotated[int | None, typer.Option(min=0, help="Of simulator and agent.")] = None,
    simulator_host: Annotated[
        str | None, typer.Option(help="Use the simulator that runs there instead of starting one.")
    ] = None,
    port: Annotated[
        int | None, typer.Option(min=1, max=65533, help="RPC port. Default: a free one; with --simulator-host 2000.")
    ] = None,
    max_timesteps: Annotated[int | None, typer.Option(min=1, help="Environment steps; wins over --config.")] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Go on with the run of this name.")] = False,
    runs_dir: RunsDir = RUNS,
    launcher_config: Annotated[Path, typer.Option(help="The launcher's own configuration.")] = config.SHIPPED,
) -> None:
    """Start a simulator and the agent, watch them until training ends, leave a report.

    Ctrl-C or SIGTERM stops the agent (it writes a checkpoint), then the simulator; a second one ends both at once.
    Exit codes: 0 finished, 2 usage, 65 configuration, 69 no simulator, 70 the simulator's restarts are spent,
    71 out of memory, 75 stopped on request; a crash of the agent passes its code on.
    """
    assert runtime is RuntimeKind.PROCESS
    run = RunDirectory(runs_dir / (run_name or up_command.default_name(time.time())))
    wish = Wish(
        run=run,
        config=agent_config or up_command.default_config(run, resume),
        map=map_name,
        seed=seed,
        simulator_host=simulator_host,
        port=port,
        max_timesteps=max_timesteps,
        resume=resume,
        agent_args=tuple(agent_args or ()),
    )
    try:
        ending = up_command.run(wish, config.load(launcher_config), _say)
    except (up_command.RefusedError, LauncherConfigError, RunInUseError) as error:
        _fail(str(error), getattr(error, "code", Exit.CONFIGURATION))
    raise typer.Exit(int(ending.code))


@app.command()
def status(
    run_name: RunName = None,
    once: Annotated[bool, typer.Option("--once", help="Show it once instead of following.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="For programs; implies --once.")] = False,
    runs_dir: RunsDir = RUNS,
) -> None:
    """Show where a run stands: simulator, agent, restarts."""
    run = _existing(run_name, runs_dir)
    if as_json:
        print(json.dumps(dashboard.status(run, time.time()), indent=1))
    elif once:
        dashboard.show(run)
    else:
        with contextlib.suppress(KeyboardInterrupt):
            dashboard.follow(run)


@app.command("report")
def write_report(run_name: RunName = None, runs_dir: RunsDir = RUNS) -> None:
    """Write the run's report.html again, from its files alone."""
    run = _existing(run_name, runs_dir)
    try:
        report.write(run)
    except OSError as error:
        _fail(f"{run.report}: can't be written ({error.strerror}).", Exit.CONFIGURATION)
    print(run.report)


def _existing(name: str | None, runs_dir: Path) -> RunDirectory:
    run = run_directory.newest(runs_dir) if name is None else RunDirectory(runs_dir / name)
    if run is None or not run.path.is_dir():
        wanted = "no run yet" if name is None else f"no run {name!r}"
        _fail(f"{runs_dir} has {wanted}: start one with `up`, or name another --runs-dir.", Exit.CONFIGURATION)
    return run


def _say(sentence: str) -> None:
    """Print a line; a terminal that was closed doesn't end a run."""
    with contextlib.suppress(OSError):
        print(f"launcher: {sentence}", flush=True)


def _fail(sentence: str, code: Exit) -> NoReturn:
    print(f"launcher: {sentence}", file=sys.stderr)
    raise typer.Exit(int(code))


if __name__ == "__main__":
    app()
