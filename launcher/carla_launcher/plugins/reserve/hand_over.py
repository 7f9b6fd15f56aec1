"""Handing held memory to a command while it runs: looks, asks ``amounts`` how much to keep, has the holder do it.

Whatever happens, nothing is held any more when it returns.
"""

from __future__ import annotations

import signal
import time
from dataclasses import dataclass
from pathlib import Path

from carla_launcher.plugins.reserve.amounts import GROWTH_MIB, Growth, keep, margin
from carla_launcher.plugins.reserve.command import Command
from carla_launcher.plugins.reserve.hold import HoldError
from carla_launcher.plugins.reserve.memory import Memory, UnreadableError
from carla_launcher.plugins.reserve.waiting import Held, Say
from carla_run.held_memory import write_held
from carla_run.signals import StopRequests

LOOK_S = 0.005
REST_S = 0.1
CUDA = "libcuda.so"


@dataclass(frozen=True)
class HandoverOptions:
    """How memory is handed over.

    Attributes:
        settle_s: without growth for this long the command counts as grown.
        at_once: give everything as soon as the command has begun to take.
    """

    settle_s: float
    at_once: bool = False


class Handover:
    """One hand-over."""

    def __init__(
        self, memory: Memory, held: Held, command: Command, options: HandoverOptions, notice: Path, say: Say
    ) -> None:
        """``notice``: the file by which the command learns what is still held for it."""
        self._memory = memory
        self._held = held
        self._command = command
        self._options = options
        self._notice = notice
        self._say = say
        self._growth = Growth(time.monotonic())
        self._open = True

    def run(self, requests: StopRequests) -> tuple[int, float]:
        """Return the command's exit code, and how many MiB were still held when it ended.

        Each request to stop is passed on to the command, and the first one ends the hold.
        """
        passed_on = 0
        try:
            while (code := self._command.poll()) is None:
                if requests.count > passed_on:
                    passed_on = requests.count
                    self._close("asked to stop")
                    self._command.signal(signal.SIGINT if requests.signal is signal.SIGINT else signal.SIGTERM)
                if self._open:
                    self._step()
                time.sleep(LOOK_S if self._open else REST_S)
            return code, self._amount()
        finally:
            self._close("")

    def _amount(self) -> float:
        return self._held.mib if self._open else 0.0

    def _step(self) -> None:
        try:
            kept, why = self._kept()
            if kept <= 0:
                self._close(why)
            elif kept < self._amount():
                self._held.hold.hold(int(kept - self._held.reserved.context_mib))
                write_held(self._notice, self._memory.gpu, self._amount())
        except (UnreadableError, HoldError) as error:
            self._close(str(error))

    def _kept(self) -> tuple[float, str]:
        """Return what to hold from now on, and why nothing if it is nothing."""
        reserved, growth = self._held.reserved, self._growth
        seen = self._memory.look(self._held.hold.pid, self._command.pids())
        taken = seen.by_command
        if taken is None:  # whatever was added since the start is taken for the command's
            taken = max(0.0, seen.used - self._amount() - self._held.others)
        now_s = time.monotonic()
        growth.see(taken, now_s)
        if growth.rested_s(now_s) >= self._options.settle_s:
            return 0.0, f"the command hasn't grown for {self._options.settle_s:g} s"
        if self._options.at_once and growth.taken >= GROWTH_MIB:
            return 0.0, "the command has begun to take memory"
        opening = growth.taken < reserved.context_mib and self._command.has_loaded(CUDA)
        wanted_free = margin(reserved, growth.taken, opening)
        kept = keep(reserved, growth.taken, self._amount(), seen.free, wanted_free)
        has = "all that was held for it" if growth.taken >= reserved.mib else "all but the holder's own context"
        return kept, f"the command has {has}"

    def _close(self, why: str) -> None:
        if self._open:
            amount, self._open = self._amount(), False
            self._held.hold.close()
            write_held(self._notice, self._memory.gpu, 0.0)
            if why:
                self._say(f"the last {amount:.0f} MiB are given back: {why} (it holds {self._growth.taken:.0f} MiB).")
