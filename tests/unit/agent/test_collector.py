"""The state that a collector reports."""

from __future__ import annotations

import socket
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from carla_run.heartbeat import CollectorState
from carla_run.paths import RunPaths
from carla_td3.collector.collector import Collector
from carla_td3.config import validate
from carla_td3.env.session import NoSimulator, Session
from carla_td3.exchange.messages import Channel
from carla_td3.exchange.status import Pace, Status
from carla_td3.exchange.weights import WeightsFile
from tests.wire.trainee import SMALL


def test_a_collector_takes_no_step_that_another_could_until_it_has_its_simulator(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = RunPaths(tmp_path)
    run.exchange.mkdir()
    WeightsFile.create(run.exchange / "weights.bin", 1).publish(np.zeros(1, np.float32), 0)
    Pace.of(run.exchange).step_limit = 9
    said: list[CollectorState] = []
    is_at = Status.state.fget  # type: ignore[attr-defined]
    monkeypatch.setattr(Status, "state", property(is_at, lambda _, state: said.append(state)))

    def refuse(*_: Any) -> None:
        raise NoSimulator("none")

    monkeypatch.setattr(Session, "_claimed", refuse)
    monkeypatch.setattr(Collector, "_take_weights", lambda _: None)
    ours, theirs = socket.socketpair()
    with ours, pytest.raises(NoSimulator):
        Collector(validate(SMALL, source="test"), run, Channel(theirs)).run(rehearse=False)
    assert CollectorState.CONNECTING in said
    assert CollectorState.STEPPING not in said
