"""The command line: options, what is printed, and the exit code of each command."""

from __future__ import annotations

import contextlib
import errno
import json
import os
import sys
import time
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from carla_launcher import config, hooks
from carla_launcher import down as down_command
from carla_launcher import plan as plan_command
from carla_launcher import simulator as simulator_command
from carla_launcher import up as up_command
from carla_launcher.config import DEFAULT_CONFIG
from carla_launcher.observe.pools import PoolKind
from carla_launcher.options import JobOptions, RunOptions
from carla_launcher.resolve.resuming import default_name, limits_of
from carla_launcher.routes import evaluation
from carla_launcher.show import dashboard, report_process
from carla_launcher.show import doctor as doctor_command
from carla_launcher.show.checks.machine import Machine
from carla_launcher.signature import asking
from carla_run.exits import Exit, ExitError
from carla_run.paths import RUNS, RunPaths, newest_run
from carla_run.program import interruptible


class Commands(TyperGroup):
    """The launcher's commands: what each returns is its exit code, and what can go wrong with any is a sentence."""

    def invoke(self, ctx: Any) -> Any:
        """Run the command; what it refuses, Ctrl-C and a name that no file can have end it with a word."""
        try:
            with interruptible("launcher"):
                code = super().invoke(ctx)
        except ExitError as error:
            code = error.code
            print(f"launcher: {error}", file=sys.stderr)
        except OSError as error:
            if error.errno != errno.ENAMETOOLONG:
                raise
            code = Exit.BAD_CONFIG
            sentence = f"{error.filename}: {error.strerror}; choose a shorter --runs-dir and name."
            print(f"launcher: {sentence}", file=sys.stderr)
        raise typer.Exit(int(code or 0))


app = typer.Typer(
    cls=Commands,
    help="Run a simulator and the agent together, watched.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
MOST_NODES, MOST_CARDS, MOST_GIB = 10_000, 64, 1_000_000
"""Of a cluster that is planned: each node is worked out."""
MOST_NAME_BYTES = 100
"""Of a run: `report --compare` has two in the name of one file, which file systems end at 255."""


RunsDir = Annotated[Path, typer.Option("--runs-dir", help="Where runs lie.")]
RunName = Annotated[str | None, typer.Argument(metavar="[RUN]", help="The run's name; default: the newest.")]


def _fits(name: str | None) -> str | None:
    size = len(os.fsencode(name or ""))
    if size > MOST_NAME_BYTES:
        raise typer.BadParameter(f"{size} bytes are too long: expected at most {MOST_NAME_BYTES}.")
    return name


NewName = Annotated[
    str | None, typer.Option("--run-name", callback=_fits, help="Default: run-DATE-TIME, the start in local time.")
]
OfTheRun = Annotated[
    Path | None, typer.Option("--launcher-config", help="The launcher's own configuration. Default: the run's.")
]


@app.command()
@asking(
    RunOptions,
    "agent_args runtime simulator config run_name quality device policy ignore_measured map seed simulator_host port "
    "cluster collectors gpu share_gpu max_timesteps resume on_event dashboard_port simulator_args runs_dir "
    "launcher_config stack",
)
def up(
    options: RunOptions,
    *,
    run_name: NewName = None,
    resume: Annotated[
        bool, typer.Option("--resume", help="Go on with the run of this name; one whose launcher died goes on anyway.")
    ] = False,
    runs_dir: RunsDir = RUNS,
) -> int:
    """Plan what fits, start a simulator and the agent, watch them, give way and restore, leave a report.

    A run that goes on is what it was asked for the first time: no option need be given again. One that is given again
    wins, of AGENT_ARGS each key by itself, and what it changes is said. '' takes back --on-event, --policy, --map,
    --cluster, --simulator-host and --simulator-arg.

    Ctrl-C or SIGTERM stops the agent (it writes a checkpoint), then the simulator; a second one ends both at once.
    Exit codes: 0 finished, 2 usage, 65 configuration, 69 no simulator, 70 the restarts are spent, 71 cannot fit,
    75 stopped on request, 130 Ctrl-C while it planned.
    """
    run = RunPaths(runs_dir / (run_name or default_name(time.time())))
    return up_command.run(run, options, resume, _say).code


@app.command("run")
@asking(
    RunOptions,
    "command program runtime simulator run_name quality policy ignore_measured map seed simulator_host port gpu "
    "share_gpu resume on_event dashboard_port simulator_args cwd runs_dir launcher_config stack",
    helps={"seed": "Of the simulator.", "map": "Map of a simulator that is started here."},
)
def run_command(
    options: RunOptions,
    *,
    run_name: NewName = None,
    resume: Annotated[
        bool, typer.Option("--resume", help="Go on with the run of this name; one whose launcher died goes on anyway.")
    ] = False,
    runs_dir: RunsDir = RUNS,
) -> int:
    """Start a simulator and any command beside it, watched as the agent is by `up`; leave a report.

    The command runs in its own interpreter and goes to no shell. CARLA_HOST, CARLA_PORT, CARLA_TM_PORT and
    CUDA_VISIBLE_DEVICES are set. A program file says how it resumes, what shows that it lives, and how it takes less
    memory; a run that goes on is what it was asked for the first time.

    Exit codes: as `up`.
    """
    run = RunPaths(runs_dir / (run_name or default_name(time.time())))
    if not options.command and not run.launcher_state.exists():
        raise typer.BadParameter("expected a command after --, as: run --simulator carla-lite -- python train.py")
    return up_command.run(run, options, resume, _say, "run").code


@app.command()
@asking(
    JobOptions,
    "words nodes gpus_per_node cpus_per_node memory time partition more collectors warn_s apptainer dry_run run_name "
    "runs_dir",
    defaults=True,
)
def submit(
    job: JobOptions,
    *,
    words: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[-- OPTIONS OF up [-- AGENT_ARGS]]", help="What the run is asked for, as `up` takes it."
        ),
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Print the batch script; write and submit nothing.")
    ] = False,
    run_name: NewName = None,
    runs_dir: RunsDir = RUNS,
) -> None:
    """Submit a run to Slurm, as a job that goes on by itself until the run has ended.

    It goes on at once where a step of it was killed or its memory ran out, and is queued again after the time limit or
    a preemption. With the name of a run that has ended, that one goes on.
    """
    slurm = hooks.needed("slurm_submit")  # draws its script with jinja2, which no other command needs
    options = words or []
    taken = typer.main.get_command(app).commands["up"].make_context("up", list(options)).params  # type: ignore[attr-defined]
    if taken["run_name"] is not None or taken["runs_dir"] != RUNS:
        raise typer.BadParameter("--run-name and --runs-dir are options of submit: they belong before the --.")
    run = RunPaths(runs_dir / (run_name or default_name(time.time())))
    slurm.check(job, os.environ)
    text = slurm.script(run, job, options)
    if dry_run:
        print(text, end="")
    else:
        print(f"launcher: job {slurm.submit(run, text)} of run {run.path}; look with: status {run.path.name}")


@app.command()
@asking(
    RunOptions,
    "command program config runtime simulator quality device policy ignore_measured map simulator_host gpu collectors "
    "nodes gpus_per_node node_ram node_vram cwd as_json runs_dir launcher_config stack",
    helps={"map": "Only watermarks of this map count.", "collectors": "Processes that drive."},
)
def plan(
    options: RunOptions,
    *,
    nodes: Annotated[
        int | None, typer.Option(min=1, max=MOST_NODES, help="Of a cluster: says what each of them holds.")
    ] = None,
    gpus_per_node: Annotated[
        int, typer.Option(min=1, max=MOST_CARDS, help="Cards that a node's simulators take in turn.")
    ] = 1,
    node_ram: Annotated[
        float | None,
        typer.Option(min=0.1, max=MOST_GIB, metavar="GIB", help="RAM of each node. Default: this machine's."),
    ] = None,
    node_vram: Annotated[
        float | None,
        typer.Option(min=0.1, max=MOST_GIB, metavar="GIB", help="VRAM of each card. Default: this machine's."),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="For programs.")] = False,
    runs_dir: RunsDir = RUNS,
) -> Exit:
    """Say what fits on this machine now, item by item, and what a run would start with; change nothing.

    Exit codes: 0 something fits, 71 nothing does, 65 what was asked for can't be.
    """
    if options.command and nodes is not None:
        raise typer.BadParameter("--nodes is of the agent's collectors: leave it out, or the command.")
    run, node_gib = RunPaths(runs_dir / f".planned-{os.getpid()}"), {PoolKind.RAM: node_ram, PoolKind.VRAM: node_vram}
    return plan_command.run(run, options, as_json, nodes, gpus_per_node, node_gib)


@app.command()
@asking(
    RunOptions,
    "folder simulator quality map seed port gpu simulator_args launcher_config",
    helps={
        "seed": None,
        "port": "RPC port. Default: a free one.",
        "simulator_args": "Passed on to it; repeat for each word.",
    },
)
def simulator(
    options: RunOptions,
    *,
    folder: Annotated[Path, typer.Option(help="For `simulator.json`, which says how it is, and logs.")],
) -> Exit:
    """Run one simulator, watched, while the standard input is open: what a cluster's node does for its collector."""
    return simulator_command.run(folder, options, _say)


@app.command()
@asking(
    RunOptions,
    "program simulator simulators quality map seed simulator_host port gpu share_gpu on_event status as_json run_name "
    "runs_dir launcher_config simulator_args",
    helps={
        "map": "Map that carla-lite starts with. Default: the launcher's configuration's.",
        "seed": "Seed of carla-lite.",
        "on_event": "A shell command that gets each end of a drive, and other news, as JSON on its standard input.",
        "simulator_args": "Passed on to the simulator; repeat for each word.",
    },
)
def routes(
    options: RunOptions,
    *,
    program: Annotated[
        Path | None, typer.Option(metavar="FILE", help="The evaluation's program file, whose `routes` says how.")
    ] = None,
    simulators: Annotated[int, typer.Option(min=1, max=64, help="Simulators side by side, an item in each.")] = 1,
    status: Annotated[bool, typer.Option("--status", help="Print where the evaluation stands; drive nothing.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="For programs; implies --status.")] = False,
    run_name: Annotated[
        str | None, typer.Option("--run-name", callback=_fits, help="Default: the program file's name.")
    ] = None,
    runs_dir: RunsDir = RUNS,
) -> int:
    """Give the items of an evaluation out, one by one, and keep each result.

    A crash costs its item once: it is driven again in a fresh simulator. One that leaves no result twice is named and
    left. The same command goes on after any end, a kill of the launcher included; another --run-name begins again.

    Ctrl-C or SIGTERM ends the drive that is under way, which counts for nothing. Exit codes: 0 all items have a result,
    2 usage, 65 configuration, 69 no simulator, 70 items are left without a result, 71 the disk is full, 75 stopped on
    request.
    """
    name = run_name or ("" if program is None else program.stem)
    if name and (status or as_json):
        evaluation.status(RunPaths(runs_dir / name), as_json)
        return Exit.FINISHED
    if program is None:
        raise typer.BadParameter("--program is missing: give the evaluation's program file; --run-name does to look.")
    return evaluation.run(RunPaths(runs_dir / name), program, options, simulators, _say).code


@app.command()
def down(run_name: RunName = None, runs_dir: RunsDir = RUNS, launcher_config: OfTheRun = None) -> None:
    """Stop a run: the agent with a checkpoint, then the simulator, then the launcher; twice is fine."""
    run = _existing(run_name, runs_dir)
    print(f"launcher: {down_command.run(run, _limits(run, launcher_config))}")


@app.command()
@asking(RunOptions, "command program config port cwd as_json runs_dir stack")
def doctor(
    options: RunOptions,
    *,
    port: Annotated[int, typer.Option(min=1, max=65533, help="The simulator's first of three ports.")] = 2000,
    as_json: Annotated[bool, typer.Option("--json", help="For programs.")] = False,
    runs_dir: RunsDir = RUNS,
) -> int:
    """Examine this machine: driver, Docker, ports, disk, torch, client; exit 1 if something is to be mended."""
    config = options.config or DEFAULT_CONFIG
    machine = Machine(
        stack=options.stack, runs=runs_dir, config=config, ports=tuple(range(port, port + 3)), asked=options
    )
    return doctor_command.run(machine, as_json)


@app.command()
def status(
    run_name: RunName = None,
    once: Annotated[bool, typer.Option("--once", help="Show it once instead of following.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="For programs; implies --once.")] = False,
    runs_dir: RunsDir = RUNS,
) -> None:
    """Show where a run stands: simulator, agent, restarts."""
    run = _existing(run_name, runs_dir)
    if run.routes_journal.exists():
        evaluation.status(run, as_json)
    elif as_json:
        print(json.dumps(dashboard.status(run, time.time()), indent=1))
    elif once:
        dashboard.show(run)
    else:
        with contextlib.suppress(KeyboardInterrupt):
            dashboard.follow(run)


@app.command("dashboard")
def serve_dashboard(
    run_name: RunName = None,
    port: Annotated[int, typer.Option(min=0, max=65535, help="On 127.0.0.1; 0: a free one.")] = 0,
    runs_dir: RunsDir = RUNS,
    launcher_config: OfTheRun = None,
) -> None:
    """Serve the live page of a run, one that goes on or one that has ended, until Ctrl-C."""
    run = _existing(run_name, runs_dir)
    hooks.needed("page").serve(run, port, _limits(run, launcher_config), _say, to_terminal=sys.stdout.isatty())


@app.command("report")
def write_report(
    run_name: RunName = None,
    compare: Annotated[
        tuple[str, str] | None, typer.Option(metavar="RUN RUN", help="Two runs side by side, on a page of their own.")
    ] = None,
    runs_dir: RunsDir = RUNS,
) -> None:
    """Write the run's report.html again, only from its files; or compare two runs."""
    if compare is not None:
        one, other = (_existing(name, runs_dir) for name in compare)
        page = runs_dir / f"{one.path.name}-and-{other.path.name}.html"
        problem = report_process.write_comparison(page, one, other)
    else:
        run = _existing(run_name, runs_dir)
        page, problem = run.report, report_process.write_report(run)
    if problem:
        raise ExitError(problem, Exit.BAD_CONFIG)
    print(page)


def _limits(run: RunPaths, given: Path | None) -> config.LauncherConfig:
    """Return the launcher's configuration by which a run is stopped: the one given now, else its own."""
    if given is not None:
        return config.load(given)
    limits, note = limits_of(run)
    if note:
        _say(note)
    return limits


def _existing(name: str | None, runs_dir: Path) -> RunPaths:
    run = newest_run(runs_dir) if name is None else RunPaths(runs_dir / name)
    if run is None or not os.path.isdir(run.path):  # noqa: PTH112 (says no for a name that is too long, too)
        wanted = "no run yet" if name is None else f"no run {name!r}"
        raise ExitError(f"{runs_dir} has {wanted}: start one with `up`, or name another --runs-dir.", Exit.BAD_CONFIG)
    return run


def _say(sentence: str) -> None:
    """Print a line; a terminal that was closed doesn't end a run."""
    with contextlib.suppress(OSError):
        print(f"launcher: {sentence}", flush=True)
