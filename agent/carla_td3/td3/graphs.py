"""Updates as CUDA graphs: the kernels of an update are recorded once, and from then on launched together.

A small batch's kernels take a card less time than Python takes to launch them one by one. Owns the static inputs, which
a recording reads, and when recordings are made: one of an update of the critics, one of an update of all, and both anew
after another batch size, another micro-batch or a move. An update is the same as without them: noise and learning rate
are inputs, and the executor's order of work is what is recorded. No recording if Adam or the targets are on the host,
which a graph can't wait for.

Recording executes nothing. If it fails, for example for lack of memory, nothing is lost: the updates go on without
graphs. Written from the documentation and source of torch 2.13 (``torch.cuda.graph``); it has not run on a card yet.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, Protocol, TypeVar

import torch
from torch import Tensor

from carla_td3.td3.executor import Attempt, Executor, Metrics
from carla_td3.td3.replay.replay import Batch

WARM_UPS = 3
"""Updates without effect before a recording, for what kernels and libraries allocate at first use (torch's number)."""
T = TypeVar("T")


class Work(Protocol):
    """An update on the device, without any wait for it."""

    def __call__(self, batch: Batch, noise: Tensor, attempt: Attempt, rate: float | Tensor, acts: bool) -> Metrics:
        """Update the critics, and with ``acts`` actor and targets; return 0-dimensional tensors."""


class Graphs:
    """Recorded updates of one algorithm.

    Args:
        executor: its executor.
        work: what is recorded.
        everywhere: also on the CPU, where the work runs on the static inputs without being recorded; for tests.
    """

    def __init__(self, executor: Executor, work: Work, everywhere: bool = False) -> None:
        self._executor, self._work, self._everywhere = executor, work, everywhere
        self._launches: dict[bool, Callable[[], Metrics]] = {}
        self._inputs: list[Tensor] = []
        self._rate = torch.ones(())
        self._recorded_for: tuple[int, int, object] | None = None
        self.refused = ""
        """Why recording failed; empty if it didn't. No further one is tried."""

    @property
    def are_usable(self) -> bool:
        """Whether updates can be recorded where the executor is."""
        possible = self._executor.device.type == "cuda" and not self._executor.offload
        return (possible or self._everywhere) and not self.refused

    def update(self, batch: Batch, noise: Tensor, attempt: Attempt, rate: float, acts: bool) -> Metrics:
        """Make one update; record it first if there is no recording for this batch size and micro-batch."""
        if not self.prepare(batch, noise, attempt):
            return self._work(batch, noise, attempt, rate, acts)
        for static, given in zip(self._inputs, _tensors(batch, noise), strict=True):
            static.copy_(given, non_blocking=True)
        self._rate.fill_(rate)
        return {name: value.clone() for name, value in self._launches[acts]().items()}

    def prepare(self, batch: Batch, noise: Tensor, attempt: Attempt) -> bool:
        """Return whether there are recordings for such a batch; make them if needed, which changes no state."""
        if not self.are_usable:
            if self._launches:
                self._drop()
            return False
        rows = attempt("graph", lambda micro_batch: micro_batch, len(batch))
        wanted = (len(batch), rows, self._executor.place)
        if wanted != self._recorded_for:
            self._drop()
            try:
                self._record(batch, noise, rows)
                self._recorded_for = wanted
            except RuntimeError as error:
                self._drop()
                self.refused = str(error).partition("\n")[0] or type(error).__name__
        return bool(self._launches)

    def _drop(self) -> None:
        """Free the recordings and their memory."""
        self._executor.release()
        self._launches.clear()
        self._inputs, self._recorded_for = [], None
        if torch.cuda.is_initialized():  # type: ignore[no-untyped-call]
            torch.cuda.empty_cache()

    def _record(self, batch: Batch, noise: Tensor, micro_batch: int) -> None:
        executor, device = self._executor, self._executor.device
        on_cuda = device.type == "cuda"
        *fields, static_noise = self._inputs = [each.to(device, copy=True) for each in _tensors(batch, noise)]
        static = Batch(*fields)
        # A card's fused Adam reads its rate as float32; the CPU's takes the number itself.
        self._rate = torch.ones((), dtype=torch.float32 if on_cuda else torch.float64, device=device)

        def fixed(phase: str, run: Callable[[int], T], rows: int) -> T:  # noqa: ARG001 (the protocol's)
            return run(min(micro_batch, rows))

        def work(acts: bool) -> Metrics:
            return self._work(static, static_noise, fixed, self._rate, acts)

        was_dry = executor.is_dry
        try:
            with executor.dry_run():
                _warm_up(partial(work, acts=True), on_cuda)
            pool = torch.cuda.graph_pool_handle() if on_cuda else None
            for acts in (True, False):  # the larger first: the other fits into its memory
                once = partial(work, acts)
                self._launches[acts] = once if pool is None else _recorded(once, pool)
        finally:
            executor.is_dry = was_dry


def _tensors(batch: Batch, noise: Tensor) -> list[Tensor]:
    return [*(getattr(batch, name) for name in Batch.__dataclass_fields__), noise]


def _warm_up(work: Callable[[], object], on_cuda: bool) -> None:
    """Run the work without effect; on a card on a side stream, as torch's documentation asks for."""
    if not on_cuda:
        work()
        return
    side = torch.cuda.Stream()  # type: ignore[no-untyped-call]
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(WARM_UPS):
            work()
    torch.cuda.current_stream().wait_stream(side)


def _recorded(work: Callable[[], Metrics], pool: Any) -> Callable[[], Metrics]:
    """Return a function that launches the recorded work; what it returns is overwritten by the next launch."""
    graph = torch.cuda.CUDAGraph()
    # The outer block restores the stream, which an error while recording would leave changed.
    with torch.cuda.stream(torch.cuda.current_stream()), torch.cuda.graph(graph, pool=pool):
        metrics = work()

    def launch() -> Metrics:
        graph.replay()
        return metrics

    return launch
