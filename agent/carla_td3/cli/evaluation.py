"""``python -m carla_td3 evaluate`` and the visual test: they drive held-out routes in this process.

Finds a checkpoint with its configuration, and writes the outputs. The caller exits by ``os._exit``.
"""

from __future__ import annotations

import hashlib
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager, nullcontext
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, NoReturn

import torch
from rich.console import Console

from carla_run.exits import Exit
from carla_run.paths import RUNS, RunPaths
from carla_run.signals import StopRequests
from carla_td3 import output_folders
from carla_td3.cli import options
from carla_td3.config import AgentConfig, ConfigError
from carla_td3.env.driving import DrivingEnv
from carla_td3.env.route import Route
from carla_td3.env.session import Session
from carla_td3.evaluation import video
from carla_td3.evaluation.drivers import BASELINES, TD3_DRIVER, compared, require_driver
from carla_td3.evaluation.kept import KeptDrives
from carla_td3.evaluation.metrics import Evaluation, table, write_csv, write_json
from carla_td3.evaluation.observed_driver import ObservedDriver
from carla_td3.evaluation.routes import completed_unless
from carla_td3.evaluation.runner import EvaluationRunner
from carla_td3.exits import AgentError, sentence
from carla_td3.pretrained import digest
from carla_td3.pretrained import read as read_policy
from carla_td3.td3.networks import Policy
from carla_td3.td3.replay.frames import FrameStack
from carla_td3.td3.replay.resampling import adapted
from carla_td3.telemetry.progress import ProgressLine
from carla_td3.trainer import checkpoint
from carla_td3.trainer.learner import architecture

ONLINE = "online."
"""Prefix of the driving policy's tensors in a checkpoint."""
POLL_S = 0.5
"""Seconds between two looks at what the environment waits for."""
TICK_LOOK_S, TICK_MARGIN_S = 0.2, 1.0
"""Seconds between two looks at a running tick, and by how much the limit is shorter than the Traffic Manager's
time-out.
"""


@dataclass(frozen=True)
class TrainedDriver:
    """A configuration, and the policy that was trained with it; None without a checkpoint."""

    config: AgentConfig
    policy: Policy | None

    @property
    def checkpoint(self) -> str | None:
        """Digest of the policy's weights; None without one."""
        if self.policy is None:
            return None
        return digest(self.policy.state_dict())[:16]

    @property
    def drivers(self) -> tuple[str, ...]:
        """Names of the drivers that can drive."""
        return BASELINES if self.policy is None else (TD3_DRIVER, *compared(self.config))


@dataclass(frozen=True)
class Outputs:
    """Where the results are written, besides the terminal."""

    csv: Path | None = None
    json: Path | None = None
    video: Path | None = None

    @property
    def named(self) -> list[Path]:
        """Return the output files that were requested."""
        return [path for path in (self.json, self.csv, self.video) if path is not None]

    @property
    def partial_results(self) -> Path:
        """Return the output file beside which the drives are saved until all are done."""
        return next(iter(self.named), RUNS / "evaluation")

    def write(self, found: Sequence[Evaluation], out: Console) -> None:
        """Print the table, and write the requested files."""
        out.print(table(found))
        if self.csv is not None:
            write_csv(found, self.csv)
        if self.json is not None:
            write_json(found, self.json)

    def check(self) -> None:
        """Make the folders of the outputs and check that a video can be encoded, before the first drive.

        Raises:
            AgentError: one can't be written, or there is no encoder.
        """
        for path in self.named:
            if path.is_dir():
                raise AgentError(f"{path} is a folder, expected the name of a file.", Exit.BAD_CONFIG)
            if self.named.count(path) > 1:
                raise AgentError(f"{path} is named for two outputs: give each its own file.", Exit.USAGE)
        if self.video is not None and self.video.suffix != ".mp4":
            raise AgentError(f"--video {self.video}: expected a name that ends with .mp4.", Exit.USAGE)
        try:
            for path in self.named:
                output_folders.make(path.parent)
        except OSError as error:
            raise AgentError(sentence(error), Exit.BAD_CONFIG) from None
        if self.video is not None and video.missing():
            raise AgentError(video.missing(), Exit.BAD_CONFIG)


def trained(
    path: Path | None,
    config: Path | None = None,
    settings: Sequence[str] = (),
    *,
    pretrained: str | None = None,
    run: RunPaths | None = None,
    remedy: str = "put it back, or give --config",
    **named: Any,
) -> TrainedDriver:
    """Return what a checkpoint (a run directory or one ``step-…`` of it) or a policy's file, and the options say.

    With neither there is no policy, and the configuration is that of ``run``, if it has one. ``remedy`` is what the
    command can do about a configuration that is missing.

    Raises:
        ConfigError: the configuration is wrong.
        CheckpointError: the checkpoint is missing, damaged or of another architecture.
        PolicyError: so is the policy.
        AgentError: both are given.
    """
    if pretrained is not None:
        if path is not None:
            raise AgentError("--checkpoint and --pretrained both name a driver: give one of them.", Exit.USAGE)
        return _pretrained(pretrained, config, settings, named)
    if path is None:
        return TrainedDriver(options.resolve(config, run, settings, **named), None)
    one = path.name.startswith("step-")
    trained_in = RunPaths(path.absolute().parent.parent if one else path)
    if config is None and (path if one else trained_in.checkpoints).exists() and not trained_in.config.exists():
        raise ConfigError(f"{trained_in.config} is missing, which says what {path} was trained for: {remedy}.")
    resolved = options.resolve(config, trained_in, settings, continues=False, **named)
    widths = architecture(resolved)
    stack = FrameStack.of(resolved.environment.camera)
    policy = Policy(resolved.td3.network, stack)

    def fill(found: checkpoint.Checkpoint) -> None:
        tensors, _ = adapted(found.tensors, stack.side)
        policy.load_state_dict({name: tensors[ONLINE + name] for name in policy.state_dict()})

    if one:
        checkpoint.read(path, widths, fill)
    else:
        checkpoint.load(trained_in.path, widths, fill)
    return TrainedDriver(resolved, policy)


def _pretrained(name: str, config: Path | None, settings: Sequence[str], named: dict[str, Any]) -> TrainedDriver:
    found = read_policy(name)
    if config is None:
        resolved = options.resolve_values(found.values, str(found.path), settings, **named)
    else:
        resolved = options.resolve(config, None, settings, **named)
    return TrainedDriver(resolved, found.policy(resolved))


def run(
    trained: TrainedDriver, names: Sequence[str], count: int, min_turns: int, *, outputs: Outputs, out: Console
) -> None:
    """Let the drivers drive ``count`` held-out routes; print the table, write the outputs.

    Each drive is saved as it ends, and a saved one isn't driven again. The table so far is printed however this ends.

    Raises:
        AgentError: a signal stopped it (exit 75), or a driver is unknown.
        NoSimulator, ConfigError, RouteError: one sentence each.
    """
    outputs.check()
    for name in names:
        require_driver(name, trained.policy)
    evaluating = _EvaluationRun(trained, names, outputs, out)
    with environment(trained.config, evaluating.give_up) as env:
        evaluating.run(env, EvaluationRunner(trained.config, env, trained.policy, count, min_turns))


class _EvaluationRun:
    """One evaluation. It prints the table of the finished drives, however it ends."""

    def __init__(self, trained: TrainedDriver, names: Sequence[str], outputs: Outputs, out: Console) -> None:
        self._trained, self._names, self._outputs, self._out = trained, names, outputs, out
        self._so_far: Callable[[], list[Evaluation]] = list  # nothing driven yet

    def give_up(self, why: str) -> NoReturn:
        """Print the table so far and end the process; any thread may call this."""
        self._write(self._so_far())
        _give_up(why)

    def run(self, env: DrivingEnv, runner: EvaluationRunner) -> None:
        """Drive the missing drives, then print the table and write the files."""
        routes, seed = runner.routes(), self._trained.config.seed
        kept = KeptDrives(self._outputs.partial_results, settings_of(self._trained, env))
        self._so_far = partial(kept.so_far, self._names, routes, env.planner.name, seed)
        wanted = len(self._names) * len(routes)
        _print_kept_drives(kept, self._count, wanted)
        stop = StopRequests(raise_second=True)
        stop.install()
        if not self._compare(runner, routes, kept, stop) or not self._film(runner, routes, stop):
            words = f"Stopped by {stop.cause} after {self._count} of {wanted} drives"
            raise AgentError(f"{words}, which {kept.path} keeps: run the same command to resume.", Exit.STOPPED)
        kept.remove()

    def _compare(self, runner: EvaluationRunner, routes: Sequence[Route], kept: KeptDrives, stop: StopRequests) -> bool:
        """Let all drivers drive; return False if a signal stopped them."""
        found = None
        with ProgressLine(len(self._names) * len(routes), Console(stderr=True), "evaluation", "routes") as progress:

            def told(driver: str, _: int) -> None:
                progress.move(self._count, f"{driver}, route {len(kept.of(driver)) + 1}")

            try:
                work = runner.compare(self._names, routes, lambda name, each: ObservedDriver(name, each, told), kept)
                found = completed_unless(work, lambda: stop.signal is not None)
            finally:
                self._write(found or self._so_far())
        return found is not None

    def _film(self, runner: EvaluationRunner, routes: Sequence[Route], stop: StopRequests) -> bool:
        """Film the first driver if a video was requested; return False if a signal came first."""
        video = self._outputs.video
        if video is None:
            return True
        film = runner.film(self._names[0], routes, video)
        return completed_unless(film, lambda: stop.signal is not None) is not None

    @property
    def _count(self) -> int:
        return sum(len(each.routes) for each in self._so_far())

    def _write(self, found: Sequence[Evaluation]) -> None:
        if found:
            self._outputs.write(found, self._out)


def settings_of(trained: TrainedDriver, env: DrivingEnv) -> dict[str, Any]:
    """Return every setting, besides driver and route, that would change a drive of an evaluation."""
    config = trained.config
    return {
        "map": env.planner.name,
        "roads": hashlib.sha256(env.session.map.to_opendrive().encode()).hexdigest()[:16],
        "checkpoint": trained.checkpoint,
        "seed": config.seed,
        "environment": config.environment.model_dump(mode="json"),
        "simulator": {"fixed_delta_s": config.simulator.fixed_delta_s},
        "td3": {"exploration_noise": config.td3.exploration_noise},
    }


def _print_kept_drives(kept: KeptDrives, count: int, wanted: int) -> None:
    if count:
        print(f"{kept.path} keeps {count} of {wanted} drives: resumes after them.", file=sys.stderr)
    for path, drives, differing in kept.others():
        others = f"another {', '.join(differing)}" if differing else "settings of another version"
        print(
            f"{path} keeps {drives} drives with {others}; they don't count here. Delete it once they are of no use.",
            file=sys.stderr,
        )


@contextmanager
def environment(config: AgentConfig, give_up: Callable[[str], NoReturn] | None = None) -> Iterator[DrivingEnv]:
    """Yield a connected environment, and give the simulator back at the end. PyTorch uses one thread from then on.

    Args:
        give_up: called from a thread, with a sentence, once the simulator has ended or is silent. It is used only if
            this process drives cars or pedestrians, and must exit by ``os._exit``. Default: print the sentence and exit
            with ``NO_SIMULATOR``.

    Raises:
        NoSimulator, ConfigError, RouteError: see ``DrivingEnv.planner``.
    """
    # A single observation gains nothing from more. On a busy machine each layer would wait for the slowest thread, and
    # the waiting ones take the simulator's processor time.
    torch.set_num_threads(1)
    give_up, in_process = _only_once(give_up or _give_up), config.environment.traffic.in_process
    lost = f"The simulator at {config.simulator.host}:{config.simulator.port} closed its connection: start both again."
    env = DrivingEnv(config.environment, config.simulator, config.seed, partial(give_up, lost) if in_process else None)
    with _guarded(env.session, give_up) if in_process else nullcontext(), closing(env):
        with _waiting(env.session):
            _ = env.planner
        yield env


def _give_up(why: str) -> NoReturn:
    os.write(2, f"{why}\n".encode())
    os._exit(Exit.NO_SIMULATOR)


def _only_once(give_up: Callable[[str], NoReturn]) -> Callable[[str], NoReturn]:
    """Return ``give_up`` for several threads: the first call ends the process, whatever fails in it."""
    begun = threading.Lock()

    def first(why: str) -> NoReturn:
        begun.acquire()
        try:
            give_up(why)
        finally:  # a full disk or a closed terminal must not keep this process alive
            os._exit(Exit.NO_SIMULATOR)

    return first


@contextmanager
def _guarded(session: Session, give_up: Callable[[str], NoReturn]) -> Iterator[None]:
    """Give up a tick that takes too long while the block runs.

    A time-out of the Traffic Manager would abort the process. A tick that waits for its worker has no time-out at all
    (facts, section 5).
    """
    timeout_s = session.config.timeout_s
    limit_s = max(timeout_s - TICK_MARGIN_S, timeout_s / 2)

    def look() -> None:
        began_s = session.tick_started_s
        if began_s and time.monotonic() - began_s > limit_s:
            give_up(f"The simulator at {session.address} is silent: no reply to a tick in {limit_s:g} s.")

    with _periodically(look, TICK_LOOK_S):
        yield


@contextmanager
def _waiting(session: Session) -> Iterator[None]:
    """Show on stderr what the environment waits for, while the block runs."""
    began_s = time.monotonic()
    with ProgressLine(None, Console(stderr=True), "waiting") as line:

        def tell() -> None:
            waited_s = time.monotonic() - began_s
            line.move(int(waited_s), f"for {session.waiting_for}, {waited_s:.0f} of {session.config.patience_s:.0f} s")

        with _periodically(tell, POLL_S):
            yield


@contextmanager
def _periodically(look: Callable[[], None], every_s: float) -> Iterator[None]:
    """Call ``look`` in a thread every ``every_s`` seconds while the block runs."""
    over = threading.Event()

    def watch() -> None:
        while not over.wait(every_s):
            look()

    thread = threading.Thread(target=watch, daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()
