"""Shows the state of a run as a table that is kept up to date, in a terminal or a pipe.

``show.status`` reads the run's files.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from carla_launcher.decide.detectors.expectations import PHASES
from carla_launcher.show import routes
from carla_launcher.show.bars import bar
from carla_launcher.show.formatting import (
    cause,
    clock,
    counted,
    kind_of,
    listed,
    mib,
    run_ended,
    span,
    time_of_day,
)
from carla_launcher.show.planned import planned_bands
from carla_launcher.show.status import StatusReader
from carla_launcher.show.status import status as status
from carla_launcher.show.summary import resuming
from carla_launcher.simulators import drives_one
from carla_run.paths import RunPaths
from carla_run.readers import inner, items, number

FOLLOW_S = 1.0
STALE_S = 10.0
"""Age from which a heartbeat is shown as stale."""

Found = Mapping[str, Any]


def show(run: RunPaths) -> None:
    """Print the state once."""
    found = status(run, time.time())
    console = Console()
    console.print(view(found))
    _say_end(console, found)


def follow(run: RunPaths) -> None:
    """Keep the view up to date until the run ends, then print how it ended."""
    look, console = StatusReader(run), Console()
    found = look.at(time.time())
    with Live(view(found), console=console, auto_refresh=False) as live:
        while found["alive"] or found["unsupervised"]:
            time.sleep(FOLLOW_S)
            found = look.at(time.time())
            live.update(view(found), refresh=True)
    _say_end(console, found)


def view(found: Found) -> RenderableType:
    """Return figures, memory and findings, one below the other; 80 columns are enough."""
    return Group(table(found), *_routes(found), *_memory(found), *_findings(found))


def table(found: Found) -> Table:
    """Return the figures of ``status`` as a table."""
    shown = Table(title=Text(f"run {found['run']}"), show_header=False)
    shown.add_column(no_wrap=True)
    shown.add_column(overflow="fold")
    for name, value in figures(found).items():
        shown.add_row(name, Text(value))
    return shown


def figures(found: Found) -> dict[str, str]:
    """Return the figures of ``status`` as text, by name, without unknown ones."""
    rows = {
        "state": _state(found),
        "job": _job(inner(found, "job")),
        "progress": _progress(found),
        "routes": routes.sentence(found["routes"]) if found["routes"] else "",
        "agent": _agent(found["heartbeat"], found["heartbeat_age_s"]),
        "simulator": _simulator(found),
        "nodes": "\n".join(found["nodes"]),
        "restarts": ", ".join(f"{name} {count:.0f}" for name, count in found["restarts"].items() if count is not None),
        "repeated": _repeated(number(found.get("steps_lost")) or 0.0),
        "rung": _rungs(found),
        "planned": _planned(found),
        "set aside": "\n".join(map(str, items(found, "set_aside"))),
        "damaged": "\n".join(found["damaged"]),
    }
    return {name: value for name, value in rows.items() if value}


def _repeated(lost: float) -> str:
    were = "was" if lost == 1 else "were"
    return f"{counted(round(lost), 'finished step')} {were} lost" if lost else ""


def ending(found: Found) -> str:
    """Return how the run ended, as a sentence; empty while it is active."""
    if found["alive"] or found["unsupervised"]:
        return ""
    if found["state"] == "killed" and found["routes"]:
        return "The evaluation's launcher was killed: the same `routes` command continues."
    if found["state"] == "killed":
        return f"The run's launcher was killed: `{resuming(RunPaths(Path(found['path'])), 'up')}` resumes the run."
    if found.get("exit_code") is None:
        return "No launcher has run here."
    return run_ended(found.get("reason"), found["exit_code"])


def _say_end(console: Console, found: Found) -> None:
    if sentence := ending(found):
        console.print(Text(sentence))


def _state(found: Found) -> str:
    if found["unsupervised"]:
        return "training without a launcher"
    ran_s, stands = found["ran_s"], inner(found, "standstill") if found["alive"] else {}
    said = str(found["state"]) + (f", {clock(ran_s)} after its start" if ran_s is not None else "")
    waits = f": waits for {listed([*inner(stands, 'down')])}"
    return f"{said}\ntraining stands still{_since(number(stands.get('from_s')))}{waits}" if stands else said


def _job(job: Found) -> str:
    """Return the state of the run's Slurm job, the ends of its steps, and its last output, one per line."""
    if not job:
        return ""
    reason = f" ({job['reason']})" if job["reason"] else ""
    parts = [f"{job['job']} {job['state'] or 'unknown to Slurm'}{reason}"]
    parts += [f"on {job['nodes']}"] if job["nodes"] else []
    running = job["state"] == "RUNNING" and job["until_s"] is not None
    parts += [f"{span(max(0.0, job['until_s'] - time.time()))} left"] if running else []
    parts += [f"queued again {counted(job['restarts'], 'time')}"] if job["restarts"] else []
    return "\n".join([", ".join(parts), *job["ends"][-3:], f"log {job['log']}", *job["lines"]])


def counts_steps(found: Found) -> bool:
    """Return whether anything is known of the steps; of a command without a program file nothing is."""
    return found["step"] is not None and bool(found["step"] or found["total_steps"])


def _progress(found: Found) -> str:
    step, total, speed, eta_s = (found[key] for key in ("step", "total_steps", "steps_per_s", "eta_s"))
    if not counts_steps(found):
        return ""
    parts = [f"step {step:.0f}" + (f" of {total:.0f} ({step / total:.1%})" if total else "")]
    parts += [f"{speed:.1f} steps/s"] if speed is not None else []
    parts += [f"{span(eta_s)} to go"] if eta_s is not None else []
    return ", ".join(parts)


def _agent(beat: Found, age_s: float | None) -> str:
    named = {"": "phase", "on ": "device", "micro-batch ": "micro_batch", "updates ": "updates"}
    parts = [f"{before}{beat[key]}" for before, key in named.items() if beat.get(key) not in (None, "", 0)]
    if age_s is not None:
        parts.append(f"heartbeat {span(age_s)} ago" + (" (stale)" if age_s > STALE_S else ""))
    return ", ".join(parts)


def _simulator(found: Found) -> str:
    if not found.get("host") or not drives_one(inner(found, "options")):
        return ""
    qualities = [each.get("quality") for each in (inner(found, "simulator"), found) if each.get("quality")]
    town, cluster = (inner(found, "options").get(name) for name in ("map", "cluster"))
    where = f"on each node of the cluster at {cluster}" if cluster else f"{found['host']}:{found.get('port')}"
    parts = [where, *([str(town)] if town else [])]
    return ", ".join([*parts, *(f"quality {quality}" for quality in qualities[:1])])


def _rungs(found: Found) -> str:
    rungs = found["rungs"]
    if not rungs:
        return "none taken" if found["alive"] else ""
    lines = [f"{each['rung']}{_since(each['since'])}: {each['cause']}" for each in rungs]
    if (wait_s := found["next_restore_s"]) is not None:
        when = f"in {span(wait_s)} at the earliest" if wait_s else "once memory has sufficed for long enough"
        lines.append(f"next restore: {when}")
    return "\n".join(lines)


def _planned(found: Found) -> str:
    """Return the planned memory of simulator and agent in the present phase, one per line."""
    phase = PHASES.get(str(found["heartbeat"].get("phase")))
    return "\n".join(
        f"{band.owner} {mib(band.mib)} of {kind_of(band.pool)}" + (f" while {band.phase}" if band.phase else "")
        for band in planned_bands(found)
        if band.phase in ("", phase)
    )


def _since(moment_s: float | None, before: str = " since ") -> str:
    said = "" if moment_s is None else time_of_day(moment_s)
    return before + said if said else ""


def _routes(found: Found) -> list[RenderableType]:
    if not found["routes"]:
        return []
    shown = Table(*routes.HEADS)
    for row in routes.rows(found["routes"]):
        shown.add_row(*map(Text, row))
    return [shown]


def _memory(found: Found) -> list[RenderableType]:
    pools = found["memory"]["pools"]
    if not pools:
        return []
    shown = Table(show_header=False, box=None, padding=(0, 1))
    shown.add_column(no_wrap=True)
    shown.add_column(overflow="fold")
    for name, pool in pools.items():
        shown.add_row(Text(kind_of(name)), bar(pool))
    when = [] if found["alive"] else [Text(f"Memory when last measured{_since(found['memory']['time'], ', at ')}:")]
    return [*when, shown]


def _findings(found: Found) -> list[RenderableType]:
    return [Text(f"! {cause(each['cause'])}{_since(each['since'])}: {each['sentence']}") for each in found["findings"]]
