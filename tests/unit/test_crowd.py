"""Bounds of time that stretch with the machine's load say by how much when they fail."""

from __future__ import annotations

import os

import pytest

from tests.crowd import assert_within


def load(monkeypatch: pytest.MonkeyPatch, load: float) -> None:
    monkeypatch.setattr(os, "getloadavg", lambda: (load, 0.0, 0.0))
    monkeypatch.setattr(os, "cpu_count", lambda: 2)


def test_a_bound_is_stretched_by_what_others_take_and_tells_of_it(monkeypatch: pytest.MonkeyPatch) -> None:
    load(monkeypatch, 5.0)
    assert_within(5.0, 12.5)
    with pytest.raises(AssertionError) as failed:
        assert_within(5.0, 12.6)
    assert "it took 12.6 s; 12.5 s are allowed, 5 s stretched 2.50 times for a load of 5.0 on 2 cores" in str(failed)


def test_a_machine_without_a_crowd_keeps_the_bound_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    load(monkeypatch, 0.5)
    assert_within(5.0, 5.0)
    with pytest.raises(AssertionError, match=r"5 s stretched 1\.00 times"):
        assert_within(5.0, 5.1)
