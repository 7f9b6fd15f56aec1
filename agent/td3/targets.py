"""The target networks θ'₁, θ'₂, φ': where they live, their visits to the device, and how they follow θ and φ.

Owns no weight: the module is ``TD3``'s, and so is what it follows. Knows no loss.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping

import torch
from torch import Tensor, nn

from agent.td3.host import HOST, host_twin


class Targets:
    """A module that follows parameters of the same names, on their device or on the host."""

    def __init__(
        self, module: nn.Module, online: Mapping[str, Tensor], device: torch.device, *, on_host: bool = False
    ) -> None:
        """Put the module where it belongs.

        Args:
            module: the targets.
            online: what they follow; where ``on_host``, best the optimizer's masters: others are fetched each time.
            device: where the targets are computed with.
            on_host: keep them on the host, and let them visit the device.
        """
        self._module, self._device, self._on_host = module, device, on_host
        module.to(HOST if on_host else device)
        if on_host:
            for parameter in module.parameters():
                parameter.data = host_twin(parameter, device)
        self._online = [online[name] for name, _ in module.named_parameters()]
        away = on_host and self._online[0].device != HOST
        self._fetched = [host_twin(each, device) for each in self._online] if away else []

    @contextlib.contextmanager
    def visit(self) -> Iterator[None]:
        """Let the module compute on the device; where it lives on the host, its copy there is dropped afterwards."""
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
    def follow(self, tau: float) -> None:
        """θ' ← τ θ + (1 - τ) θ', in place; on the host nothing is allocated on the device."""
        if self._fetched:
            torch._foreach_copy_(self._fetched, self._online)
        torch._foreach_lerp_(list(self._module.parameters()), self._fetched or self._online, tau)
