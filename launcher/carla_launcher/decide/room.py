"""Whether a program that is about to start has enough memory, and which foreign process holds what is missing."""

from __future__ import annotations

import math
from collections.abc import Mapping

from carla_launcher.decide.detectors.causes import Cause, Finding
from carla_launcher.decide.fit import pools_of
from carla_launcher.decide.holders import Holders
from carla_launcher.observe.pools import Cards, Owner, OwnerKind, Pool, PoolKind, Reading
from carla_run.memory.room import missing

NAMED = 3
"""Most holders of a pool that a sentence names."""


def who_holds(pool: Pool) -> str:
    """Return the foreign processes that hold most of a pool, as a clause; empty if there are none."""
    foreign = [each for each in pool.owners if each.kind is OwnerKind.FOREIGN and each.held.mib]
    return ", ".join(str(each) for each in sorted(foreign, key=lambda each: -(each.held.mib or 0.0))[:NAMED])


def wait_command(pool: Pool, mib: float) -> str:
    """Return the command that waits until this much of a pool is free."""
    where = f"--gpu {pool.name.partition(':')[2]}" if pool.kind is PoolKind.VRAM else f"--pool {pool.kind.value}"
    return f"bash scripts/wait_and_run.sh {where} --min-free {math.ceil(mib)} -- true"


def taken_from_simulator(
    needs_mib: Mapping[PoolKind, float], reading: Reading, holders: Holders, cards: Cards
) -> Finding | None:
    """Return a finding if a foreign process took the memory that a new simulator needs; otherwise None."""
    for kind, needed in needs_mib.items():
        for pool in pools_of(OwnerKind.SIMULATOR, kind, reading, cards):
            short, owner = missing(needed, pool.free.mib), holders.largest_taker(pool)
            if short and owner is not None and holders.taken_mib(pool) >= short:
                sentence = f"{pool.name} has {pool.free} free, the simulator needs {needed:.0f} MiB; {owner}"
                return Finding(Cause.FOREIGN_PROCESS, sentence, pool.name, owner.name, deficit_mib=short)
    return None


def missing_for_agent(
    needs_mib: Mapping[PoolKind, float],
    reserve_mib: Mapping[PoolKind, float],
    reading: Reading,
    holders: Holders,
    cards: Cards,
) -> tuple[PoolKind, Finding] | None:
    """Return the pool that is too full for the agent, with a finding that names the holder; None if none is."""
    for kind, peak in needs_mib.items():
        reserve = reserve_mib.get(kind, 0.0)
        for pool in pools_of(OwnerKind.AGENT, kind, reading, cards):
            needed = peak - pool.held_by(OwnerKind.AGENT)  # on a disk, an earlier start's files
            if deficit := missing(needed, pool.free.mib, reserve):
                return kind, _short_for_agent(pool, needed, reserve, deficit, holders.largest_taker(pool))
    return None


def _short_for_agent(pool: Pool, needed: float, reserve: float, deficit: float, taker: Owner | None) -> Finding:
    held = "" if taker is None else f"; {taker}"
    sentence = (
        f"{pool.name} has {pool.free} free, the agent needs {needed:.0f} MiB and a reserve of {reserve:.0f} MiB{held}"
    )
    cause = Cause.PRESSURE if taker is None else Cause.FOREIGN_PROCESS
    return Finding(cause, sentence, pool=pool.name, owner="" if taker is None else taker.name, deficit_mib=deficit)
