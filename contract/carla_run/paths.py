"""Where each file of a run lies. Creates nothing."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path

RUNS = Path("runs")
"""The folder that holds all runs, where no other is named."""


def names_preset(config: Path, folder: Path = Path()) -> bool:
    """Return whether a configuration is a preset of the agent's, by name: a word without suffix, and no file there."""
    return len(config.parts) == 1 and not config.suffix and not (folder / config).is_file()


def from_anywhere(config: Path) -> Path:
    """Return a configuration's absolute path; a preset's name as it is."""
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
        """The values of the present rung, which the agent lays over its configuration; absent without a launcher."""
        return self.path / "overrides.yaml"

    @property
    def heartbeat(self) -> Path:
        """What the agent is doing, once a second."""
        return self.path / "agent.json"

    @property
    def agent_events(self) -> Path:
        """What the agent saw and did, one JSON object a line."""
        return self.path / "agent-events.jsonl"

    @property
    def metrics(self) -> Path:
        """The rows that TensorBoard has, one JSON object a line."""
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
        """The memory-mapped ring of the first collector; those of others are folders in it."""
        return self.path / "replay"

    def ring(self, collector: int) -> Path:
        """Return where a collector's ring is, or would be."""
        return self.replay / str(collector) if collector else self.replay

    def rings(self) -> dict[int, Path]:
        """Return the rings that there are, by collector, in that order."""
        others = (int(folder.name) for folder in self.replay.glob("[1-9]*") if folder.name.isdecimal())
        return {
            number: self.ring(number) for number in (0, *sorted(others)) if (self.ring(number) / "replay.json").exists()
        }

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
        """The folder of what a person watches."""
        return self.path / "videos"

    @property
    def live(self) -> Path:
        """The folder of what a person sees while it happens; worth nothing a moment later."""
        return self.path / "live"

    @property
    def live_wanted(self) -> Path:
        """Touched once a second by whoever looks; while it is fresh, the collector writes the three files beside it."""
        return self.live / "wanted"

    @property
    def live_frame(self) -> Path:
        """The agent's camera, a JPEG."""
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
        """The live page's address with its token, while it is served; for its user only."""
        return self.path / "page.url"

    @property
    def nodes(self) -> Path:
        """Where the collectors of a cluster are, a JSON list; absent without a cluster."""
        return self.path / "nodes.json"

    @property
    def collector_log(self) -> Path:
        """What the collector and the client library print; the first one's, where there are several."""
        return self.log_of(0)

    def log_of(self, collector: int) -> Path:
        """Return where a collector's words go."""
        return self.path / (f"collector-{collector}.log" if collector else "collector.log")

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
    def answer(self) -> Path:
        """The agent's answer to the last request that it took."""
        return self.path / "request.ack.json"

    @property
    def learner_lock(self) -> Path:
        """Held while a learner lives."""
        return self.path / "learner.lock"

    @property
    def launcher_lock(self) -> Path:
        """Held while a launcher or what it started lives."""
        return self.path / "launcher.lock"

    @property
    def launcher_state(self) -> Path:
        """The launcher's state."""
        return self.path / "launcher.json"

    @property
    def launcher_events(self) -> Path:
        """What the launcher saw and did, one JSON object a line."""
        return self.path / "launcher-events.jsonl"

    @property
    def launcher_memory(self) -> Path:
        """The memory's timeline: all pools and who holds what, a line every few seconds."""
        return self.path / "launcher-memory.jsonl"

    @property
    def logs(self) -> Path:
        """The folder of what simulator and agent printed."""
        return self.path / "logs"

    @property
    def report(self) -> Path:
        """The page for people."""
        return self.path / "report.html"

    @property
    def routes_journal(self) -> Path:
        """Journal of an evaluation by `routes`, one JSON object a line."""
        return self.path / "routes.jsonl"

    @property
    def drives(self) -> Path:
        """The folder of an evaluation's drives: one for each item, and in it one for each drive, by its number."""
        return self.path / "drives"

    @property
    def results(self) -> Path:
        """The folder of an evaluation's results, a file for each item that has one."""
        return self.path / "results"

    def holds_a_run(self) -> bool:
        """Return whether something was trained or collected here (a started run that did neither counts as none)."""
        return any(map(_holds_rows, (self.replay, *self.rings().values()))) or (self.checkpoints / "latest").exists()


def _holds_rows(ring: Path) -> bool:
    try:
        return int.from_bytes((ring / "published").read_bytes(), sys.byteorder) > 0
    except OSError:
        return False


def newest_run(root: Path) -> RunPaths | None:
    """Return the run below a folder whose launcher wrote last; None without any."""
    states = [(state.stat().st_mtime, state.parent) for state in root.glob("*/launcher.json")]
    return RunPaths(max(states)[1]) if states else None
