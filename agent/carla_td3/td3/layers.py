"""What actor, critics and both encoders share: how a layer is initialised, and in which dtype convolutions compute."""

from __future__ import annotations

import torch
from torch import Tensor, nn


def orthogonal(layer: nn.Module, gain: float) -> None:
    """Give a linear layer or a convolution orthogonal weights, scaled by ``gain``, and biases of zero."""
    assert isinstance(layer, (nn.Linear, nn.Conv2d))
    assert layer.bias is not None
    nn.init.orthogonal_(layer.weight, gain)
    nn.init.zeros_(layer.bias)


def arithmetic(tensor: Tensor) -> torch.dtype:
    """Return the dtype of convolutions here: autocast's, or float32."""
    device = tensor.device.type
    return torch.get_autocast_dtype(device) if torch.is_autocast_enabled(device) else torch.float32
