"""Collectors on the nodes of a real Ray cluster, each beside a carla-lite that its node starts; all on this machine."""

from __future__ import annotations

import json
import os
import signal
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest

from agent.td3.replay.replay import Replay
from contract.exits import Exit
from contract.paths import RunPaths
from tests.conftest import Server
from tests.wire.conftest import NewRun
from tests.wire.trainee import Run, running

pytest.importorskip("ray", reason="Ray isn't installed: pip install '.[ray]'")
from ray._private.authentication_test_utils import reset_auth_token_state
from ray.cluster_utils import Cluster

pytestmark = pytest.mark.long
NODE = {"num_cpus": 1, "object_store_memory": 80 * 2**20, "include_dashboard": False}
LITE = "cluster.simulator=[--simulator, carla-lite, --map, Lite01]"

AddNode = Callable[[], Any]


@pytest.fixture
def cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Cluster]:
    """A cluster behind a token, whose first node, the learner's, has no simulator."""
    token = tmp_path / "token"
    token.write_text(uuid.uuid4().hex)
    token.chmod(0o600)
    monkeypatch.setenv("RAY_AUTH_MODE", "token")
    monkeypatch.setenv("RAY_AUTH_TOKEN_PATH", str(token))
    monkeypatch.setenv("RAY_USAGE_STATS_ENABLED", "0")
    reset_auth_token_state()  # what this process read of its environment before
    cluster = Cluster(initialize_head=True, head_node_args=NODE)
    yield cluster
    cluster.shutdown()


def on(cluster: Cluster, count: int = 1) -> tuple[str, ...]:
    """Return the options of a training with so many collectors on a cluster."""
    return (
        *("--set", f"cluster.address={cluster.address}", "--set", LITE),
        *("--set", f"training.collectors={count}", "--set", "simulator.patience_s=250"),
    )


def node(cluster: Cluster, simulators: int = 1) -> Any:
    return cluster.add_node(**NODE, resources={"carla": simulators})


def rings(run: Run) -> list[Replay]:
    return [Replay.open(folder) for folder in RunPaths(run.path).rings().values()]


def total(run: Run) -> int:
    return sum(ring.steps for ring in rings(run))


def assert_whole(ring: Replay) -> None:
    """No finished step is missing in a ring that has not come round, and none is there twice."""
    rows = ring._ring.rows[: ring.rows]
    steps, firsts = rows["step"].astype(np.int64), rows["episode_step"] == 0
    assert (np.diff(steps) == ~firsts[1:]).all()
    assert steps[-1] == ring.steps
    assert firsts[0]


@pytest.fixture
def cluster_run(new_run: NewRun) -> Callable[[], Run]:
    return lambda: new_run("run", Server(1, None))  # type: ignore[arg-type]


def test_a_collector_on_another_node_trains_a_run_to_its_end(cluster: Cluster, cluster_run: Callable[[], Run]) -> None:
    node(cluster)
    run = cluster_run()
    said = run.train(*on(cluster), "--max-timesteps", "160")
    assert "160 steps, 140 updates" in said
    (ring,) = rings(run)
    assert ring.steps == 160
    assert_whole(ring)
