"""One step along a loss's gradient, on whatever memory there is: how an update is computed, not what it computes.

Takes a loss function and a batch. Cuts the batch into micro-batches, whose gradients add up to the batch's, so that
the step is the same up to rounding; moves each to the device when its turn comes; brings the targets there while they
are computed with; scales a float16 loss; and runs a phase again where memory ran out (``Attempt``: who calls decides
how often and in what size). Knows no algorithm: losses and their order are an ``Algorithm``'s, which has an executor.

A phase ends with its commit, a step in place; until then only gradients are in flight, so it may be run again, in
other micro-batches or on another device. A commit itself allocates nothing, or on the CPU one convolution's gradient
at a time: less than backward has freed just before.
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
"""B rows of something, on any device."""
T = TypeVar("T")


class Attempt(Protocol):
    """How a phase is run, and what is done when it raises."""

    def __call__(self, phase: str, run: Callable[[int], T], rows: int) -> T:
        """Return ``run(micro_batch)``; any micro-batch from 1 to ``rows`` does, and after a failed try another one."""


def whole_batch(phase: str, run: Callable[[int], T], rows: int) -> T:  # noqa: ARG001 – the name is for reports
    """Run a phase once, unsplit."""
    return run(rows)


class Loss(NamedTuple):
    """What a loss function returns for some rows of a batch."""

    total: Tensor
    """Summed over the rows, to be minimised."""
    sums: Metrics
    """Figures summed over the rows, detached; their means are reported."""
    kept: tuple[Tensor, ...] = ()
    """Tensors of as many rows that a later phase needs, detached."""


class Learned(NamedTuple):
    """Parameters that one phase steps, by an optimizer that nothing else steps by."""

    phase: str
    """Its name, in reports and for ``Executor.minimise``."""
    prefixes: tuple[str, ...]
    """What the parameters' names begin with."""
    learning_rate: float


class Executor:
    """Networks, their targets and optimizers where they were put, and steps that memory can't change.

    Attributes:
        device: where losses and gradients are computed.
        precision: what the encoder computes in there: float32, bfloat16 or float16.
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
        """Put everything where it belongs.

        Args:
            online: what learns.
            target: follows the parameters of the same names.
            learned: what each phase steps; the first one's loss is scaled in float16, for it has the encoder.
            device: where losses and gradients are computed.
            offload: what lives on the host instead, and is on the device only while it is needed there.
            precision: ``td3.precision``.
        """
        self.online, self.target = online, target
        self._learned, self._asked_precision = learned, precision
        self.is_dry = False
        """Whether a dry run is under way: what counts updates says nothing about this run."""
        self._place(device, offload)

    def _place(self, device: torch.device, offload: Collection[Offload]) -> None:
        """Put the networks where they belong, and optimizers with moments of 0 beside them."""
        self.device = device
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
        rate: float = 1.0,
    ) -> tuple[tuple[Tensor, ...], Metrics]:
        """Step once along the gradient of the mean loss of a batch of N rows.

        Args:
            phase: what learns, of those that the executor was made with; and the phase's name in reports.
            loss: of a part of the inputs, on the device; the label's part comes last.
            inputs: N rows each.
            attempt: runs the phase.
            label: (rows,) of a part of the inputs and ``label_inputs``, computed without gradients and by the targets,
                for the whole batch before any gradient is there.
            label_inputs: N rows each.
            rate: what the learning rate is multiplied by.

        Returns:
            What the loss kept, in one piece, and its sums as means: 0-dimensional, on the device, nothing waited for.
        """
        size = len(inputs[0])

        def run(micro_batch: int) -> tuple[tuple[Tensor, ...], Metrics]:
            given, optimizer = inputs, self._optimizers[phase]  # which a move replaces
            if label is None:
                optimizer.zero_grad()
            else:
                self.online.zero_grad()  # all of them: targets on their visit take the gradients' room
                if micro_batch >= size:
                    given = self._on_device(given)  # once, not once for the label and once for the gradient
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
        """Add this part's share of the gradient of the mean over ``size`` rows; return the shares of the sums."""
        found = loss(*part)
        mean = found.total / size
        optimizer.scaled(mean).backward()  # type: ignore[no-untyped-call]
        return Loss(mean.detach(), {name: value / size for name, value in found.sums.items()}, found.kept)

    def _on_device(self, inputs: Sequence[Rows], rows: slice = slice(None)) -> list[Rows]:
        return [each[rows].to(self.device) for each in inputs]

    def update_targets(self, tau: float, attempt: Attempt) -> None:
        """Let the targets follow in place: θ' ← τ θ + (1 - τ) θ'."""
        attempt("targets", lambda _: self._follow(0.0 if self.is_dry else tau), 1)

    @torch.no_grad()
    def _follow(self, tau: float) -> None:
        torch._foreach_lerp_(*self._targets.pairs(), tau)

    @contextlib.contextmanager
    def dry_run(self) -> Iterator[None]:
        """Let updates run all their kernels, and change no weight, target, moment or scale.

        The optimizers step without effect (``OffloadedAdam.step``), the targets by tau = 0.
        """
        self.is_dry = True
        try:
            yield
        finally:
            self.is_dry = False
            self.release()

    def release(self) -> None:
        """Let go of what another try of a phase does without: gradients."""
        self.online.zero_grad()

    def move(self, device: torch.device, offload: Collection[Offload] = frozenset()) -> None:
        """Go on on another device in this process, between two updates or two tries of a phase.

        Nothing is allocated on the device that is left, which may have no byte to spare. Where the new one has too few,
        everything is on the CPU when the error arrives here.
        """
        self.release()
        # Moved as they are: contiguous copies, as for a file, would have to be made on the device.
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
        """Take over these networks' parameters, online and as targets, and Adam's moments of 0; no tensor moves."""
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
        """Go on from these tensors, of the same widths and on any device.

        Raises:
            KeyError, RuntimeError: one is missing or has another shape.
        """
        for name, value in self.tensors().items():
            if name in state or not name.startswith("scale."):  # of another precision: a scale finds its size by itself
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
