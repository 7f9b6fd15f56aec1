"""The table of growth: exponents and computed figures follow from the measured ones, and each says which it is."""

from __future__ import annotations

import importlib
import json
import sys
from pathlib import Path
from types import ModuleType

import pytest

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"


@pytest.fixture
def growth(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    yielded = importlib.import_module("growth")
    monkeypatch.delitem(sys.modules, "growth")
    return yielded


@pytest.mark.parametrize(
    ("points", "expected"),
    [
        ([(1, 3), (10, 30), (100, 300)], 1.0),
        ([(1, 3), (10, 300)], 2.0),
        ([(1, 3), (10, 3)], 0.0),
        ([(1, 3)], None),
        ([(1, 0), (10, 3)], None),
    ],
)
def test_exponents(growth: ModuleType, points: list[tuple[float, float]], expected: float | None) -> None:
    assert growth.slope(points) == expected


def test_computed_figures_follow_the_exponent(growth: ModuleType) -> None:
    assert growth.extrapolated([(1, 3), (10, 300)], 100) == pytest.approx(30_000)
    towns = {400: {"s": 1.0}, 800: {"s": 4.0}}
    assert growth.computed("towns", towns, 1600) == {"s": pytest.approx(16.0)}


def test_collectors_add_up_until_the_learner_is_busy(growth: ModuleType) -> None:
    one = {"steps/s": 25.0, "RAM, MiB": 500.0, "learner idle, %": 80.0, "cores of simulators and collectors": 0.2}
    two = {"steps/s": 50.0, "RAM, MiB": 700.0, "learner idle, %": 60.0, "cores of simulators and collectors": 0.4}
    four, many = (growth.fleet(one, two, 2, size) for size in (4, 64))
    assert (four["steps/s"], four["learner idle, %"], four["RAM, MiB"]) == pytest.approx((100.0, 20.0, 1100.0))
    assert (many["steps/s"], many["learner idle, %"]) == pytest.approx((125.0, 0.0))


def test_the_page_is_that_of_the_results(growth: ModuleType) -> None:
    found = json.loads(growth.RESULTS.read_text(encoding="utf-8"))
    assert growth.PAGE.read_text(encoding="utf-8") == growth.page_of(found)
    assert {point["how"] for section in found.values() for point in section["points"]} == {"measured", "computed"}
    assert set(found) == set(growth.POINTS)
