"""The fast linear layer computes what the plain one does, forward and backward."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.profiler import ProfilerActivity, profile

from carla_td3.td3.kernels import linear
from carla_td3.td3.kernels.linear import Linear


@pytest.mark.parametrize("batch", [1, 16, 37])
def test_fast_linear_equals_the_plain_one_with_its_gradients(batch: int) -> None:
    torch.manual_seed(0)
    plain, fast = nn.Linear(70, 30), Linear(70, 30)
    fast.load_state_dict(plain.state_dict())
    inputs = [torch.randn(batch, 70).requires_grad_() for _ in range(2)]
    inputs[1].data.copy_(inputs[0].data)
    weights = torch.randn(batch, 30)
    for layer, x in zip((plain, fast), inputs, strict=True):
        (layer(x) * weights).sum().backward()
    torch.testing.assert_close(fast(inputs[1]), plain(inputs[0]))
    torch.testing.assert_close(inputs[1].grad, inputs[0].grad)
    torch.testing.assert_close(fast.weight.grad, plain.weight.grad)
    torch.testing.assert_close(fast.bias.grad, plain.bias.grad)


def test_an_expanded_gradient_is_taken_as_it_comes() -> None:
    fast = Linear(8, 4)
    x = torch.randn(20, 8).requires_grad_()
    fast(x).sum().backward()  # its gradient is one number, expanded
    torch.testing.assert_close(x.grad, fast.weight.sum(0).expand(20, 8))


@pytest.mark.skipif(not linear._ONEDNN, reason="this PyTorch has no oneDNN")
@pytest.mark.parametrize(
    ("batch", "dtype", "autocast", "fast"),
    [
        (16, torch.float32, False, True),
        (256, torch.float32, False, True),
        (15, torch.float32, False, False),
        (1, torch.float32, False, False),
        (64, torch.bfloat16, False, False),
        (64, torch.float32, True, False),
    ],
)
def test_onednn_computes_batches_of_float32_and_nothing_else(
    batch: int, dtype: torch.dtype, autocast: bool, fast: bool
) -> None:
    layer, x = Linear(8, 4).to(dtype), torch.randn(batch, 8, dtype=dtype)
    with profile(activities=[ProfilerActivity.CPU]) as seen, torch.autocast("cpu", torch.bfloat16, enabled=autocast):
        layer(x)
    assert any(event.key == "mkldnn::_linear_pointwise" for event in seen.key_averages()) is fast
