"""Writes a run's metrics to ``metrics.jsonl`` and ``tensorboard/``, and averages its last episodes.

Scalars have Stable-Baselines3's names. TensorBoard also gets pictures and hyperparameters. A row that can't be written
to disk is lost. Training continues, and stderr says so once.
"""

from __future__ import annotations

import contextlib
import struct
import sys
import threading
from collections import deque
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

from tensorboard.compat.proto.summary_pb2 import Summary  # type: ignore[import-untyped]
from torch.utils.tensorboard import FileWriter
from torch.utils.tensorboard.summary import hparams

from carla_run.event_log import JsonLines
from carla_run.keys import leaves
from carla_run.readers import LinesRead, numbers, tail
from carla_td3.exchange.messages import EpisodeEnded

FINAL_FIGURES = (
    *("rollout/ep_rew_mean", "rollout/success_rate", "eval/mean_reward", "eval/success_rate"),
    *("eval/route_completion", "eval/driving_score"),
)
"""Scalars whose last values TensorBoard shows beside a run's hyperparameters."""
ROLLOUT, REWARD = "rollout/", "reward/"
PNG_SIZE = struct.Struct(">16x2I")
"""Width and height in the header of a PNG file."""
EPISODES_AVERAGED = 100
"""Number of episodes in an average: Stable-Baselines3's ``stats_window_size``, so that curves can be compared."""


class Metrics:
    """Writes scalars to TensorBoard and to a file of JSON lines."""

    def __init__(self, tensorboard: Path, lines: Path) -> None:
        self._folder = tensorboard
        self._writer: FileWriter | None = None
        self._warned = False
        self._previous_hook, threading.excepthook = threading.excepthook, self._on_thread_error
        with self._ignoring_disk_errors():
            self._writer = FileWriter(str(tensorboard))
        self._lines = JsonLines(lines)

    def write(self, step: int, scalars: Mapping[str, float]) -> None:
        """Write one row of scalars; ``step`` is the number of environment steps."""
        values = [Summary.Value(tag=name, simple_value=float(value)) for name, value in scalars.items()]
        self._add(Summary(value=values), step)
        self._lines.append({"step": step, **scalars})

    def hyperparameters(self, config: Mapping[str, Any]) -> None:
        """Write a configuration's values to TensorBoard's table of runs."""
        flat = {name: each if isinstance(each, bool | int | float) else str(each) for name, each in leaves(config)}
        for each in hparams(flat, dict.fromkeys(FINAL_FIGURES, 0.0)):  # type: ignore[no-untyped-call]
            self._add(each, None)

    def picture(self, step: int, name: str, path: Path) -> None:
        """Write a PNG file to TensorBoard. A file that isn't a readable PNG is left out."""
        try:
            png = path.read_bytes()
            width, height = PNG_SIZE.unpack_from(png)
        except (OSError, struct.error):
            return
        image = Summary.Image(height=height, width=width, colorspace=3, encoded_image_string=png)
        self._add(Summary(value=[Summary.Value(tag=name, image=image)]), step)

    def _add(self, summary: Summary, step: int | None) -> None:
        with self._ignoring_disk_errors():
            if self._writer is not None:
                self._writer.add_summary(summary, step)

    def close(self) -> None:
        """Flush and end the writer's thread."""
        with self._ignoring_disk_errors():
            if self._writer is not None:
                self._writer.close()
        threading.excepthook = self._previous_hook

    @contextlib.contextmanager
    def _ignoring_disk_errors(self) -> Iterator[None]:
        # TensorBoard's thread ends when a write fails. Each later call of the writer then raises that error again.
        try:
            yield
        except OSError as error:
            self._writer = None
            self._warn_once(error)

    def _on_thread_error(self, failed: threading.ExceptHookArgs) -> None:
        """Print one line instead of a traceback if a disk error ended TensorBoard's thread."""
        if isinstance(failed.exc_value, OSError) and type(failed.thread).__module__.startswith("tensorboard."):
            self._warn_once(failed.exc_value)
        else:
            self._previous_hook(failed)

    def _warn_once(self, error: OSError) -> None:
        if not self._warned:
            self._warned = True
            print(
                f"{self._folder} can't be written any more ({error.strerror}). Training and metrics.jsonl continue.",
                file=sys.stderr,
            )


class Episodes:
    """Averages over the last training episodes.

    Args:
        before: the last row of metrics of an earlier start. Its average stands for each of the last episodes then.
    """

    def __init__(self, before: Mapping[str, float] = MappingProxyType({}), window: int = EPISODES_AVERAGED) -> None:
        averaged = {name: each for name, each in before.items() if name.startswith((ROLLOUT, REWARD))}
        count = int(before.get("time/episodes", 0)) if averaged else 0
        self._ended: deque[Mapping[str, float]] = deque([averaged] * min(count, window), maxlen=window)

    def add(self, episode: EpisodeEnded) -> None:
        """Add an episode that ended."""
        self._ended.append(
            {
                f"{ROLLOUT}ep_rew_mean": episode.reward,
                f"{ROLLOUT}ep_len_mean": episode.length,
                f"{ROLLOUT}success_rate": episode.success,
                f"{ROLLOUT}route_completion": episode.route_completion,
                **{f"{REWARD}{name}": value for name, value in episode.reward_terms.items()},
            }
        )

    @property
    def mean_return(self) -> float | None:
        """Mean sum of rewards; None before the first episode."""
        return self._mean(f"{ROLLOUT}ep_rew_mean") if self._ended else None

    @property
    def mean_completion(self) -> float | None:
        """Mean route completion; None before the first episode."""
        return self._mean(f"{ROLLOUT}route_completion") if self._ended else None

    def scalars(self) -> dict[str, float]:
        """Return the averages as scalars; empty before the first episode."""
        return {name: self._mean(name) for name in dict.fromkeys(name for episode in self._ended for name in episode)}

    def _mean(self, name: str) -> float:
        return sum(episode.get(name, 0.0) for episode in self._ended) / len(self._ended)


def last_row(lines: Path) -> dict[str, float]:
    """Return the last row with averages of episodes in a file of metrics; empty if there is none."""
    rows = reversed(LinesRead(lines.name).rows(tail(lines).split("\n")))
    return next((numbers(row) for row in rows if f"{ROLLOUT}ep_rew_mean" in row), {})
