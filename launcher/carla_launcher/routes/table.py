"""What people and programs read of an evaluation: a table of its items, and what was driven again and why."""

from __future__ import annotations

from collections import Counter
from typing import Any

from carla_launcher.routes.progress import Drive, Progress, Standing
from carla_launcher.routes.verdict import Outcome, Why
from carla_launcher.show.formatting import counted, span
from carla_run.paths import RunPaths

BECAUSE = {
    Why.SIMULATOR: "the simulator was lost",
    Why.TIME_LIMIT: "of the time limit",
    Why.NOT_VALID: "what was left is no result",
    Why.EXIT: "the program ended without a result",
    Why.NOT_STARTED: "the program couldn't be started",
    Why.STOPPED: "the evaluation was stopped",
    Why.LAUNCHER_KILLED: "the launcher was killed",
}
WORDS = {
    Standing.OPEN: "open",
    Standing.UNDER_WAY: "under way",
    Standing.DONE: "done",
    Standing.FAILED: "failed by itself",
    Standing.LEFT: "left",
}


def as_plain(run: RunPaths, progress: Progress) -> dict[str, Any]:
    """Return everything as JSON can hold it."""
    standings = Counter(progress.standing(item).value for item in progress.items)
    drives = [drive for item in progress.items for drive in progress.of(item)]
    return {
        "run": str(run.path),
        "items": len(progress.items),
        **{standing.value: standings.get(standing.value, 0) for standing in Standing},
        "drives": len(drives),
        "driven_again": {why.value: count for why, count in progress.again().items()},
        "routes": [_route(run, progress, item) for item in progress.items],
    }


def _route(run: RunPaths, progress: Progress, item: str) -> dict[str, Any]:
    kept = progress.result_of(item)
    return {
        "item": item,
        "standing": progress.standing(item).value,
        "result": str(run.path / kept.result) if kept is not None and kept.result else None,
        "drives": [
            {
                "number": drive.number,
                "outcome": "under_way" if drive.outcome is None else drive.outcome.value,
                "why": None if drive.why is None else drive.why.value,
                "cause": drive.sentence,
                "exit_code": drive.exit_code,
                "took_s": drive.took_s,
                "peak_mib": drive.peak_mib,
                "folder": str(run.path / drive.folder),
            }
            for drive in progress.of(item)
        ],
    }


def sentence(progress: Progress) -> str:
    """Return one line: how many items stand where, and what was driven again and why."""
    standings = Counter(progress.standing(item) for item in progress.items)
    stand = ", ".join(f"{standings[each]} {WORDS[each]}" for each in Standing if standings[each])
    drives, again = sum(len(progress.of(item)) for item in progress.items), progress.again()
    whys = ", ".join(f"{count} because {BECAUSE[why]}" for why, count in again.most_common())
    repeated = f", {again.total()} of them driven again: {whys}" if again else ""
    return f"{counted(len(progress.items), 'item')}: {stand}; {counted(drives, 'drive')}{repeated}"


def left(progress: Progress) -> list[str]:
    """Return a line for each item that is left: its name, and why each of its drives left no result."""
    items = [item for item in progress.items if progress.standing(item) is Standing.LEFT]
    tries = {item: counted(progress.without_result(item), "drive") for item in items}
    return [f"{item}: left after {tries[item]} ({'; '.join(_causes(progress.of(item)))})" for item in items]


def text(progress: Progress) -> str:
    """Return the table as Markdown, which a terminal shows as well."""
    head = ["item", "stands", "drives", "took", "simulator", "program", "why it has no result, or was driven again"]
    rows = [head, *(_row(progress, item) for item in progress.items)]
    widths = [max(len(row[column]) for row in rows) for column in range(len(head))]
    lines = [" | ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]
    rule = "-|-".join("-" * width for width in widths)
    return "\n".join(f"| {line}" for line in (lines[0], rule, *lines[1:]))


def page(run: RunPaths, progress: Progress) -> str:
    """Return ``report.md``: the line, the items that are left, the table."""
    named = "".join(f"- {line}\n" for line in left(progress))
    return f"# {run.path.name}\n\n{sentence(progress)}.\n\n{named}\n{text(progress)}\n"


def _row(progress: Progress, item: str) -> list[str]:
    drives = progress.of(item)
    took_s = sum(drive.took_s or 0.0 for drive in drives)
    return [
        item.replace("|", "/"),
        WORDS[progress.standing(item)],
        str(len(drives)),
        span(took_s),
        _peak(drives, "simulator"),
        _peak(drives, "program"),
        "; ".join(_causes(drives)).replace("|", "/"),
    ]


def _causes(drives: tuple[Drive, ...]) -> list[str]:
    wanting = [drive for drive in drives if drive.outcome in (Outcome.AGAIN, Outcome.UNDONE)]
    return [f"drive {drive.number}: {drive.sentence}" for drive in wanting]


def _peak(drives: tuple[Drive, ...], owner: str) -> str:
    """Return what an owner held at most, of each kind of memory."""
    peaks: dict[str, float] = {}
    for drive in drives:
        for kind, mib in (drive.peak_mib.get(owner) or {}).items():
            peaks[kind] = max(peaks.get(kind, 0.0), float(mib))
    return ", ".join(f"{mib:.0f} MiB {kind}" for kind, mib in sorted(peaks.items()))
