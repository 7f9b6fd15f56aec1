"""The agent's commands, and how an error becomes one sentence and an exit code.

Owns the order of steps in each command. Imports torch and ``carla`` only inside the command that needs them:
``--help`` stays quick, and the training process never loads the client.
"""

from __future__ import annotations

import contextlib
import functools
import inspect
import os
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from json import dumps
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from carla_run.exits import Exit
from carla_run.paths import RUNS, RunPaths
from carla_run.signals import StoppedAtOnce, StopRequests
from carla_td3.cli import options
from carla_td3.config import AgentConfig
from carla_td3.exits import AgentError, exit_code, sentence
from carla_td3.memory import allocator
from carla_td3.run_directory import prepare

LOG_COLUMNS = 120
Command = Callable[..., Exit | None]
DEBUG = inspect.Parameter("debug", inspect.Parameter.KEYWORD_ONLY, default=False, annotation=options.Debug)


def console() -> Console:
    """Return the console to print to. In a pipe or a log it is wide enough for a table."""
    return Console(width=None if sys.stdout.isatty() else LOG_COLUMNS)


@contextlib.contextmanager
def error_sentences(debug: bool) -> Iterator[None]:
    """Turn the errors that a user can mend into one sentence on stderr and an exit code."""
    try:
        yield
    except StoppedAtOnce:
        typer.echo("Stopped at once; everything saved by then is kept.", err=True)
        raise typer.Exit(Exit.INTERRUPTED) from None
    except KeyboardInterrupt:  # raised before StopRequests is installed, and in commands that have nothing to save
        typer.echo("Interrupted.", err=True)
        raise typer.Exit(Exit.INTERRUPTED) from None
    except Exception as error:
        code = exit_code(error)
        if code is None or debug:
            raise
        typer.echo(sentence(error), err=True)
        raise typer.Exit(code) from None


@contextlib.contextmanager
def hard_exit(debug: bool) -> Iterator[None]:
    """Like :func:`error_sentences`, for a process that used the client: exits by ``os._exit`` (protocol, 5.5)."""
    code = Exit.FINISHED
    try:
        with error_sentences(debug):
            yield
    except typer.Exit as error:
        code = Exit(error.exit_code)
    except Exception:
        Console(stderr=True).print_exception()
        code = Exit.CRASH
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


def handling_errors(around: Callable[[bool], AbstractContextManager[None]]) -> Callable[[Command], Callable[..., None]]:
    """Wrap a command in ``error_sentences`` or ``hard_exit`` and add ``--debug``; its return value is its exit code."""

    def wrapped(command: Command) -> Callable[..., None]:
        @functools.wraps(command)
        def run(*, debug: bool, **given: Any) -> None:
            with around(debug):
                code = command(**given)
                if code is not None:
                    raise typer.Exit(code)

        own = inspect.signature(command, eval_str=True)
        both = [*own.parameters.values(), DEBUG]
        run.__signature__ = own.replace(parameters=both)  # type: ignore[attr-defined]
        run.__annotations__ = {each.name: each.annotation for each in both}
        return run

    return wrapped


@handling_errors(error_sentences)
def train(
    *,
    config: options.ConfigPath = None,
    run_name: options.RunName = "td3",
    run_dir: options.RunDir = None,
    settings: options.Settings = None,
    map: options.Map = None,
    seed: options.Seed = None,
    max_timesteps: options.MaxTimesteps = None,
    eval_freq: options.EvalFreq = None,
    checkpoint_freq: options.CheckpointFreq = None,
    num_eval_episodes: options.EvalEpisodes = None,
    device: options.Device = None,
    resume: options.Resume = False,
) -> Exit:
    """Train a TD3 driver with the simulator at CARLA_HOST:CARLA_PORT, evaluate it, and write a run directory.

    Exit codes: 0 finished, 65 bad configuration, 69 no simulator, 71 out of memory or does not fit in memory, 75
    stopped on request.
    """
    stop = StopRequests(raise_second=True)
    stop.install()
    out = console()
    run = options.run_directory(run_dir, run_name)
    resolved = options.resolve(
        *(config, run, settings),
        map=map,
        seed=seed,
        max_timesteps=max_timesteps,
        eval_freq=eval_freq,
        checkpoint_freq=checkpoint_freq,
        num_eval_episodes=num_eval_episodes,
        device=device,
    )
    resolved.require_teachers()
    chosen = _allocate_by(resolved)
    with prepare(run, resume):
        from carla_run.event_log import EventLog
        from carla_td3.memory.preflight import run_preflight
        from carla_td3.td3.kernels import arithmetic
        from carla_td3.td3.replay.damage import mend_rings
        from carla_td3.td3.replay.frames import FrameStack
        from carla_td3.td3.replay.layout import privileged_numbers
        from carla_td3.td3.replay.resize_replay import resize_rings
        from carla_td3.trainer.announcement import refusal_recorded
        from carla_td3.trainer.loop import TrainingLoop

        events = EventLog(run.agent_events)
        log = events.append
        admitted = run_preflight(resolved, run, chosen, log)
        stack, reserve_mib = FrameStack.of(resolved.environment.camera), resolved.memory.reserve_mib
        privileged = privileged_numbers(resolved.environment)
        collectors, capacity = resolved.training.collectors, resolved.replay.capacity
        with refusal_recorded(run, events):
            mend_rings(run.rings().values(), stack, log)
            resize_rings(run.rings(), collectors, capacity, stack, reserve_mib, log, privileged)
        if admitted.cuda is not None and admitted.cuda.device_files and not admitted.cuda.available:
            out.print(
                f"There is a GPU, but {admitted.cuda}. The agent trains on the CPU.", highlight=False, soft_wrap=True
            )
        if emulated := arithmetic.only_emulated(admitted.config.td3.precision, admitted.computes_in):
            out.print(f"{emulated}.", highlight=False, soft_wrap=True)
        with refusal_recorded(run, events):
            training = TrainingLoop(admitted, run, out, stop)
        if training.finished:
            training.report_finished()
            out.print(f"{run.path} is finished; raise --max-timesteps to train on.", highlight=False)
            return Exit.FINISHED
        return training.run()


@handling_errors(hard_exit)
def evaluate(
    *,
    checkpoint: Annotated[
        Path | None,
        typer.Option(help="Run directory (its latest checkpoint is used), or one of its folders checkpoints/step-…."),
    ] = None,
    pretrained: options.PretrainedName = None,
    routes: Annotated[int, typer.Option(min=1, help="Number of held-out routes to drive.")] = 20,
    min_turns: Annotated[int, typer.Option(min=0, help="Least number of junction turns on a route.")] = 0,
    drivers: Annotated[
        str | None,
        typer.Option(
            help="Drivers to compare, separated by commas: td3; td3-greyed and td3-shuffled (td3 with useless "
            "pictures); stop; random; pid; expert (uses all that the simulator knows); expert-noisy (expert with "
            "exploration noise). Default: stop, random and pid; with a trained driver also td3, and td3-greyed if it "
            "sees pictures."
        ),
    ] = None,
    config: options.ConfigPath = None,
    settings: options.Settings = None,
    map: options.Map = None,
    seed: options.Seed = None,
    csv: Annotated[Path | None, typer.Option(help="CSV file for one row per driver and route.")] = None,
    json: Annotated[Path | None, typer.Option(help="JSON file for totals and routes.")] = None,
    video: Annotated[Path | None, typer.Option(help="MP4 file for a video of the first driver.")] = None,
) -> None:
    """Drive held-out routes and print success, completion, driving score and comfort, one column per driver.

    Each drive is saved when it ends, in NAME.drives-….jsonl: beside the file of --json or --csv, otherwise in runs/. If
    the command is interrupted, run it again: it skips the saved drives. Ctrl-C and SIGTERM print the table so far.

    Exit codes: 0 all routes are driven, 65 bad configuration, 69 no simulator, 75 stopped on request.
    """
    from carla_td3.cli import evaluation

    trained = evaluation.trained(checkpoint, config, settings or (), pretrained=pretrained, map=map, seed=seed)
    names = tuple(drivers.split(",")) if drivers else trained.drivers
    evaluation.run(trained, names, routes, min_turns, outputs=evaluation.Outputs(csv, json, video), out=console())


@handling_errors(hard_exit)
def record(
    *,
    out: Annotated[Path, typer.Option(help="Folder for the demonstrations. Set replay.demonstrations to it in a run.")],
    driver: Annotated[
        str | None,
        typer.Option(
            help="Driver to record: expert, expert-shoved (steering and pedals are disturbed, and at times it "
            "doesn't look), td3, pid, random or stop. Default: td3 with --checkpoint or --pretrained, else expert."
        ),
    ] = None,
    checkpoint: Annotated[
        Path | None,
        typer.Option(help="Where the driver td3 is: a run directory, or one of its folders checkpoints/step-…."),
    ] = None,
    pretrained: options.PretrainedName = None,
    steps: Annotated[
        int, typer.Option(min=1, help="Total number of steps, including those that --resume finds.")
    ] = 20_000,
    config: options.ConfigPath = None,
    settings: options.Settings = None,
    map: options.Map = None,
    seed: options.Seed = None,
    resume: options.Resume = False,
) -> None:
    """Record a driver on training routes, as demonstrations that runs can learn from.

    Each step keeps the expert's action, too, if environment.privileged is on. So a trained driver can be taught where
    it fails. Every step is saved as it is taken, so that --resume continues after the last one.

    Exit codes: 0 all steps are recorded, 65 bad configuration, 69 no simulator, 75 stopped on request.
    """
    from carla_td3.cli import evaluation, recording
    from carla_td3.evaluation.drivers import EXPERT, TD3_DRIVER, require_driver

    run = RunPaths(out)
    own = evaluation.trained(checkpoint, config, settings or (), pretrained=pretrained, run=run, map=map, seed=seed)
    name = driver or (EXPERT if own.policy is None else TD3_DRIVER)
    require_driver(name, own.policy)
    with prepare(run, resume):
        recording.record(own, name, steps, run, console())


@handling_errors(error_sentences)
def stability(
    *,
    steps: Annotated[int, typer.Option(min=400, help="Environment steps to train.")] = 1000,
    run_dir: Annotated[
        Path | None, typer.Option(help=f"Run directory to create. Default: {RUNS}/stability-DATE-TIME.")
    ] = None,
    tolerance_mib: Annotated[
        float,
        typer.Option(
            min=0,
            max=1e6,
            help="MiB by which a process may grow in the second half of the run. More counts as a leak.",
        ),
    ] = 8.0,
    config: options.ConfigPath = None,
    settings: options.Settings = None,
    device: options.Device = None,
) -> Exit:
    """Train for a while and check for memory leaks. Exit codes: 0 memory stayed flat after warm-up, 1 it grew."""
    from carla_td3.cli.stability import measure

    folder = run_dir or RUNS / time.strftime("stability-%Y%m%d-%H%M%S")
    on = [] if device is None else [f"device={device}"]
    verdict = measure(steps, folder, tolerance_mib, config, [*(settings or ()), *on])
    console().print(verdict.table())
    return Exit.FINISHED if verdict.flat else Exit.CRASH


@handling_errors(error_sentences)
def footprint(
    *,
    config: options.ConfigPath = None,
    settings: options.Settings = None,
    run_dir: options.RunDir = None,
    device: options.Device = None,
    json: Annotated[bool, typer.Option("--json", help="Print one JSON object instead of tables.")] = False,
    variants: Annotated[
        str | None,
        typer.Option(
            metavar="JSON",
            help="Variants to estimate: a JSON list of objects with keys and values. Implies --json; ignores the GPU.",
        ),
    ] = None,
) -> Exit:
    """Print the GPU memory, host memory and disk that a configuration needs, item by item, and whether they fit.

    It allocates nothing. With --run-dir it also prints the measurements of that run, by phase.

    Exit codes: 0 it fits, 71 it does not, 65 bad configuration.
    """
    from carla_td3.memory import estimate, preflight

    run = RunPaths(RUNS) if run_dir is None else RunPaths(run_dir)
    if run_dir is not None and not run_dir.is_dir():
        raise AgentError(f"{run_dir}: there is no such folder; name a run's, or leave --run-dir out.", Exit.BAD_CONFIG)
    resolved = options.resolve(config, None if run_dir is None else run, settings, device=device)
    _allocate_by(resolved)
    asked = None if variants is None else estimate.parse_variants(variants)
    found = (preflight.report_of_any if asked is None else preflight.report_without_gpu)(resolved, run)
    if json or asked is not None:
        more = {} if asked is None else estimate.variants(resolved, asked)
        typer.echo(dumps({**found.plain(), **more}, indent=1))
    else:
        out = console()
        out.print(found.table())
        if found.measured_mib:
            out.print(found.watermarks())
        out.print(found.verdict(), highlight=False, soft_wrap=True)
    return Exit.FINISHED if found.refusal is None else Exit.OUT_OF_MEMORY


@handling_errors(error_sentences)
def request(
    *,
    kind: Annotated[
        str,
        typer.Argument(
            metavar="KIND",
            help="checkpoint, drain (release the simulator and wait), resume (drive again), apply (set values) "
            "or stop.",
        ),
    ],
    run_name: options.RunName = "td3",
    run_dir: options.RunDir = None,
    settings: options.Settings = None,
    wait: Annotated[bool, typer.Option("--wait", help="Wait until the request is done, and print its result.")] = False,
) -> None:
    """Send a request to a running training. For apply, --set gives the new values.

    Exit codes: 0 sent, or done with --wait; 1 the run ended first; 65 refused, or the run is not active.
    """
    from carla_run import requests

    run = options.run_directory(run_dir, run_name)
    asked = requests.send(run, kind, options.parsed(settings or ()))
    answer = requests.await_answer(run, asked) if wait else None
    if answer is not None and not answer.ok:
        raise AgentError(answer.sentence, Exit.BAD_CONFIG)
    if answer is None:
        typer.echo(f"Request {asked} is waiting in {run.request}.")
    else:
        held = f", {answer.checkpoint}" if answer.checkpoint else ""
        typer.echo(f"{answer.sentence} {answer.steps} steps, {answer.updates} updates{held}.")


def _allocate_by(resolved: AgentConfig) -> allocator.Choice:
    """Set the allocator's environment variables, and say which part of the user's setting is not available here."""
    chosen = allocator.prepare(resolved.memory, os.environ, allocator.Platform.here())
    if chosen.dropped is not None:
        typer.echo(chosen.dropped, err=True)
    return chosen
