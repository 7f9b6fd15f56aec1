"""The driver before there is a cluster: what keeps it from having one is a sentence, and is tried again."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from carla_run.exits import Exit
from carla_run.paths import RunPaths
from carla_td3.cluster.__main__ import Driver
from carla_td3.config import ClusterConfig
from carla_td3.exits import AgentError
from tests.crowd import PATIENCE_S


def test_without_ray_it_says_how_to_have_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    monkeypatch.delitem(sys.modules, "carla_td3.cluster.actors", raising=False)
    driver = Driver(RunPaths(tmp_path), ClusterConfig(address="127.0.0.1:6379"))
    first = driver._connected()
    error = first.exception(timeout=PATIENCE_S)
    assert isinstance(error, AgentError)
    assert error.code is Exit.BAD_CONFIG
    assert "pip install '.[ray]'" in str(error)
    assert driver._connected() is not first, "the next collector tries again"
