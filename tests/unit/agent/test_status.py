"""The two mapped blocks: what one process writes, another reads."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import pytest

from carla_run.heartbeat import CollectorState
from carla_td3.exchange.status import Pace, Status


def test_another_process_reads_what_was_written(tmp_path: Path) -> None:
    pace = Pace.of(tmp_path, 1)
    assert pace.step_limit == 0
    pace.step_limit = 1_000_000
    status = Status(tmp_path / "status.bin")
    status.state = CollectorState.EVALUATING
    status.ticks, status.episodes = 123_456_789_012, 7
    program = (
        "import sys, pathlib; from carla_td3.exchange.status import Pace, Status; folder = pathlib.Path(sys.argv[1]);"
        "seen = Status.of(folder).read(); "
        "print(seen.state.name, seen.ticks, seen.episodes, Pace.of(folder, 1).step_limit)"
    )
    seen = subprocess.run([sys.executable, "-c", program, str(tmp_path)], capture_output=True, text=True, check=True)
    assert seen.stdout.split() == ["EVALUATING", "123456789012", "7", "1000000"]


def test_a_call_in_flight_is_seen_from_outside(tmp_path: Path) -> None:
    status, watcher = Status(tmp_path / "status.bin"), Status(tmp_path / "status.bin")
    status.begin_collector(start_limit_s=60.0, idle_limit_s=60.0)
    assert watcher.read().outstanding_s == 0
    with status.calling(limit_s=0.01):
        time.sleep(0.02)
        assert watcher.read().outstanding_s >= 0.02
        assert watcher.read().overdue
    assert watcher.read().outstanding_s == 0
    assert not watcher.read().overdue


def test_a_call_that_failed_is_in_flight_no_more(tmp_path: Path) -> None:
    status = Status(tmp_path / "status.bin")
    with pytest.raises(RuntimeError), status.calling(limit_s=1):
        raise RuntimeError
    assert status.read().outstanding_s == 0


def test_a_sign_of_life_within_a_call_begins_its_limit_again(tmp_path: Path) -> None:
    status = Status(tmp_path / "status.bin")
    with status.calling(60.0):
        time.sleep(0.02)
        silent_s = status.read().silent_s
        status.alive()
        assert status.read().silent_s < silent_s


def test_a_collector_that_never_starts_is_overdue(tmp_path: Path) -> None:
    status = Status(tmp_path / "status.bin")
    status.begin_collector(start_limit_s=0.0, idle_limit_s=60.0)
    time.sleep(0.001)
    assert status.read().overdue
    status.alive()
    assert not status.read().overdue


def test_silence_outside_of_calls_is_a_hang_too(tmp_path: Path) -> None:
    status = Status(tmp_path / "status.bin")
    status.begin_collector(start_limit_s=60.0, idle_limit_s=0.01)
    assert not status.read().overdue
    status.alive()
    time.sleep(0.02)
    assert status.read().overdue
    assert status.read().outstanding_s == 0
