"""The planned memory of simulator and agent by phase, and the most that they held. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from carla_launcher.decide.detectors.expectations import PHASES
from carla_launcher.observe.pools import PoolKind
from carla_launcher.show.timeline import Timeline
from carla_run.readers import inner, number


class Band(NamedTuple):
    """The planned memory of one owner in one pool and phase; the phase is empty for all phases."""

    owner: str
    pool: str
    phase: str
    mib: float


def planned_bands(launcher: Mapping[str, Any]) -> Iterator[Band]:
    """Yield the planned bands in ``launcher.json``."""
    owners = inner(launcher, "planned_bands_mib")
    for owner in owners:
        pools = inner(owners, owner)
        for pool in pools:
            phases = inner(pools, pool)
            for phase in phases:
                if (mib := number(phases[phase])) is not None:
                    yield Band(owner, pool, phase, mib)


def most_held(band: Band, timeline: Timeline) -> float | None:
    """Return the most that the band's owner held in its pool and phase, MiB; None if it was never seen there."""
    phases = {each.time_s: PHASES.get(each.phase) for each in timeline.progress} if band.phase else {}
    on_disk = band.pool == PoolKind.DISK  # owners there are folders, all of them the agent's
    held = [
        sum(sample.owners.values()) if on_disk else sample.owners[band.owner]
        for sample in timeline.pools.get(band.pool, [])
        if (on_disk or band.owner in sample.owners) and (not band.phase or phases.get(sample.time_s) == band.phase)
    ]
    return max(held, default=None)
