"""The paths of a run's files. Creates nothing."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path

from carla_run.files import written_s

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
        """The learner writes its resolved configuration; comments above it give versions, git revision and command."""
        return self.path / "config.yaml"

    @property
    def version(self) -> Path:
        """The learner and the launcher write the version that continued the run last, and the format of the directory.

        A program refuses a later format before it writes anything (exit code 65).
        """
        return self.path / "version.json"

    @property
    def overrides(self) -> Path:
        """The launcher writes the present rung's values by dotted key; absent without a launcher.

        The agent reads them at its start. They override its configuration and environment variables.
        """
        return self.path / "overrides.yaml"

    @property
    def heartbeat(self) -> Path:
        """The learner writes its state once a second."""
        return self.path / "agent.json"

    @property
    def agent_events(self) -> Path:
        """The learner appends its events, one JSON object per line."""
        return self.path / "agent-events.jsonl"

    @property
    def metrics(self) -> Path:
        """The learner appends the scalars of TensorBoard, one JSON object per line, by Stable-Baselines3's names."""
        return self.path / "metrics.jsonl"

    @property
    def tensorboard(self) -> Path:
        """The learner writes TensorBoard's event files: scalars, pictures of evaluations, hyper-parameters."""
        return self.path / "tensorboard"

    @property
    def checkpoints(self) -> Path:
        """The learner writes ``step-…/`` folders, and the name of the newest one in ``latest``.

        A checkpoint holds networks and optimizers (safetensors), counters, random states, the position in the replay,
        a hash of the configuration, and checksums. A checkpoint is complete or absent.
        """
        return self.path / "checkpoints"

    @property
    def replay(self) -> Path:
        """The collector writes the memory-mapped ring of its steps; further collectors write ``1/``, ``2/`` and so on.

        The whole ring is allocated when it is created. Each complete step survives SIGKILL.
        """
        return self.path / "replay"

    def ring(self, collector: int) -> Path:
        """Return the folder of a collector's ring, which need not exist."""
        return self.replay / str(collector) if collector else self.replay

    def rings(self) -> dict[int, Path]:
        """Return the existing rings in order of their collectors."""
        others = (int(folder.name) for folder in self.replay.glob("[1-9]*") if folder.name.isdecimal())
        rings = {number: self.ring(number) for number in (0, *sorted(others))}
        names = ("replay.json", "replay.copy.json")
        return {number: folder for number, folder in rings.items() if any((folder / name).exists() for name in names)}

    @property
    def exchange(self) -> Path:
        """The learner and its collectors map files here: ``pace.bin``, ``weights.bin`` and ``status.bin``.

        Further collectors have ``pace-1.bin``, ``status-1.bin`` and so on. Useless after the processes have ended.
        """
        return self.path / "exchange"

    @property
    def memory(self) -> Path:
        """The learner writes ``out-of-memory-1.json`` and so on, the first five times that memory runs out.

        A file lists the biggest tensors, the memory of the process, and the failed allocation. With CUDA it has the
        allocator's figures, too, and a ``.pickle`` beside it for PyTorch's memory viewer.
        """
        return self.path / "memory"

    @property
    def videos(self) -> Path:
        """The collector writes ``evaluation.png`` (last evaluation), ``observation.png`` (network's input), videos."""
        return self.path / "videos"

    @property
    def live(self) -> Path:
        """Files for the live page; useless a moment later."""
        return self.path / "live"

    @property
    def live_wanted(self) -> Path:
        """The live page touches this file once a second; the collector then writes the three files beside it."""
        return self.live / "wanted"

    @property
    def live_frame(self) -> Path:
        """The collector writes the agent's camera picture, a JPEG."""
        return self.live / "frame.jpg"

    @property
    def live_state(self) -> Path:
        """The collector writes the car, its route and reward, other actors and lights, all of one frame."""
        return self.live / "state.json"

    @property
    def live_map(self) -> Path:
        """The collector writes the map's lanes."""
        return self.live / "map.json"

    @property
    def page_address(self) -> Path:
        """The launcher writes the live page's address with its token. Only its user can read the file."""
        return self.path / "page.url"

    @property
    def nodes(self) -> Path:
        """The Ray driver writes each collector of a cluster with its node, simulator and memory, once a second."""
        return self.path / "nodes.json"

    @property
    def collector_log(self) -> Path:
        """The first collector and its client print here; further collectors have ``collector-1.log`` and so on."""
        return self.log_of(0)

    def log_of(self, collector: int) -> Path:
        """Return the log of a collector."""
        return self.path / (f"collector-{collector}.log" if collector else "collector.log")

    @property
    def evaluation_csv(self) -> Path:
        """The collector writes the last evaluation, one row per route and driver."""
        return self.path / "evaluation.csv"

    @property
    def evaluation_json(self) -> Path:
        """The collector writes the last evaluation, totals and routes."""
        return self.path / "evaluation.json"

    @property
    def request(self) -> Path:
        """The launcher or a user (``carla-td3 request``, the live page) writes the newest request to the learner."""
        return self.path / "request.json"

    @property
    def answer(self) -> Path:
        """The learner writes its answer to the last request that it handled."""
        return self.path / "request.ack.json"

    @property
    def learner_lock(self) -> Path:
        """The learner holds this lock, so that a run has only one."""
        return self.path / "learner.lock"

    @property
    def launcher_lock(self) -> Path:
        """The launcher holds this lock until it and its programs have ended, so that a run has only one."""
        return self.path / "launcher.lock"

    @property
    def launcher_state(self) -> Path:
        """The launcher writes its state, with which the next launcher continues, also after SIGKILL."""
        return self.path / "launcher.json"

    @property
    def launcher_events(self) -> Path:
        """The launcher appends its events, one JSON object per line."""
        return self.path / "launcher-events.jsonl"

    @property
    def launcher_memory(self) -> Path:
        """The launcher appends the memory of all pools by owner, every 10 s or when one changes by 64 MiB."""
        return self.path / "launcher-memory.jsonl"

    @property
    def logs(self) -> Path:
        """The launcher saves its programs' output: ``simulator.log``, ``simulator-1.log``, ``agent.log`` and so on.

        For a container, ``.position`` beside the log tells the next launcher which lines the log already has.
        """
        return self.path / "logs"

    @property
    def compose_variables(self) -> Path:
        """The launcher writes the variables of the run's Compose project, for its own and the user's commands."""
        return self.path / "launcher.env"

    @property
    def cluster_log(self) -> Path:
        """The Ray driver prints here. It also writes the rings, status blocks and evaluations of its collectors."""
        return self.path / "cluster.log"

    @property
    def slurm(self) -> Path:
        """``carla-launcher submit`` writes ``job.sh`` and ``job.json``; the job ``steps.jsonl``, ``job-N.log``."""
        return self.path / "slurm"

    @property
    def report(self) -> Path:
        """The launcher writes the report, incident by incident, and ``report.md`` beside it.

        The page holds pictures and videos up to 20 MB, and links to larger ones.
        """
        return self.path / "report.html"

    @property
    def drives(self) -> Path:
        """``carla-launcher routes`` makes a folder for each item, with a folder for each drive: ``log.txt``, result."""
        return self.path / "drives"

    @property
    def results(self) -> Path:
        """``carla-launcher routes`` copies each item's result here."""
        return self.path / "results"

    def holds_a_run(self) -> bool:
        """Return whether the folder has collected steps or a checkpoint."""
        return any(map(_holds_rows, (self.replay, *self.rings().values()))) or (self.checkpoints / "latest").exists()


def _holds_rows(ring: Path) -> bool:
    try:
        return int.from_bytes((ring / "published").read_bytes(), sys.byteorder) > 0
    except OSError:
        return False


def newest_first(root: Path, name: str = "launcher.json") -> list[RunPaths]:
    """Return the runs in a folder that have a file of this name, the one that was written last first."""
    written = {path.parent: time_s for path in root.glob(f"*/{name}") if (time_s := written_s(path)) is not None}
    return [RunPaths(run) for run in sorted(written, key=written.__getitem__, reverse=True)]
