"""The report's section on memory: each phase's peak beside its estimate, every shortage, and the course of a run.

Pure: rows of the run's files in, markup out. Missing parts are left out, values of another kind too.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from contract.readers import inner, number, points
from launcher.show.chart import line_chart
from launcher.show.page import figures, safe

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
COURSES = {
    "memory/learner_mib": "RAM of the learner, MiB",
    "memory/collector_mib": "RAM of the collector, MiB",
    "memory/device_allocated_mib": "GPU memory in tensors, MiB",
    "memory/device_reserved_mib": "GPU memory that the allocator holds, MiB",
    "memory/device_used_mib": "GPU memory used by all processes, MiB",
}
DONE = {
    "collected": "garbage collected, same size again",
    "halved": "micro-batch halved",
    "exhausted": "nothing left to halve: the run ended",
}

Row = Mapping[str, Any]


def section(agent: Row, events: Sequence[Row], metrics: Sequence[Row]) -> str:
    """Return the section's markup; empty where nothing was measured.

    Args:
        agent: the heartbeat's last object.
        events: of the agent.
        metrics: scalars by step.
    """
    return _peaks(agent, events) + _shortages(events) + _courses(metrics)


def _peaks(agent: Row, events: Sequence[Row]) -> str:
    measured = inner(inner(agent, "memory"), "peak_by_phase_mib")
    estimate = next((row for row in reversed(events) if row.get("event") == "footprint"), {})
    lines = {phase: _line(phase, inner(measured, phase), estimate) for phase in measured}
    held = {kind for line in lines.values() for kind in line}
    shown = [kind for kind in COLUMNS if kind in held and _belongs(kind, held)]
    if not shown:
        return ""
    head = "".join(f"<th>{COLUMNS[kind]}</th>" for kind in shown)
    body = "".join(
        f"<tr><th>{safe(phase.replace('_', ' '))}</th>{''.join(_cell(line.get(kind)) for kind in shown)}</tr>"
        for phase, line in lines.items()
    )
    note = (
        f"<p>{_highest(lines)}Below, in MiB, each phase's highest of the agent's last process. RAM is what the kernel "
        "can't drop: page cache and the mapped replay aren't counted.</p>"
    )
    return f"{note}<div class=wide><table><tr><th>phase</th>{head}</tr>{body}</table></div>"


def _highest(lines: Mapping[str, Mapping[str, float]]) -> str:
    """Return the sentences that sum the table up."""
    said = {"host": "RAM held by learner and collector", "device_used": "GPU memory used by all processes"}
    sentences = []
    for kind, what in said.items():
        held = {phase: line[kind] for phase, line in lines.items() if kind in line}
        if held:
            phase = max(held, key=lambda name: held[name])
            sentences.append(f"Most {what}: {held[phase]:.0f} MiB, while {safe(phase.replace('_', ' '))}. ")
    return "".join(sentences)


def _line(phase: str, measured: Row, estimate: Row) -> dict[str, float]:
    figures = {kind: number(measured.get(kind)) for kind in COLUMNS}
    for pool in ("host", "device"):
        figures[f"{pool}_estimate"] = number(inner(estimate, f"{pool}_by_phase_mib").get(phase))
    return {kind: mib for kind, mib in figures.items() if mib is not None}


def _belongs(kind: str, held: set[str]) -> bool:
    """Return whether a column says something: an estimate does beside a measurement of its pool."""
    return not kind.endswith("_estimate") or {"host_estimate": "host"}.get(kind, "device_used") in held


def _cell(mib: float | None) -> str:
    return f"<td>{'–' if mib is None else f'{mib:.0f}'}</td>"


def _shortages(events: Sequence[Row]) -> str:
    rows = [row for row in events if row.get("event") == "out_of_memory"]
    if not rows:
        return ""
    left_out = len(rows) - SHORTAGES_SHOWN
    note = (
        f"<p>Memory ran out {_times(len(rows))}{f'; the last {SHORTAGES_SHOWN} of them' if left_out > 0 else ''}:</p>"
    )
    head = "".join(
        f"<th>{title}</th>" for title in ("in phase", "with rows at once", "what was done", "said, and found")
    )
    body = "".join(_shortage(row) for row in rows[max(0, left_out) :])
    return f"{note}<div class=wide><table class=shortages><tr>{head}</tr>{body}</table></div>"


def _times(count: int) -> str:
    return "once" if count == 1 else f"{count} times"


def _shortage(row: Row) -> str:
    action = DONE.get(str(row.get("action")), str(row.get("action")))
    file = row.get("snapshot")
    link = f'<br><a href="memory/{safe(file)}">memory/{safe(file)}</a>' if file else ""
    return (
        f"<tr><th>{safe(row.get('phase'))}</th><td>{safe(row.get('micro_batch'))} of {safe(row.get('batch'))}</td>"
        f"<td>{safe(action)}</td><td><small>{safe(row.get('cause'))}</small>{link}</td></tr>"
    )


def _courses(metrics: Sequence[Row]) -> str:
    charts = {title: line_chart(points(metrics, name)) for name, title in COURSES.items()}
    drawn = figures(charts)
    return f"<p>Over environment steps.</p>{drawn}" if drawn else ""
