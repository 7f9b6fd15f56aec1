"""RAM as a memory to wait for: this machine's, or what the control groups above this process leave of it.

Owns quick looks at it; what counts is ``launcher.observe``'s to say.
"""

from __future__ import annotations

from collections.abc import Collection

from contract.cgroups import Cgroups
from contract.processes import available_mib, held_mib
from launcher.observe import ram
from launcher.observe.pools import Pool
from launcher.observe.ram import OwnerNames, RunProcesses
from launcher.reserve.memory import Seen, UnreadableError


class Ram:
    """RAM; a ``Memory``."""

    name = "RAM"
    what = "ram"

    def __init__(self) -> None:
        """Look once.

        Raises:
            UnreadableError: this isn't Linux.
        """
        self._cgroups = Cgroups()
        self._reader = ram.Ram(OwnerNames(lambda _id: None))
        self.total = self._pool().total.mib or 0.0

    def look(self, holder: int, command: Collection[int] = ()) -> Seen:
        """Return what is free and who holds what; a hundred times a second if need be."""
        group = self._cgroups.of()
        available = available_mib() or 0.0
        free = available if group is None or group.room_mib is None else min(available, group.room_mib)
        held = {pid: held_mib(pid) or 0.0 for pid in (holder, *command)}
        return Seen(free, self.total - free, held[holder], sum(held[pid] for pid in command))

    def biggest(self) -> str:
        """Return the three biggest holders, all processes of a program together."""
        return ", ".join(f"{owner.name} {owner.held}" for owner in self._pool().owners[:3])

    def _pool(self) -> Pool:
        pools = self._reader.pools(RunProcesses())
        if not pools:
            raise UnreadableError("RAM can't be read: /proc/meminfo doesn't tell what is available; this needs Linux.")
        return pools[0]
