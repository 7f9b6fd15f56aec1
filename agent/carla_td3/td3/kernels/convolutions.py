"""The encoder's three convolutions as one operation, with a backward pass that keeps little and stays in cache.

Owns the arithmetic of that stack and its derivative. Knows no layer's initialisation, no optimizer and no precision
policy: weights, frames and the dtype to compute in are arguments.

It is written out for two reasons. PyTorch would keep the converted frames for the backward pass, more than half of all
that the encoder keeps; here the frames themselves, one byte per pixel, are converted a second time. And on the CPU the
rows go through in parts that stay in the processor's caches, each convolution with its ReLU in one pass.
"""

from __future__ import annotations

from math import isqrt
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn import functional

from carla_td3.td3.kernels.arithmetic import CACHED_ROWS, cpu_has_bfloat16

_PIXEL = torch.complex128  # 16 bytes that are moved together: the 4×4 pixels of a cell, nothing is computed with it
_MKLDNN = torch.backends.mkldnn.is_available() and hasattr(torch.ops.mkldnn, "_convolution_pointwise")  # type: ignore[no-untyped-call]


def convolved(frames: Tensor, weights: list[Tensor], biases: list[Tensor], dtype: torch.dtype) -> Tensor:
    """Return relu(conv₃(relu(conv₂(relu(conv₁(frames)))))) as (B, cells × channels) of ``dtype``, cells first.

    Args:
        frames: (B, 4, 21, 21, 16 a plane) uint8; must not change before the backward pass.
        weights: of the three convolutions, channels_last.
        biases: of the same.
        dtype: dtype to compute in.
    """
    y: Tensor = _Convolutions.apply(frames, dtype, *weights, *biases)  # type: ignore[no-untyped-call]
    return y


class _Convolutions(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, frames: Tensor, dtype: torch.dtype, *parameters: Tensor) -> Tensor:
        weights, biases = [p.to(dtype) for p in parameters[:3]], [p.to(dtype) for p in parameters[3:]]
        outputs = [_forwards(part, weights, biases) for part in _parts(frames)]
        last = torch.cat([part.pop().permute(0, 2, 3, 1).flatten(1) for part in outputs])  # in memory order
        ctx.save_for_backward(frames, last, *weights, *(y for part in outputs for y in part))
        return last

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        frames, last, *rest = ctx.saved_tensors
        weights, kept = rest[:3], rest[3:]
        total: list[Tensor] = []
        for index, part in enumerate(_parts(frames)):
            outputs = [*kept[2 * index : 2 * index + 2], _cells(_parts(last)[index], weights[2])]
            found = _backward_all(_cells(_parts(gradients[0])[index], weights[2]), part, outputs, weights)
            total = [a.add_(b) for a, b in zip(total, found, strict=True)] if total else found
        return None, None, *total


def _parts(rows: Tensor) -> tuple[Tensor, ...]:
    return torch.split(rows, CACHED_ROWS if rows.device.type == "cpu" else len(rows))


def _cells(flat: Tensor, weight: Tensor) -> Tensor:
    """Return (B, cells × channels), the output of the last weight, as (B, channels, 7, 7); 4×4 for a smaller frame."""
    across = isqrt(flat.shape[1] // len(weight))
    return flat.view(len(flat), across, across, len(weight)).permute(0, 3, 1, 2)


def _pixels(frames: Tensor, dtype: torch.dtype) -> Tensor:
    """Return (B, 4, 21, 21, 16) bytes as (B, 64, 21, 21) of ``dtype``, channels_last; more planes, more channels."""
    cells = frames.view(_PIXEL).permute(0, 2, 3, 1, 4).contiguous().view(torch.uint8).flatten(3)
    return cells.to(dtype).permute(0, 3, 1, 2)


def _apart(frames: Tensor, weight: Tensor) -> tuple[Tensor, Tensor]:
    """Return the first convolution's input in three dimensions, the frames one behind the other: no pixel moves.

    Shapes: (B, 16, 4, 21, 21) of the weight's dtype, and the weight (32, 64, 2, 2) as (32, 16, 4, 2, 2), both channels
    last.
    """
    return frames.to(weight.dtype).permute(0, 4, 1, 2, 3), _split(weight, 1, frames.shape[1]).transpose(1, 2)


def _paired(x: Tensor) -> Tensor:
    """Return (B, C, H, W) channels_last as (B, 2C, H, W / 2), a view: neighbours in a row become channels.

    The second convolution's 4×4 of stride 2 is then 4×2 of stride (2, 1) with paired weights, the same sums. That makes
    oneDNN's backward passes faster, in bfloat16 by a quarter. Of an odd width (15, of a small frame) the last column is
    left out: no window of that stride reaches it.
    """
    pairs = x.shape[3] // 2
    return _split(x.permute(0, 2, 3, 1)[:, :, : 2 * pairs], 2, pairs).flatten(3).permute(0, 3, 1, 2)


def _unpaired(x: Tensor, width: int) -> Tensor:
    """Undo ``_paired``; the column that it left out is 0."""
    y = _split(x.permute(0, 2, 3, 1), 3, 2).flatten(2, 3).permute(0, 3, 1, 2)
    return functional.pad(y, (0, 1)) if y.shape[3] < width else y


def _split(x: Tensor, dimension: int, parts: int) -> Tensor:
    return x.view(*x.shape[:dimension], parts, -1, *x.shape[dimension + 1 :])


def _forwards(frames: Tensor, weights: list[Tensor], biases: list[Tensor]) -> list[Tensor]:
    if _is_fused(weights[0]):
        first = _convolution(*_apart(frames, weights[0]), biases[0], [1, 1, 1]).squeeze(2)
    else:
        first = _convolution(_pixels(frames, weights[0].dtype), weights[0], biases[0], [1, 1])
    second = _convolution(_paired(first), _paired(weights[1]), biases[1], [2, 1])
    return [first, second, _convolution(second, weights[2], biases[2], [1, 1])]


def _is_fused(weight: Tensor) -> bool:
    if weight.device.type != "cpu" or not _MKLDNN:
        return False
    return weight.dtype == torch.float32 or (weight.dtype == torch.bfloat16 and cpu_has_bfloat16())


def _convolution(x: Tensor, weight: Tensor, bias: Tensor, stride: list[int]) -> Tensor:
    if not _is_fused(weight):
        return functional.conv2d(x, weight, bias, stride).relu_()
    none = [0] * len(stride)
    y: Tensor = torch.ops.mkldnn._convolution_pointwise(
        x, weight, bias, none, stride, [1] * len(stride), 1, "relu", [], ""
    )
    return y


def _backward_all(gradient: Tensor, frames: Tensor, outputs: list[Tensor], weights: list[Tensor]) -> list[Tensor]:
    """Return the float32 gradients of the three weights, then of the three biases."""
    first, second, third = outputs
    gradient = torch.ops.aten.threshold_backward(gradient, third, 0)
    gradient, of_third, third_bias = _backward(gradient, second, weights[2], [1, 1])
    _through_relu(gradient, second)
    gradient, of_second, second_bias = _backward(gradient, _paired(first), _paired(weights[1]), [2, 1])
    gradient = _unpaired(gradient, first.shape[3])
    _through_relu(gradient, first)
    of_first, first_bias = _backward_first(gradient, frames, weights[0])
    found = [of_first, _unpaired(of_second, 4), of_third, first_bias, second_bias, third_bias]
    return [each.float() for each in found]


def _backward_first(gradient: Tensor, frames: Tensor, weight: Tensor) -> tuple[Tensor, Tensor]:
    if not (_is_fused(weight) and weight.dtype == torch.float32):  # bfloat16 is a third slower in three dimensions
        return _backward(gradient, _pixels(frames, weight.dtype), weight, [1, 1], down=False)[1:]
    x, apart = _apart(frames, weight)
    _, of_weight, of_bias = _backward(gradient.unsqueeze(2), x, apart, [1, 1, 1], down=False)
    return of_weight.transpose(1, 2).flatten(1, 2), of_bias


def _backward(
    gradient: Tensor, x: Tensor, weight: Tensor, stride: list[int], *, down: bool = True
) -> tuple[Tensor, Tensor, Tensor]:
    """Return the gradients of x (undefined unless ``down``), weight and bias."""
    none, wants = [0] * len(stride), [down, True, True]
    found: tuple[Tensor, Tensor, Tensor] = torch.ops.aten.convolution_backward(
        gradient, x, weight, [len(weight)], stride, none, [1] * len(stride), False, none, 1, wants
    )
    return found


def _through_relu(gradient: Tensor, y: Tensor) -> None:
    torch.ops.aten.threshold_backward.grad_input(gradient, y, 0, grad_input=gradient)  # in place
