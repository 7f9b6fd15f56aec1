"""Bars of memory for a terminal, with a sign and a colour for each owner. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rich.text import Text

from carla_launcher.show.timeline import UNNAMED, Part, parts, sample_of

SIGNS = {
    "simulator": ("█", "blue"),
    "agent": ("▓", "cyan"),
    "launcher": ("▚", "magenta"),
    UNNAMED: ("░", "white"),
    "raised": ("·", "dim"),
}
"""Signs and terminal colours by the page's colour; "raised" is free memory."""
FOREIGN = ("▒", "yellow")
WIDTH = 34


def bar(pool: Mapping[str, Any]) -> Text:
    """Return a pool's bar, its sums and its owners; without a bar if the total is unknown.

    Args:
        pool: ``total``, ``free`` and ``owners``, MiB, as in ``launcher-memory.jsonl``.
    """
    found = held(pool)
    if found is None:
        return Text("unknown")
    total, shown = found
    signs = [SIGNS.get(part.colour, FOREIGN) for part in shown]
    text = Text()
    for (sign, colour), cells in zip(signs, cells_of([part.mib for part in shown], total), strict=True):
        text.append(sign * cells, colour)
    used = total - shown[-1].mib
    text.append(f" {used:.0f} of {total:.0f} MiB ({used / total:.0%})\n")
    for (sign, colour), part in zip(signs, shown, strict=True):
        text.append(sign, colour)
        text.append(f" {part.name} {part.mib:.0f}  ")
    return text


def held(pool: Mapping[str, Any]) -> tuple[float, list[Part]] | None:
    """Return a pool's total and its parts, the free one last; None if unknown."""
    sample = sample_of(0.0, pool)
    if not sample.total or sample.free is None:
        return None
    owners = {name: mib for name, mib in sample.owners.items() if mib >= 0.5}
    return sample.total, [*parts(owners, sample.unnamed), Part("free", sample.free, "raised")]


def cells_of(amounts: list[float], total: float, width: int = WIDTH) -> list[int]:
    """Return how many of ``width`` cells each amount gets; the largest remainders are rounded up."""
    known = [max(0.0, amount) for amount in amounts]
    sum_mib = max(sum(known), total, 1e-9)
    exact = [amount / sum_mib * width for amount in known]
    cells = [int(share) for share in exact]
    left = min(width, round(sum(exact))) - sum(cells)
    for index in sorted(range(len(exact)), key=lambda n: cells[n] - exact[n])[: max(0, left)]:
        cells[index] += 1
    return cells
