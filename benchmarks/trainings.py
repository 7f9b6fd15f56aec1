"""Real trainings that take turns: their servers, collectors and learners are started once, pinned, and paused between
turns.

A pause is SIGSTOP for all processes, shorter than any time-out among them; so turns of different configurations
can be interleaved without starting a process for each. Rates come from the agent's own heartbeat.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, TypeVar

from lite_server import lite_process
from measuring import counted, end_in_order, spread
from ray_nodes import actors_of
from replay import fill

from carla_run.heartbeat import CollectorState, Heartbeat, read_heartbeat
from carla_run.memory.processes import tree
from carla_run.paths import RunPaths
from carla_td3.td3.replay.replay import Replay

FILLED = 5_000
"""Transitions in the replay before the first step."""

DISTURBED_CORES = 0.15
"""Cores used by other processes that spoil a turn."""

PATIENCE_S = 1_800.0

Key = TypeVar("Key")

_START_S = 300.0
_DRIVING = (CollectorState.STEPPING, CollectorState.WAITING)
_TICKS_PER_S = os.sysconf("SC_CLK_TCK")
_CAPACITY = 40_000
_SETTINGS: dict[str, Any] = {
    # All drive alike, as at the start: the cost of a step depends on the driving, and a reset takes as long as many
    # steps.
    "td3.actor_learning_rate": 1e-12,
    "td3.critic_learning_rate": 1e-12,
    "replay.capacity": _CAPACITY,
    "training.total_steps": 100_000_000,
    "training.warmup_steps": FILLED,
    "training.checkpoint_every_steps": 100_000_000,
    "evaluation.every_steps": 0,
    "evaluation.final_episodes": 0,
    "simulator.timeout_s": 2 * PATIENCE_S,  # a pause must not look like a hang
}


@dataclass(frozen=True)
class Pinned:
    """Cores of the simulation (servers and collectors) and of the learner; None leaves them to the scheduler."""

    simulation: int | None = None
    learner: int | None = None


@dataclass(frozen=True)
class Rates:
    """Result of one turn."""

    steps_per_s: float
    updates_per_s: float
    simulation_cores: float
    """Cores that servers and collectors kept busy; if pinned to one, less than 1 means that they waited."""
    learner_cores: float
    other_cores: float
    """Cores that other processes kept busy, which may have affected the figures."""


FIGURES = tuple(field.name for field in fields(Rates))


def figures(rates: Iterable[Rates]) -> dict[str, Any]:
    """Return the spread of each figure over some turns."""
    found = list(rates)
    return {name: spread([getattr(each, name) for each in found]) for name in FIGURES}


class TrainingInTurns:
    """One training, paused except in its turns."""

    def __init__(self, learner: subprocess.Popen[bytes], servers: Sequence[int], run: RunPaths, pinned: Pinned) -> None:
        self._learner = learner
        self._servers = servers
        self._run = run
        self._pinned = pinned

    def warm_up(self, seconds: float) -> None:
        """Let it reach its normal speed, pin its processes and pause it."""
        deadline_s = time.monotonic() + _START_S
        while not self._drives():
            if time.monotonic() > deadline_s or self._learner.poll() is not None:
                raise SystemExit(f"{self._run.path}: no training within {_START_S:g} s; see its collector.log.")
            time.sleep(0.2)
        self._pin()
        time.sleep(seconds)
        self._pin()  # threads that a thread not yet pinned had started
        self._pause()

    def turn(self, seconds: float) -> Rates:
        """Let it run for a while, and return its rates between the first and the last heartbeat of that time."""
        for pid in self.pids():
            os.kill(pid, signal.SIGCONT)
        first, used_before = self._next_beat(self._beat()), self._used_s()
        time.sleep(seconds)
        last, used = self._next_beat(self._beat()), self._used_s()
        self._pause()
        took_s = last.time - first.time
        cores = [(after - before) / took_s for after, before in zip(used, used_before, strict=True)]
        steps, updates = last.step - first.step, last.updates - first.updates
        return Rates(steps / took_s, updates / took_s, cores[1], cores[0], max(0.0, cores[2]))

    def resume(self) -> None:
        """End the pause, so that it can be stopped."""
        for pid in self.pids():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGCONT)

    def _pause(self) -> None:
        for pid in self.pids():
            os.kill(pid, signal.SIGSTOP)

    def pids(self) -> list[int]:
        """Return the learner and all processes that drive for it: here, or on nodes of a cluster on this machine."""
        on_nodes = [actor.pid for actor in actors_of(self._run).values()]
        others = frozenset[int]().union(*map(tree, (self._learner.pid, *self._servers, *on_nodes)))
        return [self._learner.pid, *(others - {self._learner.pid})]

    def _used_s(self) -> tuple[float, float, float]:
        """Return the processor seconds of the learner, of its collectors and servers, and of other processes."""
        learner, *simulation = map(_used_s, self.pids())
        return learner, sum(simulation), _all_used_s() - sum(map(_used_s, tree(os.getpid())))

    def _pin(self) -> None:
        learner, *simulation = self.pids()
        for core, pids in ((self._pinned.learner, [learner]), (self._pinned.simulation, simulation)):
            for thread in (int(entry.name) for pid in pids for entry in Path(f"/proc/{pid}/task").iterdir()):
                if core is not None:
                    os.sched_setaffinity(thread, {core})

    def _drives(self) -> bool:
        beat = self._beat()
        collectors = () if beat is None else beat.collectors or (beat.collector,)
        return bool(collectors) and all(each.state in _DRIVING for each in collectors)

    def _beat(self) -> Heartbeat | None:
        return read_heartbeat(self._run.heartbeat)

    def _next_beat(self, before: Heartbeat | None) -> Heartbeat:
        while (beat := self._beat()) is None or beat == before:
            time.sleep(0.01)
        return beat


def undisturbed(
    trainings: Mapping[Key, TrainingInTurns], seconds: float, rounds: int, most_cores: float = DISTURBED_CORES
) -> list[dict[Key, Rates]]:
    """Let each training have a turn, in several rounds, while the machine is idle; a disturbed turn is repeated.

    Raises:
        SystemExit: the machine was too busy.
    """
    deadline_s = time.monotonic() + PATIENCE_S
    return [
        {key: _undisturbed(each, seconds, deadline_s, most_cores) for key, each in trainings.items()}
        for _ in counted(range(rounds), "turn")
    ]


def _undisturbed(training: TrainingInTurns, seconds: float, deadline_s: float, most_cores: float) -> Rates:
    while True:
        while _busy_cores(during_s=0.5) > most_cores:
            if time.monotonic() > deadline_s:
                raise SystemExit(f"Other processes were busy for {PATIENCE_S:g} s: measure on an idle machine.")
        rates = training.turn(seconds)
        if rates.other_cores <= most_cores:
            return rates


def _busy_cores(during_s: float) -> float:
    before_s = _all_used_s()
    time.sleep(during_s)
    return (_all_used_s() - before_s) / during_s


def _all_used_s() -> float:
    """Return the processor seconds of all processes since the machine started."""
    user, nice, system = Path("/proc/stat").read_text(encoding="ascii").split()[1:4]
    return sum(map(int, (user, nice, system))) / _TICKS_PER_S


def _used_s(pid: int) -> float:
    after_name = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()
    return (int(after_name[11]) + int(after_name[12])) / _TICKS_PER_S


@contextlib.contextmanager
def starting(
    config: Path, map: str, warm_up: float, fixed: Mapping[str, Any]
) -> Iterator[Callable[..., TrainingInTurns]]:
    """Yield a function that starts a training by name and settings, over ``fixed`` ones, and warms it up.

    It also accepts the other arguments of :func:`training`. All trainings end with the block.
    """
    with contextlib.ExitStack() as stack:
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory()))

        def start(name: str, settings: Mapping[str, Any], **more: Any) -> TrainingInTurns:
            started = stack.enter_context(training(directory, name, config, {**fixed, **settings}, map=map, **more))
            started.warm_up(warm_up)
            return started

        yield start


@contextlib.contextmanager
def training(
    directory: Path,
    name: str,
    config: Path,
    settings: Mapping[str, Any],
    map: str,
    pinned: Pinned = Pinned(),
    collectors: int = 1,
    tick_ms: float = 0.0,
    cluster: str | None = None,
) -> Iterator[TrainingInTurns]:
    """Start a training with its own servers; all end with the block, also on SIGTERM.

    Args:
        cluster: address of a Ray cluster on this machine, whose nodes have the servers.
    """
    end_in_order()  # paused processes would stay for ever
    run = RunPaths(directory / name)
    replay = Replay.create(run.replay, _CAPACITY)
    fill(replay, FILLED)
    replay.close()
    with contextlib.ExitStack() as stack:
        fleet: dict[str, Any] = {"training.collectors": collectors}
        ports, servers = [1], list[int]()
        if cluster is None:
            started = [stack.enter_context(lite_process(map, tick_ms=tick_ms)) for _ in range(collectors)]
            ports, servers = [port for port, _ in started], [pid for _, pid in started]
            fleet["simulator.others"] = [f"127.0.0.1:{port}" for port in ports[1:]]
        else:
            simulator = ["--simulator", "carla-lite", "--map", map, f"--simulator-arg=--tick-ms={tick_ms}"]
            fleet |= {"cluster.address": cluster, "cluster.simulator": simulator, "simulator.patience_s": _START_S}
        assignments = [f"{key}={value}" for key, value in {**_SETTINGS, **fleet, **settings}.items()]
        options = [word for assignment in assignments for word in ("--set", assignment)]
        words = ("train", "--resume", "--run-dir", str(run.path), "--device", "cpu", "--config", str(config))
        learner = subprocess.Popen(
            [sys.executable, "-m", "carla_td3", *words, *options],
            env={**os.environ, "CARLA_HOST": "127.0.0.1", "CARLA_PORT": str(ports[0])},
            stdout=subprocess.DEVNULL,
        )
        in_turns = TrainingInTurns(learner, servers, run, pinned)
        try:
            yield in_turns
        finally:
            in_turns.resume()
            learner.terminate()
            learner.wait(60)
