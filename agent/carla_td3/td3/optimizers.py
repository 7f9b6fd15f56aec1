"""Adam on the device or on the host, as configured, and the scale of a float16 loss.

Owns moments, the host's copies of parameters and gradients, and the decision to skip a step. Knows no network and no
loss. A step ends a phase of an update (``executor``) and can't be rerun, so it must not run out of memory: all its
tensors exist from the start. torch.amp.GradScaler is not used, because it creates its state at first use, and new
tensors in every step. The kernels, the rule and its numbers are GradScaler's (a test compares the two). Adam is the
function of torch.optim, not its class: the class loads torch's compiler, which costs the learner 1 s and 70 MiB.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor, nn
from torch.optim.adam import adam

from carla_td3.td3.placement import host_twin

_FIRST_SCALE = 2.0**16
_GROWTH, _BACKOFF, _GROWTH_INTERVAL = 2.0, 0.5, 2000


class LossScale:
    """Factor of a float16 loss, so that its small gradients don't round to 0 (Micikevicius et al. 2018).

    After an overflow it is halved, and the step is skipped. After 2 000 steps without an overflow it is doubled. It
    belongs to θ's optimizer, and is on the same device. Overflow depends on how a batch is split: each micro-batch's
    gradient is rounded to float16 by itself. The parts may be below 65 504, the largest float16, when their sum is not.
    """

    def __init__(self, place: torch.device) -> None:
        self.value = torch.full((), _FIRST_SCALE, device=place)
        self.growth_tracker = torch.zeros((), dtype=torch.int32, device=place)
        self._scratch = (self.value.clone(), self.growth_tracker.clone())

    def tensors(self) -> dict[str, Tensor]:
        """Return the state by name."""
        return {"value": self.value, "growth_tracker": self.growth_tracker}

    def adjust(self, overflow: Tensor, dry_run: bool) -> None:
        """Halve or double it if a step calls for that. With ``dry_run``, change a copy, which has no effect."""
        value, tracker = self._scratch if dry_run else (self.value, self.growth_tracker)
        torch._amp_update_scale_(value, tracker, overflow, _GROWTH, _BACKOFF, _GROWTH_INTERVAL)


class OffloadedAdam:
    """Fused Adam whose state exists from the start, so that it can be saved and loaded before step 1.

    On the host it steps copies of the parameters (masters): gradients are copied to the host, parameters back.
    """

    def __init__(
        self,
        parameters: Mapping[str, nn.Parameter],
        learning_rate: float,
        *,
        on_host: bool = False,
        guarded: bool = False,
        scale: LossScale | None = None,
    ) -> None:
        """Start with moments of 0.

        Args:
            parameters: by name, all on one device.
            learning_rate: Adam's.
            on_host: keep moments and masters on the host, and step there.
            guarded: skip a step if a gradient is infinite or NaN.
            scale: factor of the gradients; only with ``guarded``. It is adjusted after every step.
        """
        self._parameters: list[Tensor] = list(parameters.values())
        self._on_host = on_host
        self.masters = {name: _master(each) if on_host else each for name, each in parameters.items()}
        """Tensors that Adam steps, by name: the parameters themselves, or their copies on the host."""
        self._stepped: list[Tensor] = list(self.masters.values())
        self._learning_rate = learning_rate
        self.state: dict[str, list[Tensor]] = {
            "step": [torch.zeros((), device=each.device) for each in self._stepped],
            "exp_avg": [torch.zeros_like(each) for each in self._stepped],
            "exp_avg_sq": [torch.zeros_like(each) for each in self._stepped],
        }
        """Adam's state, one tensor of each kind per master, in their order."""
        place = self._stepped[0].device
        self._guarded = guarded
        self._scale = scale
        self._overflow, self._inverse = torch.zeros((), device=place), torch.ones((), device=place)

    def scaled(self, loss: Tensor) -> Tensor:
        """Return the loss times the scale that ``step`` divides by, if there is one."""
        return loss if self._scale is None else loss * self._scale.value

    def zero_grad(self) -> None:
        """Free the gradients."""
        for parameter in self._parameters:
            parameter.grad = None

    @torch.no_grad()
    def step(self, dry_run: bool = False, rate: float | Tensor = 1.0) -> None:
        """Make one Adam step with the present gradients. If Adam is on the host, this waits for the device.

        Args:
            dry_run: run every kernel and change nothing. Adam is told that there is an overflow, so it leaves weights,
                moments and step counts unchanged.
            rate: factor of the learning rate; a tensor () if a CUDA graph is to read it anew in each launch.
        """
        if self._on_host:
            torch._foreach_copy_([_gradient(each) for each in self._stepped], list(map(_gradient, self._parameters)))
        if self._guarded:
            self._unscale()
        if dry_run:
            self._overflow.fill_(1)
        self._adam(self._overflow if self._guarded or dry_run else None, rate)
        if self._scale is not None:
            self._scale.adjust(self._overflow, dry_run)
        if self._on_host:
            torch._foreach_copy_(self._parameters, self._stepped, non_blocking=True)

    def _adam(self, overflow: Tensor | None, rate: float | Tensor) -> None:
        """Step the masters by their gradients, with torch.optim.Adam's defaults; no change if ``overflow`` is 1."""
        adam(
            self._stepped,
            [_gradient(each) for each in self._stepped],
            self.state["exp_avg"],
            self.state["exp_avg_sq"],
            [],
            self.state["step"],
            fused=True,
            found_inf=overflow,
            amsgrad=False,
            beta1=0.9,
            beta2=0.999,
            lr=rate * self._learning_rate,
            weight_decay=0.0,
            eps=1e-8,
            maximize=False,
        )

    def _unscale(self) -> None:
        """Divide the gradients, summed over all micro-batches, by the scale; check whether all are finite."""
        if self._scale is not None:
            torch.reciprocal(self._scale.value, out=self._inverse)
        self._overflow.zero_()
        gradients = [_gradient(each) for each in self._stepped]
        torch._amp_foreach_non_finite_check_and_unscale_(gradients, self._overflow, self._inverse)

    @torch.no_grad()
    def adopt_parameters(self) -> None:
        """Continue from the parameters' present values, which something other than ``step`` has written."""
        if self._on_host:
            torch._foreach_copy_(self._stepped, self._parameters)

    def tensors(self) -> dict[str, Tensor]:
        """Return Adam's state, named by parameter and kind."""
        return {
            f"{name}.{key}": value
            for place, name in enumerate(self.masters)
            for key, value in ((key, values[place]) for key, values in self.state.items())
        }


def _master(parameter: nn.Parameter) -> nn.Parameter:
    master = nn.Parameter(host_twin(parameter, parameter.device))
    master.grad = host_twin(parameter, parameter.device)
    return master


def _gradient(parameter: Tensor) -> Tensor:
    assert parameter.grad is not None, "step() needs gradients: call backward() first"
    return parameter.grad
