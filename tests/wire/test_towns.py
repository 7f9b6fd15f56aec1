"""A training that moves from town to town under the launcher: nothing takes that for a fault, and nothing is lost."""

from __future__ import annotations

import os
import signal

import numpy as np
import pytest

from carla_td3.td3.replay.replay import Replay
from tests.wire.launched import Launch

STEPS = 100
TOWNS = ("--set", "training.towns.maps=['Lite:seed={seed},size=200']", "--set", "training.towns.every_episodes=1")


@pytest.mark.long
def test_changes_of_town_and_a_kill_lose_no_transition(launch: Launch) -> None:
    launched = launch(
        STEPS, "--", *TOWNS, "--set", "environment.time_limit.constant_s=2", "--set", "training.warmup_steps=10"
    )
    launched.until(lambda: len(launched.agent_events("town")) >= 3)
    launched.until_stepping(2)
    os.kill(launched.beat["pid"], signal.SIGKILL)
    output = launched.output()
    assert launched.process.returncode == 0, output
    visited = launched.agent_events("town")
    seeds = [int(row["map"].removeprefix("Lite:seed=").removesuffix(",size=200")) - 1000 for row in visited]
    assert seeds == [row["episodes"] for row in visited]
    assert sorted(set(seeds)) == list(range(max(seeds) + 1))
    assert max(seeds) >= 3
    assert launched.beat["collector_restarts"] == launched.state["simulator_restarts"] == 0
    faults = [row["diagnosis"] for row in launched.events("finding") if row["diagnosis"].endswith(("_crash", "_hang"))]
    assert faults == ["agent_crash"]
    assert not launched.events("rung_taken", "draining", "simulator_killed")
    (resumed,) = launched.agent_events("resumed")
    kept = Replay.open(launched.run / "replay")
    steps = kept._ring.rows["step"][: kept.rows]
    assert set(np.diff(steps)) == {0, 1}
    assert (kept.steps, kept.rows - kept.steps) == (STEPS, kept.episodes)
    assert resumed["steps"] in steps
