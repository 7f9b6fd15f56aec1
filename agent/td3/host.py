"""Tensors that live on the host and serve a GPU. Owns how they are made; knows nothing of what they mean."""

from __future__ import annotations

import torch
from torch import Tensor

HOST = torch.device("cpu")


def host_twin(tensor: Tensor, device: torch.device) -> Tensor:
    """Return a copy on the host in the same memory order, page-locked if ``device``, which it serves, is a GPU."""
    twin = torch.empty_like(tensor, device=HOST, pin_memory=device.type == "cuda", requires_grad=False)
    return twin.copy_(tensor.detach())
