"""Ten seeded crash points of each operation (``make soak`` strikes all), and that a planted fault is found."""

from __future__ import annotations

import shutil
import subprocess

import pytest

from tests.soak import crash_points
from tests.soak.crash_points import OPERATIONS, PLANTED

pytestmark = pytest.mark.skipif(shutil.which("cc") is None, reason="needs a C compiler")


def struck(*words: str) -> subprocess.CompletedProcess[str]:
    return crash_points.preloaded(words, capture_output=True)


def test_nothing_is_lost_at_seeded_points() -> None:
    done = struck("--points", "10", "--seed", "1")
    assert done.returncode == 0, done.stdout + done.stderr
    assert len(done.stdout.splitlines()) == len(OPERATIONS)


@pytest.mark.parametrize("operation", PLANTED, ids=lambda operation: operation.name)
def test_an_operation_that_loses_something_is_found(operation: crash_points.Operation) -> None:
    done = struck("--only", operation.name)
    assert done.returncode == 1, done.stdout + done.stderr
    assert "killed_in_it: " in done.stdout
