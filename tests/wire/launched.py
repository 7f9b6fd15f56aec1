"""A launcher under test: started on a run of its own, watched through its files, and nobody left of it afterwards.

Owns the process and its short agent configuration. What goes wrong in it is the tests' business.
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

from launcher.config import SHIPPED
from tests.conftest import REPOSITORY

PATIENCE_S = 120.0
QUICK = """
environment: {max_steps: 60, route: {min_length_m: 60, max_length_m: 150}}
td3: {batch_size: 8}
replay: {capacity: 5000}
training: {total_steps: %(steps)d, warmup_steps: 50, updates_per_step: 0.05, log_every_steps: 50, learner_threads: 1}
evaluation: {every_steps: 0, final_episodes: 0, baselines: false, video: false}
"""
ENDLESS = 1_000_000
OURS = os.pathsep.join((str(REPOSITORY), str(REPOSITORY / "carla" / "lite")))
PROCESSES = 5  # simulator, learner, collector and two keepers


class Launched:
    """A launcher under test.

    Args:
        folder: for its run directory, ``run``, and its configuration.
        steps: of the training; None for a later start of the same run, which is told no more than the run's name.
        options: more of ``up``'s.
        environment: laid over this process's own; the simulator inherits it. What it starts is of this repository,
            whatever PYTHONPATH adds to it.
    """

    def __init__(
        self, folder: Path, steps: int | None, *options: str, environment: Mapping[str, str] | None = None
    ) -> None:
        environment = environment or {}
        asked: list[str] = []
        if steps is not None:
            config = folder / "quick.yaml"
            config.write_text(QUICK % {"steps": steps}, encoding="utf-8")
            asked = ["--runtime", "process", "--config", str(config)]
        name = options[options.index("--run-name") + 1] if "--run-name" in options else "test"
        self.run = folder / "runs" / name
        command = [sys.executable, str(REPOSITORY / "scripts" / "launch.py"), "up", *asked]
        where = ["--runs-dir", str(folder / "runs")]
        named = [] if "--run-name" in options else ["--run-name", "test"]
        self.process = subprocess.Popen(
            [*command, *where, *named, *options],
            cwd=REPOSITORY,
            env={
                **os.environ,
                **environment,
                "PYTHONPATH": os.pathsep.join((OURS, environment.get("PYTHONPATH", ""))).rstrip(os.pathsep),
            },
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )

    def until(self, condition: Callable[[], bool]) -> None:
        deadline = time.monotonic() + PATIENCE_S
        while not condition():
            assert self.process.poll() is None, f"ended early: {self.output()}"
            assert time.monotonic() < deadline, f"waited in vain: {self.read('agent.json')}"
            time.sleep(0.05)

    def until_training(self, step: int = 60) -> list[psutil.Process]:
        """Return all descendants, once the agent has taken some steps."""
        self.until(lambda: int(self.read("agent.json").get("step", 0)) >= step)
        return psutil.Process(self.process.pid).children(recursive=True)

    def until_started(self) -> list[psutil.Process]:
        """Return all descendants, once there are as many as there will be; a short run may soon be over."""
        found: list[psutil.Process] = []

        def complete() -> bool:
            found[:] = psutil.Process(self.process.pid).children(recursive=True)
            return len(found) >= PROCESSES

        self.until(complete)
        return found

    def until_stepping(self, steps: int = 20) -> None:
        """Return once the agent has taken so many more."""
        before = self.read("agent.json").get("step", 0)
        self.until(lambda: self.read("agent.json").get("step", 0) > before + steps)

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
        return _rows(self.run / "launcher-events.jsonl", names, fields)

    def agent_events(self, *names: str, **fields: Any) -> list[dict[str, Any]]:
        """Return the agent's events likewise."""
        return _rows(self.run / "agent-events.jsonl", names, fields)

    def timeline(self) -> list[dict[str, Any]]:
        """Return what was written of all memory."""
        return _rows(self.run / "launcher-memory.jsonl", (), {})

    def output(self) -> str:
        return self.process.communicate(timeout=PATIENCE_S)[0]

    def end(self) -> None:
        """Kill it, if it still runs; its keepers end what it started."""
        if self.process.poll() is None:
            self.process.kill()
        self.process.communicate(timeout=PATIENCE_S)


def _rows(path: Path, names: tuple[str, ...], fields: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the rows of a file that may be written to just now."""
    lines = path.read_text(encoding="utf-8").split("\n")[:-1] if path.exists() else []
    rows = [row for row in map(json.loads, lines) if not names or row["event"] in names]
    return [row for row in rows if fields.items() <= row.items()]


Launch = Callable[..., Launched]


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
