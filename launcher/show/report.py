"""``report.html`` and ``report.md``: what was run, what went wrong, how it drove, how it learned. From the files alone.

Owns these two files. Missing parts are left out and torn lines skipped: a report of a run that died says what there is.
"""

from __future__ import annotations

import contextlib
import gc
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from contract.files import write_whole
from contract.paths import RunPaths
from contract.readers import inner, number, points, read_lines, read_object, read_objects
from launcher.saved_config import saved_config
from launcher.show import history, markdown, report_incidents, report_memory, sentences
from launcher.show.chart import line_chart
from launcher.show.formatting import clock
from launcher.show.history import RunHistory
from launcher.show.page import PAGE, figures, safe

EVENTS_SHOWN = 400
LONGEST = 160
"""Characters of a list or an object in an event; the file has the rest."""

CURVES = {
    "rollout/ep_rew_mean": "Return of training episodes (mean of the last 100)",
    "rollout/route_completion": "Route completion in training",
    "eval/route_completion": "Route completion on held-out routes",
    "eval/driving_score": "Driving score on held-out routes (0 to 100)",
    "train/critic_loss": "Critic loss",
    "train/actor_loss": "Actor loss",
    "time/fps": "Environment steps per second",
}
"""Scalar names as in TensorBoard."""

COLUMNS: dict[str, tuple[str, Callable[[float], str]]] = {
    "success": ("success", "{:.0%}".format),
    "route_completion": ("completion", "{:.1%}".format),
    "driving_score": ("driving score", "{:.1f}".format),
    "collisions_per_km": ("collisions/km", "{:.2f}".format),
    "lane_invasions_per_km": ("lane inv./km", "{:.1f}".format),
    "mean_speed_mps": ("m/s", "{:.1f}".format),
    "jerk_mps3": ("jerk m/s³", "{:.1f}".format),
    "reward": ("return", "{:.1f}".format),
    "routes": ("routes", "{:.0f}".format),
}


def write(run: RunPaths) -> Path:
    """Write page and text, and return the page's path; the text lies beside it as ``report.md``.

    Raises:
        OSError: a file can't be written.
    """
    with _uncollected():
        found = history.examine(run)
        write_whole(run.report, render(run, found))
        outcome = _outcome(read_object(run.launcher_state), found)
        write_whole(run.report.with_suffix(".md"), markdown.text(run.path.name, outcome, found))
    return run.report


@contextlib.contextmanager
def _uncollected() -> Iterator[None]:
    """Keep the garbage collector off: rows hold no circles, and walking over a night of them takes half of the time."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


def render(run: RunPaths, found: RunHistory | None) -> str:
    """Return the page; never raises for what is in the files."""
    launcher, agent = read_object(run.launcher_state), read_object(run.heartbeat)
    evaluations, metrics = read_objects(run.evaluation_json), read_lines(run.metrics)
    sections = {
        "Memory over the run": report_incidents.courses(found) if found else "",
        "Incidents": report_incidents.table(found) if found else "",
        "How it drove": _drivers(evaluations),
        "Video": _videos(run),
        "How it learned": _curves(metrics),
        "Memory by phase": report_memory.section(agent, read_lines(run.agent_events), metrics),
        "What happened": _events(run),
        "Configuration": _configuration(run),
    }
    body = "".join(f"<section><h2>{title}</h2>{content}</section>" for title, content in sections.items() if content)
    return PAGE.format(
        title=safe(run.path.name),
        outcome=_summary(_outcome(launcher, found), found),
        facts=_facts(run, launcher, agent, found),
        body=body,
    )


def _outcome(launcher: Mapping[str, Any], found: RunHistory | None) -> str:
    code, reason = launcher.get("exit_code"), launcher.get("reason")
    if code is None:
        return (
            "This run has not ended, or its launcher was killed."
            if launcher or found
            else "Trained without the launcher."
        )
    return f"It ended: {reason} (exit code {code})."


def _summary(outcome: str, found: RunHistory | None) -> str:
    parts = [outcome, *(sentences.overview(found) if found else [])]
    return "<br>".join(safe(sentence) for sentence in parts)


def _facts(run: RunPaths, launcher: Mapping[str, Any], agent: Mapping[str, Any], found: RunHistory | None) -> str:
    simulator = f"{launcher.get('host')}:{launcher.get('port')}" if launcher else None
    config = saved_config(run)
    facts = {
        # Of all launchers and learners that the run had; the files of state know the last one alone.
        "started": _date(found.sessions[0].from_s if found else launcher.get("started")),
        "duration": clock(found.ran_s) if found else _duration(launcher),
        "simulator": simulator,
        "map": inner(launcher, "options").get("map") or inner(config, "simulator").get("map"),
        "simulator restarts": launcher.get("simulator_restarts"),
        "steps": agent.get("step"),
        "updates": agent.get("updates"),
        "episodes": agent.get("episode"),
        "collector restarts": found.collector_restarts if found else agent.get("collector_restarts"),
        "device": agent.get("device"),
        "batch": agent.get("batch"),
        "seed": config.get("seed"),
    }
    shown = {name: value for name, value in facts.items() if value not in (None, "")}
    return "".join(f"<div><dt>{name}</dt><dd>{safe(value)}</dd></div>" for name, value in shown.items())


def _drivers(evaluations: Sequence[Mapping[str, Any]]) -> str:
    rows = [(evaluation, inner(evaluation, "totals")) for evaluation in evaluations]
    present = [key for key in COLUMNS if any(number(totals.get(key)) is not None for _, totals in rows)]
    if not present:
        return ""
    head = "".join(f"<th>{COLUMNS[key][0]}</th>" for key in present)
    lines = [
        f"<tr><th>{safe(evaluation.get('name'))}</th>{''.join(_cell(totals.get(key), key) for key in present)}</tr>"
        for evaluation, totals in rows
    ]
    towns = ", ".join(sorted({str(evaluation.get("map", "?")) for evaluation in evaluations}))
    note = f"<p>Routes that training never drove, on {safe(towns)}.</p>"
    return f"{note}<div class=wide><table><tr><th>driver</th>{head}</tr>{''.join(lines)}</table></div>"


def _cell(value: Any, key: str) -> str:
    figure = number(value)
    return f"<td>{'–' if figure is None else COLUMNS[key][1](figure)}</td>"


def _videos(run: RunPaths) -> str:
    names = [safe(f"videos/{path.name}") for path in sorted(run.videos.glob("*.mp4"), reverse=True)]
    films = "".join(
        f'<figure><figcaption><a href="{name}">{name}</a></figcaption>'
        f'<video controls preload="metadata" src="{name}"></video></figure>'
        for name in names
    )
    return f"<div class=charts>{films}</div>" if films else ""


def _curves(rows: Sequence[Mapping[str, Any]]) -> str:
    drawn = figures({title: line_chart(points(rows, name)) for name, title in CURVES.items()})
    return f"<p>Over environment steps.</p>{drawn}" if drawn else ""


def _events(run: RunPaths) -> str:
    sources = {"launcher": run.launcher_events, "agent": run.agent_events}
    rows = [(number(row.get("time")) or 0.0, who, row) for who, path in sources.items() for row in read_lines(path)]
    rows.sort(key=lambda entry: entry[0])
    if not rows:
        return ""
    start, left_out = rows[0][0], max(0, len(rows) - EVENTS_SHOWN)
    lines = "".join(_event(when - start, who, row) for when, who, row in rows[left_out:])
    note = f"<p>The last {EVENTS_SHOWN} of {len(rows)} events.</p>" if left_out else ""
    return f"{note}<div class=wide><table class=events>{lines}</table></div>"


def _event(after_s: float, who: str, row: Mapping[str, Any]) -> str:
    rest = {key: value for key, value in row.items() if key not in ("time", "event", "cause") and value is not None}
    numbers = " · ".join(f"{safe(key)} {_short(value)}" for key, value in rest.items())
    cause = f"{safe(row['cause'])}<br>" if row.get("cause") else ""
    name = safe(str(row.get("event", "?")).replace("_", " "))
    what = f"{cause}<small>{numbers}</small>"
    return f"<tr><td>{clock(after_s)}</td><td>{who}</td><th>{name}</th><td>{what}</td></tr>"


def _short(value: Any) -> str:
    text = str(value)
    return safe(text if len(text) <= LONGEST or isinstance(value, str) else f"{text[:LONGEST]} …")


def _configuration(run: RunPaths) -> str:
    try:
        text = run.config.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""
    return f"<details><summary>config.yaml</summary><pre>{safe(text)}</pre></details>"


def _duration(launcher: Mapping[str, Any]) -> str | None:
    start, end = number(launcher.get("started")), number(launcher.get("updated"))
    return None if start is None or end is None or end < start else clock(end - start)


def _date(value: Any) -> str | None:
    since_1970_s = number(value)
    if since_1970_s is None or not 0 < since_1970_s < 32_503_680_000:  # the year 3000
        return None
    return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(since_1970_s))
