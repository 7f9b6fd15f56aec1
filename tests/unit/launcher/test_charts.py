"""The memory's timeline as a picture: no extreme is lost by thinning, all is in its frame, and long runs stay small."""

from __future__ import annotations

import itertools
import re
import xml.etree.ElementTree as ET

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from carla_launcher.show.charts import (
    LANES,
    LANES_HEIGHT,
    LEFT,
    MEMORY_HEIGHT,
    RIGHT,
    WIDTH,
    Mark,
    column_of,
    events_chart,
    memory_chart,
)
from carla_launcher.show.history import Session
from carla_launcher.show.layers import COLUMNS, GAP_S, Layer, Stack, extremes, stacked
from carla_launcher.show.run_time import RunTime
from carla_launcher.show.timeline import Sample

HOUR_S = 3600.0
AMOUNT = st.floats(0, 1e6)
NAMES = st.sampled_from(["simulator", "agent", "launcher", "Xorg", "blender", "a", "b", "c", "d", "<b>&"])


@st.composite
def courses(draw: st.DrawFn) -> list[Sample]:
    steps_s = draw(st.lists(st.floats(0.1, 300), min_size=1, max_size=60))
    return [
        Sample(time_s, draw(AMOUNT), draw(AMOUNT), draw(st.dictionaries(NAMES, AMOUNT, max_size=6)))
        for time_s in itertools.accumulate(steps_s)
    ]


def axis_of(samples: list[Sample]) -> RunTime:
    return RunTime([Session(samples[0].time_s, samples[-1].time_s)])


def places(path: ET.Element) -> list[tuple[float, float]]:
    return [(float(x), float(y)) for x, y in re.findall(r"[ML](-?[\d.]+) (-?[\d.]+)", path.attrib["d"])]


def filled(svg: str, colours: set[str]) -> list[ET.Element]:
    """Return the shapes of a chart that are filled in one of the page's colours."""
    wanted = {f"var(--{colour})" for colour in colours}
    return [path for path in ET.fromstring(svg).findall("path") if path.get("fill") in wanted]


def drawn(samples: list[Sample]) -> tuple[RunTime, Stack]:
    axis = axis_of(samples)
    stack = stacked(samples, lambda moment_s: column_of(axis, moment_s))
    assert stack is not None
    return axis, stack


def long_course(rows: int) -> list[Sample]:
    """Return ten hours with one line in which the agent held most, and one in which least was free."""
    samples = []
    for row in range(rows):
        agent = 5000.0 if row == rows // 3 else 600.0 + row % 7
        owners = {"simulator": 9.0 if row == rows // 2 else 4000.0 + row % 90, "agent": agent, "Xorg": 85.0}
        samples.append(Sample(row * 10 * HOUR_S / rows, 10_000.0, 10_000.0 - sum(owners.values()), owners))
    return samples


@given(st.lists(st.lists(AMOUNT, min_size=30, max_size=30), min_size=1, max_size=4), st.data())
def test_thinning_keeps_each_columns_extremes(series: list[list[float]], data: st.DataObject) -> None:
    columns = sorted(data.draw(st.lists(st.integers(0, 9), min_size=30, max_size=30)))
    kept = extremes(series, columns)
    assert kept == sorted(set(kept))
    assert {0, 29} <= set(kept)
    sums = [sum(values) for values in zip(*series, strict=True)]
    for values in (*series, sums):
        for column in set(columns):
            there = [values[index] for index in range(30) if columns[index] == column]
            left = [values[index] for index in kept if columns[index] == column]
            assert (min(left), max(left)) == (min(there), max(there))
    assert len(kept) <= 2 + len(set(columns)) * 2 * (len(series) + 1)


@settings(max_examples=25)
@given(courses())
def test_layers_are_stacked_inside_the_frame(samples: list[Sample]) -> None:
    axis, stack = drawn(samples)
    for run in stack.runs:
        for _, tops in run:
            assert list(tops) == sorted(tops)
    svg = memory_chart("<pool>", axis, stack, [(0.0, 50.0)], [])
    areas = filled(svg, {layer.colour for layer in stack.layers})
    assert len(areas) == len(stack.layers) * len(stack.runs)
    for x, y in (place for area in areas for place in places(area)):
        assert LEFT - 0.1 <= x <= WIDTH - RIGHT + 0.1
        assert 0 <= y <= MEMORY_HEIGHT


def test_a_spike_in_ten_hours_is_drawn_in_a_small_picture() -> None:
    samples = long_course(36_000)
    axis, stack = drawn(samples)
    agent = [layer.name for layer in stack.layers].index("agent")
    tops = [tops for run in stack.runs for _, tops in run]
    assert max(top[agent] - top[agent - 1] for top in tops) == 5000.0
    assert min(top[0] for top in tops) == 9.0
    assert len(tops) <= COLUMNS * 2 * (len(stack.layers) + 1) + 2
    assert len(memory_chart("VRAM", axis, stack, [], [])) < 150_000


def test_where_nobody_looked_nothing_is_drawn() -> None:
    looked = [Sample(float(at), 100.0, 50.0, {"agent": 40.0}) for at in (*range(0, 100, 10), *range(1000, 1100, 10))]
    _, stack = drawn(looked)
    assert [len(run) > 0 for run in stack.runs] == [True, True]
    assert stack.runs[1][0][0] - stack.runs[0][-1][0] > GAP_S


def test_small_foreign_processes_are_one_layer() -> None:
    owners = {"agent": 100.0, **{name: 10.0 - count for count, name in enumerate("abcdef")}}
    _, stack = drawn([Sample(0.0, 1000.0, 500.0, owners), Sample(10.0, 1000.0, 500.0, owners)])
    assert [layer.name for layer in stack.layers] == ["agent", "a", "b", "c", "d", "2 others", "unattributed"]
    assert stack.runs[0][0][1][-1] == pytest.approx(500.0)


def test_a_far_limit_is_left_out_of_the_chart() -> None:
    axis = RunTime([Session(0.0, 100.0)])
    for limit, drawn_to in ((24_000.0, "24 times"), (1500.0, "limit 1\u202f500 MiB")):
        stack = Stack((Layer("agent", "agent"),), ([(0.0, (990.0,)), (100.0, (1000.0,))],), limit)
        svg = memory_chart("RAM", axis, stack, [], [])
        (area,) = filled(svg, {"agent"})
        heights = [y for _, y in places(area)]
        assert max(heights) - min(heights) > 0.5 * MEMORY_HEIGHT
        assert drawn_to in svg


def test_a_rung_that_is_taken_is_a_line_in_the_memory_it_frees() -> None:
    axis = RunTime([Session(0.0, 100.0)])
    stack = Stack((Layer("agent", "agent"),), ([(0.0, (900.0,)), (100.0, (900.0,))],), 1000.0)
    rungs = [Mark(50.0, "ladder", "down", "x"), Mark(75.0, "ladder", "up", "x")]
    svg = ET.fromstring(memory_chart("RAM", axis, stack, [], rungs))
    for colour, share in (("down", 0.5), ("up", 0.75)):
        (line,) = [path for path in svg.findall("path") if path.get("stroke") == f"var(--{colour})"]
        assert places(line)[0][0] == pytest.approx(LEFT + share * (WIDTH - LEFT - RIGHT), abs=0.2)


def test_a_chart_has_no_ids_colours_or_fonts() -> None:
    axis, stack = drawn(long_course(500))
    svg, again = (memory_chart("RAM", axis, stack, [(0.0, 50.0)], []) for _ in range(2))
    assert svg == again
    assert not re.search(r"#[0-9a-f]{6}|\bid=|http|font|url\(|metadata", svg)


def test_signs_that_would_overlap_are_one_and_say_so() -> None:
    axis = RunTime([Session(0.0, 10 * HOUR_S)])
    marks = [Mark(float(at), "faults", "fault", "<b>crashed</b>") for at in range(0, 36_000, 2)]
    svg = events_chart(axis, marks, [(at, at + 1.0) for at in range(0, 36_000, 2)])
    signs = ET.fromstring(svg).findall("path[title]")
    assert 50 < len(signs) < WIDTH / 7
    title = signs[0].findtext("title")
    assert title is not None
    assert "<b>crashed</b>" in title
    assert "more" in title
    assert len(svg) < 100_000


def test_all_lanes_lie_inside_the_frame() -> None:
    axis = RunTime([Session(0.0, 60.0)])
    marks = [Mark(30.0, lane, sign, "x") for lane, signs in LANES.items() for sign in signs]
    signs = ET.fromstring(events_chart(axis, marks, [])).findall("path[title]")
    heights = {float(re.findall(r"[\d.]+", path.attrib["transform"])[1]) for path in signs}
    assert len(signs) == len(marks)
    assert len(heights) == len(LANES)
    assert all(0 < height < LANES_HEIGHT for height in heights)


@given(st.lists(st.tuples(st.floats(0.1, 1e5), st.floats(0, 1e5)), min_size=1, max_size=5), st.floats(-1e6, 1e7))
def test_the_axis_of_a_run_never_goes_back(spans: list[tuple[float, float]], moment_s: float) -> None:
    sessions, at_s = [], 0.0
    for length_s, away_s in spans:
        sessions.append(Session(at_s, at_s + length_s))
        at_s += length_s + away_s
    axis = RunTime(sessions)
    assert 0 <= axis.at(moment_s) <= axis.length_s * (1 + 1e-9)
    assert axis.at(moment_s) <= axis.at(moment_s + 10) + 1e-6
    assert len(axis.ticks_s) <= 26
    assert len(axis.seams_s) == len(sessions) - 1
