"""The paths of a run's files. Creates nothing."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path

RUNS = Path("runs")
"""Default folder that holds all runs."""


def names_preset(config: Path, folder: Path = Path()) -> bool:
    """Return whether a configuration is the name of an agent's preset: a word without suffix that is no file."""
    return len(config.parts) == 1 and not config.suffix and not (folder / config).is_file()


def from_anywhere(config: Path) -> Path:
    """Return a configuration's absolute path; a preset's name stays."""
    return config if names_preset(config) else config.absolute()


@dataclass(frozen=True)
class RunPaths:
    """``runs/<name>/``."""

    path: Path

    @property
    def config(self) -> Path:
        """The agent's resolved configuration."""
        return self.path / "config.yaml"

    @property
    def version(self) -> Path:
        """The version that wrote the run last, and the format of the directory."""
        return self.path / "version.json"

    @property
    def overrides(self) -> Path:
        """The present rung's values, which override the agent's configuration; absent without a launcher."""
        return self.path / "overrides.yaml"

    @property
    def heartbeat(self) -> Path:
        """The agent's state, written once a second."""
        return self.path / "agent.json"

    @property
    def agent_events(self) -> Path:
        """The agent's events, one JSON object per line."""
        return self.path / "agent-events.jsonl"

    @property
    def metrics(self) -> Path:
        """The scalars of TensorBoard, one JSON object per line."""
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
        """The memory-mapped ring of the first collector; the rings of others are folders in it."""
        return self.path / "replay"

    def ring(self, collector: int) -> Path:
        """Return the folder of a collector's ring, which need not exist."""
        return self.replay / str(collector) if collector else self.replay

    def rings(self) -> dict[int, Path]:
        """Return the existing rings in order of their collectors."""
        others = (int(folder.name) for folder in self.replay.glob("[1-9]*") if folder.name.isdecimal())
        return {
            number: self.ring(number) for number in (0, *sorted(others)) if (self.ring(number) / "replay.json").exists()
        }

    @property
    def exchange(self) -> Path:
        """Files that learner and collector both map; useless once they have ended."""
        return self.path / "exchange"

    @property
    def memory(self) -> Path:
        """Snapshots of the memory when it first ran out."""
        return self.path / "memory"

    @property
    def videos(self) -> Path:
        """Videos and contact sheets."""
        return self.path / "videos"

    @property
    def live(self) -> Path:
        """Files for the live page; useless a moment later."""
        return self.path / "live"

    @property
    def live_wanted(self) -> Path:
        """Touched once a second while a live page is open; the collector then writes the three files beside it."""
        return self.live / "wanted"

    @property
    def live_frame(self) -> Path:
        """The agent's camera picture, a JPEG."""
        return self.live / "frame.jpg"

    @property
    def live_state(self) -> Path:
        """The car, its route and its reward, other actors and lights, in one frame."""
        return self.live / "state.json"

    @property
    def live_map(self) -> Path:
        """The map's lanes."""
        return self.live / "map.json"

    @property
    def page_address(self) -> Path:
        """The live page's address with its token, while it is served; only its user can read the file."""
        return self.path / "page.url"

    @property
    def nodes(self) -> Path:
        """The collectors of a cluster and their nodes, a JSON list; absent without a cluster."""
        return self.path / "nodes.json"

    @property
    def collector_log(self) -> Path:
        """Output of the first collector and the client library."""
        return self.log_of(0)

    def log_of(self, collector: int) -> Path:
        """Return the log of a collector."""
        return self.path / (f"collector-{collector}.log" if collector else "collector.log")

    @property
    def evaluation_csv(self) -> Path:
        """The last evaluation, one row per route and driver."""
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
    def answer(self) -> Path:
        """The agent's answer to the last request that it handled."""
        return self.path / "request.ack.json"

    @property
    def learner_lock(self) -> Path:
        """Held while a learner runs."""
        return self.path / "learner.lock"

    @property
    def launcher_lock(self) -> Path:
        """Held while a launcher, or a program that it started, runs."""
        return self.path / "launcher.lock"

    @property
    def launcher_state(self) -> Path:
        """The launcher's state."""
        return self.path / "launcher.json"

    @property
    def launcher_events(self) -> Path:
        """The launcher's events, one JSON object per line."""
        return self.path / "launcher-events.jsonl"

    @property
    def launcher_memory(self) -> Path:
        """The memory of all pools by owner, one line every few seconds."""
        return self.path / "launcher-memory.jsonl"

    @property
    def logs(self) -> Path:
        """Logs of simulator and agent."""
        return self.path / "logs"

    @property
    def report(self) -> Path:
        """The report."""
        return self.path / "report.html"

    @property
    def drives(self) -> Path:
        """The folder of an evaluation's drives: one for each item, and in it one for each drive, by its number."""
        return self.path / "drives"

    @property
    def results(self) -> Path:
        """The folder of an evaluation's results, a file for each item that has one."""
        return self.path / "results"

    def holds_a_run(self) -> bool:
        """Return whether the folder has collected steps or a checkpoint."""
        return any(map(_holds_rows, (self.replay, *self.rings().values()))) or (self.checkpoints / "latest").exists()


def _holds_rows(ring: Path) -> bool:
    try:
        return int.from_bytes((ring / "published").read_bytes(), sys.byteorder) > 0
    except OSError:
        return False


def newest_run(root: Path) -> RunPaths | None:
    """Return the run in a folder whose launcher wrote last; None if there is none."""
    states = [(state.stat().st_mtime, state.parent) for state in root.glob("*/launcher.json")]
    return RunPaths(max(states)[1]) if states else None
