"""Host memory as pools: this machine's, and that of a container with a limit of its own.

What counts is ``contract.processes``'s and ``contract.cgroups``'s to say.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path

from contract.cgroups import Cgroups, Group
from contract.processes import amounts_mib, first_page, held_mib, resident_mib
from launcher.observe.owners import PROC, Names, Ours, grouped
from launcher.observe.pools import Owner, OwnerKind, Pool, PoolKind, measured

NAMED_MIB = 32.0
"""A foreign process's process below this is not worth naming."""

SMALL_FOR = 5
"""Readings for which one found small is taken to be so still: most of the cost of a reading was these."""


class Ram:
    """Reads the RAM pools."""

    def __init__(self, names: Names, proc: Path = PROC) -> None:
        self._names = names
        self._proc = proc
        self._cgroups = Cgroups(proc)
        self._limits_mib: Mapping[OwnerKind, float] = {}
        self._small: set[int] = set()
        self._readings = 0

    def expect_containers(self, limits_mib: Mapping[OwnerKind, float]) -> None:
        """Count a container that isn't there yet as an empty one of its limit."""
        self._limits_mib = limits_mib

    def pools(self, ours: Ours) -> tuple[Pool, ...]:
        """Return ``ram``, then ``ram:agent`` and ``ram:simulator`` where they have limits; empty without a /proc."""
        own = self._cgroups.of()
        host = self._host(own, ours)
        if host is None:
            return ()
        parts = ((OwnerKind.AGENT, ours.agent), (OwnerKind.SIMULATOR, ours.simulator))
        return (host, *(pool for whose, pids in parts for pool in self._limited(whose, pids, own)))

    def _host(self, own: Group | None, ours: Ours) -> Pool | None:
        amounts = amounts_mib(first_page(f"{self._proc}/meminfo"), b"MemTotal", b"MemAvailable")
        if len(amounts) < 2:
            return None
        total, free = amounts
        if own is not None and own.limit_mib is not None and own.room_mib is not None:
            total, free = min(total, own.limit_mib), min(free, own.room_mib)
        owners = grouped(self._held(ours), lambda pid: self._names.who(pid, ours))
        return Pool("ram", PoolKind.RAM, measured(total), measured(free), owners, own.oom_kills if own else 0)

    def _limited(self, whose: OwnerKind, pids: Collection[int], own: Group | None) -> Iterator[Pool]:
        """Yield the pool of a container: its room under its own limits, whatever the machine has."""
        group = next((found for found in map(self._cgroups.of, sorted(pids)) if found is not None), None)
        if group is None and whose in self._limits_mib:
            limit = measured(self._limits_mib[whose])
            yield Pool(f"ram:{whose.value}", PoolKind.RAM, limit, limit)
        if group is None or group.limit_mib is None or group.room_mib is None or (own and own.folder == group.folder):
            return
        owner = Owner(whose.value, whose, tuple(sorted(pids)), measured(group.held_mib))
        limit, room = measured(group.limit_mib), measured(group.room_mib)
        yield Pool(f"ram:{whose.value}", PoolKind.RAM, limit, room, (owner,), group.oom_kills)

    def _held(self, ours: Ours) -> dict[int, float | None]:
        """Return what every process of this run holds, and each other one from ``NAMED_MIB`` up."""
        if self._readings % SMALL_FOR == 0:
            self._small.clear()
        self._readings += 1
        held: dict[int, float | None] = {}
        for name in filter(str.isdecimal, os.listdir(self._proc)):  # noqa: PTH208  a thousand Paths a second otherwise
            pid = int(name)
            foreign = ours.whose(pid) is OwnerKind.FOREIGN
            if foreign and pid in self._small:
                continue
            mib = None if foreign and resident_mib(pid, self._proc) < NAMED_MIB else held_mib(pid, self._proc)
            if foreign and (mib or 0.0) < NAMED_MIB:
                self._small.add(pid)
            elif mib is not None:
                held[pid] = mib
        return held
