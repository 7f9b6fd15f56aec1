"""The run directory: where each file of a run lies, who may use it, and how a file is written whole.

Owns the names of DESIGN.md's table, the lock that keeps two learners apart, and the saved configuration.
Never decides what is in the files, and never deletes a run.
"""

from __future__ import annotations

import contextlib
import fcntl
import importlib.metadata
import os
import platform
import shlex
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import yaml

from agent.config import PRECISIONS, AgentConfig, ConfigError, dump
from agent.exits import AgentError, Exit, sentence
from agent.published import newest_first

PACKAGES = ("torch", "carla", "gymnasium", "numpy", "safetensors")


@dataclass(frozen=True)
class RunDirectory:
    """``runs/<name>/``: paths only; nothing is created before :meth:`prepare`."""

    path: Path

    @property
    def config(self) -> Path:
        """The resolved configuration."""
        return self.path / "config.yaml"

    @property
    def overrides(self) -> Path:
        """The launcher's patch for the present rung; absent without a launcher."""
        return self.path / "overrides.yaml"

    @property
    def heartbeat(self) -> Path:
        """What the agent is doing, once a second."""
        return self.path / "agent.json"

    @property
    def events(self) -> Path:
        """One JSON object a line: what happened and why."""
        return self.path / "agent-events.jsonl"

    @property
    def metrics(self) -> Path:
        """One JSON object a line: the rows that TensorBoard has."""
        return self.path / "metrics.jsonl"

    @property
    def tensorboard(self) -> Path:
        """TensorBoard's event files."""
        return self.path / "tensorboard"

    @property
    def checkpoints(self) -> Path:
        """``step-…/`` folders and ``latest``."""
        return self.path / "checkpoints"

    @property
    def replay(self) -> Path:
        """The memory-mapped ring."""
        return self.path / "replay"

    @property
    def exchange(self) -> Path:
        """What learner and collector map together; worth nothing once they have ended."""
        return self.path / "exchange"

    @property
    def memory(self) -> Path:
        """What was in memory the first times that it ran out."""
        return self.path / "memory"

    @property
    def videos(self) -> Path:
        """What a person watches."""
        return self.path / "videos"

    @property
    def collector_log(self) -> Path:
        """What the collector and the client library print."""
        return self.path / "collector.log"

    @property
    def evaluation_csv(self) -> Path:
        """The last evaluation, one row a route and driver."""
        return self.path / "evaluation.csv"

    @property
    def evaluation_json(self) -> Path:
        """The last evaluation, totals and routes."""
        return self.path / "evaluation.json"

    @property
    def request(self) -> Path:
        """The newest request to the running agent."""
        return self.path / "request.json"

    @property
    def request_answer(self) -> Path:
        """The agent's answer to the last request that it took."""
        return self.path / "request.ack.json"

    def holds_a_run(self) -> bool:
        """Return whether something was trained or collected here (a started run that did neither counts as none)."""
        try:
            rows = int.from_bytes((self.replay / "published").read_bytes(), sys.byteorder)
        except OSError:
            rows = 0
        return rows > 0 or (self.checkpoints / "latest").exists()

    def in_use(self) -> bool:
        """Return whether a learner runs here; by its lock, since what a killed one wrote about itself stays."""
        try:
            with (self.path / "learner.lock").open(encoding="utf-8") as lock:
                fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except FileNotFoundError:
            return False
        except BlockingIOError:
            return True
        return False

    def prepare(self, resume: bool) -> IO[str]:
        """Create the folder, lock it for this process and return the lock; it is held until closed.

        Raises:
            AgentError: the folder can't be written, another learner uses it, or it holds a run and ``resume`` is false.
        """
        if self.holds_a_run() and not resume:
            raise AgentError(
                f"{self.path} already holds a run: add --resume to go on with it, or choose another --run-name.",
                Exit.BAD_CONFIG,
            )
        try:
            self.exchange.mkdir(parents=True, exist_ok=True)
            lock = (self.path / "learner.lock").open("a+", encoding="utf-8")
        except OSError as error:
            raise AgentError(sentence(error), Exit.BAD_CONFIG) from None
        self._take(lock)
        return lock

    def _take(self, lock: IO[str]) -> None:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            lock.seek(0)
            owner = lock.read().strip() or "unknown"
            lock.close()
            raise AgentError(
                f"{self.path} is being trained by process {owner}: stop that one, or choose another --run-name.",
                Exit.BAD_CONFIG,
            ) from None
        lock.truncate(0)
        lock.write(str(os.getpid()))
        lock.flush()

    def read_overrides(self) -> dict[str, Any]:
        """Return the launcher's patch as dotted keys; empty when there is none.

        Raises:
            ConfigError: the file isn't a YAML mapping.
        """
        try:
            values = yaml.safe_load(self.overrides.read_text(encoding="utf-8")) or {}
        except FileNotFoundError:
            return {}
        except (OSError, yaml.YAMLError, UnicodeDecodeError) as error:
            raise ConfigError(f"{self.overrides}: can't be read: {' '.join(str(error).split())}.") from None
        if not isinstance(values, dict):
            raise ConfigError(
                f"{self.overrides}: holds a {type(values).__name__}, expected keys like `td3.batch_size`."
            )
        return dict(_dotted(values))

    def settled_precision(self) -> str | None:
        """Return the ``td3.precision`` that this run goes by; None before its first start.

        Of its ``config.yaml``, or of its newest checkpoint where that file is gone.
        """
        places: list[tuple[Path, tuple[str, ...]]] = [(self.config, ("td3", "precision"))]
        places += [(path / "values.json", ("td3.precision",)) for path in newest_first(self.checkpoints, "step-*")]
        for path, keys in places:
            with contextlib.suppress(OSError, ValueError, yaml.YAMLError, KeyError, TypeError):
                value = yaml.safe_load(path.read_text(encoding="utf-8"))  # JSON is YAML, too
                for key in keys:
                    value = value[key]
                if value in PRECISIONS:
                    return str(value)
        return None

    def save_config(self, config: AgentConfig) -> None:
        """Write the resolved configuration; versions, revision and command stand above it as comments.

        The file can be given to ``--config`` as it is: the simulator's address, which is not the run's, is left out.
        """
        head = "".join(f"# {key}: {value}\n" for key, value in provenance().items())
        body = yaml.safe_dump(dump(config, address=False), sort_keys=False, allow_unicode=True)
        write_whole(self.config, head + body)


def _dotted(values: Mapping[str, Any], prefix: str = "") -> list[tuple[str, Any]]:
    pairs: list[tuple[str, Any]] = []
    for key, value in values.items():
        if isinstance(value, dict) and value:
            pairs += _dotted(value, f"{prefix}{key}.")
        else:
            pairs.append((f"{prefix}{key}", value))
    return pairs


def write_whole(path: Path, text: str, durable: bool = True) -> None:
    """Write a file so that a reader sees the old or the new one, never a part.

    Args:
        path: the file.
        text: what it shall hold.
        durable: reach the disk before the name changes; false for what is worthless after a power cut.
    """
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    with temporary.open("w", encoding="utf-8") as file:
        file.write(text)
        if durable:
            file.flush()
            os.fsync(file.fileno())
    temporary.replace(path)


def provenance() -> dict[str, str]:
    """Return what a later reader needs to repeat the run: command, versions, machine, git revision if there is one."""
    versions = {name: _version(name) for name in PACKAGES}
    return {
        "command": shlex.join(sys.argv),
        "revision": _revision(),
        "python": platform.python_version(),
        "platform": platform.platform(),
        **versions,
    }


def _version(package: str) -> str:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return "not installed"


def _revision() -> str:
    source = Path(__file__).resolve().parent
    try:
        described = subprocess.run(
            ["git", "describe", "--always", "--dirty"],
            cwd=source,
            capture_output=True,
            text=True,
            timeout=10,
            check=True,
        )
    except (OSError, subprocess.SubprocessError):
        return "none"
    return described.stdout.strip() or "none"
