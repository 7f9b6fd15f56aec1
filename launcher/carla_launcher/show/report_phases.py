"""The agent's memory in the report: the estimate item by item, the peak of each phase, and every shortage.

Pure functions over the run's records. Missing records and invalid values are left out.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from carla_run.readers import inner, number

SHORTAGES_SHOWN = 20
COLUMNS = {
    "host_estimate": "RAM estimated",
    "host": "RAM held",
    "learner": "learner",
    "collector": "collector",
    "device_estimate": "GPU estimated",
    "device_allocated": "tensors",
    "device_reserved": "allocator",
    "device_used": "GPU in all",
}
BESIDE = {"host_estimate": "host", "device_estimate": "device_used"}
"""The measurement of each estimate. An estimate is shown only if its measurement is shown, too."""
POOLS = {"device": "GPU", "host": "RAM", "disk": "disk"}
DONE = {
    "collected": "garbage collected, same size tried again",
    "halved": "micro-batch halved",
    "exhausted": "nothing left to halve, the run ended",
}

Row = Mapping[str, Any]


def peaks_by_phase(measured: Mapping[str, Mapping[str, float]], events: Sequence[Row]) -> dict[str, Any] | None:
    """Return the table of peaks in MiB; None if nothing was measured.

    It has ``highest`` (sentences above the table), ``heads`` and ``rows``.

    Args:
        measured: peaks by phase, from the last heartbeat.
        events: the agent's events.
    """
    estimate = next((row for row in reversed(events) if row.get("event") == "footprint"), {})
    lines = {phase: _line(phase, figures, estimate) for phase, figures in measured.items()}
    held = {kind for line in lines.values() for kind in line}
    shown = [kind for kind in COLUMNS if {kind, BESIDE.get(kind, kind)} <= held]
    if not shown:
        return None
    return {
        "highest": _highest(lines),
        "heads": [COLUMNS[kind] for kind in shown],
        "rows": [
            {"name": phase.replace("_", " "), "cells": [line.get(kind) for kind in shown]}
            for phase, line in lines.items()
        ],
    }


def _highest(lines: Mapping[str, Mapping[str, float]]) -> list[str]:
    """Return the sentences above the table."""
    said = {"host": "RAM held by learner and collector", "device_used": "GPU memory used by all processes"}
    found = []
    for kind, what in said.items():
        if held := [(line[kind], phase) for phase, line in lines.items() if kind in line]:
            most, phase = max(held, key=lambda each: each[0])
            found.append(f"Highest {what}: {most:.0f} MiB, in phase {phase.replace('_', ' ')}.")
    return found


def _line(phase: str, measured: Mapping[str, float], estimate: Row) -> dict[str, float]:
    figures = {kind: number(measured.get(kind)) for kind in COLUMNS}
    for pool in ("host", "device"):
        figures[f"{pool}_estimate"] = number(inner(estimate, f"{pool}_by_phase_mib").get(phase))
    return {kind: mib for kind, mib in figures.items() if mib is not None}


def shortages(events: Sequence[Row]) -> dict[str, Any] | None:
    """Return the number of the agent's shortages (``count``) and the last ones (``shown``); None if there was none."""
    rows = [row for row in events if row.get("event") == "out_of_memory"]
    shown = [{**row, "done": DONE.get(str(row.get("action")), str(row.get("action")))} for row in rows]
    return {"count": len(rows), "shown": shown[-SHORTAGES_SHOWN:]} if rows else None


def footprint(events: Sequence[Row]) -> dict[str, Any] | None:
    """Return the estimate that the agent made at its last start: ``heads``, and ``rows``; None without one.

    The rows are the items, the total at the peak, and the memory that was free.
    """
    told = next((row for row in reversed(events) if row.get("event") == "footprint"), {})
    listed = told.get("items")
    items = [item for item in listed if isinstance(item, dict)] if isinstance(listed, list) else []
    pools = [pool for pool in POOLS if any(number(item.get(f"{pool}_mib")) for item in items)]
    if not pools:
        return None
    rows = [
        {
            "name": str(item.get("name")),
            "phase": str(item.get("phase") or "").replace("_", " "),
            "cells": [number(item.get(f"{pool}_mib")) or None for pool in pools],
        }
        for item in items
    ]
    for name, key in (("total at the peak", "total_mib"), ("free at the start", "free_mib")):
        rows.append({"name": name, "phase": "", "cells": [number(inner(told, key).get(pool)) for pool in pools]})
    return {"heads": [POOLS[pool] for pool in pools], "rows": rows}
