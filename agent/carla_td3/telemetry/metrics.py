"""The metrics of a run, ``metrics.jsonl`` and ``tensorboard/``, and the averages over its last episodes.

TensorBoard has pictures and hyper-parameters as well; scalars have Stable-Baselines3's names. A disk that refuses a row
never stops training: the row is lost, and that is said once on stderr.
"""

from __future__ import annotations

import contextlib
import struct
import sys
import threading
from collections import deque
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from tensorboard.compat.proto.summary_pb2 import Summary  # type: ignore[import-untyped]
from torch.utils.tensorboard import FileWriter
from torch.utils.tensorboard.summary import hparams

from carla_run.event_log import JsonLines
from carla_run.keys import leaves
from carla_td3.exchange.messages import EpisodeEnded

FINAL_FIGURES = (
    *("rollout/ep_rew_mean", "rollout/success_rate", "eval/mean_reward", "eval/success_rate"),
    *("eval/route_completion", "eval/driving_score"),
)
"""Scalars whose last values stand beside a run's hyper-parameters."""
PNG_SIZE = struct.Struct(">16x2I")
EPISODES_AVERAGED = 100
"""As Stable-Baselines3's ``stats_window_size``, so that curves compare."""


class Metrics:
    """Scalars by step, to TensorBoard (Stable-Baselines3's names) and to JSON lines."""

    def __init__(self, tensorboard: Path, lines: Path) -> None:
        self._folder = tensorboard
        self._writer: FileWriter | None = None
        self._complained = False
        self._hook, threading.excepthook = threading.excepthook, self._on_thread_error
        with self._surviving_a_full_disk():
            self._writer = FileWriter(str(tensorboard))
        self._lines = JsonLines(lines)

    def write(self, step: int, scalars: Mapping[str, float]) -> None:
        """Write one row at a number of environment steps."""
        values = [Summary.Value(tag=name, simple_value=float(value)) for name, value in scalars.items()]
        self._add(Summary(value=values), step)
        self._lines.append({"step": step, **scalars})

    def hyperparameters(self, config: Mapping[str, Any]) -> None:
        """Write a configuration's values for the table of runs, beside ``FINAL_FIGURES``."""
        flat = {name: each if isinstance(each, bool | int | float) else str(each) for name, each in leaves(config)}
        for each in hparams(flat, dict.fromkeys(FINAL_FIGURES, 0.0)):  # type: ignore[no-untyped-call]
            self._add(each, None)

    def picture(self, step: int, name: str, path: Path) -> None:
        """Write a PNG file as an image; one that can't be read is left out."""
        try:
            png = path.read_bytes()
            width, height = PNG_SIZE.unpack_from(png)
        except (OSError, struct.error):
            return
        image = Summary.Image(height=height, width=width, colorspace=3, encoded_image_string=png)
        self._add(Summary(value=[Summary.Value(tag=name, image=image)]), step)

    def _add(self, summary: Summary, step: int | None) -> None:
        with self._surviving_a_full_disk():
            if self._writer is not None:
                self._writer.add_summary(summary, step)

    def close(self) -> None:
        """Flush and end the writer's thread."""
        with self._surviving_a_full_disk():
            if self._writer is not None:
                self._writer.close()
        threading.excepthook = self._hook

    @contextlib.contextmanager
    def _surviving_a_full_disk(self) -> Iterator[None]:
        # The writer's thread ends at its first refused write, and each later call raises that error here.
        try:
            yield
        except OSError as error:
            self._writer = None
            self._complain(error)

    def _on_thread_error(self, failed: threading.ExceptHookArgs) -> None:
        """Say in a line, not in a traceback, that TensorBoard's thread has ended for a disk."""
        if isinstance(failed.exc_value, OSError) and type(failed.thread).__module__.startswith("tensorboard."):
            self._complain(failed.exc_value)
        else:
            self._hook(failed)

    def _complain(self, error: OSError) -> None:
        if not self._complained:
            self._complained = True
            print(f"{self._folder}: gets no more ({error.strerror}); training and the lines go on.", file=sys.stderr)


class Episodes:
    """The last episodes of training, averaged."""

    def __init__(self, window: int = EPISODES_AVERAGED) -> None:
        self._ended: deque[EpisodeEnded] = deque(maxlen=window)

    def add(self, episode: EpisodeEnded) -> None:
        """Take in an episode that ended."""
        self._ended.append(episode)

    @property
    def mean_return(self) -> float | None:
        """Mean sum of rewards; None before the first episode."""
        return _mean([episode.reward for episode in self._ended])

    @property
    def mean_completion(self) -> float | None:
        """Mean share of the route that was driven; None before the first episode."""
        return _mean([episode.route_completion for episode in self._ended])

    def scalars(self) -> dict[str, float]:
        """Return the row's part; empty before the first episode."""
        if not self._ended:
            return {}
        count = len(self._ended)
        terms = {name for episode in self._ended for name in episode.reward_terms}
        return {
            "rollout/ep_rew_mean": sum(episode.reward for episode in self._ended) / count,
            "rollout/ep_len_mean": sum(episode.length for episode in self._ended) / count,
            "rollout/success_rate": sum(episode.success for episode in self._ended) / count,
            "rollout/route_completion": sum(episode.route_completion for episode in self._ended) / count,
            **{
                f"reward/{name}": sum(episode.reward_terms.get(name, 0.0) for episode in self._ended) / count
                for name in sorted(terms)
            },
        }


def _mean(values: list[float]) -> float | None:
    return sum(values) / len(values) if values else None
