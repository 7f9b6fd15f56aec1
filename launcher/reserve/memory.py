"""What a memory that is waited for can tell, be it a GPU's or RAM: one shape for both. Reads nothing itself."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Protocol


class UnreadableError(Exception):
    """The memory can't be read; the message is one sentence for a person."""


@dataclass(frozen=True)
class Seen:
    """One look, in MiB.

    Attributes:
        free: what could be had now.
        used: by anybody; free and used needn't add up to a total.
        by_holder: by the holder process, context included; None where nobody says.
        by_command: by the command's processes; None where nobody says.
    """

    free: float
    used: float
    by_holder: float | None
    by_command: float | None


class Memory(Protocol):
    """A memory that can be looked at and held.

    Attributes:
        name: for people: ``GPU 0``, ``RAM``.
        what: for the holder: the GPU's index, or ``ram``.
        total: MiB.
    """

    name: str
    what: str
    total: float

    def look(self, holder: int, command: Collection[int] = ()) -> Seen:
        """Return what is free and who holds what; ``holder`` and ``command`` are process ids.

        Raises:
            UnreadableError: the driver or the kernel doesn't say any more.
        """

    def biggest(self) -> str:
        """Return the three biggest holders by name for a person; empty where nobody says."""
