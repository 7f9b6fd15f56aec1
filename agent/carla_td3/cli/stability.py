"""The memory-leak check: trains for a while in a child process, and reads the memory of learner and collector.

Owns the measurement and the verdict. It counts RssAnon + RssShmem: pages of mapped files (the replay) look like growth
and are none (facts.md section 6).
"""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import linear_regression

from rich.table import Table

from carla_run.exits import Exit
from carla_run.heartbeat import read_heartbeat
from carla_run.memory.processes import held_mib
from carla_run.paths import RunPaths
from carla_td3.exits import AgentError
from carla_td3.td3.replay.replay import Replay, ReplayError

SAMPLE_S = 0.1
WARM_UP_STEPS = 200
"""Steps of random driving. Caches fill during the first half of the run, which the verdict leaves out."""
MOST_LEAD_STEPS = 10
"""Steps that the collector may be ahead. A sample belongs to a step, so its updates must be made by about then: on a
busy machine a collector far ahead would take all steps first, and a leak of the updates would not be seen.
"""


@dataclass(frozen=True)
class Sample:
    """Memory in MiB at one step."""

    step: int
    learner_mib: float
    collector_mib: float


@dataclass(frozen=True)
class Growth:
    """Growth of one process over the second half of the run."""

    process: str
    first_mib: float
    last_mib: float
    fitted_mib: float
    """Rise of the fitted line over that half; a single sample has little weight in it."""
    slope_mib_per_1000_steps: float


@dataclass(frozen=True)
class Verdict:
    """Result of the check."""

    growths: tuple[Growth, ...]
    samples: int
    tolerance_mib: float

    @property
    def flat(self) -> bool:
        """Whether neither process's fitted line rises by more than the tolerance."""
        return all(growth.fitted_mib <= self.tolerance_mib for growth in self.growths)

    def table(self) -> Table:
        """Return the figures as a table."""
        word = "flat" if self.flat else "NOT flat"
        table = Table(title=f"Memory is {word} (tolerance {self.tolerance_mib:g} MiB, {self.samples} samples)")
        for column in ("process", "half-way MiB", "end MiB", "fitted growth MiB", "MiB/1000 steps"):
            table.add_column(column, justify="left" if column == "process" else "right")
        for growth in self.growths:
            slope = f"{growth.slope_mib_per_1000_steps:+.2f}"
            ends = f"{growth.first_mib:.1f}", f"{growth.last_mib:.1f}"
            table.add_row(growth.process, *ends, f"{growth.fitted_mib:+.2f}", slope)
        return table


def measure(steps: int, run_dir: Path, tolerance_mib: float, config: Path | None, settings: Sequence[str]) -> Verdict:
    """Train ``steps`` steps in ``run_dir`` and judge the samples of its second half.

    Raises:
        AgentError: the folder holds a run; the training failed, with its exit code; or too short a run to judge.
    """
    if RunPaths(run_dir).holds_a_run():
        raise AgentError(f"{run_dir} already holds a run: choose another --run-dir.", Exit.BAD_CONFIG)
    command = [sys.executable, "-m", "carla_td3", "train", "--run-dir", str(run_dir), "--max-timesteps", str(steps)]
    given = () if config is None else ("--config", str(config))
    paced = f"training.warmup_steps={WARM_UP_STEPS}", f"training.max_lead_steps={MOST_LEAD_STEPS}"
    extra = (*paced, "evaluation.final_episodes=0", *settings)
    process = subprocess.Popen([*command, *given, *(part for one in extra for part in ("--set", one))])
    try:
        samples = _samples(process, RunPaths(run_dir))
    finally:
        if process.poll() is None:
            process.terminate()
            process.wait()
    if process.returncode != Exit.FINISHED:
        trained = f"`carla-td3 train --run-dir {run_dir}`"  # whose messages may name an option of its own: --resume
        said = f"{trained} ended with {process.returncode}; what it said is above."
        raise AgentError(said, _code(process.returncode))
    return judge([sample for sample in samples if sample.step >= steps // 2], tolerance_mib)


def judge(samples: Sequence[Sample], tolerance_mib: float) -> Verdict:
    """Return the verdict on the samples of a run that has warmed up.

    Raises:
        AgentError: fewer than four samples, or all at one step.
    """
    if len(samples) < 4 or samples[0].step == samples[-1].step:
        raise AgentError(f"{len(samples)} samples are too few to see a slope: use more --steps.", Exit.CRASH)
    learner = _growth("learner", samples, [sample.learner_mib for sample in samples])
    collector = _growth("collector", samples, [sample.collector_mib for sample in samples])
    return Verdict((learner, collector), len(samples), tolerance_mib)


def _growth(process: str, samples: Sequence[Sample], mib: Sequence[float]) -> Growth:
    slope = linear_regression([float(sample.step) for sample in samples], list(mib)).slope
    return Growth(process, mib[0], mib[-1], slope * (samples[-1].step - samples[0].step), 1000 * slope)


def _samples(process: subprocess.Popen[bytes], run: RunPaths) -> list[Sample]:
    samples: list[Sample] = []
    while process.poll() is None:
        time.sleep(SAMPLE_S)
        sample = _sample(run, process.pid)
        if sample is not None and (not samples or sample.step > samples[-1].step):
            samples.append(sample)
    return samples


def _sample(run: RunPaths, pid: int) -> Sample | None:
    """Return the memory of both processes now; None if one of them hasn't started yet or has ended."""
    beat = read_heartbeat(run.heartbeat)
    if beat is None or beat.pid != pid:
        return None
    learner_mib, collector_mib = held_mib(pid), held_mib(beat.collector.pid)
    if learner_mib is None or collector_mib is None:
        return None
    try:
        steps = sum(Replay.open(ring).steps for ring in run.rings().values() or [run.replay])
        return Sample(steps, learner_mib, collector_mib)
    except ReplayError:  # the collector hasn't created it yet
        return None


def _code(returncode: int) -> Exit:
    return Exit(returncode) if returncode in set(Exit) else Exit.CRASH
