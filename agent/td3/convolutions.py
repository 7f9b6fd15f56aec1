"""The encoder's three convolutions as one operation, forwards and back: little is kept, and what is used is in cache.

Owns the arithmetic of that stack and its derivative. Knows no layer's initialisation, no optimizer and no precision
policy: weights, frames and the dtype to compute in are arguments.

Written out for two reasons. PyTorch would keep the converted frames for the way back, more than half of all that the
encoder keeps; the frames themselves, a byte a pixel, are there anyway and are converted a second time. And on the CPU
the rows go through in parts whose numbers stay in the processor's caches, each convolution with its ReLU in one pass.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn import functional

from agent.td3.frames import CACHED_ROWS

STRIDES = (1, 2, 1)
_SIDE = 7  # of the last output: 84 → 20 → 9 → 7
_PIXEL = torch.complex128  # 16 bytes that are moved together: the 4×4 pixels of a cell, nothing is computed with it
_MKLDNN = torch.backends.mkldnn.is_available() and hasattr(torch.ops.mkldnn, "_convolution_pointwise")  # type: ignore[no-untyped-call]
_FUSED = {
    torch.float32: _MKLDNN,
    torch.bfloat16: _MKLDNN and torch.ops.mkldnn._is_mkldnn_bf16_supported(),  # AVX-512 at least
}


def convolved(frames: Tensor, weights: list[Tensor], biases: list[Tensor], dtype: torch.dtype) -> Tensor:
    """Return relu(conv₃(relu(conv₂(relu(conv₁(frames)))))) as (B, cells × channels) of ``dtype``, cells first.

    Args:
        frames: (B, 4, 21, 21, 16) uint8; must not change before the way back.
        weights: of the three convolutions, channels_last.
        biases: of the same.
        dtype: to compute in.
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
            found = _backwards(_cells(_parts(gradients[0])[index], weights[2]), part, outputs, weights)
            total = [a.add_(b) for a, b in zip(total, found, strict=True)] if total else found
        return None, None, *total


def _parts(rows: Tensor) -> tuple[Tensor, ...]:
    return torch.split(rows, CACHED_ROWS if rows.device.type == "cpu" else len(rows))


def _cells(flat: Tensor, weight: Tensor) -> Tensor:
    """Return (B, cells × channels), what the last weight gives, as (B, channels, 7, 7)."""
    return flat.view(len(flat), _SIDE, _SIDE, len(weight)).permute(0, 3, 1, 2)


def _pixels(frames: Tensor, dtype: torch.dtype) -> Tensor:
    """Return (B, 4, 21, 21, 16) bytes as (B, 64, 21, 21) of ``dtype``, channels_last."""
    cells = frames.view(_PIXEL).squeeze(-1).permute(0, 2, 3, 1).contiguous().view(torch.uint8)
    return cells.to(dtype).permute(0, 3, 1, 2)


def _forwards(frames: Tensor, weights: list[Tensor], biases: list[Tensor]) -> list[Tensor]:
    x = _pixels(frames, weights[0].dtype)
    outputs = []
    for weight, bias, stride in zip(weights, biases, STRIDES, strict=True):
        x = _convolution(x, weight, bias, stride)
        outputs.append(x)
    return outputs


def _convolution(x: Tensor, weight: Tensor, bias: Tensor, stride: int) -> Tensor:
    if x.device.type != "cpu" or not _FUSED.get(x.dtype):
        return functional.conv2d(x, weight, bias, stride).relu_()
    y: Tensor = torch.ops.mkldnn._convolution_pointwise(
        x, weight, bias, [0, 0], [stride, stride], [1, 1], 1, "relu", [], ""
    )
    return y


def _backwards(gradient: Tensor, frames: Tensor, outputs: list[Tensor], weights: list[Tensor]) -> list[Tensor]:
    """Return the float32 gradients of the three weights, then of the three biases."""
    of_weights: list[Tensor] = []
    of_biases: list[Tensor] = []
    gradient = torch.ops.aten.threshold_backward(gradient, outputs[2], 0)
    for layer in (2, 1, 0):
        x = outputs[layer - 1] if layer else _pixels(frames, weights[0].dtype)
        below, of_weight, of_bias = torch.ops.aten.convolution_backward(
            *(gradient, x, weights[layer], [len(weights[layer])]),
            *([STRIDES[layer]] * 2, [0, 0], [1, 1], False, [0, 0], 1),
            [layer > 0, True, True],
        )
        of_weights.insert(0, of_weight.float())
        of_biases.insert(0, of_bias.float())
        if layer:  # in place: through the ReLU below
            gradient = torch.ops.aten.threshold_backward.grad_input(below, x, 0, grad_input=below)
    return [*of_weights, *of_biases]
