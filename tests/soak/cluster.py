"""The cluster's sweep: a run with a collector on each of two nodes is struck again and again, and has to lose nothing.

A step is finished when it lies in a ring on the learner's disk. Beside the witnesses' rules each has to be what the
collector wrote on its node, and whatever dies has to take its processes along: no simulator is left, and no car in one.
"""

from __future__ import annotations

import os
import signal
import subprocess
import tempfile
import time
from enum import Enum
from pathlib import Path
from typing import Any

import numpy as np
import psutil
from ray_nodes import actors_of, add_node

from carla_run.exits import Exit
from carla_run.memory.processes import tree
from carla_run.paths import RunPaths
from carla_run.readers import read_objects
from carla_td3.cluster.chunks import ROWS, UNACKNOWLEDGED
from carla_td3.cluster.node import PREFIX
from carla_td3.td3.replay.ring import Ring
from tests.soak.settings import LONG, TRAFFIC, settings
from tests.soak.sweep import Outcome, SweepError, until, vehicles
from tests.soak.witness import Witness, raw
from tests.wire.trainee import Run, running

COLLECTORS = 2
BETWEEN_STEPS = 10
"""Steps of each collector between two faults; every third fault comes while the previous one is being repaired."""
COMPARED = 200
"""Rows, the last ones; a node's ring has five times as many."""
LONGEST_S = 4.0
PATIENCE_S = 300.0
SIMULATOR = "[--simulator, carla-lite, --map, Lite01, --simulator-arg=--tick-ms=20]"


class Victim(Enum):
    """Processes to kill."""

    SIMULATOR = "a node's simulator"
    ACTOR = "a collector's actor"
    RAYLET = "a node's raylet"
    LEARNER = "the cluster's learner"


class StruckCluster:
    """One run on a cluster that has ``COLLECTORS`` nodes with a simulator each.

    Args:
        cluster: of ``ray_nodes``; nodes that are killed are replaced in it.
        folder: where the run directory is made.
        seed: of the moments.
    """

    def __init__(self, cluster: Any, folder: Path, seed: int) -> None:
        self.cluster, self.seed = cluster, seed
        self._rng = np.random.default_rng(seed)
        self.run = Run(folder, 1, settings(LONG, lockstep=False))
        self.paths = RunPaths(folder)
        self.witnesses = [Witness(self.paths.ring(number)) for number in range(COLLECTORS)]
        self._words = (
            *("--set", f"cluster.address={cluster.address}", "--set", f"cluster.simulator={SIMULATOR}"),
            *("--set", f"training.collectors={COLLECTORS}", "--set", f"simulator.patience_s={PATIENCE_S}"),
            # Whose processes start beside each other: no instant is about a hang. An evaluation takes a minute.
            *("--set", "collector.start_limit_s=120", "--set", "simulator.timeout_s=20"),
            *("--set", "evaluation.every_steps=500"),
        )

    def __enter__(self) -> StruckCluster:
        self.run.start(*self._words)
        return self

    def __exit__(self, *_: object) -> None:
        self.run.kill()

    def inject(self, victim: Victim, number: int) -> Outcome:
        """Wait for a random moment, kill, wait until all collectors drive again; return what was seen.

        ``again_s`` is until each has more steps than can have been on their way.
        """
        mending = number % 3 == 2
        collector = int(self._rng.integers(COLLECTORS))
        delay_s = round(float(self._rng.uniform(0, LONGEST_S)), 4)
        outcome = Outcome(victim.value, self.seed, "mending" if mending else "driving", delay_s, "KILL")
        try:
            self._wait(0 if mending else BETWEEN_STEPS)
            time.sleep(delay_s)
            until(lambda: collector in actors_of(self.paths), self._alive, patience_s=PATIENCE_S)
            actor, struck_s = actors_of(self.paths)[collector], time.monotonic()
            simulator = self._simulator_of(collector)
            outcome.steps_before = sum(witness.look() for witness in self.witnesses)
            outcome.problems += self._unlike_the_nodes(collector, actor)
            self._kill(victim, collector, actor, outcome)
            outcome.steps_after = sum(witness.steps for witness in self.witnesses)
            outcome.lost = max(0, outcome.steps_before - outcome.steps_after)
            if number % 3 != 1:
                # Whatever was killed took it along; what was still on its way from there is no step of the next one.
                until(lambda: self._simulator_of(collector) not in (None, simulator), self._alive, 0.05, PATIENCE_S)
                self._wait(UNACKNOWLEDGED + 1)
                outcome.again_s = round(time.monotonic() - struck_s, 2)
                self._count_ghosts(outcome)
            outcome.problems += self.problems()
        except (SweepError, AssertionError) as error:
            outcome.problems.append(f"{error}: {self.run.beat} {self.run.collector_log[-2000:]}")
        return outcome

    def end(self) -> list[str]:
        """Stop the run; return what is wrong with what it left."""
        process = self.run.process
        assert process is not None
        self._wait(1)
        left = self._families()
        process.send_signal(signal.SIGTERM)
        code = process.wait(PATIENCE_S)
        found = self.problems() if code == Exit.STOPPED else [f"the run ended with {code}", *self.problems()]
        told = self.run.events("stopped")[-1]["steps"] if code == Exit.STOPPED else None
        if told != sum(witness.steps for witness in self.witnesses):
            found.append(f"the run says that it stopped after {told} steps")
        self._gone(left, found)
        return found

    def problems(self) -> list[str]:
        """Return what is wrong with the rings, and with what the run says of lost steps."""
        lost = [event for event in self.run.events("chunk_lost") if not 0 < event["at_most"] <= UNACKNOWLEDGED]
        found = [f"more than a chunk was lost: {event}" for event in lost]
        for number, witness in enumerate(self.witnesses):
            found += [f"ring {number}: {problem}" for problem in witness.problems()]
            witness.look()
        return found

    def _unlike_the_nodes(self, collector: int, actor: psutil.Process) -> list[str]:
        """Return which rows are other ones than those that the collector wrote beside its simulator."""
        seen, found = self.witnesses[collector], list[str]()
        for life in Path(tempfile.gettempdir()).glob(f"{PREFIX}{actor.pid}-*/*/replay/"):
            ring = Ring.open(RunPaths(life.parent).ring(collector), writable=False)
            numbers = np.arange(max(0, len(seen.rows) - COMPARED), len(seen.rows))
            rows, frames = ring.rows_at(numbers % ROWS), ring.frames[numbers % ROWS].reshape(len(numbers), -1)
            own = frames.any(axis=1)  # what came before this life isn't there
            same = (raw(rows) == raw(seen.rows[numbers])).all(axis=1) & (frames == seen.frames[numbers]).all(axis=1)
            found += [f"rows {numbers[own & ~same][:5].tolist()} aren't its node's"] if (own & ~same).any() else []
        return found

    def _wait(self, more: int) -> None:
        """Return when every ring has so many steps more than were seen."""
        before = [int(witness.rows["step"][-1]) if len(witness.rows) else 0 for witness in self.witnesses]
        until(
            lambda: all(ring.steps >= seen + more for ring, seen in zip(self.witnesses, before, strict=True)),
            self._alive,
            patience_s=PATIENCE_S,
        )

    def _kill(self, victim: Victim, collector: int, actor: psutil.Process, outcome: Outcome) -> None:
        if victim is Victim.SIMULATOR:
            pid = self._simulator_of(collector)
            assert pid is not None
            os.kill(pid, signal.SIGKILL)
        elif victim is Victim.ACTOR:
            dying = tree(actor.pid)
            actor.kill()
            self._gone(dying, outcome.problems)
        elif victim is Victim.RAYLET:
            raylet = actor.ppid()
            (node,) = (each for each in self.cluster.worker_nodes if raylet in tree_of(each))
            dying = tree(raylet)
            (process,) = (each for each in processes_of(node) if each.pid == raylet)
            process.kill()
            process.wait()  # to its workers a zombie is alive, and on no node is it this process's child
            self._gone(dying, outcome.problems)
            self.cluster.remove_node(node, allow_graceful=False)
            add_node(self.cluster)
        else:
            dying = self._families()
            self.run.kill()
            self._gone(dying, outcome.problems)
            self.run.start("--resume", *self._words)

    def _simulator_of(self, collector: int) -> int | None:
        found = (each["seen"].get("pid") for each in read_objects(self.paths.nodes) if each["collector"] == collector)
        return next(found, None)

    def _families(self) -> frozenset[int]:
        return frozenset[int]().union(*(tree(actor.pid) for actor in actors_of(self.paths).values()))

    def _gone(self, pids: frozenset[int], problems: list[str]) -> None:
        try:
            until(lambda: not any(map(running, pids)), lambda: None)
        except SweepError:
            problems.append(f"{[pid for pid in pids if running(pid)]} didn't end")

    def _count_ghosts(self, outcome: Outcome) -> None:
        for node in read_objects(self.paths.nodes):
            port = int(node["seen"]["port"])
            # Between two episodes there may be fewer for a moment, never more for long.
            found = next((found for _ in range(5) if (found := vehicles(port)) == 1 + TRAFFIC), vehicles(port))
            outcome.ghosts += found - 1 - TRAFFIC
            if found != 1 + TRAFFIC:
                outcome.problems.append(f"{found} vehicles beside collector {node['collector']}, not {1 + TRAFFIC}")

    def _alive(self) -> None:
        process = self.run.process
        if process is None or process.poll() is not None:
            raise SweepError(f"the learner ended with {None if process is None else process.returncode}")


def processes_of(node: Any) -> list[subprocess.Popen[bytes]]:
    """Return the processes that a node was started with."""
    return [each.process for processes in node.all_processes.values() for each in processes]


def tree_of(node: Any) -> frozenset[int]:
    """Return all processes of a node."""
    return frozenset[int]().union(*(tree(each.pid) for each in processes_of(node)))


def sweep(cluster: Any, folder: Path, seed: int) -> tuple[list[Outcome], list[str]]:
    """Let one run live through a fault of each kind; return what each did, and what was wrong at the end."""
    outcomes: list[Outcome] = []
    with StruckCluster(cluster, folder, seed) as struck:
        for number, place in enumerate(np.random.default_rng(seed).permutation(len(Victim))):
            outcomes.append(struck.inject(list(Victim)[place], number))
            if outcomes[-1].problems:
                return outcomes, ["the run broke off"]
        return outcomes, struck.end()
