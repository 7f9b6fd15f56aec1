"""The parts of the page as HTML, from the run's files with the readers of ``status`` and ``report``.

A part is sent only when it has changed. Figures are read once a second; charts are redrawn after an event, or after
some time, once for all open pages.
"""

from __future__ import annotations

import hashlib
import threading
import time
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from carla_launcher.decide.route_progress import Standing
from carla_launcher.plugins.page.buttons import Buttons
from carla_launcher.show import bars, dashboard, history, run_charts
from carla_launcher.show.formatting import cause, clock, grouped, kind_of, span, time_of_day
from carla_launcher.show.history import RunHistory
from carla_launcher.show.report import incident_row, routes_table, templates
from carla_launcher.show.run_time import RunTime
from carla_launcher.show.status import StatusReader
from carla_launcher.show.timeline import FOREIGN_REST
from carla_launcher.simulators import drives_one
from carla_run.paths import RunPaths
from carla_run.readers import inner, read_object

CHARTS_S, AFTER_EVENT_S = 10.0, 2.0
"""Intervals between two drawings of the charts; the second one after an event of the launcher."""
DRAWING_SHARE = 0.1
"""Most of a core that drawing takes without an event: the charts of a week take seconds."""
INCIDENTS_SHOWN = 12
MOST_ROWS = 2_000
"""Lines of memory from which on they are thinned: less than in a report, since charts are drawn again and again."""
CURVES = {
    **{name: run_charts.CURVES[name] for name in ("rollout/ep_rew_mean", "eval/route_completion")},
    **{name: run_charts.CURVES[name] for name in ("eval/driving_score", "time/fps")},
}

Found = Mapping[str, Any]


class Part(NamedTuple):
    """A part of the page; its key changes with its content."""

    key: str
    html: str


class Parts:
    """The parts of one run's page. Several pages may request them at the same time."""

    def __init__(self, run: RunPaths, buttons: Buttons) -> None:
        self.buttons = buttons
        self._run, self._look = run, StatusReader(run)
        self._history = history.HistoryReader(run, CURVES, MOST_ROWS)
        self._templates = templates(escaped=True, more=[Path(__file__).parent / "templates"])
        self._looking = threading.Lock()
        self._looked_s = self._drawn_s = float("-inf")
        self._drawing_s = 0.0
        self._drawn_at: object = None
        self._parts: dict[str, Part] = {}
        self._phase, self._alive = "", False

    def page(self) -> str:
        """Return the page without its parts."""
        launcher = read_object(self._run.launcher_state)
        options = inner(launcher, "options")
        return self._templates.get_template("page.html").render(
            title=self._run.path.name,
            launched=self._run.launcher_lock.exists(),
            routes=bool(launcher.get("evaluation")),
            command=bool(options.get("command")),
            simulator=drives_one(options),
            ends_simulator=drives_one(options) and not options.get("simulator_host"),
        )

    def changed(self, have: Collection[str], now: float) -> dict[str, Any]:
        """Return the parts whose keys aren't in ``have``, the enabled buttons, and the state of the last request.

        Args:
            have: keys of the parts that the page shows.
            now: seconds since 1970.
        """
        with self._looking:
            if not 0 <= now - self._looked_s < 0.5:
                self._look_again(now)
            parts = {name: part._asdict() for name, part in self._parts.items() if part.key not in have}
        return {
            "now": now,
            "parts": parts,
            "alive": self._alive,
            "buttons": self.buttons.open(self._phase),
            "said": self.buttons.said(),
        }

    def _look_again(self, now: float) -> None:
        found = self._look.at(now)
        self._looked_s = now
        self._phase, self._alive = str(found["heartbeat"].get("phase", "")), bool(found["alive"])
        self._render("figures", **_figures(found))
        events = _stamp(self._run.launcher_events)
        due_s = AFTER_EVENT_S if events != self._drawn_at else charts_due_s(self._drawing_s)
        if not 0 <= now - self._drawn_s < due_s:
            self._drawn_s, self._drawn_at = now, events
            before_s = time.thread_time()
            self._draw(found)
            self._drawing_s = time.thread_time() - before_s

    def _draw(self, found: Found) -> None:
        run = self._history.look()
        self._render("routes", routes=routes_table(run))
        self._render("memory", memory=run_charts.memory(run))
        self._render("curves", curves=run_charts.curves(CURVES, run.metrics))
        self._render("incidents", incidents=_incidents(run), routes=run.routes)
        self._render("rungs", ladders=_ladders(found), taken=found["rungs"])

    def _render(self, name: str, **content: Any) -> None:
        html = self._templates.get_template(f"{name}.html").render(content)
        self._parts[name] = Part(f"{name}-{hashlib.blake2b(html.encode(), digest_size=6).hexdigest()}", html)


def charts_due_s(drawing_s: float) -> float:
    """Return the interval between two drawings without an event, by the processor time that the last one took."""
    return max(CHARTS_S, drawing_s / DRAWING_SHARE)


def _figures(found: Found) -> dict[str, Any]:
    beat, speed, eta_s = found["heartbeat"], found["steps_per_s"], found["eta_s"]
    step, total = found["step"], found["total_steps"]
    if not dashboard.counts_steps(found):
        step = speed = None
    if (routes := found["routes"]) is not None:
        total = routes["items"]
        step = total - routes[Standing.OPEN.value] - routes[Standing.UNDER_WAY.value]
    # Where no launcher has run, only an agent that is over needs to be told so: a drive has no heartbeat.
    never = found["state"] == "unknown"
    tiles = {
        "state": None if never or found["unsupervised"] else found["state"],
        "agent": beat.get("phase"),
        "ran": None if found["ran_s"] is None else clock(found["ran_s"]),
        "step" if routes is None else "items driven": None if step is None else grouped(step),
        "of": grouped(total) if total else None,
        "steps/s": None if speed is None else f"{speed:.1f}",
        "to go": None if eta_s is None else span(eta_s),
        "updates": grouped(beat["updates"]) if beat.get("updates") else None,
        "episode": beat.get("episode") or None,
        "device": beat.get("device"),
        "batch": _batch(beat),
        "heartbeat": None if found["heartbeat_age_s"] is None else f"{span(found['heartbeat_age_s'])} ago",
    }
    return {
        "tiles": {name: value for name, value in tiles.items() if value not in (None, "")},
        "lines": {name: text for name, text in dashboard.figures(found).items() if name in ("restarts", "rung")},
        "done": step / total if step is not None and total else None,
        "ending": "" if never and not beat else dashboard.ending(found),
        "findings": [
            {"cause": cause(each["cause"]), "sentence": each["sentence"], "since": time_of_day(each["since"])}
            for each in found["findings"]
        ],
        "pools": [_pool(name, pool) for name, pool in found["memory"]["pools"].items()],
    }


def _batch(beat: Found) -> str | None:
    batch, micro = beat.get("batch"), beat.get("micro_batch")
    return None if not batch else str(batch) if micro in (None, batch) else f"{batch} in parts of {micro}"


def _pool(name: str, pool: Found) -> dict[str, Any]:
    """Return a pool's owners and its free memory, each with MiB, share and colour."""
    found = bars.held(pool)
    if found is None:
        return {"name": kind_of(name), "total": None, "parts": []}
    total, parts = found
    held: dict[tuple[str, str], float] = {}
    for part in parts:
        key = ("others" if part.colour == FOREIGN_REST else part.name, part.colour)
        held[key] = held.get(key, 0.0) + part.mib
    shown = [
        {"name": name, "mib": mib, "share": max(0.0, mib / total), "colour": colour}
        for (name, colour), mib in held.items()
    ]
    return {"name": kind_of(name), "total": total, "used": total - parts[-1].mib, "parts": shown}


def _incidents(run: RunHistory) -> list[dict[str, Any]]:
    """Return the last incidents with their actions, the newest first."""
    axis = RunTime(run.sessions)
    return [incident_row(each, axis, run.records_standstills) for each in reversed(run.incidents[-INCIDENTS_SHOWN:])]


def _ladders(found: Found) -> dict[str, Any]:
    """Return, by pool, what each possible step would free, from ``launcher.json``."""
    ladders = found["rungs_free_mib"] if isinstance(found["rungs_free_mib"], dict) else {}
    return {
        kind_of(kind): {step: {kind_of(pool): mib for pool, mib in inner(steps, step).items()} for step in steps}
        for kind, steps in ladders.items()
        if isinstance(steps, dict) and steps
    }


def _stamp(path: Path) -> object:
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_ino, found.st_size
