"""A launcher under test: started on a run of its own, watched through its files, and nobody left of it afterwards.

Owns the process and its short agent configuration. What goes wrong in it is the tests' business.
"""

from __future__ import annotations

import json
import os
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
PROCESSES = 5  # simulator, learner, collector and two keepers


class Launched:
    """A launcher under test.

    Args:
        folder: for its run directory, ``run``, and its configuration.
        steps: of the training.
        options: more of ``up``'s.
        environment: laid over this process's own; the simulator inherits it.
    """

    def __init__(self, folder: Path, steps: int, *options: str, environment: Mapping[str, str] | None = None) -> None:
        config = folder / "quick.yaml"
        config.write_text(QUICK % {"steps": steps}, encoding="utf-8")
        self.run = folder / "runs" / "test"
        command = [sys.executable, str(REPOSITORY / "scripts" / "launch.py"), "up", "--runtime", "process"]
        where = ["--config", str(config), "--runs-dir", str(folder / "runs")]
        named = [] if "--run-name" in options else ["--run-name", "test"]
        self.process = subprocess.Popen(
            [*command, *where, *named, *options],
            cwd=REPOSITORY,
            env={**os.environ, **(environment or {})},
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

    def read(self, name: str) -> dict[str, Any]:
        try:
            found: dict[str, Any] = json.loads((self.run / name).read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return {}
        return found

    def events(self, name: str = "") -> list[dict[str, Any]]:
        """Return the journal's rows, all or those of one name; none before there is a journal."""
        path = self.run / "launcher-events.jsonl"
        lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
        return [row for row in map(json.loads, lines) if not name or row["event"] == name]

    def output(self) -> str:
        return self.process.communicate(timeout=PATIENCE_S)[0]

    def end(self) -> None:
        """Kill it, if it still runs; its keepers end what it started."""
        if self.process.poll() is None:
            self.process.kill()
        self.process.communicate(timeout=PATIENCE_S)


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
