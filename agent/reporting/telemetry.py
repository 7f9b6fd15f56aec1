"""What a run tells: events and metrics, one JSON object a line, and TensorBoard beside them.

Owns ``agent-events.jsonl``, ``metrics.jsonl`` and ``tensorboard/``. A disk that refuses a line never stops
training: the line is lost, and that is said once on stderr.
"""

from __future__ import annotations

import contextlib
import errno
import json
import math
import os
import sys
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from torch.utils.tensorboard import SummaryWriter

from agent.exchange.messages import EpisodeEnded
from contract.events import Decisive

EPISODES_AVERAGED = 100
"""As Stable-Baselines3's ``stats_window_size``, so that curves compare."""


class JsonLines:
    """A file of JSON objects, one a line, appended to; every line is flushed."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._complained = False

    def append(self, row: Mapping[str, Any]) -> None:
        """Add one line; NaN and infinity become null, since JSON has none."""
        line = json.dumps({key: _finite(value) for key, value in row.items()}) + "\n"
        try:
            self._write(line.encode())
        except OSError as error:
            self._complain(error)

    def _write(self, line: bytes) -> None:
        """Write the line in one call, or nothing: a filling disk takes a part, which would spoil the next line too."""
        with self._path.open("ab", buffering=0) as file:
            before = file.seek(0, os.SEEK_END)
            if file.write(line) < len(line):
                file.truncate(before)
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    def _complain(self, error: OSError) -> None:
        if not self._complained:
            print(f"{self._path}: lines are being lost ({error.strerror}); training goes on.", file=sys.stderr)
        self._complained = True


class EventLog:
    """Why things happened: time, event, cause, and the numbers that decided."""

    def __init__(self, path: Path, clock: Callable[[], float] = time.time) -> None:
        self._lines = JsonLines(path)
        self._clock = clock

    def append(self, event: str, cause: str = "", **numbers: Any) -> None:
        """Add one event. ``event`` is an ``AgentEvent``'s word, ``cause`` a few words for a person."""
        self._lines.append({"time": round(self._clock(), 3), "event": event, "cause": cause, **numbers})

    def add(self, event: Decisive) -> None:
        """Add one event that the launcher decides by."""
        self.append(event.event, event.cause, **event.fields())


class Metrics:
    """Scalars by step, to TensorBoard (Stable-Baselines3's names) and to JSON lines."""

    def __init__(self, tensorboard: Path, lines: Path) -> None:
        self._folder = tensorboard
        self._writer: SummaryWriter | None = SummaryWriter(str(tensorboard))
        self._lines = JsonLines(lines)

    def write(self, step: int, scalars: Mapping[str, float]) -> None:
        """Write one row at a number of environment steps."""
        with self._surviving_a_full_disk():
            for name, value in scalars.items():
                if self._writer is not None:
                    self._writer.add_scalar(name, value, step)
        self._lines.append({"step": step, **scalars})

    def close(self) -> None:
        """Flush and end the writer's thread."""
        with self._surviving_a_full_disk():
            if self._writer is not None:
                self._writer.close()

    @contextlib.contextmanager
    def _surviving_a_full_disk(self) -> Iterator[None]:
        # The writer's thread ends at its first refused write, and each later call raises that error here.
        try:
            yield
        except OSError as error:
            self._writer = None
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


def _finite(value: Any) -> Any:
    return None if isinstance(value, float) and not math.isfinite(value) else value
