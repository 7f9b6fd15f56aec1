"""How much is still held for a command that grows. Pure: amounts in MiB in, the amount to hold out.

A program can't be given memory, it can only be let take what is free, and so can every other one: what lies free at any
moment is kept small, about a step, and what isn't handed over yet stays held.
"""

from __future__ import annotations

from dataclasses import dataclass

STEP_MIB = 128.0
GROWTH_MIB = 8.0  # less is noise: a process that rests still breathes


@dataclass(frozen=True)
class Reservation:
    """What was reserved before the command was started.

    Attributes:
        mib: what the command shall be able to take.
        context_mib: the holder's own CUDA context, a part of what is held that can be given back only whole; 0 for RAM.
    """

    mib: float
    context_mib: float = 0.0

    def held_first(self) -> float:
        """Return what is held when the command starts: all but the step that it finds free."""
        return max(0.0, self.mib - STEP_MIB)


def margin(reserved: Reservation, taken: float, opening: bool) -> float:
    """Return what shall lie free for the command's next allocations.

    Args:
        reserved: for the command.
        taken: the most that the command has held.
        opening: it has loaded the CUDA driver. A context can't be had in steps: as much as the holder's took lies free
            at once.
    """
    return STEP_MIB + (max(0.0, reserved.context_mib - taken) if opening else 0.0)


def keep(reserved: Reservation, taken: float, held: float, free: float, wanted_free: float) -> float:
    """Return how much is held from now on, context included: never more than before; 0 means that the holder ends.

    Args:
        reserved: for the command.
        taken: the most that the command has held.
        held: by the holder, its context included.
        free: of the whole memory, now.
        wanted_free: from :func:`margin`.

    What foreign processes take of the free memory is made up for, once: it costs the command at most a step beyond what
    lay free. Without an end to it they would be handed everything, a step at a time.
    """
    still_due = reserved.mib - taken
    if still_due <= 0:
        return 0.0
    kept = min(held, still_due)
    missing = wanted_free - (free + held - kept)
    if missing > 0:
        kept = max(kept - missing, min(kept, still_due - wanted_free - STEP_MIB))
    return kept if kept > reserved.context_mib else 0.0


class Growth:
    """The most that a command has held, and since when that is so."""

    def __init__(self, now_s: float) -> None:
        self.taken = 0.0
        self._grown_to = 0.0
        self._since_s = now_s

    def see(self, taken: float, now_s: float) -> None:
        """Take a new figure into account."""
        self.taken = max(self.taken, taken)
        if self.taken >= self._grown_to + GROWTH_MIB:
            self._grown_to = self.taken
            self._since_s = now_s

    def rested_s(self, now_s: float) -> float:
        """Return for how long the command hasn't grown."""
        return now_s - self._since_s
