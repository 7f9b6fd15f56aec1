"""Figures of benchmarks/encoder.py, against their definitions."""

from __future__ import annotations

import math

import encoder
import numpy as np
import pytest


def test_the_coefficient_of_determination_is_one_of_the_truth_and_none_of_its_mean() -> None:
    known = np.array([0.0, 1.0, 3.0], np.float32)
    assert encoder.determination(known, known) == 1.0
    assert encoder.determination(np.full(3, known.mean()), known) == pytest.approx(0.0, abs=1e-6)
    assert encoder.determination(-known, known) < 0.0
    assert math.isnan(encoder.determination(known, np.ones(3, np.float32)))


def test_the_area_is_the_chance_that_one_is_above_the_other_ties_counted_half() -> None:
    rng = np.random.default_rng(0)
    more, less = rng.integers(0, 6, 40).astype(np.float32), rng.integers(0, 5, 30).astype(np.float32)
    pairs = [1.0 if a > b else 0.5 if a == b else 0.0 for a in more for b in less]
    assert encoder.area(more, less) == pytest.approx(np.mean(pairs))
    assert math.isnan(encoder.area(more, less[:0]))
