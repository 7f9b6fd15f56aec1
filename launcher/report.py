"""``report.html``: what was run, how it drove, how it learned, what happened. One page, made from the files alone.

Owns that file. Missing parts are left out and torn lines skipped: a report of a run that died says what there is.
"""

from __future__ import annotations

import html
import os
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from launcher.chart import line_chart
from launcher.page import PAGE
from launcher.run_directory import RunDirectory, read_lines, read_object, read_objects, read_yaml

EVENTS_SHOWN = 400
CURVES = {
    "rollout/ep_rew_mean": "Return of training episodes (mean of the last 100)",
    "rollout/route_completion": "Route completion in training",
    "eval/route_completion": "Route completion on held-out routes",
    "eval/driving_score": "Driving score on held-out routes (0 to 100)",
    "train/critic_loss": "Critic loss",
    "train/actor_loss": "Actor loss",
    "time/fps": "Environment steps per second",
}
"""Scalar names as in TensorBoard; names that begin with ``memory/`` are drawn too."""

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


def write(run: RunDirectory) -> Path:
    """Write the page and return its path.

    Raises:
        OSError: the file can't be written.
    """
    temporary = run.report.with_name(f".{run.report.name}.{os.getpid()}")
    temporary.write_text(render(run), encoding="utf-8", errors="replace")
    temporary.replace(run.report)
    return run.report


def render(run: RunDirectory) -> str:
    """Return the page; never raises for what is in the files."""
    launcher, agent = read_object(run.launcher_state), read_object(run.agent_status)
    evaluations = read_objects(run.evaluation)
    sections = {
        "How it drove": _drivers(evaluations),
        "Video": _videos(run),
        "How it learned": _curves(read_lines(run.metrics)),
        "Memory": _memory(agent),
        "What happened": _events(run),
        "Configuration": _configuration(run),
    }
    body = "".join(f"<section><h2>{title}</h2>{content}</section>" for title, content in sections.items() if content)
    return PAGE.format(
        title=_safe(run.path.name), outcome=_outcome(launcher), facts=_facts(run, launcher, agent), body=body
    )


def _outcome(launcher: Mapping[str, Any]) -> str:
    code, reason = launcher.get("exit_code"), launcher.get("reason")
    if code is None:
        return "This run has not ended, or its launcher was killed." if launcher else "Trained without the launcher."
    return f"It ended: {_safe(reason)} (exit code {_safe(code)})."


def _facts(run: RunDirectory, launcher: Mapping[str, Any], agent: Mapping[str, Any]) -> str:
    simulator = f"{launcher.get('host')}:{launcher.get('port')}" if launcher else None
    config = read_yaml(run.config)
    facts = {
        "started": _date(launcher.get("started")),
        "duration": _duration(launcher),
        "simulator": simulator,
        "map": launcher.get("map") or _inner(config, "simulator").get("map"),
        "simulator restarts": launcher.get("simulator_restarts"),
        "steps": agent.get("step"),
        "updates": agent.get("updates"),
        "episodes": agent.get("episode"),
        "collector restarts": agent.get("collector_restarts"),
        "device": agent.get("device"),
        "batch": agent.get("batch"),
        "seed": config.get("seed"),
    }
    shown = {name: value for name, value in facts.items() if value not in (None, "")}
    return "".join(f"<div><dt>{name}</dt><dd>{_safe(value)}</dd></div>" for name, value in shown.items())


def _drivers(evaluations: Sequence[Mapping[str, Any]]) -> str:
    rows = [(evaluation, _inner(evaluation, "totals")) for evaluation in evaluations]
    present = [key for key in COLUMNS if any(_number(totals.get(key)) is not None for _, totals in rows)]
    if not present:
        return ""
    head = "".join(f"<th>{COLUMNS[key][0]}</th>" for key in present)
    lines = [
        f"<tr><th>{_safe(evaluation.get('name'))}</th>{''.join(_cell(totals.get(key), key) for key in present)}</tr>"
        for evaluation, totals in rows
    ]
    towns = ", ".join(sorted({str(evaluation.get("map", "?")) for evaluation in evaluations}))
    note = f"<p>Routes that training never drove, on {_safe(towns)}.</p>"
    return f"{note}<div class=wide><table><tr><th>driver</th>{head}</tr>{''.join(lines)}</table></div>"


def _cell(value: Any, key: str) -> str:
    number = _number(value)
    return f"<td>{'–' if number is None else COLUMNS[key][1](number)}</td>"


def _videos(run: RunDirectory) -> str:
    names = [_safe(f"videos/{path.name}") for path in reversed(run.videos)]
    figures = "".join(
        f'<figure><figcaption><a href="{name}">{name}</a></figcaption>'
        f'<video controls preload="metadata" src="{name}"></video></figure>'
        for name in names
    )
    return f"<div class=charts>{figures}</div>" if figures else ""


def _curves(rows: Sequence[Mapping[str, Any]]) -> str:
    memory = sorted({name for row in rows for name in row if name.startswith("memory/")})
    titles = {**CURVES, **{name: name for name in memory}}
    drawn = {title: line_chart(_points(rows, name)) for name, title in titles.items()}
    figures = [f"<figure><figcaption>{_safe(title)}</figcaption>{svg}</figure>" for title, svg in drawn.items() if svg]
    return f"<p>Over environment steps.</p><div class=charts>{''.join(figures)}</div>" if figures else ""


def _points(rows: Sequence[Mapping[str, Any]], name: str) -> list[tuple[float, float]]:
    pairs = [(_number(row.get("step")), _number(row.get(name))) for row in rows]
    return [(x, y) for x, y in pairs if x is not None and y is not None]


def _memory(agent: Mapping[str, Any]) -> str:
    peaks = _inner(_inner(agent, "memory"), "peak_by_phase_mib")
    rows = [(phase, mib) for phase, value in peaks.items() if (mib := _number(value)) is not None]
    if not rows:
        return ""
    lines = "".join(f"<tr><th>{_safe(phase)}</th><td>{mib:.0f}</td></tr>" for phase, mib in rows)
    note = "<p>Highest memory of the agent's processes together, page cache and mapped files not counted.</p>"
    return f"{note}<div class=wide><table><tr><th>phase</th><th>MiB</th></tr>{lines}</table></div>"


def _events(run: RunDirectory) -> str:
    sources = {"launcher": run.launcher_events, "agent": run.agent_events}
    rows = [(_number(row.get("time")) or 0.0, who, row) for who, path in sources.items() for row in read_lines(path)]
    rows.sort(key=lambda entry: entry[0])
    if not rows:
        return ""
    start, left_out = rows[0][0], max(0, len(rows) - EVENTS_SHOWN)
    lines = "".join(_event(when - start, who, row) for when, who, row in rows[left_out:])
    note = f"<p>The last {EVENTS_SHOWN} of {len(rows)} events.</p>" if left_out else ""
    return f"{note}<div class=wide><table class=events>{lines}</table></div>"


def _event(after_s: float, who: str, row: Mapping[str, Any]) -> str:
    rest = {key: value for key, value in row.items() if key not in ("time", "event", "cause") and value is not None}
    numbers = " · ".join(f"{_safe(key)} {_safe(value)}" for key, value in rest.items())
    cause = f"{_safe(row['cause'])}<br>" if row.get("cause") else ""
    name = _safe(str(row.get("event", "?")).replace("_", " "))
    what = f"{cause}<small>{numbers}</small>"
    return f"<tr><td>{_clock(after_s)}</td><td>{who}</td><th>{name}</th><td>{what}</td></tr>"


def _configuration(run: RunDirectory) -> str:
    try:
        text = run.config.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""
    return f"<details><summary>config.yaml</summary><pre>{_safe(text)}</pre></details>"


def _duration(launcher: Mapping[str, Any]) -> str | None:
    start, end = _number(launcher.get("started")), _number(launcher.get("updated"))
    return None if start is None or end is None or end < start else _clock(end - start)


def _clock(seconds: float) -> str:
    whole = int(min(max(seconds, 0.0), 1e12))
    return f"{whole // 3600}:{whole % 3600 // 60:02d}:{whole % 60:02d}"


def _date(value: Any) -> str | None:
    number = _number(value)
    if number is None or not 0 < number < 32_503_680_000:  # the year 3000
        return None
    return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(number))


def _inner(outer: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    value = outer.get(key)
    return value if isinstance(value, dict) else {}


def _number(value: Any) -> float | None:
    """Return a finite float, or None for anything else."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not abs(value) < 1e100:
        return None
    return float(value)


def _safe(value: Any) -> str:
    return html.escape(str(value))
