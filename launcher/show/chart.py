"""A curve as inline SVG, for the report.

Pure: numbers in, markup out. Colours are the page's (classes ``grid``, ``curve``, ``dot``,
``label``), so that one chart serves light and dark.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

WIDTH, HEIGHT = 600, 220
LEFT, RIGHT, TOP, BOTTOM = 58, 14, 10, 26
MOST_POINTS = 400
MARKED_UP_TO = 30
LARGEST = 1e100

Points = Sequence[tuple[float, float]]


def line_chart(points: Points) -> str:
    """Return an ``<svg>`` of the points, in order of x; absurd ones are left out; fewer than two give ""."""
    kept = _thinned(sorted((x, y) for x, y in points if abs(x) < LARGEST and abs(y) < LARGEST))
    if len(kept) < 2:
        return ""
    x_low, x_high = _widened(kept[0][0], kept[-1][0])
    y_ticks = ticks(*_widened(min(y for _, y in kept), max(y for _, y in kept)))
    y_low, y_high = y_ticks[0], y_ticks[-1]

    def place(x: float, y: float) -> tuple[float, float]:
        across = (x - x_low) / (x_high - x_low) * (WIDTH - LEFT - RIGHT)
        down = (y_high - y) / (y_high - y_low) * (HEIGHT - TOP - BOTTOM)
        return LEFT + across, TOP + down

    placed = [place(x, y) for x, y in kept]
    parts = [_horizontal(place(x_low, tick)[1], tick) for tick in y_ticks]
    parts += [_below(place(tick, y_low)[0], tick) for tick in ticks(x_low, x_high, about=6) if x_low <= tick <= x_high]
    parts.append(f'<polyline class="curve" points="{" ".join(f"{x:.1f},{y:.1f}" for x, y in placed)}"/>')
    if len(placed) <= MARKED_UP_TO:
        parts += [f'<circle class="dot" cx="{x:.1f}" cy="{y:.1f}" r="3"/>' for x, y in placed]
    return f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img">{"".join(parts)}</svg>'


def _thinned(points: list[tuple[float, float]]) -> list[tuple[float, float]]:
    """Return at most ``MOST_POINTS``, each the mean of neighbours."""
    size = math.ceil(len(points) / MOST_POINTS) or 1
    groups = [points[start : start + size] for start in range(0, len(points), size)]
    return [(sum(x for x, _ in group) / len(group), sum(y for _, y in group) / len(group)) for group in groups]


def _widened(low: float, high: float) -> tuple[float, float]:
    """Return a range of some width about a flat curve."""
    margin = max(abs(low), abs(high), 1.0) * 1e-3
    return (low, high) if high - low > margin * 1e-3 else (low - margin, high + margin)


def ticks(low: float, high: float, about: int = 4) -> list[float]:
    """Return round numbers from at or below ``low`` to at or above ``high``."""
    raw = (high - low) / about
    power = 10.0 ** math.floor(math.log10(raw))
    step = next(factor * power for factor in (1, 2, 5, 10) if factor * power >= raw * 0.999)
    first, last = math.floor(low / step), math.ceil(high / step)
    return [index * step for index in range(first, last + 1)]


def _horizontal(y: float, value: float) -> str:
    line = f'<line class="grid" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y:.1f}" y2="{y:.1f}"/>'
    return line + _text(LEFT - 6, y + 4, f"{value:.4g}", "end")


def _below(x: float, value: float) -> str:
    return _text(x, HEIGHT - 8, f"{value / 1000:.4g}k" if abs(value) >= 10_000 else f"{value:.4g}", "middle")


def _text(x: float, y: float, text: str, anchor: str) -> str:
    return f'<text class="label" x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{text}</text>'
