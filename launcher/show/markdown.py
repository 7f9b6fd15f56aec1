"""``report.md``: the postmortem for a terminal, a mail or an issue. Pure: a postmortem in, text out."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from launcher.show import sentences
from launcher.show.axis import Axis
from launcher.show.formatting import cause, clock, grouped, mib
from launcher.show.history import IncidentReport, RunHistory, kind_of
from launcher.show.report_incidents import HEADS, local_time, shown_of

SPECIAL = "\\`*_{}[]<>#|~!"


def text(name: str, outcome: str, run: RunHistory | None) -> str:
    """Return the whole text.

    Args:
        name: of the run.
        outcome: how it ended, a sentence.
        run: None where no launcher wrote anything.
    """
    parts = [f"# {plain(name)}", plain(outcome)]
    if run is not None:
        parts.append(" ".join(plain(sentence) for sentence in sentences.overview(run)))
        parts += [*_incidents(run), *_memory(run)]
    return "\n\n".join(parts) + "\n"


def plain(value: str) -> str:
    """Return any text as one line that Markdown takes for nothing but text, inside of a table too."""
    line = " ".join(value.split())
    return "".join(f"\\{letter}" if letter in SPECIAL else letter for letter in line)


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a table; cells are text, their lines are kept apart."""
    lines = [head, ["---"] * len(head)]
    lines += [["<br>".join(plain(line) for line in cell.split("\n")) for cell in row] for row in rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _incidents(run: RunHistory) -> list[str]:
    if not run.told:
        return []
    axis, shown = Axis(run.sessions, 0.0, 1.0), shown_of(run)
    note = f"The {grouped(len(shown))} that cost most, of {grouped(len(run.told))}."
    notes = [note] if len(shown) < len(run.told) else []
    return ["## Incidents", *notes, table(HEADS, (_row(told, axis) for told in shown))]


def _row(told: IncidentReport, axis: Axis) -> tuple[str, ...]:
    incident = told.incident
    when = f"{clock(axis.run_s(incident.began_s))}\n{local_time(incident.began_s)}"
    found = "\n".join([cause(incident.cause), *incident.sentences])
    held = "–" if told.held is None else f"{kind_of(told.pool)}: {sentences.holders(told.held)}"
    return when, found, held, "\n".join(sentences.done(told)), sentences.back(told), sentences.price(told)


def _memory(run: RunHistory) -> list[str]:
    rows = []
    for name, samples in run.timeline.pools.items():
        peaks: dict[str, float] = {}
        for sample in samples:
            for owner, held in sample.owners.items():
                peaks[owner] = max(peaks.get(owner, 0.0), held)
        most = "\n".join(f"{owner} {mib(held)}" for owner, held in sorted(peaks.items(), key=lambda each: -each[1])[:8])
        free = min((sample.free for sample in samples if sample.free is not None), default=None)
        rows.append((kind_of(name), mib(samples[-1].total), mib(free), most or "–"))
    return ["## Memory", table(("pool", "limit", "least free", "most held by"), rows)] if rows else []
