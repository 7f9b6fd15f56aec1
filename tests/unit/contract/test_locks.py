"""Locks on files: one holder, who is named, and what a killed one left behind holds nothing."""

from __future__ import annotations

import fcntl
import os
import threading
from pathlib import Path

import pytest

from carla_run.locks import LOOK_S, HeldError, Lock, is_held


def test_a_lock_has_one_holder_and_names_it(tmp_path: Path) -> None:
    path = tmp_path / "learner.lock"
    assert not is_held(path)
    with Lock(path):
        assert is_held(path)
        with pytest.raises(HeldError) as refused:
            Lock(path)
        assert refused.value.holder == str(os.getpid())
    assert path.exists()
    assert not is_held(path)


def test_a_process_that_only_looks_does_not_hold_it(tmp_path: Path) -> None:
    path = tmp_path / "learner.lock"
    Lock(path).release()
    with path.open() as looked_at:
        fcntl.flock(looked_at, fcntl.LOCK_SH)
        ends = threading.Timer(LOOK_S, fcntl.flock, (looked_at, fcntl.LOCK_UN))
        ends.start()
        try:
            with Lock(path):
                assert is_held(path)
        finally:
            ends.join()


def test_a_lock_that_cannot_be_written_can_be_looked_at(tmp_path: Path) -> None:
    path = tmp_path / "learner.lock"
    with Lock(path):
        path.chmod(0o444)
        assert is_held(path)
