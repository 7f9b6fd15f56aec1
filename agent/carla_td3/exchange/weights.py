"""The weights that drive: one flat float32 block from the learner to the collector, in a mapped file.

Owns the layout: a header and two slots. Version v lies in slot v mod 2, so the newest version is never the one
being written; a reader that was overtaken by two versions sees it and copies again. Lies in the run directory,
never in /dev/shm: Docker gives that 64 MiB and SIGKILL leaks it (facts.md section 6). Knows no network.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
import torch

from carla_run.exits import Exit, ExitError

FloatArray = npt.NDArray[np.float32]

_MAGIC = 0x54443357  # "TD3W"
_HEADER = np.dtype([("magic", "i8"), ("count", "i8"), ("version", "i8"), ("begun", "i8", 2), ("updates", "i8", 2)])
_HEADER_BYTES = 64


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


class WeightsFile:
    """The mapped file. One process publishes; any number read."""

    def __init__(self, path: Path) -> None:
        """Map an existing file.

        Raises:
            WeightsError: it isn't one of these files.
        """
        size = path.stat().st_size
        raw = np.memmap(path, dtype=np.uint8, mode="r+", shape=(size,))
        self._header = raw[: _HEADER.itemsize].view(_HEADER)
        self.count = int(self._header["count"][0])
        if int(self._header["magic"][0]) != _MAGIC or size != _HEADER_BYTES + 8 * self.count:
            raise WeightsError(f"{path}: is no weights file of this version; delete it, the learner makes a new one.")
        self._slots = raw[_HEADER_BYTES:].view(np.float32).reshape(2, self.count)

    @classmethod
    def create(cls, path: Path, count: int) -> WeightsFile:
        """Return a new file of ``count`` parameters; an old one is replaced, not changed under its readers."""
        temporary = path.with_name(f".{path.name}.new")
        with temporary.open("w+b") as file:
            os.posix_fallocate(file.fileno(), 0, _HEADER_BYTES + 8 * count)
            head = np.zeros(1, _HEADER)
            head["magic"], head["count"] = _MAGIC, count
            file.write(head.tobytes())
        temporary.replace(path)
        return cls(path)

    @property
    def version(self) -> int:
        """The newest complete version; 0 before the first."""
        return int(self._header["version"][0])

    def publish(self, flat: FloatArray, updates: int) -> int:
        """Write the next version and return its number."""
        version = self.version + 1
        slot = version % 2
        self._header["begun"][0, slot] = version
        self._slots[slot] = flat
        self._header["updates"][0, slot] = updates
        self._header["version"] = version
        return version

    def read(self) -> Weights | None:
        """Return a copy of the newest version, None before the first."""
        while version := self.version:
            slot = version % 2
            flat = self._slots[slot].copy()
            updates = int(self._header["updates"][0, slot])
            if int(self._header["begun"][0, slot]) == version:
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
