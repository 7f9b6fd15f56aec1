"""Lines on the collectors of a cluster and their nodes, from the driver's last report."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from carla_launcher.show.formatting import kind_of, mib
from carla_run.paths import RunPaths
from carla_run.readers import inner, number, read_objects


def nodes(run: RunPaths) -> list[str]:
    """Return a line for each collector; empty without a cluster."""
    return [_line(row) for row in read_objects(run.nodes)]


def lost_with_nodes(events: Sequence[Mapping[str, Any]]) -> str:
    """Return how many unfinished steps a run lost with nodes, from the agent's events; empty for none."""
    rows = [row for row in events if row.get("event") == "chunk_lost"]
    most = sum(number(row.get("at_most")) or 0 for row in rows)
    return f"at most {most:.0f}, {len(rows)} times" if rows else ""


def _line(row: Mapping[str, Any]) -> str:
    seen = inner(row, "seen")
    parts = [f"collector {row.get('collector')} on {row.get('node')}: {row.get('steps')} steps"]
    parts.append(f"simulator {seen.get('state', 'unknown')}")
    if restarts := number(seen.get("restarts")):
        parts.append(f"restarted {restarts:.0f} times ({seen.get('cause')})")
    for name, pool in inner(seen, "memory_mib").items():
        free, total = (number(pool.get(key)) if isinstance(pool, dict) else None for key in ("free", "total"))
        if free is not None and total is not None:
            parts.append(f"{kind_of(name)} {mib(free)} of {mib(total)} free")
    return ", ".join(parts)
