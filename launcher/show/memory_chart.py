"""The memory's timeline as inline SVG: stacked areas by owner, the limit, and when what happened.

Pure: numbers in, markup out. Colours are the page's (one class an owner), so that one chart serves light and dark.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from launcher.show.axis import Axis
from launcher.show.chart import ticks
from launcher.show.formatting import clock, grouped
from launcher.show.layers import COLUMNS, Layer, Stack
from launcher.show.page import safe

WIDTH, HEIGHT = 1000, 230
LEFT, RIGHT, TOP, BOTTOM = 84, 24, 18, 24
LANE = 20
MARK_APART = 7.0
HAIRLINE = 0.4
TITLE_LINES = 4

Spans = Sequence[tuple[float, float]]


@dataclass(frozen=True)
class Mark:
    """Something that happened: in which lane it is shown, with which sign (a style class), and what it says."""

    time_s: float
    lane: str
    sign: str
    words: str


SHAPES = {
    "fault": "M0 -5A5 5 0 1 1 0 5A5 5 0 1 1 0 -5Z",
    "passed": "M0 -3A3 3 0 1 1 0 3A3 3 0 1 1 0 -3Z",
    "down": "M-5 -4H5L0 5Z",
    "up": "M-5 4H5L0 -5Z",
    "restart": "M-4 -4H4V4H-4Z",
}
"""Signs about their own middle."""
LANES = {
    "faults": {"fault": "a fault", "passed": "a finding that passed"},
    "ladder": {"down": "a step down", "up": "taken back"},
    "restarts": {"restart": "simulator or agent started again"},
}
"""The signs of each lane, with what they mean."""


def events_chart(axis: Axis, marks: Sequence[Mark], stood: Spans) -> str:
    """Return the lanes of what happened as an ``<svg>``; signs that would overlap are drawn as one."""
    height = LANE * len(LANES) + BOTTOM
    parts = [_stood(axis, stood, 0, height - BOTTOM), _seams(axis, height - BOTTOM)]
    for number, lane in enumerate(LANES):
        y = LANE * number + LANE / 2
        parts.append(f'<line class="grid" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y}" y2="{y}"/>')
        parts.append(_text(LEFT - 8, y + 4, lane, "end"))
        for sign in reversed(LANES[lane]):  # the graver one on top
            parts += _signs(axis, [mark for mark in marks if (mark.lane, mark.sign) == (lane, sign)], y)
    parts.append(_times(axis, height))
    return _svg(height, "What happened over the run", parts)


def memory_chart(title: str, axis: Axis, stack: Stack, stood: Spans) -> str:
    """Return a pool's stacked areas as an ``<svg>``."""
    marks = ticks(0.0, max(stack.limit, *(_peaks(stack)), 1.0))
    top = max(stack.limit * 1.02, *_peaks(stack), 1.0)

    def down(mib: float) -> float:
        return TOP + (1 - min(max(mib / top, 0.0), 1.0)) * (HEIGHT - TOP - BOTTOM)

    parts = [f'<rect class="room" x="{LEFT}" y="{TOP}" width="{WIDTH - LEFT - RIGHT}" height="{down(0) - TOP:.1f}"/>']
    for index in reversed(range(len(stack.layers))):  # each covers the lower part of the one behind it
        parts.append(_area(axis, stack, index, down))
    for mib in (each for each in marks if 0 <= each <= top):
        y = down(mib)
        parts.append(f'<line class="grid" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y:.1f}" y2="{y:.1f}"/>')
        parts.append(_text(LEFT - 8, y + 4, grouped(mib), "end"))
    parts += [_stood(axis, stood, TOP, HEIGHT - BOTTOM), _seams(axis, HEIGHT - BOTTOM)]
    y = down(stack.limit)
    parts.append(f'<line class="limit" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y:.1f}" y2="{y:.1f}"/>')
    parts.append(_text(WIDTH - RIGHT, y - 5, f"limit {grouped(stack.limit)} MiB", "end"))
    parts.append(_times(axis, HEIGHT))
    return _svg(HEIGHT, title, parts)


def key(layers: Sequence[Layer]) -> str:
    """Return the legend of a pool's layers, highest first, as they lie."""
    entries = "".join(f'<span><i class="{layer.style}"></i>{safe(layer.name)}</span>' for layer in reversed(layers))
    return f"<p class=key>{entries}<span><i class=room></i>free</span></p>"


def signs_key() -> str:
    """Return the legend of the lanes and of the bands."""
    entries = "".join(
        f'<span><svg class=sign viewBox="-7 -7 14 14"><path class="{sign}" d="{SHAPES[sign]}"/></svg>{meaning}</span>'
        for signs in LANES.values()
        for sign, meaning in signs.items()
    )
    return f"<p class=key>{entries}<span><i class=stood></i>training stood still</span></p>"


def column_of(axis: Axis, moment_s: float) -> int:
    """Return the column of a moment, for thinning."""
    return int((axis.place(moment_s) - axis.left) / (axis.right - axis.left) * COLUMNS)


def across() -> tuple[float, float]:
    """Return between which places charts lie."""
    return float(LEFT), float(WIDTH - RIGHT)


def _peaks(stack: Stack) -> list[float]:
    return [tops[-1] for run in stack.runs for _, tops in run if tops] or [0.0]


def _area(axis: Axis, stack: Stack, index: int, down: Callable[[float], float]) -> str:
    ground = f"{down(0.0):.1f}"
    shapes = []
    for run in stack.runs:
        places = [(f"{axis.place(time_s):.1f}", f"{down(tops[index]):.1f}") for time_s, tops in run]
        line = "L".join(f"{x} {y}" for x, y in places)
        shapes.append(f"M{places[0][0]} {ground}L{line}V{ground}Z")
    return f'<path class="{stack.layers[index].style}" d="{"".join(shapes)}"/>'


def _signs(axis: Axis, marks: Sequence[Mark], y: float) -> list[str]:
    """Return one sign a heap of marks: those that lie nearer to its first one than signs are wide."""
    heaps: list[list[Mark]] = []
    for mark in sorted(marks, key=lambda each: each.time_s):
        if heaps and axis.place(mark.time_s) - axis.place(heaps[-1][0].time_s) < MARK_APART:
            heaps[-1].append(mark)
        else:
            heaps.append([mark])
    return [_sign(axis, heap, y) for heap in heaps]


def _sign(axis: Axis, heap: Sequence[Mark], y: float) -> str:
    lines = [f"{clock(axis.run_s(mark.time_s))} {mark.words[:120]}" for mark in heap[:TITLE_LINES]]
    lines += [f"and {len(heap) - TITLE_LINES} more"] if len(heap) > TITLE_LINES else []
    title = safe("\n".join(lines))
    place = f"translate({axis.place(heap[0].time_s):.1f} {y:g})"
    return f'<path class="{heap[0].sign}" transform="{place}" d="{SHAPES[heap[0].sign]}"><title>{title}</title></path>'


def _stood(axis: Axis, spans: Spans, top: float, bottom: float) -> str:
    """Return the bands in which training stood: at least a hairline each, those that touch as one."""
    bands: list[list[float]] = []
    for from_s, until_s in spans:
        left = axis.place(from_s)
        right = max(axis.place(until_s), left + HAIRLINE)
        if bands and left - bands[-1][1] < 0.5:
            bands[-1][1] = max(bands[-1][1], right)
        else:
            bands.append([left, right])
    shape = "".join(f"M{left:.1f} {top:g}H{right:.1f}V{bottom:g}H{left:.1f}Z" for left, right in bands)
    return f'<path class="stood" d="{shape}"/>' if shape else ""


def _seams(axis: Axis, bottom: float) -> str:
    return "".join(f'<path class="seam" d="M{place:.1f} 0V{bottom:g}"/>' for place in axis.seams)


def _times(axis: Axis, height: float) -> str:
    places = [(axis.at(run_s), clock(run_s)) for run_s in axis.ticks_s]
    whole = all(text.endswith(":00") for _, text in places)
    texts = [(place, text[:-3] if whole else text) for place, text in places]
    return "".join(_text(place, height - 7, text, "middle") for place, text in texts)


def _text(x: float, y: float, text: str, anchor: str) -> str:
    return f'<text class="label" x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{text}</text>'


def _svg(height: float, title: str, parts: Sequence[str]) -> str:
    frame = f'class=course viewBox="0 0 {WIDTH} {height:g}" role="img" aria-label="{safe(title)}"'
    return f"<svg {frame}>{''.join(parts)}</svg>"
