"""The command line: options, what is printed, and the exit code of each command."""

from __future__ import annotations

import contextlib
import errno
import json
import os
import sys
import time
from collections.abc import Iterator
from enum import Enum
from pathlib import Path
from typing import Annotated, Any, NoReturn, TypeVar

import typer
from pydantic import BaseModel, ValidationError
from typer.core import TyperGroup

from carla_launcher import config, hooks
from carla_launcher import down as down_command
from carla_launcher import plan as plan_command
from carla_launcher import simulator as simulator_command
from carla_launcher import up as up_command
from carla_launcher.config import STACK
from carla_launcher.observe.pools import Cards, PoolKind
from carla_launcher.options import RunOptions, RuntimeKind, SimulatorKind
from carla_launcher.resolve.resuming import DEFAULT_CONFIG, default_name, limits_of
from carla_launcher.show import dashboard, report_process
from carla_launcher.show import doctor as doctor_command
from carla_launcher.show.checks.machine import Machine
from carla_run.configuration import refusal
from carla_run.exits import Exit, ExitError
from carla_run.paths import RUNS, RunPaths, newest_run
from carla_run.program import interruptible


class Commands(TyperGroup):
    """The launcher's commands: what can go wrong with any of them is a sentence."""

    def invoke(self, ctx: Any) -> Any:
        """Run the command; Ctrl-C and a name that no file can have end it with a word."""
        try:
            with interruptible("launcher"):
                return super().invoke(ctx)
        except OSError as error:
            if error.errno != errno.ENAMETOOLONG:
                raise
            _fail(f"{error.filename}: {error.strerror}; choose a shorter --runs-dir and name.", Exit.BAD_CONFIG)


app = typer.Typer(
    cls=Commands,
    help="Run a simulator and the agent together, watched.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
_Model = TypeVar("_Model", bound=BaseModel)
MOST_NODES, MOST_CARDS, MOST_GIB = 10_000, 64, 1_000_000
"""Of a cluster that is planned: each node is worked out."""
MOST_NAME_BYTES = 100
"""Of a run: `report --compare` has two in the name of one file, which file systems end at 255."""


class CarlaQuality(str, Enum):
    """What CARLA can render."""

    LOW = "Low"
    EPIC = "Epic"


class AgentDevice(str, Enum):
    """Where the agent learns."""

    AUTO = "auto"
    CPU = "cpu"
    CUDA = "cuda"


IgnoreMeasured = Annotated[
    bool | None,
    typer.Option("--ignore-measured", help="Plan by first figures, not by what earlier runs measured."),
]
RunsDir = Annotated[Path, typer.Option("--runs-dir", help="Where runs lie.")]
RunName = Annotated[str | None, typer.Argument(metavar="[RUN]", help="The run's name; default: the newest.")]


AgentConfig = Annotated[
    Path | None,
    typer.Option(
        "--config", help=f"The agent's YAML file, or a preset's name. Default: the run's own, else {DEFAULT_CONFIG}."
    ),
]
Quality = Annotated[CarlaQuality | None, typer.Option(help="Of CARLA. Default: the launcher's configuration's.")]
Device = Annotated[AgentDevice | None, typer.Option(help="Of the agent. Default: its configuration's.")]
Policy = Annotated[
    str | None,
    typer.Option(metavar="A,B,…", help="Rungs of the ladder to use, in this order; names as in --launcher-config."),
]
Map = Annotated[
    str | None,
    typer.Option(
        "--map", help="Map name (Lite:seed=7 is one) or path of an .xodr file; wins over both configurations."
    ),
]


def _cards(text: str) -> Cards:
    indices = text.split(",")
    if len(indices) > 2 or not all(each.isdecimal() for each in indices):
        raise typer.BadParameter(
            f"{text!r}: expected the index of one GPU, as 0, or the simulator's and the agent's, as 0,1."
        )
    return Cards(int(indices[0]), int(indices[-1]))


def _fits(name: str | None) -> str | None:
    size = len(os.fsencode(name or ""))
    if size > MOST_NAME_BYTES:
        raise typer.BadParameter(f"{size} bytes are too long: expected at most {MOST_NAME_BYTES}.")
    return name


NewName = Annotated[
    str | None, typer.Option("--run-name", callback=_fits, help="Default: run-DATE-TIME, the start in local time.")
]
Gpu = Annotated[
    Cards | None,
    typer.Option(
        parser=_cards,
        metavar="N|SIMULATOR,AGENT",
        help="Index of the GPU for both, or of one each. Default: the run's own, CARLA_GPU's and AGENT_GPU's, or 0.",
    ),
]
Runtime = Annotated[
    RuntimeKind | None,
    typer.Option(help="Default: auto, which is the Compose stack for CARLA in Docker, else local processes."),
]
Simulator = Annotated[
    SimulatorKind | None,
    typer.Option(
        help="Default: auto, which is CARLA where there is a GPU and something that starts it, else carla-lite."
    ),
]
Settings = Annotated[
    Path | None,
    typer.Option(
        "--launcher-config", help="The launcher's own configuration. Default: the launcher.yaml that it ships with."
    ),
]
OfTheRun = Annotated[
    Path | None, typer.Option("--launcher-config", help="The launcher's own configuration. Default: the run's.")
]
Stack = Annotated[
    Path | None,
    typer.Option(metavar="DIR", help="Folder of the Compose files. Default: the checkout, else the working folder."),
]
DashboardPort = Annotated[
    int | None,
    typer.Option(
        min=0, max=65535, help="Serve a live page of the run on 127.0.0.1, at this port; 0: a free one. Default: none."
    ),
]


@app.command()
def up(
    *,
    agent_args: Annotated[
        list[str] | None,
        typer.Argument(metavar="[-- AGENT_ARGS]", help="Passed on to `python -m carla_td3 train`; '' takes all back."),
    ] = None,
    runtime: Runtime = None,
    simulator: Simulator = None,
    agent_config: AgentConfig = None,
    run_name: NewName = None,
    quality: Quality = None,
    device: Device = None,
    policy: Policy = None,
    ignore_measured: IgnoreMeasured = None,
    map_name: Map = None,
    seed: Annotated[int | None, typer.Option(min=0, help="Of simulator and agent.")] = None,
    simulator_host: Annotated[
        str | None, typer.Option(help="Use the simulator that runs there instead of starting one.")
    ] = None,
    port: Annotated[
        int | None, typer.Option(min=1, max=65533, help="RPC port. Default: a free one; with --simulator-host 2000.")
    ] = None,
    cluster: Annotated[
        str | None,
        typer.Option(
            metavar="HOST:PORT|auto", help="Drive on the nodes of this Ray cluster, each with a simulator of its own."
        ),
    ] = None,
    collectors: Annotated[
        int | None, typer.Option(min=1, max=64, help="Processes that drive; wins over --config.")
    ] = None,
    gpu: Gpu = None,
    share_gpu: Annotated[
        bool | None,
        typer.Option(
            "--share-gpu/--no-share-gpu",
            help="Start although another process holds the card's lock; its memory counts as foreign.",
        ),
    ] = None,
    max_timesteps: Annotated[int | None, typer.Option(min=1, help="Environment steps; wins over --config.")] = None,
    resume: Annotated[
        bool, typer.Option("--resume", help="Go on with the run of this name; one whose launcher died goes on anyway.")
    ] = False,
    on_event: Annotated[
        str | None,
        typer.Option(metavar="CMD", help="A shell command that gets each event as JSON on its standard input."),
    ] = None,
    dashboard_port: DashboardPort = None,
    simulator_arg: Annotated[
        list[str] | None, typer.Option(help="Passed on to the simulator; repeat for each word.")
    ] = None,
    runs_dir: RunsDir = RUNS,
    launcher_config: Settings = None,
    stack: Stack = None,
) -> None:
    """Plan what fits, start a simulator and the agent, watch them, give way and restore, leave a report.

    A run that goes on is what it was asked for the first time: no option need be given again. One that is given again
    wins, of AGENT_ARGS each key by itself, and what it changes is said. '' takes back --on-event, --policy, --map,
    --cluster, --simulator-host and --simulator-arg.

    Ctrl-C or SIGTERM stops the agent (it writes a checkpoint), then the simulator; a second one ends both at once.
    Exit codes: 0 finished, 2 usage, 65 configuration, 69 no simulator, 70 the restarts are spent, 71 cannot fit,
    75 stopped on request, 130 Ctrl-C while it planned.
    """
    options = _options(
        config=agent_config,
        launcher_config=launcher_config,
        stack=stack,
        runtime=runtime,
        simulator=simulator,
        quality=quality,
        device=device,
        policy=policy,
        ignore_measured=ignore_measured,
        map=map_name,
        seed=seed,
        simulator_host=simulator_host,
        port=port,
        cluster=cluster,
        collectors=collectors,
        gpu=gpu,
        share_gpu=share_gpu,
        max_timesteps=max_timesteps,
        dashboard_port=dashboard_port,
        on_event=on_event,
        agent_args=agent_args or None,
        simulator_args=simulator_arg or None,
    )
    run = RunPaths(runs_dir / (run_name or default_name(time.time())))
    with _refusals():
        ending = up_command.run(run, options, resume, _say)
    raise typer.Exit(int(ending.code))


@app.command()
def submit(
    *,
    words: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[-- OPTIONS OF up [-- AGENT_ARGS]]", help="What the run is asked for, as `up` takes it."
        ),
    ] = None,
    nodes: Annotated[int, typer.Option(min=1, help="With several, Ray runs on them, and a simulator a card.")] = 1,
    gpus_per_node: Annotated[int, typer.Option(min=0)] = 0,
    cpus_per_node: Annotated[int | None, typer.Option(min=1, help="Default: the cluster's, often one.")] = None,
    memory: Annotated[str | None, typer.Option("--mem", help="Of each node, as 400G. Default: the cluster's.")] = None,
    time_limit: Annotated[str | None, typer.Option("--time", help="As 24:00:00. Default: the partition's.")] = None,
    partition: Annotated[str | None, typer.Option()] = None,
    sbatch: Annotated[
        list[str] | None, typer.Option(metavar="OPTION", help="A further option of sbatch's, as --account=me; repeat.")
    ] = None,
    collectors: Annotated[
        int | None, typer.Option(min=1, help="Default: a card each, or a node; with one node what is configured.")
    ] = None,
    warn: Annotated[
        int, typer.Option(min=30, help="Seconds before the time limit: for the checkpoint and the report.")
    ] = 300,
    apptainer: Annotated[Path | None, typer.Option(metavar="IMAGE", help="Run Python in it, not the one here.")] = None,
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
    with _refusals():
        slurm = hooks.needed("slurm_submit")  # draws its script with jinja2, which no other command needs
    options = words or []
    taken = typer.main.get_command(app).commands["up"].make_context("up", list(options)).params  # type: ignore[attr-defined]
    if taken["run_name"] is not None or taken["runs_dir"] != RUNS:
        raise typer.BadParameter("--run-name and --runs-dir are options of submit: they belong before the --.")
    run = RunPaths(runs_dir / (run_name or default_name(time.time())))
    job = _checked(
        slurm.JobOptions,
        nodes=nodes,
        gpus_per_node=gpus_per_node,
        cpus_per_node=cpus_per_node,
        memory=memory,
        time=time_limit,
        partition=partition,
        more=tuple(sbatch or ()),
        collectors=collectors,
        warn_s=warn,
        apptainer=apptainer,
    )
    with _refusals():
        slurm.check(job, os.environ)
        text = slurm.script(run, job, options)
        if dry_run:
            print(text, end="")
            return
        print(f"launcher: job {slurm.submit(run, text)} of run {run.path}; look with: status {run.path.name}")


@app.command()
def plan(
    *,
    agent_config: AgentConfig = None,
    runtime: Runtime = None,
    simulator: Simulator = None,
    quality: Quality = None,
    device: Device = None,
    policy: Policy = None,
    ignore_measured: IgnoreMeasured = None,
    map_name: Annotated[str | None, typer.Option("--map", help="Only watermarks of this map count.")] = None,
    gpu: Gpu = None,
    collectors: Annotated[int | None, typer.Option(min=1, max=64, help="Processes that drive.")] = None,
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
    launcher_config: Settings = None,
    stack: Stack = None,
) -> None:
    """Say what fits on this machine now, item by item, and what a run would start with; change nothing.

    Exit codes: 0 something fits, 71 nothing does, 65 what was asked for can't be.
    """
    options = _options(
        config=agent_config or DEFAULT_CONFIG,
        runtime=runtime,
        simulator=simulator,
        quality=quality,
        device=device,
        policy=policy,
        ignore_measured=ignore_measured,
        map=map_name,
        gpu=gpu,
        collectors=collectors,
        stack=stack,
        launcher_config=launcher_config,
    )
    with _refusals():
        code = plan_command.run(
            RunPaths(runs_dir / f".planned-{os.getpid()}"),
            options,
            as_json,
            nodes,
            gpus_per_node,
            {PoolKind.RAM: node_ram, PoolKind.VRAM: node_vram},
        )
    raise typer.Exit(int(code))


@app.command()
def simulator(
    *,
    folder: Annotated[Path, typer.Option(help="For `simulator.json`, which says how it is, and logs.")],
    simulator: Simulator = None,
    quality: Quality = None,
    map_name: Map = None,
    seed: Annotated[int | None, typer.Option(min=0)] = None,
    port: Annotated[int | None, typer.Option(min=1, max=65533, help="RPC port. Default: a free one.")] = None,
    gpu: Gpu = None,
    simulator_arg: Annotated[list[str] | None, typer.Option(help="Passed on to it; repeat for each word.")] = None,
    launcher_config: Settings = None,
) -> None:
    """Run one simulator, watched, while the standard input is open: what a cluster's node does for its collector."""
    options = _options(
        policy=None,
        simulator=simulator,
        quality=quality,
        map=map_name,
        seed=seed,
        port=port,
        gpu=gpu,
        simulator_args=simulator_arg or None,
        launcher_config=launcher_config,
    )
    with _refusals():
        code = simulator_command.run(folder, options, _say)
    raise typer.Exit(int(code))


@app.command()
def down(run_name: RunName = None, runs_dir: RunsDir = RUNS, launcher_config: OfTheRun = None) -> None:
    """Stop a run: the agent with a checkpoint, then the simulator, then the launcher; twice is fine."""
    run = _existing(run_name, runs_dir)
    with _refusals():
        print(f"launcher: {down_command.run(run, _limits(run, launcher_config))}")


@app.command()
def doctor(
    *,
    agent_config: AgentConfig = None,
    port: Annotated[int, typer.Option(min=1, max=65533, help="The simulator's first of three ports.")] = 2000,
    as_json: Annotated[bool, typer.Option("--json", help="For programs.")] = False,
    runs_dir: RunsDir = RUNS,
    stack: Stack = None,
) -> None:
    """Examine this machine: driver, Docker, ports, disk, torch, client; exit 1 if something is to be mended."""
    config, ports = agent_config or DEFAULT_CONFIG, tuple(range(port, port + 3))
    machine = Machine(stack=stack or STACK, runs=runs_dir, config=config, ports=ports)
    raise typer.Exit(doctor_command.run(machine, as_json))


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


@app.command("dashboard")
def serve_dashboard(
    run_name: RunName = None,
    port: Annotated[int, typer.Option(min=0, max=65535, help="On 127.0.0.1; 0: a free one.")] = 0,
    runs_dir: RunsDir = RUNS,
    launcher_config: OfTheRun = None,
) -> None:
    """Serve the live page of a run, one that goes on or one that has ended, until Ctrl-C."""
    run = _existing(run_name, runs_dir)
    with _refusals():
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
        if problem := report_process.write_comparison(page, one, other):
            _fail(problem, Exit.BAD_CONFIG)
        print(page)
        return
    run = _existing(run_name, runs_dir)
    if problem := report_process.write_report(run):
        _fail(problem, Exit.BAD_CONFIG)
    print(run.report)


def _options(*, policy: str | None, **options: Any) -> RunOptions:
    """Return what is asked for, as far as it was given on the command line."""
    options["policy"] = None if policy is None else policy.split(",")
    return _checked(
        RunOptions, **{name: getattr(value, "value", value) for name, value in options.items() if value is not None}
    )


def _checked(model: type[_Model], **given: Any) -> _Model:
    """Return options as a model; what the command line takes and the model refuses is a usage error."""
    try:
        return model(**given)
    except ValidationError as error:
        raise typer.BadParameter(f"{refusal.clause(error, model)}.") from None


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
        _fail(f"{runs_dir} has {wanted}: start one with `up`, or name another --runs-dir.", Exit.BAD_CONFIG)
    return run


def _say(sentence: str) -> None:
    """Print a line; a terminal that was closed doesn't end a run."""
    with contextlib.suppress(OSError):
        print(f"launcher: {sentence}", flush=True)


@contextlib.contextmanager
def _refusals() -> Iterator[None]:
    """Print what a command refuses to do, and exit with its code."""
    try:
        yield
    except ExitError as error:
        _fail(str(error), error.code)


def _fail(sentence: str, code: Exit) -> NoReturn:
    print(f"launcher: {sentence}", file=sys.stderr)
    raise typer.Exit(int(code))
