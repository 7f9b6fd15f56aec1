"""A run under the launcher: launchers that are started, watched through the run's files, and leave no process behind.

Starts local processes or, with containers' options, the stack. What goes wrong in it is the tests' business.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import psutil
import yaml

from carla_launcher.places import SHIPPED
from tests.conftest import REPOSITORY
from tests.crowd import PATIENCE_S
from tests.wire.trainee import rows

QUICK = """
environment: {time_limit: {constant_s: 6}, route: {min_length_m: 60, max_length_m: 150}}
td3: {batch_size: 8}
replay: {capacity: 5000}
training: {total_steps: %(steps)d, warmup_steps: 50, updates_per_step: 0.05, log_every_steps: 50, learner_threads: 1}
evaluation: {every_steps: 0, final_episodes: 0, baselines: false, video: false}
"""
ENDLESS = 1_000_000
OURS = os.pathsep.join(str(REPOSITORY / folder) for folder in ("agent", "launcher", "contract", "carla/lite"))
PROCESSES = 5  # simulator, learner, collector and two shims
UNDISTURBED = [
    *("run_started", "planned_bands", "simulator_starts", "simulator_started", "simulator_healthy", "agent_starts"),
    *("agent_started", "verified", "agent_ended", "simulator_stopped", "run_ended"),
]
"""The events of a run that nothing disturbs."""


class Launched:
    """One run, and the launchers that hold it one after another.

    Args:
        folder: for the folder of runs and the configurations.
        environment: laid over this process's own; what the launcher starts inherits it. All is of this repository,
            whatever PYTHONPATH adds to it.
    """

    program: tuple[str, ...] = (sys.executable, str(REPOSITORY / "scripts" / "launch.py"))
    process: subprocess.Popen[str]
    """The launcher that was started last."""

    def __init__(self, folder: Path, name: str = "test", environment: Mapping[str, str] | None = None) -> None:
        self.runs, self.name = folder / "runs", name
        self.run = self.runs / name
        self._environment = environment or {}
        self._started: list[subprocess.Popen[str]] = []

    def up(self, *options: str) -> subprocess.Popen[str]:
        """Start a launcher; one that goes on needs be told no more than the run's name."""
        self.process = self._start("up", "--runs-dir", str(self.runs), "--run-name", self.name, *options)
        return self.process

    def run_command(self, *options: str) -> subprocess.Popen[str]:
        """Start a launcher with another command than the agent, as :meth:`up`."""
        self.process = self._start("run", "--runs-dir", str(self.runs), "--run-name", self.name, *options)
        return self.process

    def command(self, name: str, *options: str) -> subprocess.CompletedProcess[str]:
        """Return what another of the launcher's commands came to for this run, ``down`` or ``status``."""
        process = self._start(name, self.name, "--runs-dir", str(self.runs), *options, stderr=subprocess.PIPE)
        reported, said = process.communicate(timeout=PATIENCE_S)
        return subprocess.CompletedProcess(process.args, process.returncode, reported, said)

    def _start(self, *words: str, stderr: int = subprocess.STDOUT) -> subprocess.Popen[str]:
        added = self._environment.get("PYTHONPATH", "")
        process = subprocess.Popen(
            [*self.program, *words],
            cwd=REPOSITORY,
            env={
                **os.environ,
                **self._environment,
                "PYTHONPATH": os.pathsep.join((OURS, added)).rstrip(os.pathsep),
            },
            stdout=subprocess.PIPE,
            stderr=stderr,
            text=True,
            start_new_session=True,
        )
        self._started.append(process)
        return process

    @property
    def programs(self) -> list[psutil.Process]:
        """The processes that the launcher has started, and those that these have."""
        return psutil.Process(self.process.pid).children(recursive=True)

    def until(self, condition: Callable[[], object]) -> None:
        deadline = time.monotonic() + PATIENCE_S
        while not condition():
            assert self.process.poll() is None, f"ended early: {self.output()}"
            assert time.monotonic() < deadline, f"waited in vain: {self.beat}\n{self.events()}"
            time.sleep(0.05)

    def until_training(self, step: int = 60) -> list[psutil.Process]:
        """Return all descendants, once the agent has taken some steps."""
        self.until(lambda: int(self.beat.get("step", 0)) >= step)
        return self.programs

    def until_started(self) -> list[psutil.Process]:
        """Return all descendants, once there are as many as there will be; a short run may soon be over."""
        found: list[psutil.Process] = []

        def complete() -> bool:
            found[:] = self.programs
            return len(found) >= PROCESSES

        self.until(complete)
        return found

    def until_stepping(self, steps: int = 20) -> None:
        """Return once the agent has taken so many more."""
        before = self.beat.get("step", 0)
        self.until(lambda: self.beat.get("step", 0) > before + steps)

    def until_updates(self, more: int = 3) -> None:
        """Return when so many more updates are made than the last heartbeat tells of."""
        before = int(self.beat.get("updates", 0))
        self.until(lambda: int(self.beat.get("updates", 0)) >= before + more)

    def stop(self) -> None:
        """Ask it to stop, as a person would, and see that it does."""
        self.process.send_signal(signal.SIGTERM)
        output = self.output()
        assert self.process.returncode == 75, output
        assert "Traceback" not in output

    def read(self, name: str) -> dict[str, Any]:
        try:
            found: dict[str, Any] = json.loads((self.run / name).read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return {}
        return found

    @property
    def state(self) -> dict[str, Any]:
        """``launcher.json``, empty before there is one."""
        return self.read("launcher.json")

    @property
    def beat(self) -> dict[str, Any]:
        """``agent.json``, empty before there is one."""
        return self.read("agent.json")

    def events(self, *names: str, **fields: Any) -> list[dict[str, Any]]:
        """Return the journal's rows, all or those of these names and values; none before there is a journal."""
        return rows(self.run / "launcher-events.jsonl", names, fields)

    def agent_events(self, *names: str, **fields: Any) -> list[dict[str, Any]]:
        """Return the agent's events, all or those with these names and values."""
        return rows(self.run / "agent-events.jsonl", names, fields)

    def timeline(self) -> list[dict[str, Any]]:
        """Return what was written of all memory."""
        return rows(self.run / "launcher-memory.jsonl", (), {})

    def output(self) -> str:
        return self.process.communicate(timeout=PATIENCE_S)[0]

    def end(self) -> None:
        """Kill what still runs; shims end what it started."""
        for process in self._started:
            if process.poll() is None:
                process.kill()
            process.communicate(timeout=PATIENCE_S)


Launch = Callable[..., Launched]


def first_time(folder: Path, steps: int) -> tuple[str, ...]:
    """Return what a run's first launcher is told: local processes, and a short training of so many steps."""
    config = folder / "quick.yaml"
    config.write_text(QUICK % {"steps": steps}, encoding="utf-8")
    return ("--runtime", "process", "--config", str(config))


def own_limits(folder: Path, changes: Mapping[str, Any]) -> tuple[str, str]:
    """Return the option for a copy of the shipped limits, with values changed by their dotted keys."""
    limits = yaml.safe_load(SHIPPED.read_text(encoding="utf-8"))
    for key, value in changes.items():
        *sections, name = key.split(".")
        section = limits
        for each in sections:
            section = section[each]
        section[name] = value
    path = folder / "launcher.yaml"
    path.write_text(yaml.safe_dump(limits), encoding="utf-8")
    return "--launcher-config", str(path)


def processes_of(run: Launched) -> list[psutil.Process]:
    """Return all processes of this machine that were told of the run's directory, or hold its lock."""
    lock = str(run.run / "launcher.lock")
    found = []
    for process in psutil.process_iter():
        try:
            named = any(str(run.run) in word for word in process.cmdline())
            if named or lock in map(_target, Path(f"/proc/{process.pid}/fd").iterdir()):
                found.append(process)
        except (psutil.Error, OSError):
            continue
    return found


def _target(link: Path) -> str:
    try:
        return str(link.readlink())
    except OSError:
        return ""


def gone(processes: list[psutil.Process]) -> None:
    """See that these processes end."""
    _, left = psutil.wait_procs(processes, timeout=PATIENCE_S)
    assert not left
