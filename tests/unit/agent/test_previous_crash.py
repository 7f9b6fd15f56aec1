"""The start of a learner after one that ended without a message, and after one that didn't."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from carla_run.event_log import EventLog
from carla_run.heartbeat import MemoryFigures, Phase
from carla_run.paths import RunPaths
from carla_td3 import config
from carla_td3.config import AgentConfig
from carla_td3.memory import estimate, free, preflight, previous_crash
from carla_td3.memory.allocator import Choice
from carla_td3.memory.estimate import MIB, Free
from carla_td3.memory.previous_crash import SUSPECT_SHARE, PreviousCrash, with_less
from tests.unit.beats import BEAT

BATCH = 256


def configured(**td3: Any) -> AgentConfig:
    return config.validate({"device": "cpu", "td3": {"batch_size": BATCH, **td3}, "memory": {"reserve_mib": 0}}, "test")


def need(settings: AgentConfig) -> int:
    return estimate.estimate(settings, cuda=False).total("host")


def ended(micro_batch: int = BATCH, host_peak_mib: float = 0.0) -> PreviousCrash:
    return PreviousCrash(Phase.UPDATING, micro_batch, host_peak_mib)


def heartbeat(path: Path, **changes: Any) -> Path:
    peaks = {"warming": {"host": 400.0}, "updating": {"host": 512.5, "learner": 300.0}}
    path.write_text(replace(BEAT, memory=MemoryFigures(peak_by_phase_mib=peaks), **changes).json())
    return path


def test_a_heartbeat_that_stopped_is_silence(tmp_path: Path) -> None:
    assert previous_crash.read(heartbeat(tmp_path / "agent.json")) == PreviousCrash(Phase.UPDATING, 64, 512.5)


@pytest.mark.parametrize("code", [0, 71, 75])
def test_a_learner_that_said_how_it_ended_teaches_nothing(tmp_path: Path, code: int) -> None:
    assert previous_crash.read(heartbeat(tmp_path / "agent.json", exit_code=code)) is None


@pytest.mark.parametrize("text", ["", "[]", '{"exit_code": null}', '{"exit_code": null, "memory": 3}'])
def test_a_heartbeat_that_cannot_be_read_teaches_nothing(tmp_path: Path, text: str) -> None:
    (tmp_path / "agent.json").write_text(text)
    assert previous_crash.read(tmp_path / "agent.json") is None
    assert previous_crash.read(tmp_path / "absent.json") is None


WHOLE = need(configured())
EIGHTH = need(configured(micro_batch=BATCH // 8))
PLENTY = int(WHOLE / SUSPECT_SHARE)


@pytest.mark.parametrize(
    ("configured_as", "room", "last", "expected"),
    [
        (None, WHOLE, ended(), BATCH // 2),  # it was near its limit
        (None, EIGHTH, ended(), BATCH // 8),  # half doesn't fit: the largest power below
        (None, PLENTY + MIB, ended(), None),
        (None, PLENTY - MIB, ended(), BATCH // 2),
        (None, None, ended(), None),
        (None, 4 * WHOLE, ended(host_peak_mib=3.9 * WHOLE / MIB), BATCH // 2),  # measured is more than estimated
        (16, WHOLE, ended(), 16),
        (1, MIB, ended(1), 1),
        (None, MIB, ended(1), 1),  # one row is the least
    ],
)
def test_the_next_micro_batch_follows_from_room_and_the_last_learner(
    configured_as: int | None, room: int | None, last: PreviousCrash, expected: int | None
) -> None:
    settings = configured(micro_batch=configured_as)
    lowered = with_less(settings, Free(None, room, None), last)
    assert (lowered is settings) is (expected == configured_as)
    assert config.dump(lowered) == config.dump(configured(micro_batch=expected)), "the rest stays"


def test_the_preflight_lets_the_smaller_one_in_and_tells_why(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    settings, run = configured(), RunPaths(tmp_path)
    room = Free(None, need(configured(micro_batch=BATCH // 2)), None)
    monkeypatch.setattr(free, "read", lambda *_: room)
    heartbeat(run.heartbeat, micro_batch=BATCH)
    admitted = preflight.run_preflight(
        settings, run, Choice("expandable_segments:True", "a test"), EventLog(run.agent_events).append
    )
    assert admitted.config.td3.micro_batch == BATCH // 2
    reported = {event["event"]: event for event in map(json.loads, run.agent_events.read_text().splitlines())}
    assert reported["footprint"]["fits"] is True
    assert reported["micro_batch_lowered"]["micro_batch"] == BATCH // 2
    assert reported["micro_batch_lowered"]["last_micro_batch"] == BATCH
    assert reported["micro_batch_lowered"]["needed_mib"] > reported["micro_batch_lowered"]["free_mib"]


def test_the_estimate_counts_the_rows_that_are_computed_at_once() -> None:
    assert need(configured(micro_batch=BATCH // 4)) < need(configured(micro_batch=BATCH // 2)) < need(configured())
    assert need(configured(micro_batch=2 * BATCH)) == need(configured())
