"""What strikes a program waits for each of its steps, not for all of them: a slow training is none that hangs."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import pytest

from tests.control_group import Group
from tests.soak.program_faults import StruckRun

POLLS = 3
"""Looks after which a wait is in vain."""


class Slow(StruckRun):
    """A run whose program makes a step at each look, up to the last one; its launcher ends after that."""

    def __init__(self, last: int) -> None:
        super().__init__(Path(), cast(Group, None))
        self.step, self.last = 0, last
        self.process = cast("subprocess.Popen[str]", self)

    @property
    def state(self) -> dict[str, Any]:
        return {"agent": {"pid": 7}}

    @property
    def beat(self) -> dict[str, Any]:
        self.step = min(self.step + 1, self.last)
        return {"phase": "updating", "pid": 7, "step": self.step}

    def until(self, condition: Callable[[], object]) -> None:
        assert any(condition() for _ in range(POLLS)), "waited in vain"

    def communicate(self, timeout: float) -> tuple[str, None]:
        if self.step < 9:
            raise subprocess.TimeoutExpired("run", timeout)
        return "over", None


def test_a_slow_training_is_waited_for() -> None:
    run = Slow(last=20)
    assert run.until_driven(3 * POLLS) == 3 * POLLS + 1
    assert run.first == 1
    assert Slow(last=20).output() == "over"


def test_one_without_progress_is_not() -> None:
    with pytest.raises(AssertionError, match="in vain"):
        Slow(last=5).until_driven(3 * POLLS)
    with pytest.raises(subprocess.TimeoutExpired):
        Slow(last=5).output()
