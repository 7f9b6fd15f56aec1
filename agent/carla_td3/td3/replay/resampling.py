"""Adapts stored frames, and the weights of the layer after the convolutions, to another frame size.

Only arithmetic over grids, with areas of overlap as weights. Owns no file and no network. Frames are averaged by area,
as OpenCV's INTER_AREA does when it shrinks (a test compares the two). OpenCV is not used, because it would stay in the
learner's memory, and a resize happens when memory is short.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from carla_td3.td3.replay.frames import convolved_sides, depth_to_space, space_to_depth

_AFTER_CONVOLUTIONS = "encoder.trunk.weight"  # the layer after the convolutions, in networks, targets and Adam's state


def shares(before: int, after: int) -> NDArray[np.float32]:
    """Return a matrix (after, before): which share of each old cell lies in each new cell. Each column adds up to 1."""
    old, new = np.linspace(0, 1, before + 1), np.linspace(0, 1, after + 1)
    begin, end = np.maximum(new[:-1, None], old[None, :-1]), np.minimum(new[1:, None], old[None, 1:])
    share: NDArray[np.float32] = (before * np.clip(end - begin, 0, None)).astype(np.float32)
    return share


def frames(cells: NDArray[np.uint8], side: int) -> NDArray[np.uint8]:
    """Return a plane of stored frames (N, C, C, 16) at another size, (N, S/4, S/4, 16): area averages, rounded."""
    pixels = depth_to_space(cells).astype(np.float32)
    weights = shares(pixels.shape[-1], side)
    weights /= weights.sum(axis=1, keepdims=True)
    averaged = weights @ pixels @ weights.T
    return space_to_depth(np.rint(averaged).astype(np.uint8))


def adapted(state: Mapping[str, Tensor], side: int) -> tuple[dict[str, Tensor], int | None]:
    """Return a TD3 state for frames of ``side`` pixels, and the old grid's cells per side; None if nothing changed.

    Convolutions, heads and their moments stay as they are. The layer after the convolutions gets another grid. Each
    weight is spread over the new cells that its old cell covers, so the output for uniform features is the same. Adam's
    moments are averaged by area.
    """
    across = convolved_sides(side)[-1]
    readers = {name: value for name, value in state.items() if _AFTER_CONVOLUTIONS in name and value.dim() == 2}
    channels = next((len(value) for name, value in state.items() if name.endswith("online.encoder.conv3.weight")), None)
    if channels is None:  # a driver without pictures, or a detector, whose layer reads a mean over the picture's parts
        return dict(state), None
    found = {round((value.shape[1] / channels) ** 0.5) for value in readers.values()}
    if found == {across}:
        return dict(state), None
    before = found.pop()
    spread = torch.from_numpy(shares(before, across))
    averaged = spread / spread.sum(dim=1, keepdim=True)
    resizes = {name: averaged if name.startswith("adam.") else spread for name in readers}
    return {**state, **{name: _resized(readers[name], resize, channels) for name, resize in resizes.items()}}, before


def _resized(weight: Tensor, resize: Tensor, channels: int) -> Tensor:
    """Return a weight (features, cells × channels) on another grid; ``resize`` (after, before) maps both axes."""
    after, before = resize.shape
    grid = weight.view(len(weight), before, before, channels)
    cells = torch.einsum("yb,xd,fbdc->fyxc", resize, resize, grid)
    return cells.reshape(len(weight), after * after * channels).contiguous()
