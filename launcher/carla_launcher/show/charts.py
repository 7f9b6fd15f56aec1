"""Draws the report's charts as inline SVG with matplotlib: events, a pool's memory over time, training curves.

Each colour stands for a variable of the style sheet and is written as that variable, so that a chart fits light and
dark pages. A chart needs no other file.
"""

from __future__ import annotations

import io
import math
import re
import xml.etree.ElementTree as ET
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import PathPatch
from matplotlib.path import Path
from matplotlib.ticker import MaxNLocator

from carla_launcher.show.formatting import clock, grouped
from carla_launcher.show.layers import COLUMNS, Stack
from carla_launcher.show.run_time import RunTime

WIDTH, MEMORY_HEIGHT, LANES_HEIGHT = 1000, 230, 84
CURVE_WIDTH, CURVE_HEIGHT = 600, 220
LEFT, RIGHT, BOTTOM = 84, 24, 26
MARK_APART, HAIRLINE = 7.0, 0.4
"""In units of the chart: marks closer than the first are drawn as one; a band has at least the second as width."""
TITLE_LINES = 4
MAX_POINTS, MARKED_UP_TO, LARGEST = 400, 30, 1e100
NEAR = 2.5
"""The limit is drawn if it is at most this many times the most that was used; otherwise the axis ends earlier."""
ROOM = 1.3
"""End of such an axis, relative to the most that was used."""

LANES: dict[str, dict[str, str]] = {
    "faults": {"fault": "a fault", "passed": "a finding without action"},
    "ladder": {"down": "a rung taken", "up": "a rung restored"},
    "restarts": {"restart": "simulator or agent restarted"},
}
"""The signs of each lane and their meanings, the graver one first."""
SHAPES = {"fault": "o", "passed": "o", "down": "v", "up": "^", "restart": "s"}
COLOURS = {"fault": "bad", "passed": "soft", "down": "down", "up": "up", "restart": "accent"}
"""The page's colour of each sign."""
VARIABLES = (
    *("soft", "line", "ground", "accent", "bad", "down", "up", "band", "simulator", "agent", "launcher", "foreign-1"),
    *("foreign-2", "foreign-3", "foreign-4", "foreign-rest", "unnamed"),
)
"""Colour variables of the style sheet; the n-th is drawn in colour n."""
SERIES = ("accent", "foreign-1")
"""The page's colours of the curves in one chart."""

Points = Sequence[tuple[float, float]]
Spans = Sequence[tuple[float, float]]


@dataclass(frozen=True)
class Mark:
    """An event on a chart: its lane, its sign, and the text that is shown on hover."""

    time_s: float
    lane: str
    sign: str
    words: str


def events_chart(axis: RunTime, marks: Sequence[Mark], standstills: Spans) -> str:
    """Return the lanes of events as an ``<svg>``; signs that would overlap are drawn as one."""
    figure, axes = _axes(WIDTH, LANES_HEIGHT, top=4, left=LEFT, right=RIGHT)
    axes.set_ylim(len(LANES) - 0.5, -0.5)
    axes.set_yticks(range(len(LANES)), list(LANES))
    _time_axis(axes, axis, standstills)
    titles: dict[str, str] = {}
    for height, lane in enumerate(LANES):
        for sign in reversed(LANES[lane]):  # the graver one on top
            for heap in _heaps(axis, [mark for mark in marks if (mark.lane, mark.sign) == (lane, sign)]):
                name = f"sign-{len(titles)}"
                titles[name] = _title(axis, heap)
                _sign(axes, axis.at(heap[0].time_s), height, sign, name)
    return _svg(figure, "Events over the run", titles)


def memory_chart(title: str, axis: RunTime, stack: Stack, standstills: Spans, rungs: Sequence[Mark]) -> str:
    """Return a pool's memory by owner, stacked, as an ``<svg>``, with a line where a rung was taken or left."""
    figure, axes = _axes(WIDTH, MEMORY_HEIGHT, top=18, left=LEFT, right=RIGHT)
    used = max((tops[-1] for run in stack.runs for _, tops in run if tops), default=0.0)
    near = stack.limit <= NEAR * used
    top = max(stack.limit * 1.02, used, 1.0) if near else max(ROOM * used, 1.0)
    axes.set_ylim(0.0, top)
    axes.set_yticks([tick for tick in MaxNLocator(5, steps=[1, 2, 5, 10]).tick_values(0.0, top) if 0 <= tick <= top])
    axes.yaxis.set_major_formatter(lambda mib, _: grouped(mib) if top >= 10 else f"{mib:g}")
    axes.set_facecolor(_colour("ground"))
    for index in reversed(range(len(stack.layers))):  # each layer covers the lower part of the one behind it
        for run in stack.runs:
            xs = [axis.at(time_s) for time_s, _ in run]
            ys = [min(tops[index], top) for _, tops in run]
            axes.fill([xs[0], *xs, xs[-1]], [0.0, *ys, 0.0], color=_colour(stack.layers[index].colour), lw=0)
    _time_axis(axes, axis, standstills)
    for x, sign in dict.fromkeys((round(axis.at(mark.time_s), 1), mark.sign) for mark in rungs):
        axes.axvline(x, color=_colour(COLOURS[sign]), lw=1.2, ls=(0, (2, 2)), zorder=4)
    limit = f"limit {grouped(stack.limit)} MiB"
    if near:
        axes.axhline(stack.limit, color=_colour("bad"), lw=1.5, zorder=4)
    else:
        limit = f"↑ {limit}, {stack.limit / max(used, 1e-9):.0f} times the most used"
    axes.text(1.0, 1.02, limit, transform=axes.transAxes, ha="right", va="bottom")
    return _svg(figure, title)


def line_chart(title: str, *courses: Points) -> str:
    """Return curves as an ``<svg>``, each in order of x, in the colours of ``SERIES``.

    Leaves out absurdly large points, and curves of which all points have one x; returns "" if none is left.
    """
    kept = [
        (colour, _thinned(sorted((x, y) for x, y in points if abs(x) < LARGEST and abs(y) < LARGEST)))
        for colour, points in zip(SERIES, courses, strict=False)
    ]
    drawn = [(colour, points) for colour, points in kept if points and points[0][0] < points[-1][0]]
    if not drawn:
        return ""
    xs, ys = ([value[axis] for _, points in drawn for value in points] for axis in (0, 1))
    figure, axes = _axes(CURVE_WIDTH, CURVE_HEIGHT, top=10, left=58, right=14)
    ticks = MaxNLocator(4, steps=[1, 2, 5, 10]).tick_values(*_widened(min(ys), max(ys)))
    axes.set_ylim(ticks[0], ticks[-1])
    axes.set_yticks(ticks)
    axes.set_xlim(*_widened(min(xs), max(xs)))
    axes.xaxis.set_major_locator(MaxNLocator(6, steps=[1, 2, 5, 10]))
    axes.xaxis.set_major_formatter(lambda x, _: f"{x / 1000:.4g}k" if abs(x) >= 10_000 else f"{x:.4g}")
    axes.yaxis.set_major_formatter(lambda y, _: f"{y:.4g}")
    for colour, points in drawn:
        marker: dict[str, Any] = {"marker": "o", "ms": 6, "mew": 0} if len(points) <= MARKED_UP_TO else {}
        axes.plot(*zip(*points, strict=True), color=_colour(colour), lw=2, solid_joinstyle="round", **marker)
    return _svg(figure, title)


def column_of(axis: RunTime, moment_s: float) -> int:
    """Return the chart's column of a moment."""
    return int(axis.at(moment_s) / axis.length_s * COLUMNS)


def _thinned(points: list[tuple[float, float]]) -> list[tuple[float, float]]:
    """Return at most ``MAX_POINTS``, each the mean of neighbours."""
    size = math.ceil(len(points) / MAX_POINTS) or 1
    groups = [points[start : start + size] for start in range(0, len(points), size)]
    return [(sum(x for x, _ in group) / len(group), sum(y for _, y in group) / len(group)) for group in groups]


def _widened(low: float, high: float) -> tuple[float, float]:
    """Return a range with some width, also for a flat curve."""
    margin = max(abs(low), abs(high), 1.0) * 1e-3
    return (low, high) if high - low > margin * 1e-3 else (low - margin, high + margin)


def _axes(width: int, height: int, top: int, left: int, right: int) -> tuple[Figure, Axes]:
    """Return an empty chart of this size in SVG units: horizontal lines only, labels in the page's font."""
    figure = Figure(figsize=(width / 72, height / 72))
    axes = figure.add_axes(
        (left / width, BOTTOM / height, (width - left - right) / width, (height - top - BOTTOM) / height)
    )
    for spine in axes.spines.values():
        spine.set_visible(False)
    axes.patch.set_linewidth(0)
    axes.set_facecolor("none")
    axes.grid(axis="y", color=_colour("line"), lw=1)
    axes.set_axisbelow(False)
    axes.tick_params(length=0, pad=6)
    axes.tick_params(axis="x", pad=8)
    return figure, axes


def _time_axis(axes: Axes, axis: RunTime, standstills: Spans) -> None:
    """Draw the run's time axis, the standstills of training as bands, and lines between launchers."""
    axes.set_xlim(0.0, axis.length_s)
    texts = [clock(run_s) for run_s in axis.ticks_s]
    whole = all(text.endswith(":00") for text in texts)
    axes.set_xticks(axis.ticks_s, [text[:-3] if whole else text for text in texts])
    for run_s in axis.seams_s:
        axes.axvline(run_s, color=_colour("soft"), lw=1, ls=(0, (3, 3)))
    if bands := _bands(axis, standstills):
        low, high = axes.get_ylim()
        corners = [((a, low), (b, low), (b, high), (a, high), (a, low)) for a, b in bands]
        path = Path.make_compound_path(*(Path(corner, closed=True) for corner in corners))
        axes.add_patch(PathPatch(path, color=_colour("band"), lw=0, zorder=3))


def _bands(axis: RunTime, standstills: Spans) -> list[list[float]]:
    """Return the standstills of training as bands: at least a hairline wide, adjacent ones merged."""
    unit_s = axis.length_s / (WIDTH - LEFT - RIGHT)
    bands: list[list[float]] = []
    for from_s, until_s in standstills:
        left = axis.at(from_s)
        right = max(axis.at(until_s), left + HAIRLINE * unit_s)
        if bands and left - bands[-1][1] < 0.5 * unit_s:
            bands[-1][1] = max(bands[-1][1], right)
        else:
            bands.append([left, right])
    return bands


def _heaps(axis: RunTime, marks: Sequence[Mark]) -> list[list[Mark]]:
    """Return groups of marks that are drawn as one sign, since they are closer together than a sign's width."""
    apart_s = MARK_APART * axis.length_s / (WIDTH - LEFT - RIGHT)
    heaps: list[list[Mark]] = []
    for mark in sorted(marks, key=lambda each: each.time_s):
        if heaps and axis.at(mark.time_s) - axis.at(heaps[-1][0].time_s) < apart_s:
            heaps[-1].append(mark)
        else:
            heaps.append([mark])
    return heaps


def _title(axis: RunTime, heap: Sequence[Mark]) -> str:
    lines = [f"{clock(axis.at(mark.time_s))} {mark.words[:120]}" for mark in heap[:TITLE_LINES]]
    return "\n".join(lines + ([f"and {len(heap) - TITLE_LINES} more"] if len(heap) > TITLE_LINES else []))


def _sign(axes: Axes, run_s: float, height: float, sign: str, name: str) -> None:
    colour, hollow = _colour(COLOURS[sign]), sign == "passed"
    look: dict[str, Any] = {"mfc": "none" if hollow else colour, "mec": colour, "mew": 1.5 if hollow else 0.0}
    size = 6 if hollow else 9
    axes.plot([run_s], [height], marker=SHAPES[sign], ms=size, ls="", gid=name, zorder=5, **look)


# From matplotlib's SVG to the page's


def _colour(variable: str) -> str:
    """Return the drawing colour that stands for a variable of the style sheet."""
    return f"#fe01{VARIABLES.index(variable):02x}"


def _svg(figure: Figure, title: str, titles: Mapping[str, str] | None = None) -> str:
    """Return the figure as markup for the page, without ids, fonts and metadata.

    Args:
        figure: drawn in colours of :func:`_colour`.
        title: text for screen readers.
        titles: hover texts of groups, by their ``gid``.
    """
    written = io.StringIO()
    with mpl.rc_context({"svg.fonttype": "none", "svg.hashsalt": "report", "font.size": 12, "path.simplify": True}):
        figure.savefig(written, format="svg", transparent=False, facecolor="none", metadata={"Date": None})
    drawn = ET.fromstring(written.getvalue())
    view = [float(each) for each in drawn.attrib["viewBox"].split()]
    kind = "course" if view[2] == WIDTH else "plot"
    root = ET.Element("svg", {"class": kind, "viewBox": f"0 0 {view[2]:g} {view[3]:g}", "role": "img"})
    root.set("aria-label", title)
    root.extend(_flat(drawn, titles or {}))
    return ET.tostring(root, encoding="unicode")


def _flat(drawn: ET.Element, titles: Mapping[str, str]) -> Iterator[ET.Element]:
    """Yield the drawn elements without groups; an element with a hover text gets it as its title."""
    paths = {f"#{each.get('id')}": each for each in drawn.iter() if _tag(each) == "path" and each.get("id")}
    name = ""
    for element in drawn.iter():
        tag = _tag(element)
        if tag == "g":
            name = element.get("id", name)  # a mark is inside groups without an id
        elif tag == "text":
            yield _text(element)
        elif tag in ("path", "use") and (shape := _shape(element, paths)) is not None:
            if name in titles:
                ET.SubElement(shape, "title").text = titles[name]
            yield shape


def _shape(element: ET.Element, paths: Mapping[str, ET.Element]) -> ET.Element | None:
    """Return an element as a path, None if it draws nothing.

    A reference is replaced by its path, since ids could clash with those of another chart on the page.
    """
    place = {}
    path = paths.get(element.get("{http://www.w3.org/1999/xlink}href", ""), element)
    style = _style(f"{path.get('style', '')};{element.get('style', '')}")
    if path is not element:
        place = {"transform": f"translate({float(element.get('x', 0)):.1f} {float(element.get('y', 0)):.1f})"}
    elif element.get("id") or style == {"fill": "none"}:
        return None
    return ET.Element("path", {"d": _compact(path.get("d", "")), **style, **place}) if style else None


def _text(element: ET.Element) -> ET.Element:
    anchor = re.search(r"text-anchor: (\w+)", element.get("style", ""))
    place = {axis: f"{float(element.get(axis, 0)):.1f}" for axis in ("x", "y")}
    text = ET.Element("text", {**place, "text-anchor": anchor[1] if anchor else "start"})
    text.text = element.text
    return text


def _tag(element: ET.Element) -> str:
    return element.tag.rpartition("}")[2]


def _style(style: str) -> dict[str, str]:
    """Return a style as attributes, since the page forbids inline styles; colours become variables.

    Attributes with their default values are left out.
    """
    said = dict(re.findall(r"([a-z-]+): *([^;]+)", style))
    for name in ("stroke-linejoin", "stroke-linecap", "stroke-miterlimit"):
        said.pop(name, None)
    return {name: re.sub(r"#fe01([0-9a-f]{2})", _variable, value) for name, value in said.items()}


def _variable(colour: re.Match[str]) -> str:
    return f"var(--{VARIABLES[int(colour[1], 16)]})"


def _compact(d: str) -> str:
    """Return a path with one decimal place, and spaces only between numbers."""
    numbers = re.sub(r"-?\d+\.?\d*(?:e-?\d+)?", lambda match: f"{float(match[0]):.1f}".removesuffix(".0"), d)
    return re.sub(r"\s*([A-Za-z])\s*", r"\1", " ".join(numbers.split()))
