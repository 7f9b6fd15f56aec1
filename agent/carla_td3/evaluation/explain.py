"""Explains a policy: the gradient of each action over the pixels, and the effect of greyed patches.

Each method has its blind spot: a gradient (Simonyan et al. 2014) shows only the effect of tiny changes, occlusion
(Zeiler and Fergus 2014) that of whole patches. Pure: a policy and an observation in, heat maps out.
"""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional

from carla_td3.evaluation.drivers import GREY
from carla_td3.td3.networks import Policy
from carla_td3.td3.replay.frames import BLOCK

Heatmap = NDArray[np.float32]

PATCH, STRIDE = 12, 6
"""Side of a greyed square in pixels, and the distance between two of them."""


def gradients(policy: Policy, image: NDArray[np.uint8], vector: NDArray[np.float32]) -> NDArray[np.float32]:
    """Return ∂action/∂pixel, (2, C, S, S): steering and pedal over an image (C, S, S) in grey levels."""
    stack = policy.stack
    cells = torch.from_numpy(stack.cells(image)).unsqueeze(0).float().requires_grad_()
    read = torch.from_numpy(vector).unsqueeze(0)
    action = policy.actor(policy.encoder.of_floats(cells, read), read)[0]
    found = [_pixels(torch.autograd.grad(each, cells, retain_graph=True)[0]) for each in action]
    return np.stack(found)


def occlusion(policy: Policy, image: NDArray[np.uint8], vector: NDArray[np.float32], planes: int) -> Heatmap:
    """Return how far the action moves, |steering| + |pedal|, when a patch about each pixel is greyed; (S, S).

    Args:
        image: (C, S, S), frames of ``policy.stack.planes`` planes each.
        planes: number of planes of each frame to grey, from the first: those of the front view.
    """
    side, stack = image.shape[-1], policy.stack
    starts = range(0, side - PATCH + 1, STRIDE)
    places = [(top, left) for top in starts for left in starts]
    greyed = np.repeat(image[None], len(places) + 1, axis=0)  # the last one stays as it is
    frames = greyed.reshape(len(greyed), -1, stack.planes, side, side)
    for each, (top, left) in zip(frames, places, strict=False):
        each[:, :planes, top : top + PATCH, left : left + PATCH] = GREY
    with torch.inference_mode():
        cells = torch.from_numpy(np.stack([stack.cells(each) for each in greyed]))
        vectors = torch.from_numpy(vector).expand(len(greyed), -1)
        actions = policy.actor(policy.encoder.seen(cells, vectors)[0], vectors).numpy()
    moved = np.abs(actions[:-1] - actions[-1]).sum(axis=1)
    total, count = np.zeros((2, side, side), np.float32)
    for (top, left), by in zip(places, moved, strict=True):
        total[top : top + PATCH, left : left + PATCH] += by
        count[top : top + PATCH, left : left + PATCH] += 1.0
    return np.divide(total, np.maximum(count, 1.0), dtype=np.float32)


def heatmaps(policy: Policy, image: NDArray[np.uint8], vector: NDArray[np.float32], planes: int) -> dict[str, Heatmap]:
    """Return the heat maps to show, (S, S) each, over the front view's ``planes``, by name."""
    steer, pedal = (_strength(each, policy.stack.planes, planes) for each in gradients(policy, image, vector))
    return {
        "steering: gradient": steer,
        "pedal: gradient": pedal,
        "both: greyed": occlusion(policy, image, vector, planes),
    }


def _strength(gradient: NDArray[np.float32], of: int, planes: int) -> Heatmap:
    """Return the front view's part of a gradient (C, S, S), summed over planes and frames and slightly blurred."""
    size = gradient.shape[-1]
    front = np.abs(gradient.reshape(-1, of, size, size)[:, :planes]).sum(axis=(0, 1))
    blurred: Heatmap = functional.avg_pool2d(torch.from_numpy(front)[None], 3, 1, 1)[0].numpy()
    return blurred


def _pixels(cells: Tensor) -> NDArray[np.float32]:
    """Return stored frames (1, n, S/4, S/4, 16 a plane) as pixels (n · planes, S, S)."""
    pixels: NDArray[np.float32] = functional.pixel_shuffle(cells[0].permute(0, 3, 1, 2), BLOCK).flatten(0, 1).numpy()
    return pixels
