"""One step along a loss's gradient in the available memory: how an update is computed, not what it computes.

Takes a loss function and a batch. It splits the batch into micro-batches, whose gradients add up to the batch's, so the
step is the same up to rounding. It moves each micro-batch to the device in turn, brings the targets there while they
are used, scales a float16 loss, and reruns a phase that runs out of memory (``Attempt``: the caller decides how often
and in what size). Knows no algorithm: losses and their order belong to ``Algorithm``, which has an executor.

A phase ends with its commit, a step in place. Until then only gradients exist, so the phase may be rerun, in other
micro-batches or on another device. A commit allocates nothing, or on the CPU one convolution's gradient at a time: less
than the backward pass has just freed.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from itertools import chain
from typing import NamedTuple, Protocol, TypeVar

import torch
from torch import Tensor

from carla_td3.config import Offload
from carla_td3.td3.kernels.arithmetic import computed
from carla_td3.td3.networks import Networks
from carla_td3.td3.optimizers import LossScale, OffloadedAdam
from carla_td3.td3.placement import HOST, Targets
from carla_td3.td3.replay.replay import Batch

Metrics = dict[str, Tensor]
Rows = Tensor | Batch
"""B rows of tensors, on any device."""
T = TypeVar("T")


class Attempt(Protocol):
    """Runs a phase, and handles its errors."""

    def __call__(self, phase: str, run: Callable[[int], T], rows: int) -> T:
        """Return ``run(micro_batch)`` for any micro-batch from 1 to ``rows``; after a failed try with another one."""


def whole_batch(phase: str, run: Callable[[int], T], rows: int) -> T:  # noqa: ARG001 – the name is for reports
    """Run a phase once, unsplit."""
    return run(rows)


class Loss(NamedTuple):
    """Result of a loss function for some rows of a batch."""

    total: Tensor
    """Sum over the rows, to be minimised."""
    sums: Metrics
    """Figures summed over the rows, detached; their means are reported."""
    kept: tuple[Tensor, ...] = ()
    """Tensors with as many rows that a later phase needs, detached."""


class Learned(NamedTuple):
    """Parameters that one phase steps, with an optimizer that no other phase uses."""

    phase: str
    """Name of the phase, in reports and for ``Executor.minimise``."""
    prefixes: tuple[str, ...]
    """Prefixes of the parameters' names."""
    learning_rate: float


class Executor:
    """Networks, targets and optimizers at their places, and steps that don't depend on the available memory.

    Attributes:
        device: where losses and gradients are computed.
        offload: parts that stay on the host.
        place: another object after each move.
        precision: of the encoder there: float32, bfloat16 or float16.
    """

    def __init__(
        self,
        online: Networks,
        target: Networks,
        learned: Sequence[Learned],
        device: torch.device,
        offload: Collection[Offload] = (),
        precision: str = "float32",
    ) -> None:
        """Place networks, targets and optimizers.

        Args:
            online: the networks that learn.
            target: networks that follow the parameters of the same names.
            learned: parameters of each phase. In float16 the first phase's loss is scaled, because it has the encoder.
            device: where losses and gradients are computed.
            offload: parts that stay on the host, and are on the device only while needed there.
            precision: ``td3.precision``.
        """
        self.online, self.target = online, target
        self._learned, self._asked_precision = learned, precision
        self.is_dry = False
        """Whether a dry run is running, whose updates don't count for this run."""
        self._place(device, offload)

    def _place(self, device: torch.device, offload: Collection[Offload]) -> None:
        """Place the networks, and create optimizers with moments of 0 for them."""
        self.device, self.offload = device, frozenset(offload)
        self.place = object()
        self.precision = computed(self._asked_precision, device.type == "cuda")
        self.online.precision = self.target.precision = self.precision
        on_host, apart, float16 = "optimizer" in offload, "targets" in offload, self.precision == "float16"
        self._scale = LossScale(HOST if on_host else device) if float16 else None
        parameters = dict(self.online.to(device).named_parameters())
        self._optimizers: dict[str, OffloadedAdam] = {}
        for phase, prefixes, rate in self._learned:
            own = {name: value for name, value in parameters.items() if name.startswith(prefixes)}
            scale = None if self._optimizers else self._scale
            self._optimizers[phase] = OffloadedAdam(own, rate, on_host=on_host, guarded=float16, scale=scale)
        masters = {name: each for one in self._optimizers.values() for name, each in one.masters.items()}
        self._targets = Targets(self.target, masters if apart else parameters, device, on_host=apart)

    def minimise(
        self,
        phase: str,
        loss: Callable[..., Loss],
        inputs: Sequence[Rows],
        attempt: Attempt,
        label: Callable[..., Tensor] | None = None,
        label_inputs: Sequence[Rows] = (),
        rate: float | Tensor = 1.0,
    ) -> tuple[tuple[Tensor, ...], Metrics]:
        """Step once along the gradient of the mean loss of a batch of N rows.

        Args:
            phase: one of the phases in ``learned``, which is also its name in reports.
            loss: loss of some rows of the inputs, on the device; the rows of the label come last.
            inputs: N rows each.
            attempt: runs the phase.
            label: returns (rows,) for some rows of the inputs and ``label_inputs``. It is computed without gradients,
                with the targets, for the whole batch before any gradient exists.
            label_inputs: N rows each.
            rate: factor of the learning rate.

        Returns: The loss's ``kept`` tensors, joined, and its sums as means: 0-dimensional, on the device, without
        waiting for it.
        """
        size = len(inputs[0])

        def run(micro_batch: int) -> tuple[tuple[Tensor, ...], Metrics]:
            given, optimizer = inputs, self._optimizers[phase]  # a move replaces both
            if label is None:
                optimizer.zero_grad()
            else:
                self.online.zero_grad()  # all of them: targets on the device take the gradients' room
                if micro_batch >= size:
                    given = self._on_device(given)  # once, not for the label and again for the gradient
                given = [*given, self._labels(label, [*given, *label_inputs], size, micro_batch)]
            kept: list[tuple[Tensor, ...]] = []
            means: Metrics = {}
            for rows in _micro_batches(size, micro_batch):
                found = self._gradient(loss, self._on_device(given, rows), size, optimizer)
                kept.append(found.kept)
                means = {name: means[name] + part if means else part for name, part in found.sums.items()}
            optimizer.step(self.is_dry, rate)  # the commit
            return tuple(parts[0] if len(parts) == 1 else torch.cat(parts) for parts in zip(*kept, strict=True)), means

        return attempt(phase, run, size)

    @torch.no_grad()
    def _labels(self, label: Callable[..., Tensor], inputs: Sequence[Rows], size: int, micro_batch: int) -> Tensor:
        y = torch.empty(size, device=self.device)
        with self._targets.on_device():
            for rows in _micro_batches(size, micro_batch):
                y[rows] = label(*self._on_device(inputs, rows))
        return y

    def _gradient(self, loss: Callable[..., Loss], part: Sequence[Rows], size: int, optimizer: OffloadedAdam) -> Loss:
        """Add this part's share of the gradient of the mean over ``size`` rows; return its shares of the sums."""
        found = loss(*part)
        mean = found.total / size
        optimizer.scaled(mean).backward()  # type: ignore[no-untyped-call]
        return Loss(mean.detach(), {name: value / size for name, value in found.sums.items()}, found.kept)

    def _on_device(self, inputs: Sequence[Rows], rows: slice = slice(None)) -> list[Rows]:
        return [each[rows].to(self.device) for each in inputs]

    def update_targets(self, tau: float, attempt: Attempt) -> None:
        """Update the targets in place: θ' ← τ θ + (1 - τ) θ'."""
        attempt("targets", lambda _: self._polyak_update(0.0 if self.is_dry else tau), 1)

    @torch.no_grad()
    def _polyak_update(self, tau: float) -> None:
        torch._foreach_lerp_(*self._targets.pairs(), tau)

    @contextlib.contextmanager
    def dry_run(self) -> Iterator[None]:
        """Let updates run all their kernels, and change no weight, target, moment or scale.

        The optimizers step without effect (``OffloadedAdam.step``), the targets with tau = 0.
        """
        self.is_dry = True
        try:
            yield
        finally:
            self.is_dry = False
            self.release()

    def release(self) -> None:
        """Free the gradients, which another try of a phase doesn't need."""
        self.online.zero_grad()

    def move(self, device: torch.device, offload: Collection[Offload] = frozenset()) -> None:
        """Move to another device in this process, between two updates or two tries of a phase.

        Nothing is allocated on the old device, which may be full. If the new one is too small, everything is on the CPU
        when the error is raised here.
        """
        self.release()
        # Moved as they are: contiguous copies, as for a file, would be made on the old device.
        kept = {name: value.detach().to(HOST) for name, value in self.tensors().items()}
        try:
            self._place(device, offload)
        except RuntimeError:
            self._place(HOST, ())
            raise
        finally:
            self.load(kept)

    @torch.no_grad()
    def renew(self, networks: Networks) -> None:
        """Copy these networks' parameters, online and as targets, and reset Adam's moments to 0; no tensor moves."""
        fresh = dict(networks.named_parameters())
        for name, value in self.tensors().items():
            owner, _, rest = name.partition(".")
            if owner in ("online", "target"):
                value.copy_(fresh[rest])
            elif owner == "adam":
                value.zero_()
        for optimizer in self._optimizers.values():
            optimizer.adopt_parameters()

    @torch.no_grad()
    def load(self, state: Mapping[str, Tensor]) -> None:
        """Continue from these tensors, of the same widths and on any device.

        Raises:
            KeyError, RuntimeError: one is missing or has another shape.
        """
        for name, value in self.tensors().items():
            if name in state or not name.startswith("scale."):  # a scale of another precision adapts by itself
                value.copy_(state[name])
        for optimizer in self._optimizers.values():
            optimizer.adopt_parameters()

    def tensors(self) -> dict[str, Tensor]:
        """Return views of all that the next step depends on, by name."""
        parts = {"online": self.online.named_parameters(), "target": self.target.named_parameters()}
        states = (optimizer.tensors().items() for optimizer in self._optimizers.values())
        named = {**parts, "adam": chain.from_iterable(states)}
        if self._scale is not None:
            named["scale"] = iter(self._scale.tensors().items())
        return {f"{owner}.{name}": value for owner, each in named.items() for name, value in each}


def _micro_batches(size: int, micro_batch: int) -> Iterator[slice]:
    """Return the rows of each micro-batch; the last may be smaller."""
    return (slice(begin, begin + micro_batch) for begin in range(0, size, micro_batch))
