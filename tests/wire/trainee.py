"""A run directory and the training process in it, as a person or the launcher would start and see it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import safetensors.numpy
import yaml

from carla_run.exits import Exit
from carla_td3.td3.replay.replay import Replay
from tests.conftest import REPOSITORY
from tests.crowd import PATIENCE_S
from tests.wire.forked import ForkedAgent

SMALL: dict[str, Any] = {
    "environment": {"time_limit": {"constant_s": 6}, "route": {"min_length_m": 60, "max_length_m": 200}},
    "td3": {"batch_size": 8, "network": {"channels": [4, 4, 4], "features": 16, "hidden": [16]}},
    "replay": {"capacity": 4000},
    "training": {
        "total_steps": 120,
        "warmup_steps": 20,
        "learner_threads": 1,
        "log_every_steps": 20,
        "checkpoint_every_steps": 50,
    },
    "evaluation": {"every_steps": 0, "final_episodes": 0, "baselines": False, "video": False},
}

Training = subprocess.Popen[str] | ForkedAgent


class Run:
    """One run directory and the training in it.

    Args:
        path: the run directory; its parent exists.
        port: of the simulator.
        settings: the configuration, over the defaults.
        forked: its trainings are forked from a process that has torch loaded (``forked``).
    """

    def __init__(self, path: Path, port: int, settings: Mapping[str, Any] = SMALL, forked: bool = False) -> None:
        self.path = path
        self.port = port
        self.process: Training | None = None
        self._forked = forked
        self.config = path.with_suffix(".yaml")
        path.mkdir()
        self.config.write_text(yaml.safe_dump(dict(settings)))

    def start(self, *extra: str) -> Training:
        words = ["train", "--config", str(self.config), "--run-dir", str(self.path), *extra]
        environment = {**os.environ, "CARLA_HOST": "127.0.0.1", "CARLA_PORT": str(self.port)}
        self.process = (
            ForkedAgent(words, REPOSITORY, environment)
            if self._forked
            else subprocess.Popen(
                [sys.executable, "-m", "carla_td3", *words],
                cwd=REPOSITORY,
                env=environment,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
            )
        )
        return self.process

    def train(self, *extra: str) -> str:
        """Return what a training that finished said."""
        out, _ = self.start(*extra).communicate(timeout=PATIENCE_S)
        assert self.process is not None
        assert self.process.returncode == Exit.FINISHED, out + self.collector_log
        return out

    def refused(self, *extra: str) -> str:
        """Return the last line of a training that ends because of its configuration or its disk."""
        out, _ = self.start(*extra).communicate(timeout=PATIENCE_S)
        assert self.process is not None
        assert self.process.returncode == Exit.BAD_CONFIG, out
        assert "Traceback" not in out
        return str(out.splitlines()[-1])

    def finish(self) -> None:
        assert self.process is not None
        out, _ = self.process.communicate(timeout=PATIENCE_S)
        assert self.process.returncode == Exit.FINISHED, out + self.collector_log

    def kill(self) -> None:
        """End it the way a crash does, if it still runs."""
        if self.process is not None and self.process.poll() is None:
            self.process.kill()
            self.process.wait()

    @property
    def collector_log(self) -> str:
        path = self.path / "collector.log"
        return path.read_text() if path.exists() else ""

    @property
    def beat(self) -> dict[str, Any]:
        path = self.path / "agent.json"
        return dict(json.loads(path.read_text())) if path.exists() else {"step": 0, "phase": "none"}

    def events(self, *names: str) -> list[dict[str, Any]]:
        return rows(self.path / "agent-events.jsonl", names, {})

    @property
    def steps(self) -> int:
        return Replay.open(self.path / "replay").steps if (self.path / "replay" / "replay.json").exists() else 0

    @property
    def tensors(self) -> dict[str, Any]:
        latest = (self.path / "checkpoints" / "latest").read_text().strip()
        return dict(safetensors.numpy.load_file(self.path / "checkpoints" / latest / "tensors.safetensors"))

    def wait(self, condition: Callable[[], bool]) -> None:
        deadline = time.monotonic() + PATIENCE_S
        while not condition():
            assert self.process is not None
            assert self.process.poll() is None, f"the training ended with {self.process.returncode}"
            assert time.monotonic() < deadline, f"it didn't happen in time: {self.beat}\n{self.collector_log}"
            time.sleep(0.02)


def rows(path: Path, names: tuple[str, ...], fields: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the rows of a file that may be written to just now: all, or those of these events and values."""
    lines = path.read_text(encoding="utf-8").split("\n")[:-1] if path.exists() else []
    found = [row for row in map(json.loads, lines) if not names or row["event"] in names]
    return [row for row in found if fields.items() <= row.items()]


def running(pid: int) -> bool:
    """Return whether the process lives; a zombie doesn't."""
    try:
        return "\nState:\tZ" not in Path(f"/proc/{pid}/status").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return False


def program(port: int, *command: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run one of the commands to its end."""
    return subprocess.run(
        [sys.executable, *command],
        check=False,
        capture_output=True,
        text=True,
        cwd=REPOSITORY,
        env={**os.environ, "CARLA_HOST": "127.0.0.1", "CARLA_PORT": str(port), **environment},
        timeout=500,
    )
