"""The report's sections on incidents and on the memory's course. Pure: a postmortem in, markup out."""

from __future__ import annotations

import time
from collections.abc import Iterable

from launcher.memory.pools import PoolKind
from launcher.show import sentences
from launcher.show.axis import Axis
from launcher.show.formatting import cause, clock, grouped
from launcher.show.history import IncidentReport, RunHistory, kind_of
from launcher.show.incidents import CLIMB
from launcher.show.layers import stacked
from launcher.show.memory_chart import Mark, across, column_of, events_chart, key, memory_chart, signs_key
from launcher.show.page import safe

INCIDENTS_SHOWN = 200
HEADS = ("when", "what was found", "who held what", "what was done", "training again", "cost")
ON_THE_LADDER = {"rung_taken": "down", "rung_adopted": "down", "rung_left": "up"}
RESTARTS = ("simulator_restart", "agent_restart")


def table(run: RunHistory) -> str:
    """Return the table of incidents, a row each; empty where there was none."""
    if not run.told:
        return ""
    shown = shown_of(run)
    left_out = len(run.told) - len(shown)
    note = f"<p>The {grouped(len(shown))} that cost most, of {grouped(len(run.told))}.</p>" if left_out else ""
    axis = Axis(run.sessions, *across())
    head = "".join(f"<th>{title}</th>" for title in HEADS)
    rows = "".join(_row(told, axis) for told in shown)
    return f"{note}<div class=wide><table class=incidents><tr>{head}</tr>{rows}</table></div>"


def shown_of(run: RunHistory) -> list[IncidentReport]:
    """Return the incidents that a report has room for: those that cost most, in order of time."""
    costliest = sorted(run.told, key=lambda told: (-told.cost.stood_s, not told.incident.is_fault))[:INCIDENTS_SHOWN]
    return sorted(costliest, key=lambda told: told.incident.began_s)


def local_time(moment_s: float) -> str:
    """Return ``02:13:45``, on this machine's clock; empty for what is no moment."""
    try:
        return time.strftime("%H:%M:%S", time.localtime(moment_s))
    except (OverflowError, OSError, ValueError):
        return ""


def courses(run: RunHistory) -> str:
    """Return the charts: what happened, and each pool's memory by owner, on one time axis; empty without a timeline."""
    axis = Axis(run.sessions, *across())
    stacks = {
        name: stack
        for name, samples in run.timeline.pools.items()
        if (stack := stacked(samples, lambda moment_s: column_of(axis, moment_s))) is not None
    }
    if not stacks:
        return ""
    drawn = {
        name: f"<figure><figcaption>{safe(kind_of(name))}, MiB</figcaption>"
        f"<div class=wide>{memory_chart(kind_of(name), axis, stack, run.stood)}</div>{key(stack.layers)}</figure>"
        for name, stack in stacks.items()
    }
    quiet = [name for name in drawn if name == PoolKind.DISK.value and all(told.pool != name for told in run.told)]
    aside = "".join(f"<details><summary>{safe(kind_of(name))}</summary>{drawn[name]}</details>" for name in quiet)
    events = f"<div class=wide>{events_chart(axis, list(marks(run)), run.stood)}</div>{signs_key()}"
    return (
        "<p>Hours and minutes since the start. Signs say more when pointed at.</p>"
        f"<figure>{events}</figure>{''.join(chart for name, chart in drawn.items() if name not in quiet)}{aside}"
    )


def marks(run: RunHistory) -> Iterable[Mark]:
    """Yield what the chart of events shows."""
    for told in run.told:
        incident = told.incident
        if incident.cause != CLIMB:
            said = incident.sentences[0] if incident.sentences else ""
            yield Mark(incident.began_s, "faults", "fault", f"{cause(incident.cause)}: {said}")
        for action in incident.actions:
            if action.event in ON_THE_LADDER:
                yield Mark(action.time_s, "ladder", ON_THE_LADDER[action.event], action.words)
            elif action.event in RESTARTS:
                yield Mark(action.time_s, "restarts", "restart", action.words)
    for moment_s, what in run.passed:
        yield Mark(moment_s, "faults", "passed", cause(what))


def _row(told: IncidentReport, axis: Axis) -> str:
    incident = told.incident
    when = f"{clock(axis.run_s(incident.began_s))}<br><small>{local_time(incident.began_s)}</small>"
    said = "".join(f"<br><small>{safe(sentence)}</small>" for sentence in incident.sentences)
    held = "–"
    if told.held is not None:
        holders = safe(sentences.holders(told.held)).replace(", ", "<br>")
        held = f"{safe(kind_of(told.pool))}<br><small>{holders}</small>"
    actions = "<br>".join(safe(line) for line in sentences.done(told))
    cells = (f"<b>{safe(cause(incident.cause))}</b>{said}", held, f"<small>{actions}</small>")
    rest = (safe(sentences.back(told)), safe(sentences.price(told)))
    return f"<tr><th>{when}</th>{''.join(f'<td>{cell}</td>' for cell in (*cells, *rest))}</tr>"
