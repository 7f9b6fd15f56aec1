"""Finished steps of a run, seen from outside: the replay's bytes, copied before a fault and compared after it.

Owns the copies and the rules that rows obey. Reads the files without the replay's code: that is the accused.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from carla_td3.td3.replay.layout import ROW, Layout

FRAME_BYTES = Layout(1).frame_bytes


class Witness:
    """Looks at one replay directory; its ring must not come round."""

    def __init__(self, replay: Path) -> None:
        self._replay = replay
        self.frames = np.zeros((0, FRAME_BYTES), np.uint8)
        self.rows = np.zeros(0, ROW)

    @property
    def steps(self) -> int:
        """Finished transitions on disk now."""
        count = self._published()
        return int(self._mapped("rows.bin", ROW, count)["step"][-1]) if count else 0

    def look(self) -> int:
        """Copy what was published since the last look; return the steps seen."""
        seen, count = len(self.rows), self._published()
        frames = self._mapped("frames.u8", np.dtype((np.uint8, FRAME_BYTES)), count)
        self.frames = np.concatenate([self.frames, frames[seen:]])
        self.rows = np.concatenate([self.rows, self._mapped("rows.bin", ROW, count)[seen:]])
        return int(self.rows["step"][-1]) if len(self.rows) else 0

    def problems(self) -> list[str]:
        """Return what is wrong with the files now: lost or changed rows, torn rows, episodes that don't add up."""
        count, seen = self._published(), len(self.rows)
        if count < seen:
            return [f"{seen - count} of {seen} rows are lost"]
        frames = self._mapped("frames.u8", np.dtype((np.uint8, FRAME_BYTES)), count)
        rows = self._mapped("rows.bin", ROW, count)
        changed = (frames[:seen] != self.frames).any(axis=1) | (raw(rows[:seen]) != raw(self.rows)).any(axis=1)
        found = [f"rows {np.flatnonzero(changed)[:5].tolist()} have changed"] if changed.any() else []
        return found + _broken(rows, frames)

    def unlike(self, other: Witness) -> list[str]:
        """Return where this run's rows differ from those of an undisturbed run, as far as both go."""
        count = min(len(self.rows), len(other.rows))
        other_frames = (self.frames[:count] != other.frames[:count]).any(axis=1)
        differ = other_frames | (raw(self.rows[:count]) != raw(other.rows[:count])).any(axis=1)
        return [f"rows from {np.flatnonzero(differ)[0]} on differ from an undisturbed run's"] if differ.any() else []

    def _published(self) -> int:
        # Without its layout file, written last, the ring is half made and holds nothing.
        if not (self._replay / "replay.json").exists():
            return 0
        return int(np.fromfile(self._replay / "published", np.int64)[0])

    def _mapped(self, name: str, dtype: np.dtype[Any], count: int) -> NDArray[Any]:
        if count == 0:
            return np.zeros((0, *dtype.shape), dtype.base)
        return np.array(np.memmap(self._replay / name, dtype, "r", shape=(count,)))


def raw(rows: NDArray[Any]) -> NDArray[np.uint8]:
    """Return the bytes of rows."""
    return np.ascontiguousarray(rows).view(np.uint8).reshape(len(rows), ROW.itemsize)


def _broken(rows: NDArray[Any], frames: NDArray[np.uint8]) -> list[str]:
    """Return which rows break the rules of ``carla_td3.td3.replay.replay``'s docstring, the first few of each kind."""
    if len(rows) == 0:
        return []
    step, episode_step = rows["step"].astype(np.int64), rows["episode_step"].astype(np.int64)
    first = episode_step == 0
    over = (rows["terminated"] | rows["truncated"]).astype(bool)
    steps = np.diff(step, prepend=0)
    wrong = {
        "count a step that isn't one": np.where(first, steps != 0, steps != 1),
        "don't follow in their episode": ~first & (np.diff(episode_step, prepend=-1) != 1),
        "follow an episode's end": ~first & np.roll(over, 1) & (np.arange(len(rows)) > 0),
        "begin an episode without a step": first & np.append(first[1:], True),
        "have no picture": ~frames.any(axis=1),
        "have no finite figures": ~np.isfinite(rows["vector"]).all(axis=1) | ~np.isfinite(rows["reward"]),
    }
    return [f"rows {np.flatnonzero(which)[:5].tolist()} {what}" for what, which in wrong.items() if which.any()]
