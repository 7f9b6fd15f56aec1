"""The convolutions as one operation give what PyTorch's own layers and autograd give."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor
from torch.nn import functional

from carla_td3.td3.kernels.arithmetic import cpu_has_bfloat16
from carla_td3.td3.kernels.convolutions import convolved
from carla_td3.td3.replay.frames import STACK, frame_shape

SHAPES = ((8, 64, 2, 2), (12, 8, 4, 4), (16, 12, 3, 3))


def _strips(rows: int) -> Tensor:
    """Return sampled frames: five a row, of which an encoder takes four."""
    generator = torch.Generator().manual_seed(0)
    return torch.randint(0, 256, (rows, STACK + 1, *frame_shape()), dtype=torch.uint8, generator=generator)


def _parameters() -> list[Tensor]:
    generator = torch.Generator().manual_seed(1)
    weights = [
        torch.randn(shape, generator=generator).mul_(0.02).to(memory_format=torch.channels_last) for shape in SHAPES
    ]
    biases = [torch.randn(shape[0], generator=generator) for shape in SHAPES]
    return [parameter.requires_grad_() for parameter in (*weights, *biases)]


def _layer_by_layer(frames: Tensor, parameters: list[Tensor], dtype: torch.dtype) -> Tensor:
    """Return what exact layers give: float64, rounded to ``dtype`` where a tensor of it is stored, on both ways.

    Without those roundings other outputs would be cut off at 0, and their gradients with them.
    """

    def stored(x: Tensor) -> Tensor:
        return x.to(dtype).double()

    x = stored(torch.cat(frames.unbind(1), dim=-1).permute(0, 3, 1, 2))
    for weight, bias, stride in zip(parameters[:3], parameters[3:], (1, 2, 1), strict=True):
        x = stored(functional.relu(functional.conv2d(x, stored(weight), stored(bias), stride)))
    return x.permute(0, 2, 3, 1).flatten(1)


def _relative(ours: Tensor, theirs: Tensor) -> float:
    ours, theirs = ours.detach().double(), theirs.detach().double()
    return float((ours - theirs).norm() / theirs.norm())


@pytest.mark.parametrize(("dtype", "bound"), [(torch.float32, 5e-6), (torch.bfloat16, 1e-2), (torch.float16, 5e-3)])
@pytest.mark.parametrize("rows", [1, 64, 130])
@pytest.mark.parametrize("first", [0, 1])
def test_outputs_and_gradients_are_those_of_the_layers(dtype: torch.dtype, bound: float, rows: int, first: int) -> None:
    if dtype == torch.bfloat16 and not cpu_has_bfloat16():
        pytest.skip("without bfloat16 in hardware the encoder takes float32 (test_precision)")
    frames, parameters = _strips(rows)[:, first : first + STACK], _parameters()
    ours, theirs = (
        convolved(frames, parameters[:3], parameters[3:], dtype),
        _layer_by_layer(frames, parameters, dtype),
    )
    assert ours.dtype == dtype
    assert _relative(ours, theirs) <= bound
    upwards = torch.randn(theirs.shape, generator=torch.Generator().manual_seed(2)).to(dtype)
    wanted = torch.autograd.grad(theirs, parameters, upwards.double())
    found = torch.autograd.grad(ours, parameters, upwards)
    for name, one, other in zip(("w1", "w2", "w3", "b1", "b2", "b3"), found, wanted, strict=True):
        assert one.dtype == torch.float32
        assert _relative(one, other) <= bound, name


def test_the_converted_frames_are_not_kept_for_the_way_back() -> None:
    frames, parameters = _strips(96)[:, :STACK], _parameters()
    kept = 0

    def count(tensor: Tensor) -> Tensor:
        nonlocal kept
        kept += tensor.numel() * tensor.element_size() if tensor.dtype is torch.float32 else 0
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(count, lambda tensor: tensor):
        convolved(frames, parameters[:3], parameters[3:], torch.float32)
    cells = 96 * (20 * 20 * 8 + 9 * 9 * 12 + 7 * 7 * 16)
    assert kept == 4 * (cells + sum(weight.numel() for weight in parameters[:3]))
