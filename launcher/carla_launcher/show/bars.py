"""Memory as bars for a terminal: a cell for a share of a pool, a sign and a colour for each owner. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from rich.text import Text

from carla_launcher.show.timeline import OURS
from carla_run.readers import inner, number

SIGNS = {"simulator": ("█", "blue"), "agent": ("▓", "cyan"), "launcher": ("▚", "magenta")}
FOREIGN = ("▒", "yellow")
UNNAMED = ("░", "white")
FREE = ("·", "dim")
WIDTH = 34


@dataclass(frozen=True)
class Part:
    """One owner's part of a bar."""

    name: str
    mib: float
    sign: str
    colour: str


def bar(pool: Mapping[str, Any]) -> Text:
    """Return a pool's bar, its sums, and who holds what; text without signs where its total is unknown.

    Args:
        pool: ``total``, ``free`` and ``owners``, MiB, as in ``launcher-memory.jsonl``.
    """
    total, free = number(pool.get("total")), number(pool.get("free"))
    if total is None or total <= 0 or free is None:
        return Text("unknown")
    shown = parts(pool, total, free)
    text = Text()
    for part, cells in zip(shown, cells_of([part.mib for part in shown], total), strict=True):
        text.append(part.sign * cells, part.colour)
    used = total - free
    text.append(f" {used:.0f} of {total:.0f} MiB ({used / total:.0%})\n")
    for part in shown:
        text.append(part.sign, part.colour)
        text.append(f" {part.name} {part.mib:.0f}  ")
    return text


def parts(pool: Mapping[str, Any], total: float, free: float) -> list[Part]:
    """Return who holds what: this run, foreign processes by size, what none is known to hold, and what is free."""
    held = {name: number(mib) for name, mib in inner(pool, "owners").items()}
    owners = {name: mib for name, mib in held.items() if mib is not None and mib >= 0.5}
    foreign = sorted((name for name in owners if name not in OURS), key=lambda name: -owners[name])
    shown = [Part(name, owners[name], *SIGNS[name]) for name in OURS if name in owners]
    shown += [Part(name, owners[name], *FOREIGN) for name in foreign]
    unnamed = total - free - sum(owners.values())
    shown += [Part("unattributed", unnamed, *UNNAMED)] if unnamed >= 1 else []
    return [*shown, Part("free", free, *FREE)]


def cells_of(amounts: list[float], total: float, width: int = WIDTH) -> list[int]:
    """Return how many cells each amount gets: as many as ``width`` together, the largest remainders rounded up."""
    known = [max(0.0, amount) for amount in amounts]
    sum_mib = max(sum(known), total, 1e-9)
    exact = [amount / sum_mib * width for amount in known]
    cells = [int(share) for share in exact]
    left = min(width, round(sum(exact))) - sum(cells)
    for index in sorted(range(len(exact)), key=lambda n: cells[n] - exact[n])[: max(0, left)]:
        cells[index] += 1
    return cells
