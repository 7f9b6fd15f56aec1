"""Where each file of a run lies, and reading them however torn they are.

Owns paths and tolerant readers: a missing file is an empty one, a half-written last line is no line. Writes nothing
and imports nothing of the agent: the files are the contract (DESIGN.md, "What passes between the rooms").
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

TAIL_BYTES = 16_384


@dataclass(frozen=True)
class RunDirectory:
    """``runs/<name>``; nothing is created."""

    path: Path

    @property
    def launcher_state(self) -> Path:
        """The launcher's state."""
        return self.path / "launcher.json"

    @property
    def launcher_events(self) -> Path:
        """What the launcher saw and did."""
        return self.path / "launcher-events.jsonl"

    @property
    def launcher_memory(self) -> Path:
        """The memory's timeline: all pools and who holds what, a line every few seconds."""
        return self.path / "launcher-memory.jsonl"

    @property
    def overrides(self) -> Path:
        """The values of the present rung, which the agent lays over its configuration when it starts."""
        return self.path / "overrides.yaml"

    @property
    def request(self) -> Path:
        """What the agent is asked."""
        return self.path / "request.json"

    @property
    def answer(self) -> Path:
        """What became of it."""
        return self.path / "request.ack.json"

    @property
    def lock(self) -> Path:
        """Held while a launcher or what it started lives."""
        return self.path / "launcher.lock"

    @property
    def logs(self) -> Path:
        """What simulator and agent printed."""
        return self.path / "logs"

    @property
    def agent_status(self) -> Path:
        """The agent's heartbeat."""
        return self.path / "agent.json"

    @property
    def agent_events(self) -> Path:
        """What the agent saw and did."""
        return self.path / "agent-events.jsonl"

    @property
    def config(self) -> Path:
        """The agent's resolved configuration."""
        return self.path / "config.yaml"

    @property
    def metrics(self) -> Path:
        """Scalars by step."""
        return self.path / "metrics.jsonl"

    @property
    def evaluation(self) -> Path:
        """The last evaluation."""
        return self.path / "evaluation.json"

    @property
    def videos(self) -> tuple[Path, ...]:
        """Videos, oldest first."""
        return tuple(sorted((self.path / "videos").glob("*.mp4")))

    @property
    def report(self) -> Path:
        """The page for people."""
        return self.path / "report.html"

    def holds_a_run(self) -> bool:
        """Return whether the agent has collected or learnt something here that a new run would mix with."""
        try:
            rows = int.from_bytes((self.path / "replay" / "published").read_bytes(), sys.byteorder)
        except OSError:
            rows = 0
        return rows > 0 or (self.path / "checkpoints" / "latest").exists()


def read_object(path: Path) -> dict[str, Any]:
    """Return a JSON file's object; empty if it is missing, torn or something else."""
    return object_of(_text(path))


def object_of(text: str) -> dict[str, Any]:
    """Return the object that a text is in JSON; empty if it is torn or something else."""
    value = _json(text)
    return value if isinstance(value, dict) else {}


def read_objects(path: Path) -> list[dict[str, Any]]:
    """Return the objects in a JSON file's list; empty if it is missing, torn or something else."""
    value = _json(_text(path))
    return [row for row in value if isinstance(row, dict)] if isinstance(value, list) else []


def read_lines(path: Path) -> list[dict[str, Any]]:
    """Return the objects of a JSON-lines file; lines that aren't whole objects are left out."""
    rows = (_json(line) for line in _text(path).split("\n"))
    return [row for row in rows if isinstance(row, dict)]


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""


def _json(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None


def read_yaml(path: Path) -> dict[str, Any]:
    """Return a YAML file's mapping; empty if it is missing, torn or something else."""
    try:
        value = yaml.safe_load(_text(path))
    except (ValueError, RecursionError, yaml.YAMLError):
        return {}
    return value if isinstance(value, dict) else {}


def inner(outer: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    """Return an object within an object; empty if it is missing or something else."""
    value = outer.get(key)
    return value if isinstance(value, dict) else {}


def number(value: Any) -> float | None:
    """Return a finite float, or None for anything else."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not abs(value) < 1e100:
        return None
    return float(value)


def points(rows: Sequence[Mapping[str, Any]], name: str) -> list[tuple[float, float]]:
    """Return a scalar of ``metrics.jsonl`` over its steps; rows without it are left out."""
    pairs = [(number(row.get("step")), number(row.get(name))) for row in rows]
    return [(x, y) for x, y in pairs if x is not None and y is not None]


def last_lines(path: Path, count: int = 1) -> str:
    """Return the last lines of a log that say something, joined by line ends; empty if there are none."""
    try:
        with path.open("rb") as file:
            file.seek(max(0, path.stat().st_size - TAIL_BYTES))
            text = file.read().decode(errors="replace")
    except OSError:
        return ""
    return "\n".join([line.strip() for line in text.splitlines() if line.strip()][-count:])


def newest(root: Path) -> RunDirectory | None:
    """Return the run whose launcher wrote last, or None."""
    states = [(state.stat().st_mtime, state.parent) for state in root.glob("*/launcher.json")]
    return RunDirectory(max(states)[1]) if states else None
