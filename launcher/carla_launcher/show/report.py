"""Writes ``report.html`` and ``report.md`` from a run's files: facts, incidents, evaluation and learning curves.

Runs in a separate process (see ``report_process``), since matplotlib is larger than the launcher. Missing parts are
left out and torn lines skipped, so that a run that was killed has a report as well.
"""

from __future__ import annotations

import base64
import contextlib
import gc
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import jinja2

from carla_launcher import hooks
from carla_launcher.act.saved_config import saved_config
from carla_launcher.show import history, routes, run_charts, sentences
from carla_launcher.show.formatting import cause, clock, grouped, kind_of, mib, run_ended, seconds_as_date, time_of_day
from carla_launcher.show.history import RunHistory, Session
from carla_launcher.show.incidents import Incident
from carla_launcher.show.planned import most_held, planned_bands
from carla_launcher.show.report_phases import footprint, peaks_by_phase, shortages
from carla_launcher.show.run_time import RunTime
from carla_launcher.show.timeline import highest
from carla_launcher.simulators import drives_one
from carla_run.exits import Exit
from carla_run.figures import SHOWN, in_table
from carla_run.files import read_whole, write_whole
from carla_run.paths import RunPaths
from carla_run.readers import inner, number, read_lines, read_objects, read_text

EVENTS_SHOWN = 400
INCIDENTS_SHOWN = 200
OWNERS_SHOWN = 8
MAX_VALUE_CHARACTERS = 160
"""Most characters of a list or an object in an event; the file has the rest."""
COLUMNS = (
    *("success", "route_completion", "driving_score", "collisions_per_km", "red_lights_per_km"),
    *("lane_invasions_per_km", "mean_speed_mps", "jerk_mps3", "reward", "routes", "blocked"),
)
"""Keys of a driver's totals in ``evaluation.json``."""
EMBEDDED_BYTES = 20 * 10**6
"""Most bytes of pictures and videos inside the page."""
KINDS = {".mp4": "video/mp4", ".png": "image/png"}
SPECIAL = "\\`*_{}[]<>#|~!"
"""Characters with a meaning in Markdown."""

Row = Mapping[str, Any]


def exit_code(page: Path, write: Callable[[], object]) -> int:
    """Write a page; return the exit code. If it can't be written, print one line."""
    try:
        write()
    except OSError as error:
        print(f"{page}: can't be written ({error.strerror}).", file=sys.stderr)
        return int(Exit.BAD_CONFIG)
    return 0


def write(run: RunPaths) -> Path:
    """Write ``report.html`` and ``report.md``, and return the former's path.

    Raises:
        OSError: a file can't be written.
    """
    with _uncollected():
        content = _content(run, history.examine(run))
        write_whole(run.report, templates(escaped=True).get_template("report.html").render(content))
        text = templates(escaped=False).get_template("report.md").render(content)
        write_whole(run.report.with_suffix(".md"), text.rstrip() + "\n")
    return run.report


@contextlib.contextmanager
def _uncollected() -> Iterator[None]:
    """Switch the garbage collector off: rows have no cycles, and visiting a night's rows takes half of the time."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


def templates(*, escaped: bool, more: Sequence[Path] = ()) -> jinja2.Environment:
    """Return the templates of this folder and of ``more``, with their filters."""
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader([Path(__file__).parent / "templates", *more]),
        autoescape=escaped,
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=jinja2.StrictUndefined,
    )
    environment.filters |= {
        "clock": clock,
        "grouped": grouped,
        "mib": mib,
        "plain": plain,
        "figure": _figure,
        "kind_of": kind_of,
        "date": seconds_as_date,
    }
    return environment


def plain(value: Any) -> str:
    """Return a text escaped for Markdown, with <br> between lines, also for tables."""
    lines = (" ".join(line.split()) for line in str(value).split("\n"))
    return "<br>".join("".join(f"\\{each}" if each in SPECIAL else each for each in line) for line in lines)


def _figure(value: Any, form: str) -> str:
    found = number(value)
    return "–" if found is None else form.format(found)


def _content(run: RunPaths, found: RunHistory) -> dict[str, Any]:
    """Return the content of page and text; never raises for the content of the files."""
    return {
        "title": run.path.name,
        "outcome": outcome(found),
        "overview": sentences.overview(found),
        "facts": facts(run, found),
        "memory": run_charts.memory(found),
        "pools": _pools(found),
        "planned": [(band, most_held(band, found.timeline)) for band in planned_bands(found.launcher)],
        "routes": routes_table(found),
        "incidents": _incidents(found),
        "driving": driving(read_objects(run.evaluation_json)),
        "pictures": embedded(sorted(run.videos.glob("*.png")) + sorted(run.videos.glob("*.mp4"), reverse=True)),
        "curves": run_charts.curves(run_charts.CURVES, found.metrics),
        "phases": peaks_by_phase(found.beat.peaks_mib if found.beat else {}, found.agent_events),
        "footprint": footprint(found.agent_events),
        "shortages": shortages(found.agent_events),
        "memory_curves": run_charts.curves(run_charts.MEMORY_CURVES, found.metrics),
        "steps": hooks.steps(run),
        "events": _events(run, found),
        "config": read_text(run.config),
    }


def outcome(found: RunHistory) -> str:
    """Return how the run ended, as a sentence."""
    code, reason = found.launcher.get("exit_code"), found.launcher.get("reason")
    if code is not None:
        return run_ended(reason, code)
    if found.launcher or found.sessions:
        return "The run has not ended, or its launcher was killed."
    return "The run was trained without the launcher."


def facts(run: RunPaths, found: RunHistory) -> dict[str, Any]:
    """Return the run's figures by name, without unknown ones."""
    launcher = found.launcher
    config, agent = saved_config(run), {} if found.beat is None else found.beat.data()
    simulates = bool(launcher.get("port")) and drives_one(inner(launcher, "options"))
    known = {
        # Of all launchers and learners of the run; the state files have only the last one's.
        "started": seconds_as_date(number(found.sessions[0].from_s if found.sessions else launcher.get("started"))),
        "duration": clock(found.ran_s) if found.sessions else _duration(launcher),
        "simulator": f"{launcher.get('host')}:{launcher['port']}" if simulates else None,
        "map": inner(launcher, "options").get("map") or inner(config, "simulator").get("map"),
        "simulator restarts": launcher.get("simulator_restarts") if simulates else None,
        "items": found.routes.get("items"),
        "drives": found.routes.get("drives"),
        "steps": agent.get("step"),
        "updates": agent.get("updates") or None,
        "episodes": agent.get("episode") or None,
        "collector restarts": found.collector_restarts or agent.get("collector_restarts") or None,
        "unacknowledged steps lost with nodes": hooks.lost_with_nodes(found.agent_events),
        "nodes at the end": "; ".join(hooks.nodes(run)),
        "device": agent.get("device"),
        "batch": agent.get("batch") or None,
        "seed": config.get("seed"),
    }
    return {name: value for name, value in known.items() if value not in (None, "")}


def _duration(launcher: Row) -> str | None:
    start, end = number(launcher.get("started")), number(launcher.get("updated"))
    return None if start is None or end is None or end < start else clock(end - start)


# Memory and incidents


def _pools(run: RunHistory) -> list[dict[str, Any]]:
    """Return each pool's limit, its least free memory, and the owners that held most."""
    pools = []
    for name, samples in run.timeline.pools.items():
        peaks = sorted(highest(samples).items(), key=lambda each: -each[1])
        most = [f"{owner} {mib(held)}" for owner, held in peaks[:OWNERS_SHOWN]]
        free = min((sample.free for sample in samples if sample.free is not None), default=None)
        pools.append({"name": kind_of(name), "limit": samples[-1].total, "free": free, "most": most})
    return pools


def routes_table(run: RunHistory) -> dict[str, Any] | None:
    """Return an evaluation's table (``sentence``, ``heads``, ``rows``); None if the run is none."""
    if not run.routes:
        return None
    return {"sentence": routes.sentence(run.routes), "heads": routes.HEADS, "rows": routes.rows(run.routes)}


def _incidents(run: RunHistory) -> dict[str, Any] | None:
    """Return the incidents that cost most, in order of time, up to ``INCIDENTS_SHOWN``."""
    if not run.incidents:
        return None
    axis = RunTime(run.sessions)
    costliest = sorted(run.incidents, key=lambda each: (-each.standstill_s, not each.is_fault))
    shown = sorted(costliest[:INCIDENTS_SHOWN], key=lambda each: each.began_s)
    return {"count": len(run.incidents), "shown": [incident_row(each, axis, run.records_standstills) for each in shown]}


def incident_row(incident: Incident, axis: RunTime, told: bool) -> dict[str, Any]:
    """Return an incident as a row of the table; ``told``: the files record standstills."""
    return {
        "name": incident.name,
        "when": clock(axis.at(incident.began_s)),
        "time": time_of_day(incident.began_s),
        "cause": cause(incident.cause),
        "sentences": incident.sentences,
        "pool": "" if incident.tightest is None else kind_of(incident.pool),
        "holders": [] if incident.tightest is None else sentences.holders(incident.tightest),
        "actions": sentences.done(incident),
        "back": sentences.back(incident) if told else "not known",
        "price": sentences.price(incident),
    }


# How it drove and learned


def driving(evaluations: Sequence[Row]) -> dict[str, Any] | None:
    """Return the table of drivers (``towns``, ``blocked`` routes, ``heads``, ``rows``); None if it is empty."""
    rows = [(evaluation, inner(evaluation, "totals")) for evaluation in evaluations]
    present = [key for key in COLUMNS if any(number(totals.get(key)) is not None for _, totals in rows)]
    if not present:
        return None
    named = [evaluation.get("blocked") for evaluation in evaluations]
    blocked = {str(route) for routes in named if isinstance(routes, list) for route in routes}
    return {
        "towns": ", ".join(sorted({str(evaluation.get("map", "?")) for evaluation in evaluations})),
        "blocked": sorted(blocked),
        "heads": [SHOWN[key].label for key in present],
        "rows": [
            {"name": row.get("name"), "cells": [in_table(key, totals.get(key)) for key in present]}
            for row, totals in rows
        ],
    }


def embedded(files: Sequence[Path]) -> list[dict[str, Any]]:
    """Return pictures and videos: ``name`` (a link), ``video``, and ``source`` (the content, or a link if too large).

    A page that is moved or sent keeps its content; the rest is linked.
    """
    shown, room = [], EMBEDDED_BYTES
    for path in files:
        link = source = f"{path.parent.name}/{path.name}"
        with contextlib.suppress(OSError):
            if 0 < path.stat().st_size <= room:
                content = read_whole(path)
                room -= len(content)
                source = f"data:{KINDS[path.suffix]};base64,{base64.b64encode(content).decode()}"
        shown.append({"name": link, "video": path.suffix == ".mp4", "source": source})
    return shown


# What happened


def _events(run: RunPaths, found: RunHistory) -> dict[str, Any] | None:
    sources = {"launcher": read_lines(run.launcher_events), "agent": found.agent_events}
    rows = [(number(row.get("time")) or 0.0, source, row) for source, told in sources.items() for row in told]
    rows.sort(key=lambda entry: entry[0])
    if not rows:
        return None
    sessions, first_s = found.sessions, rows[0][0]
    axis = RunTime(sessions or [Session(first_s, rows[-1][0])])
    shown = [_event(axis.at(when), source, row) for when, source, row in rows[-EVENTS_SHOWN:]]
    return {"count": len(rows), "shown": shown}


def _event(after_s: float, source: str, row: Row) -> dict[str, Any]:
    rest = {key: value for key, value in row.items() if key not in ("time", "event", "cause") and value is not None}
    return {
        "when": clock(after_s),
        "source": source,
        "name": str(row.get("event", "?")).replace("_", " "),
        "cause": row.get("cause") or "",
        "numbers": " · ".join(f"{key} {_short(value)}" for key, value in rest.items()),
    }


def _short(value: Any) -> str:
    text = str(value)
    return text if len(text) <= MAX_VALUE_CHARACTERS or isinstance(value, str) else f"{text[:MAX_VALUE_CHARACTERS]} …"


if __name__ == "__main__":
    RUN = RunPaths(Path(sys.argv[1]))
    sys.exit(exit_code(RUN.report, lambda: write(RUN)))
