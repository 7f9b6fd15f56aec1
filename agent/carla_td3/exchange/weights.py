"""The weights that drive: one flat float32 block from the learner to the collector, in a mapped file.

Owns the layout: a header and two slots. Version v is in slot v mod 2, so the newest version is never the one being
written; a reader that was overtaken by two versions notices and copies again. Knows no network.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
import torch

from carla_run.exits import Exit, ExitError
from carla_td3.exchange.blocks import Block, Count

FloatArray = npt.NDArray[np.float32]

_MAGIC = 0x54443357  # "TD3W"
_HEADER_BYTES = 64


def _layout(count: int) -> np.dtype[np.void]:
    numbers = [("magic", "i8"), ("count", "i8"), ("version", "i8"), ("begun", "i8", 2), ("updates", "i8", 2)]
    return np.dtype([*numbers, ("spare", "i8"), ("slots", "f4", (2, count))])


class WeightsError(ExitError):
    """The file holds another network's weights; one sentence."""

    code = Exit.BAD_CONFIG


@dataclass(frozen=True)
class Weights:
    """One version."""

    version: int
    updates: int
    """The update after which they were published."""
    flat: FloatArray


class WeightsFile(Block):
    """The mapped file. One process publishes; any number of processes read."""

    count, version = Count(), Count()
    """Number of parameters; and the newest complete version, 0 before the first."""

    def __init__(self, path: Path) -> None:
        """Map an existing file.

        Raises:
            WeightsError: it isn't one of these files.
        """
        slots_bytes = path.stat().st_size - _HEADER_BYTES
        super().__init__(path, _layout(max(0, slots_bytes // 8)))
        if int(self.record["magic"][0]) != _MAGIC or slots_bytes != 8 * self.count:
            raise WeightsError(f"{path}: is no weights file of this version; delete it, the learner makes a new one.")

    @classmethod
    def create(cls, path: Path, count: int) -> WeightsFile:
        """Return a new file of ``count`` parameters. An old file is replaced, not changed under its readers."""
        temporary = path.with_name(f".{path.name}.new")
        temporary.unlink(missing_ok=True)
        head = Block(temporary, _layout(count)).record
        head["magic"], head["count"] = _MAGIC, count
        temporary.replace(path)
        return cls(path)

    def publish(self, flat: FloatArray, updates: int) -> int:
        """Write the next version and return its number."""
        version = self.version + 1
        slot = version % 2
        self.record["begun"][0, slot] = version
        self.record["slots"][0, slot] = flat
        self.record["updates"][0, slot] = updates
        self.version = version
        return version

    def read(self) -> Weights | None:
        """Return a copy of the newest version, None before the first."""
        while version := self.version:
            slot = version % 2
            flat = self.record["slots"][0, slot].copy()
            updates = int(self.record["updates"][0, slot])
            if int(self.record["begun"][0, slot]) == version:
                return Weights(version, updates, flat)
        return None


def flatten(state: Mapping[str, torch.Tensor]) -> FloatArray:
    """Return all tensors, in the order of their names, as one float32 array on the CPU."""
    pieces = [state[name].detach().to("cpu", torch.float32).reshape(-1) for name in sorted(state)]
    return torch.cat(pieces).numpy()


def unflatten(flat: FloatArray, like: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """Return the tensors that :func:`flatten` was given, with the names and shapes of ``like``.

    Raises:
        WeightsError: the numbers of parameters differ.
    """
    needed = sum(tensor.numel() for tensor in like.values())
    if needed != flat.size:
        raise WeightsError(f"the learner published {flat.size} parameters, this network has {needed}: same config?")
    pieces = torch.split(torch.from_numpy(flat), [like[name].numel() for name in sorted(like)])
    return {name: piece.view(like[name].shape) for name, piece in zip(sorted(like), pieces, strict=True)}
