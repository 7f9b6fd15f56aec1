"""Tensors that stay on the host and serve a GPU: page-locked copies, and targets that visit the device."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping

import torch
from torch import Tensor, nn

HOST = torch.device("cpu")


def host_twin(tensor: Tensor, device: torch.device) -> Tensor:
    """Return a copy on the host in the same memory order; page-locked if ``device`` is a GPU."""
    twin = torch.empty_like(tensor, device=HOST, pin_memory=device.type == "cuda", requires_grad=False)
    return twin.copy_(tensor.detach())


class Targets:
    """A module whose parameters follow others of the same names, on the device or on the host."""

    def __init__(
        self, module: nn.Module, online: Mapping[str, Tensor], device: torch.device, *, on_host: bool = False
    ) -> None:
        """Place the module.

        Args:
            module: the targets.
            online: parameters to follow. With ``on_host`` the optimizer's masters are best; others are fetched each
                time.
            device: where the targets are used.
            on_host: keep them on the host between their uses.
        """
        self._module, self._device, self._on_host = module, device, on_host
        module.to(HOST if on_host else device)
        if on_host:
            for parameter in module.parameters():
                parameter.data = host_twin(parameter, device)
            for buffer in module.buffers():  # constants of its geometry: small, and nothing follows them
                buffer.data = buffer.to(device)
        self._online = [online[name] for name, _ in module.named_parameters()]
        away = on_host and self._online[0].device != HOST
        self._fetched = [host_twin(each, device) for each in self._online] if away else []

    @contextlib.contextmanager
    def on_device(self) -> Iterator[None]:
        """Put the module on the device while the block runs. If it lives on the host, the device's copy is dropped
        after.
        """
        if not self._on_host:
            yield
            return
        home = [parameter.data for parameter in self._module.parameters()]
        try:
            for parameter in self._module.parameters():
                parameter.data = parameter.data.to(self._device, non_blocking=True, copy=True)
            yield
        finally:
            for parameter, tensor in zip(self._module.parameters(), home, strict=True):
                parameter.data = tensor

    @torch.no_grad()
    def pairs(self) -> tuple[list[Tensor], list[Tensor]]:
        """Return the targets' tensors and those that they follow, both where the targets live; allocates nothing."""
        if self._fetched:
            torch._foreach_copy_(self._fetched, self._online)
        return list(self._module.parameters()), self._fetched or self._online
