"""Waiting for memory, and holding it from the look that found it.

What is held comes back as a :class:`Held`, which is the caller's to close.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from carla_launcher.plugins.reserve.amounts import Reservation
from carla_launcher.plugins.reserve.hold import Hold, HoldError
from carla_launcher.plugins.reserve.memory import Memory

Say = Callable[[str], None]
Stopped = Callable[[], bool]
LOOK_S = 0.1
TAKE_MIB = 32


@dataclass(frozen=True)
class Held:
    """Memory that is held, and for what.

    Attributes:
        hold: the holder.
        reserved: for the command.
        others: MiB that all others used when it was taken.
    """

    hold: Hold
    reserved: Reservation
    others: float

    @property
    def mib(self) -> float:
        """Return what is held now, the holder's context included."""
        return self.hold.mib + self.reserved.context_mib


class StoppedError(Exception):
    """It was asked to stop while nothing was held yet."""


class TimedOutError(Exception):
    """The memory didn't come free in time; the message is one sentence."""


def wait(memory: Memory, min_free: int, sleep_s: float, timeout_s: float, say: Say, stopped: Stopped) -> Held:
    """Return once ``min_free`` MiB were free and are held, less the step that the command finds free.

    Raises:
        TimedOutError: they weren't within the time.
        StoppedError: ``stopped`` became true.
        UnreadableError: the driver doesn't work.
    """
    until_s = time.monotonic() + timeout_s
    while True:
        reason = _short_of(memory, min_free)
        if not reason:
            try:
                return _taken(memory, min_free)
            except HoldError as error:
                reason = f"{min_free} MiB were free on {memory.name}, but couldn't be held ({error})"
        left_s = until_s - time.monotonic()
        if left_s <= 0:
            raise TimedOutError(f"Gave up after {timeout_s:g} s of waiting: {reason}; the command was not started.")
        say(f"{time.strftime('%H:%M:%S')} {reason}; looking again in {min(sleep_s, left_s):g} s.")
        _sleep(min(sleep_s, left_s), stopped)


def _short_of(memory: Memory, min_free: int) -> str:
    free = memory.look(0).free
    if free >= min_free:
        return ""
    holders = memory.biggest()
    return f"{free:.0f} of {min_free} MiB are free on {memory.name}" + (f" (most hold {holders})" if holders else "")


def _taken(memory: Memory, min_free: int) -> Held:
    before = memory.look(0)
    with _closed_on_failure(Hold(memory.gpu)) as hold:
        hold.open()
        seen = memory.look(hold.pid)
        context = seen.by_holder if seen.by_holder is not None else max(0.0, seen.used - before.used)
        reserved = Reservation(min_free, 0.0 if memory.gpu is None else context)
        blocks = int(reserved.held_first() - reserved.context_mib)
        while hold.mib < blocks:
            if memory.look(hold.pid).free < TAKE_MIB:
                raise HoldError("another process was faster")
            hold.hold(min(blocks, hold.mib + TAKE_MIB))
        used = memory.look(hold.pid).used
    return Held(hold, reserved, used - reserved.context_mib - hold.mib)


@contextlib.contextmanager
def _closed_on_failure(hold: Hold) -> Iterator[Hold]:
    try:
        yield hold
    except BaseException:
        hold.close()
        raise


def _sleep(seconds: float, stopped: Stopped) -> None:
    until_s = time.monotonic() + seconds
    while (left_s := until_s - time.monotonic()) > 0:
        if stopped():
            raise StoppedError
        time.sleep(min(LOOK_S, left_s))
