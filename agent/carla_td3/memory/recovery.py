"""Out of memory in mid-update: let go of everything, try the same phase again, then with half the micro-batch.

Owns the size that works, which later updates begin with, and the account of what happened. The gradients of
micro-batches add up to the batch's, so this costs time and no learning. The last resort, leaving the device, is a
function that it is given. Knows no network: a phase is a function of the micro-batch, written so that it may be run
again, elsewhere if need be (``carla_td3.td3.executor``).
"""

from __future__ import annotations

import gc
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

import torch

from carla_run.exits import Exit
from carla_run.memory.errors import DeviceIsFull, allocator_is_broken, never_full
from carla_td3.exits import MEMORY, AgentError, exhausted_pool
from carla_td3.memory import heap

T = TypeVar("T")

CALM_PHASES = 100
"""Phases without trouble after which collecting garbage is tried again before the micro-batch is halved: a shortage
that comes back at once is no litter, and emptying the allocator's cache every time would cost more than halving."""

_UNITS = {"bytes": 1, "KiB": 2**10, "MiB": 2**20, "GiB": 2**30, "TiB": 2**40}
_AMOUNT = rf"([\d.]+) ({'|'.join(_UNITS)})"
# The CPU's allocator and CUDA's; then cudaMallocAsync's.
_ASKED = re.compile(rf"(?:[Tt]ried to allocate|Requested\s*:) {_AMOUNT}")
_FREE = re.compile(rf"(?:of which|Free \(according to CUDA\):) {_AMOUNT}")


@dataclass(frozen=True)
class Shortage:
    """One time that memory ran out, and what was done."""

    phase: str
    """critic, actor or targets; at the start, rehearsed critic and so on."""
    cause: str
    """The error's first line."""
    action: str
    """collected (garbage; the same size again), halved (the micro-batch), moved (to the CPU, at the first size), or
    exhausted (nothing left to halve, nowhere to go)."""
    batch: int
    micro_batch: int
    """Of the try that failed."""
    next_micro_batch: int
    asked_bytes: int | None
    """What the allocation was for, where the message says."""
    free_bytes: int | None
    """What the device had left, where the message says."""


class Recovery:
    """Runs phases and finishes those that memory runs out in. Its ``attempt`` is what ``Algorithm.update`` takes."""

    def __init__(
        self,
        batch: int,
        micro_batch: int | None,
        release: Callable[[], None],
        report: Callable[[Shortage], None],
        last_resort: Callable[[], None] | None = None,
        device_is_full: DeviceIsFull = never_full,
    ) -> None:
        """Begin with a micro-batch.

        Args:
            batch: rows of a whole batch.
            micro_batch: rows at once; None for the whole batch.
            release: drops what a failed try left behind.
            report: called with every shortage, before anything is done about it.
            last_resort: moves what the phases compute with to where there is more memory; called once at most.
            device_is_full: asked about errors that a full device has in common with a broken one.
        """
        self._batch = batch
        self._first = self.micro_batch = min(batch, micro_batch or batch)
        """Rows at once, now: what worked last."""
        self._release = release
        self._report = report
        self._last_resort, self._device_is_full = last_resort, device_is_full
        self._calm = CALM_PHASES

    def attempt(self, phase: str, run: Callable[[int], T], rows: int) -> T:
        """Return ``run(micro_batch)`` of the first size that fits.

        Args:
            phase: its name, for the account.
            run: a phase that may be run again until it returns.
            rows: what can be split; 1 for a phase that can't.

        Raises:
            AgentError: not even a micro-batch of 1 fits, or no allocation does any more, and there is no last resort
                (exit 71).
        """
        size = min(self.micro_batch, rows)
        failed: int | None = None
        while True:
            try:
                result = run(size)
            except (RuntimeError, MemoryError, OSError) as error:
                pool = exhausted_pool(error, self._device_is_full)
                if pool not in MEMORY:
                    raise
                message = str(error) or type(error).__name__
            else:
                self._calm += 1
                return result
            # Outside the except block: there, the traceback still holds every tensor of the failed try.
            action = self._last if allocator_is_broken(message) else self._action(size, again=size == failed)
            following = {"halved": size // 2, "moved": min(self._first, rows)}.get(action, size)
            shortage = Shortage(
                phase=phase,
                cause=message.splitlines()[0],
                action=action,
                batch=self._batch,
                micro_batch=size,
                next_micro_batch=following,
                asked_bytes=_bytes(_ASKED, message),
                free_bytes=_bytes(_FREE, message),
            )
            self._report(shortage)  # before the allocator's cache is emptied, which may be what there is to see
            self._clear()
            if action == "exhausted":
                raise AgentError(_sentence(shortage), Exit.OUT_OF_MEMORY, pool)
            if action == "moved":
                self._move()
            if action == "halved":
                self.micro_batch = following
            failed, size = size, following

    def take(self, micro_batch: int | None) -> None:
        """Go on with another size, asked for between two updates; what a larger one held is given back at once.

        Args:
            micro_batch: rows at once; None for the whole batch.
        """
        before, self.micro_batch = self.micro_batch, min(self._batch, micro_batch or self._batch)
        if self.micro_batch < before:
            self._clear(heap.trim)

    def _clear(self, give_back: Callable[[], None] = heap.give_back) -> None:
        """Give back what the failed try held, and what the allocator kept."""
        self._release()
        gc.collect()
        give_back()
        if torch.cuda.is_initialized():  # type: ignore[no-untyped-call]
            torch.cuda.empty_cache()

    def _move(self) -> None:
        """Take the last resort, which isn't there a second time, and begin again with the first size."""
        move, self._last_resort = self._last_resort, None
        assert move is not None
        move()
        self._clear()  # what the device held until now
        self.micro_batch, self._calm = self._first, CALM_PHASES

    def _action(self, size: int, again: bool) -> str:
        """Return what comes next; ``again``: garbage was collected, and the same size failed a second time."""
        calm, self._calm = self._calm >= CALM_PHASES, 0
        if calm or (size == 1 and not again):
            return "collected"
        return "halved" if size > 1 else self._last

    @property
    def _last(self) -> str:
        """What is left where less at once doesn't help."""
        return "exhausted" if self._last_resort is None else "moved"


def _bytes(pattern: re.Pattern[str], message: str) -> int | None:
    found = pattern.search(message)
    return None if found is None else round(float(found[1]) * _UNITS[found[2]])


def _sentence(shortage: Shortage) -> str:
    amounts = {"asked for": shortage.asked_bytes, "free": shortage.free_bytes}
    known = ", ".join(f"{bytes_ / 2**20:.2f} MiB {word}" for word, bytes_ in amounts.items() if bytes_ is not None)
    if allocator_is_broken(shortage.cause):
        return (
            f"Out of memory in the {shortage.phase} phase, after which PyTorch's allocator serves nothing more in this "
            f"process ({shortage.cause}): free memory and start again; the last checkpoint stands."
        )
    return (
        f"Out of memory in the {shortage.phase} phase, though the micro-batch is down to {shortage.micro_batch} of "
        f"td3.batch_size {shortage.batch} and garbage is collected ({known or shortage.cause}): free memory, lower "
        f"td3.network's widths, or take --device cpu if it is the GPU's; the last checkpoint stands."
    )
