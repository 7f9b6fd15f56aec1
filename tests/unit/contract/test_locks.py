"""Locks on files: one holder, who is named, and what a killed one left behind holds nothing."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from carla_run.locks import HeldError, Lock, is_held


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


def test_a_lock_that_cannot_be_written_can_be_looked_at(tmp_path: Path) -> None:
    path = tmp_path / "learner.lock"
    with Lock(path):
        path.chmod(0o444)
        assert is_held(path)
