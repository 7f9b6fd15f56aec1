"""The memory's timeline as a picture: no extreme is lost by thinning, all is in its frame, and long runs stay small."""

from __future__ import annotations

import itertools
import re
import xml.etree.ElementTree as ET

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from launcher.show.axis import Axis
from launcher.show.history import Session
from launcher.show.layers import COLUMNS, GAP_S, Stack, extremes, stacked
from launcher.show.memory_chart import (
    HEIGHT,
    LANE,
    LANES,
    WIDTH,
    Mark,
    across,
    column_of,
    events_chart,
    memory_chart,
)
from launcher.show.timeline import Sample

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


def axis_of(samples: list[Sample]) -> Axis:
    return Axis([Session(samples[0].time_s, samples[-1].time_s)], *across())


def drawn(samples: list[Sample]) -> tuple[Axis, Stack]:
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
def test_thinning_keeps_each_columns_extremes_of_every_series_and_of_their_sum(
    series: list[list[float]], data: st.DataObject
) -> None:
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


@settings(max_examples=60, deadline=None)
@given(courses())
def test_layers_are_stacked_in_order_and_every_point_lies_inside_the_frame(samples: list[Sample]) -> None:
    axis, stack = drawn(samples)
    for run in stack.runs:
        for _, tops in run:
            assert list(tops) == sorted(tops)
    svg = ET.fromstring(memory_chart("<pool>", axis, stack, [(0.0, 50.0)]).replace("class=course", ""))
    areas = [path for path in svg.findall("path") if path.attrib["class"] not in ("stood", "seam")]
    assert len(areas) == len(stack.layers)
    for area in areas:
        for x, y in re.findall(r"[ML]([-\d.]+) ([-\d.]+)", area.attrib["d"]):
            assert 0 <= float(x) <= WIDTH
            assert 0 <= float(y) <= HEIGHT


def test_a_spike_of_one_line_in_ten_hours_is_drawn_and_the_picture_stays_small() -> None:
    samples = long_course(36_000)
    axis, stack = drawn(samples)
    agent = [layer.name for layer in stack.layers].index("agent")
    tops = [tops for run in stack.runs for _, tops in run]
    assert max(top[agent] - top[agent - 1] for top in tops) == 5000.0
    assert min(top[0] for top in tops) == 9.0
    assert len(tops) <= COLUMNS * 2 * (len(stack.layers) + 1) + 2
    assert len(memory_chart("VRAM", axis, stack, [])) < 150_000


def test_where_nobody_looked_nothing_is_drawn() -> None:
    looked = [Sample(float(at), 100.0, 50.0, {"agent": 40.0}) for at in (*range(0, 100, 10), *range(1000, 1100, 10))]
    _, stack = drawn(looked)
    assert [len(run) > 0 for run in stack.runs] == [True, True]
    assert stack.runs[1][0][0] - stack.runs[0][-1][0] > GAP_S


def test_what_nobody_is_known_to_hold_is_a_layer_of_its_own_and_small_strangers_are_one() -> None:
    owners = {"agent": 100.0, **{name: 10.0 - count for count, name in enumerate("abcdef")}}
    _, stack = drawn([Sample(0.0, 1000.0, 500.0, owners), Sample(10.0, 1000.0, 500.0, owners)])
    assert [layer.name for layer in stack.layers] == ["agent", "a", "b", "c", "d", "2 others", "nobody known"]
    assert stack.runs[0][0][1][-1] == pytest.approx(500.0)


def test_signs_that_would_overlap_are_one_and_say_so() -> None:
    axis = Axis([Session(0.0, 10 * HOUR_S)], *across())
    marks = [Mark(float(at), "faults", "fault", "<b>crashed</b>") for at in range(0, 36_000, 2)]
    svg = events_chart(axis, marks, [(at, at + 1.0) for at in range(0, 36_000, 2)])
    signs = ET.fromstring(svg.replace("class=course", "")).findall("path[@class='fault']")
    assert 50 < len(signs) < WIDTH / 7
    title = signs[0].find("title")
    assert title is not None
    assert title.text is not None
    assert "<b>crashed</b>" in title.text
    assert "more" in title.text
    assert len(svg) < 100_000


def test_all_lanes_lie_inside_the_frame() -> None:
    axis = Axis([Session(0.0, 60.0)], *across())
    marks = [Mark(30.0, lane, sign, "x") for lane, signs in LANES.items() for sign in signs]
    svg = ET.fromstring(events_chart(axis, marks, []).replace("class=course", ""))
    places = [re.findall(r"[\d.]+", path.attrib["transform"]) for path in svg.findall("path[@transform]")]
    assert len(places) == len(marks)
    assert {float(y) for _, y in places} == {LANE * (number + 0.5) for number in range(len(LANES))}


@given(st.lists(st.tuples(st.floats(0.1, 1e5), st.floats(0, 1e5)), min_size=1, max_size=5), st.floats(-1e6, 1e7))
def test_a_moment_lies_on_the_axis_and_later_ones_never_before_it(
    spans: list[tuple[float, float]], moment_s: float
) -> None:
    sessions, at_s = [], 0.0
    for length_s, away_s in spans:
        sessions.append(Session(at_s, at_s + length_s))
        at_s += length_s + away_s
    axis = Axis(sessions, *across())
    assert axis.left <= axis.place(moment_s) <= axis.right + 1e-6
    assert axis.place(moment_s) <= axis.place(moment_s + 10) + 1e-6
    assert len(axis.ticks_s) <= 26
    assert len(axis.seams) == len(sessions) - 1
