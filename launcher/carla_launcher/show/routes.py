"""An evaluation as data and as a table: where its items stand, what was driven again and why. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any

from carla_launcher.decide.route_progress import Progress, Standing
from carla_launcher.decide.route_verdict import Outcome, Why
from carla_launcher.show.formatting import counted, span
from carla_run.paths import RunPaths
from carla_run.readers import inner
from carla_run.records import plain

BECAUSE = {
    Why.SIMULATOR: "the simulator was lost",
    Why.TIME_LIMIT: "of the time limit",
    Why.NOT_VALID: "what was left is no result",
    Why.EXIT: "the program ended without a result",
    Why.NOT_STARTED: "the program couldn't be started",
    Why.STOPPED: "the evaluation was stopped",
    Why.LAUNCHER_KILLED: "the launcher was killed",
}
HEADS = ("item", "stands", "drives", "took", "simulator", "program", "why it has no result, or was driven again")

Told = Mapping[str, Any]


def told(run: RunPaths, progress: Progress) -> dict[str, Any]:
    """Return everything as JSON can hold it; empty if the run is no evaluation."""
    if not progress.items:
        return {}
    standings = Counter(progress.standing(item).value for item in progress.items)
    return {
        "run": str(run.path),
        "items": len(progress.items),
        **{standing.value: standings.get(standing.value, 0) for standing in Standing},
        "drives": sum(len(progress.of(item)) for item in progress.items),
        "driven_again": {why.value: count for why, count in progress.again().most_common()},
        "routes": [_route(run, progress, item) for item in progress.items],
    }


def _route(run: RunPaths, progress: Progress, item: str) -> dict[str, Any]:
    kept = progress.result_of(item)
    return {
        "item": item,
        "standing": progress.standing(item).value,
        "result": str(run.path / kept.result) if kept is not None and kept.result else None,
        "drives": [
            {**plain(drive), "outcome": drive.outcome or "under_way", "folder": str(run.path / drive.folder)}
            for drive in progress.of(item)
        ],
    }


def sentence(found: Told) -> str:
    """Return one line: how many items stand where, and what was driven again and why."""
    stand = ", ".join(f"{found[each.value]} {_words(each.value)}" for each in Standing if found[each.value])
    again = found["driven_again"]
    whys = ", ".join(f"{count} because {BECAUSE[Why(why)]}" for why, count in again.items())
    repeated = f", {sum(again.values())} of them driven again: {whys}" if again else ""
    return f"{counted(found['items'], 'item')}: {stand}; {counted(found['drives'], 'drive')}{repeated}"


def left(found: Told) -> list[str]:
    """Return a line for each item that is left: its name, and why each of its drives left no result."""
    items = [route for route in found["routes"] if route["standing"] == Standing.LEFT.value]
    tries = [sum(drive["outcome"] == Outcome.AGAIN.value for drive in route["drives"]) for route in items]
    return [
        f"{route['item']}: left after {counted(count, 'drive')} ({'; '.join(_causes(route))})"
        for route, count in zip(items, tries, strict=True)
    ]


def lost_s(found: Told) -> float:
    """Return the time of all drives that left no result, seconds."""
    return sum(drive["took_s"] or 0.0 for route in found["routes"] for drive in _wanting(route))


def rows(found: Told) -> list[tuple[str, ...]]:
    """Return a row of cells below ``HEADS`` for each item."""
    return [
        (
            route["item"],
            _words(route["standing"]),
            str(len(route["drives"])),
            _took(route),
            _peak(route, "simulator"),
            _peak(route, "program"),
            "\n".join(_causes(route)),
        )
        for route in found["routes"]
    ]


def _took(route: Told) -> str:
    """Return how long the drives took that have ended; empty before the first one has."""
    ended = [drive["took_s"] for drive in route["drives"] if drive["took_s"] is not None]
    return span(sum(ended)) if ended else ""


def _words(standing: str) -> str:
    return "failed by itself" if standing == Standing.FAILED.value else standing.replace("_", " ")


def _causes(route: Told) -> list[str]:
    return [f"drive {drive['number']}: {drive['cause']}" for drive in _wanting(route)]


def _wanting(route: Told) -> list[Told]:
    return [drive for drive in route["drives"] if drive["outcome"] in (Outcome.AGAIN.value, Outcome.UNDONE.value)]


def _peak(route: Told, owner: str) -> str:
    """Return what an owner held at most, of each kind of memory."""
    peaks: Counter[str] = Counter()
    for drive in route["drives"]:
        peaks |= Counter(inner(drive["peak_mib"], owner))
    return ", ".join(f"{mib:.0f} MiB {kind}" for kind, mib in sorted(peaks.items()))
