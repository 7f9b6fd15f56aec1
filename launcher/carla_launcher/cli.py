"""The command line: the commands, what they print, and their exit codes.

Each command imports what it needs when it runs: otherwise `--help` and `status` take twice as long.
"""

from __future__ import annotations

import contextlib
import difflib
import errno
import json
import os
import select
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TextIO

import typer
from typer.core import TyperGroup

from carla_launcher.observe.pools import PoolKind
from carla_launcher.options import JobOptions, RunOptions
from carla_launcher.places import DEFAULT_CONFIG
from carla_launcher.signature import asking, given_options
from carla_run.exits import Exit, ExitError
from carla_run.paths import RUNS, RunPaths, newest_first
from carla_run.program import interruptible

TERMINAL_PATIENCE_S = 1.0

if TYPE_CHECKING:
    from carla_launcher.config import LauncherConfig


class Commands(TyperGroup):
    """The launcher's commands. Each returns its exit code; an expected error is printed as one sentence."""

    def invoke(self, ctx: Any) -> Any:
        """Run the command. A refusal, Ctrl-C and a name that is too long for a file end it with a sentence."""
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
    help="Run a simulator and the agent together, and keep the run alive when memory runs short.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
MOST_NODES, MOST_CARDS, MOST_GIB = 10_000, 64, 1_000_000
"""Largest cluster that ``plan`` takes, since it works out each node."""
MOST_NAME_BYTES = 100
"""Longest name of a run. `report --compare` puts two into one file name, which may have 255 bytes."""


RunsDir = Annotated[Path, typer.Option("--runs-dir", help="Folder that holds all runs.")]
RunName = Annotated[str | None, typer.Argument(metavar="[RUN]", help="The run's name. Default: the newest run.")]


def _fits(name: str | None) -> str | None:
    if name is not None and name.startswith("-"):
        raise typer.BadParameter(f"{name} begins with a dash: commands would read it as an option.")
    if name and (Path(name).name != name or name == ".."):
        last = Path(name).name.strip(".") or "night-1"
        raise typer.BadParameter(f"{name} names no folder in --runs-dir: expected a name, as {last}.")
    if name and not name.isprintable():
        raise typer.BadParameter(f"{name!r} has a character that can't be printed: choose another name.")
    size = len(os.fsencode(name or ""))
    if size > MOST_NAME_BYTES:
        raise typer.BadParameter(f"{size} bytes are too long: expected at most {MOST_NAME_BYTES}.")
    return name


AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]
NewName = Annotated[
    str | None,
    typer.Option("--run-name", callback=_fits, help="Name of the run. Default: run-DATE-TIME, the time of its start."),
]
OfTheRun = Annotated[
    Path | None, typer.Option("--launcher-config", help="The launcher's configuration. Default: the run's.")
]
Resume = Annotated[
    bool,
    typer.Option(
        "--resume",
        help="Resume the run of this name; start it if there is none. Not needed for a run whose launcher was killed.",
    ),
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
    resume: Resume = False,
    runs_dir: RunsDir = RUNS,
) -> int:
    """Start a run: plan what fits, start a simulator and the agent, watch both, and write a report at the end.

    When memory runs short, the launcher makes changes that free memory (rungs, see --policy). It undoes them later.

    A resumed run keeps its options. You need not give them again. If you give an option, its new value replaces the
    old one, and the change is printed. AGENT_ARGS are replaced key by key. The value '' clears --on-event, --policy,
    --map, --cluster, --simulator-host and --simulator-arg.

    On Ctrl-C or SIGTERM the agent writes a checkpoint and stops, then the simulator stops. A second signal kills both
    immediately. Exit codes: 0 finished, 2 usage error, 65 bad configuration, 69 no simulator, 70 too many restarts,
    71 does not fit in memory, 75 stopped on request, 130 Ctrl-C during planning.
    """
    from carla_launcher import up

    return up.run(RunPaths(runs_dir / (run_name or _default_name())), options, resume, _say).code


@app.command("run")
@asking(
    RunOptions,
    "command program runtime simulator run_name quality policy ignore_measured map seed simulator_host port gpu "
    "share_gpu resume on_event dashboard_port simulator_args cwd runs_dir launcher_config stack",
    helps={"seed": "Seed of the simulator.", "map": "Map that the simulator starts with."},
)
def run_command(
    options: RunOptions,
    *,
    run_name: NewName = None,
    resume: Resume = False,
    runs_dir: RunsDir = RUNS,
) -> int:
    """Start a simulator and any command, watch both as `up` does, and write a report at the end.

    The command is its own process, started without a shell. Its environment has CARLA_HOST, CARLA_PORT, CARLA_TM_PORT
    and CUDA_VISIBLE_DEVICES. A program file says how the command resumes, what shows its progress, and how it can use
    less memory. A resumed run keeps the command and the options of its earlier start, unless you give new ones.

    Exit codes: as `up`.
    """
    from carla_launcher import up

    run = RunPaths(runs_dir / (run_name or _default_name()))
    if not options.command and not run.launcher_state.exists():
        raise typer.BadParameter("expected a command after --, as: run --simulator carla-lite -- python train.py")
    return up.run(run, options, resume, _say, "run").code


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
            metavar="[-- OPTIONS OF up [-- AGENT_ARGS]]",
            help="Options for `up`, which the job runs. Or: `-- run OPTIONS -- COMMAND`.",
        ),
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Print the batch script, and submit nothing.")] = False,
    run_name: NewName = None,
    runs_dir: RunsDir = RUNS,
) -> None:
    """Submit a run to Slurm, as a job that resumes by itself until the run has finished.

    If the launcher is killed or memory runs out, the job resumes the run at once. After the time limit or a preemption
    the job is queued again. If a run of this name exists, the job resumes it.
    """
    from carla_launcher import hooks
    from carla_launcher.resolve.resuming import run_request

    slurm = hooks.needed("slurm_submit")  # draws its script with jinja2, which no other command needs
    options = words or []
    starts, given = ("run", options[1:]) if slurm.runs_command(options) else ("up", options)
    taken = typer.main.get_command(app).commands[starts].make_context(starts, list(given)).params  # type: ignore[attr-defined]
    if taken["run_name"] is not None or taken["runs_dir"] != RUNS:
        raise typer.BadParameter("--run-name and --runs-dir are options of submit: they belong before the --.")
    run = RunPaths(runs_dir / (run_name or _default_name()))
    if starts == "run" and not taken["command"] and not run.launcher_state.exists():
        raise typer.BadParameter("expected a command after a second --, as: submit -- run -- python train.py")
    slurm.check(job, os.environ, options)
    if job.apptainer is None:  # an image may have files of its own
        own = {name: value for name, value in taken.items() if name in RunOptions.model_fields}
        run_request(run, given_options(RunOptions, own), resume=True, of_command=starts == "run")
    text = slurm.script(run, job, options)
    if dry_run:
        print(text, end="")
    else:
        waits = slurm.waits_for(run)
        print(f"launcher: job {slurm.submit(run, text)} of run {run.path}{waits}; look with: status {run.path.name}")


@app.command()
@asking(
    RunOptions,
    "command program config runtime simulator quality device policy ignore_measured map simulator_host gpu collectors "
    "nodes gpus_per_node node_ram node_vram cwd as_json runs_dir launcher_config stack",
    helps={
        "config": f"The agent's YAML file, or a preset's name. Default: {DEFAULT_CONFIG}.",
        "gpu": "GPU index: one for both, or two. Default: CARLA_GPU and AGENT_GPU, else 0.",
        "map": "Map to plan for. Only measurements of runs on it are used.",
        "collectors": "Number of processes that drive.",
    },
)
def plan(
    options: RunOptions,
    *,
    nodes: Annotated[
        int | None, typer.Option(min=1, max=MOST_NODES, help="Plan for a cluster of this many nodes, node by node.")
    ] = None,
    gpus_per_node: Annotated[
        int, typer.Option(min=1, max=MOST_CARDS, help="GPUs of each node, over which its simulators are spread.")
    ] = 1,
    node_ram: Annotated[
        float | None,
        typer.Option(min=0.1, max=MOST_GIB, metavar="GIB", help="RAM of each node in GiB. Default: this machine's."),
    ] = None,
    node_vram: Annotated[
        float | None,
        typer.Option(min=0.1, max=MOST_GIB, metavar="GIB", help="VRAM of each GPU in GiB. Default: this machine's."),
    ] = None,
    as_json: AsJson = False,
    runs_dir: RunsDir = RUNS,
) -> Exit:
    """Print what fits in this machine's memory now, item by item, and how a run would start. Starts nothing.

    Exit codes: 0 it fits, perhaps only with rungs that free memory; 71 nothing fits; 65 this machine can't do what the
    options ask for.
    """
    if options.command and nodes is not None:
        raise typer.BadParameter("--nodes is of the agent's collectors: leave it out, or the command.")
    if nodes is None and (node_ram, node_vram, gpus_per_node) != (None, None, 1):
        raise typer.BadParameter("--gpus-per-node, --node-ram and --node-vram are of nodes: give --nodes, too.")
    run, node_gib = RunPaths(runs_dir / f".planned-{os.getpid()}"), {PoolKind.RAM: node_ram, PoolKind.VRAM: node_vram}
    from carla_launcher import plan

    return plan.run(run, options, as_json, nodes, gpus_per_node, node_gib)


@app.command()
@asking(
    RunOptions,
    "folder simulator quality map seed port gpu simulator_args launcher_config",
    helps={
        "seed": "Seed of the simulator.",
        "port": "The simulator's RPC port. Default: a free port.",
        "gpu": "GPU index. Default: CARLA_GPU, else 0.",
    },
)
def simulator(
    options: RunOptions,
    *,
    folder: Annotated[Path, typer.Option(help="Folder for logs and for simulator.json, which holds its state.")],
) -> Exit:
    """Run one simulator until standard input closes, and restart it if it fails. Nodes of a cluster run this."""
    from carla_launcher import simulator

    return simulator.run(folder, options, _say)


@app.command()
@asking(
    RunOptions,
    "program simulator simulators quality map seed simulator_host port gpu share_gpu on_event dashboard_port status "
    "as_json run_name runs_dir launcher_config simulator_args",
    helps={
        "map": "Map that carla-lite starts with. Default: simulator.map of the launcher's configuration.",
        "seed": "Seed of carla-lite.",
        "on_event": "Shell command to run at each end of a drive. It reads the event as JSON from its standard input.",
        "simulator_args": "One argument for the simulator. Can be repeated.",
    },
)
def routes(
    options: RunOptions,
    *,
    program: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Program file of the evaluation, with a section `routes`.")
    ] = None,
    simulators: Annotated[int, typer.Option(min=1, max=64, help="Number of simulators that run in parallel.")] = 1,
    status: Annotated[bool, typer.Option("--status", help="Print the evaluation's progress; drive nothing.")] = False,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print the progress as one JSON object. Implies --status.")
    ] = False,
    run_name: Annotated[
        str | None, typer.Option("--run-name", callback=_fits, help="Name of the run. Default: the program file's.")
    ] = None,
    runs_dir: RunsDir = RUNS,
) -> int:
    """Run an evaluation item by item (an item is a route, for example), and keep the result of each item.

    If a drive ends without a result, its item is driven again in a fresh simulator. After two such drives the item is
    given up, and the table names it. To continue an evaluation, run the same command again, even if the launcher was
    killed. Another --run-name starts a new evaluation.

    Ctrl-C or SIGTERM ends the current drive, which then doesn't count. Exit codes: 0 all items have a result, 2 usage
    error, 65 bad configuration, 69 no simulator, 70 some items have no result, 71 the disk is full, 75 stopped on
    request.
    """
    from carla_launcher.routes import evaluation

    name = run_name or ("" if program is None else program.stem)
    if name and (status or as_json):
        _show_status(_existing(name, runs_dir), as_json, once=True)
        return Exit.FINISHED
    if program is None:
        raise typer.BadParameter(
            "--program is missing: give the evaluation's program file, or --run-name with --status."
        )
    return evaluation.run(RunPaths(runs_dir / name), program, options, simulators, _say).code


@app.command()
def down(run_name: RunName = None, runs_dir: RunsDir = RUNS, launcher_config: OfTheRun = None) -> None:
    """Stop a run: the agent, which writes a checkpoint, then the simulator and the launcher. Can be repeated safely."""
    from carla_launcher import down

    run = _existing(run_name, runs_dir)
    print(f"launcher: {down.run(run, _limits(run, launcher_config))}")


@app.command()
@asking(
    RunOptions,
    "command program config port cwd as_json runs_dir stack",
    helps={"config": f"The agent's YAML file, or a preset's name. Default: {DEFAULT_CONFIG}."},
)
def doctor(
    options: RunOptions,
    *,
    port: Annotated[
        int | None,
        typer.Option(
            min=1, max=65533, help="First of the simulator's three ports. Default: those of CARLA_PORTS, else 2000."
        ),
    ] = None,
    as_json: AsJson = False,
    runs_dir: RunsDir = RUNS,
) -> int:
    """Check this machine: driver, Docker, ports, disk, torch, carla client. Exit code 1 if something needs repair."""
    from carla_launcher.show import doctor
    from carla_launcher.show.checks.machine import Machine

    config = options.config or DEFAULT_CONFIG
    ports = None if port is None else tuple(range(port, port + 3))
    machine = Machine(stack=options.stack, runs=runs_dir, config=config, ports=ports, asked=options)
    return doctor.run(machine, as_json)


@app.command()
def status(
    run_name: RunName = None,
    once: Annotated[
        bool, typer.Option("--once", help="Print the state once, as into a pipe, instead of updating it.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON. Implies --once.")] = False,
    runs_dir: RunsDir = RUNS,
) -> None:
    """Show a run's state: simulator, agent, memory, restarts."""
    _show_status(_existing(run_name, runs_dir), as_json, once)


@app.command("dashboard")
def serve_dashboard(
    run_name: RunName = None,
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port on 127.0.0.1. 0 takes a free port.")] = 0,
    runs_dir: RunsDir = RUNS,
    launcher_config: OfTheRun = None,
) -> None:
    """Serve the live page of a run, active or ended, until Ctrl-C."""
    from carla_launcher import hooks

    run = _existing(run_name, runs_dir)
    hooks.needed("page").serve(run, port, _limits(run, launcher_config), _say, to_terminal=sys.stdout.isatty())


@app.command("report")
def write_report(
    run_name: RunName = None,
    compare: Annotated[
        tuple[str, str] | None, typer.Option(metavar="RUN RUN", help="Write a page that compares two runs instead.")
    ] = None,
    runs_dir: RunsDir = RUNS,
) -> None:
    """Write the run's report.html and report.md again from its files, or compare two runs."""
    from carla_launcher.show import report_process

    if compare is not None and run_name is not None:
        raise typer.BadParameter(f"--compare names both runs: leave out {run_name}.")
    if compare is not None:
        one, other = (_existing(name, runs_dir) for name in compare)
        page = runs_dir / _comparison_name(one.path.name, other.path.name)
        problem = report_process.write_comparison(page, one, other)
    else:
        run = _existing(run_name, runs_dir)
        page, problem = run.report, report_process.write_report(run)
    if problem:
        raise ExitError(problem, Exit.BAD_CONFIG)
    print(page)


def _comparison_name(one: str, other: str) -> str:
    """Return the name of the page that compares two runs, which no other pair has."""
    both = f"{one}-and-{other}"
    if both.partition("-and-") != both.rpartition("-and-"):  # another pair may make the same words
        both += f"-{len(one)}"
    return f"{both}.html"


def _default_name() -> str:
    """Return a name such as ``run-20260131-235959``, of the local time."""
    return time.strftime("run-%Y%m%d-%H%M%S")


def _show_status(run: RunPaths, as_json: bool, once: bool) -> None:
    from carla_launcher.show import dashboard

    if as_json:
        print(json.dumps(dashboard.status(run, time.time()), indent=1))
    elif once or not sys.stdout.isatty():
        dashboard.show(run)
    else:
        with contextlib.suppress(KeyboardInterrupt):
            dashboard.follow(run)


def _limits(run: RunPaths, given: Path | None) -> LauncherConfig:
    """Return the launcher's configuration for stopping a run: the given one, else the run's own."""
    from carla_launcher import config
    from carla_launcher.resolve.resuming import limits_of

    if given is not None:
        return config.load(given)
    limits, note = limits_of(run)
    if note:
        _say(note)
    return limits


def _existing(name: str | None, runs_dir: Path) -> RunPaths:
    run = next(iter(newest_first(runs_dir)), None) if name is None else RunPaths(runs_dir / name)
    if run is None or not os.path.isdir(run.path):  # noqa: PTH112 (says no for a name that is too long, too)
        alike = difflib.get_close_matches(Path(name or "").name, [each.path.name for each in newest_first(runs_dir)], 1)
        meant = f" (did you mean {alike[0]}?)" if alike else ""
        wanted = "no run yet" if name is None else f"no run {name!r}{meant}"
        raise ExitError(f"{runs_dir} has {wanted}: start one with `up`, or name another --runs-dir.", Exit.BAD_CONFIG)
    return run


def _say(sentence: str) -> None:
    """Print a line. A closed terminal doesn't end a run, and a stopped one doesn't hold it up: the line is left out."""
    with contextlib.suppress(OSError):
        if _takes_a_line(sys.stdout):
            print(f"launcher: {sentence}", flush=True)


def _takes_a_line(stream: TextIO) -> bool:
    try:
        end = stream.fileno()
    except (OSError, ValueError):  # not a file
        return True
    return bool(select.select([], [end], [], TERMINAL_PATIENCE_S)[1])
