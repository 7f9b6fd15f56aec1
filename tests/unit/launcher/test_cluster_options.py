"""The effect of ``--cluster`` and ``--collectors``, and their refusals."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from carla_launcher.observe.pools import Gpu, Reading
from carla_launcher.options import RefusedError, RunOptions, RuntimeKind, SimulatorKind
from carla_launcher.plugins.ray import nodes
from carla_launcher.resolve import agent_args
from carla_launcher.resolve.choosing import Docker, choose
from carla_launcher.resolve.machine import spec_of
from carla_run.heartbeat import CollectorBeat, CollectorState
from carla_run.paths import RunPaths
from tests.unit.beats import BEAT

HERE = "127.0.0.1:6379"


def chosen(gpu: Gpu = Gpu.OK, **asked: Any) -> RunOptions:
    return choose(RunOptions(**asked), Reading((), gpu), installed=True, docker=lambda: Docker.ANSWERS)[0]


def settings(options: RunOptions) -> dict[str, str]:
    words = spec_of(RunPaths(Path("run")), options).agent_options
    return dict(word.split("=", 1) for word in agent_args.settings(words))


def test_on_a_cluster_the_agent_is_told_where_to_drive() -> None:
    found = chosen(cluster=HERE, simulator=SimulatorKind.LITE, map="Lite02", seed=4, agent_args=("--set", "a=1"))
    told = settings(found)
    assert told["cluster.address"] == HERE
    assert json.loads(told["cluster.simulator"]) == ["--simulator", "carla-lite", "--map", "Lite02", "--seed", "4"]
    assert told["a"] == "1"
    spec = spec_of(RunPaths(Path("run")), found)
    assert (spec.in_containers, spec.on_cluster, spec.simulator.kind) == (False, True, SimulatorKind.ELSEWHERE)


def test_what_a_simulator_is_started_with_reaches_each_node(tmp_path: Path) -> None:
    own = tmp_path / "own.yaml"
    options = RunOptions(quality="Epic", launcher_config=own, simulator_args=("--tick-ms=30", "-x"))
    assert nodes.simulator_words(options) == [
        *("--simulator", "auto", "--quality", "Epic", "--launcher-config", str(own)),
        *("--simulator-arg=--tick-ms=30", "--simulator-arg=-x"),
    ]


def test_the_count_of_collectors_is_the_agent_s() -> None:
    assert settings(RunOptions(collectors=8)) == {"training.collectors": "8"}
    assert settings(RunOptions()) == {}


@pytest.mark.parametrize(
    ("asked", "says"),
    [
        ({"cluster": HERE, "simulator_host": "box"}, "give one of them"),
        ({"cluster": HERE, "runtime": RuntimeKind.COMPOSE}, "docker-compose.cluster.yml"),
        ({"cluster": "10.0.0.1:6379"}, "RAY_AUTH_MODE=token"),
    ],
)
def test_what_cannot_be_is_refused_in_one_sentence(
    asked: dict[str, Any], says: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("RAY_AUTH_MODE", raising=False)
    with pytest.raises(RefusedError, match=says):
        chosen(**asked)


def test_an_unreadable_card_is_no_matter_where_none_is_needed() -> None:
    assert chosen(Gpu.UNREADABLE, cluster=HERE, device="cpu").runtime is RuntimeKind.PROCESS


def test_the_nodes_are_told_a_line_each(tmp_path: Path) -> None:
    run = RunPaths(tmp_path)
    assert nodes.nodes(run) == []
    seen = {
        "state": "healthy",
        "restarts": 1,
        "cause": "it ended (exit code 1)",
        "memory_mib": {"ram": {"total": 16000.0, "free": 9000.0}, "vram:0": None},
    }
    run.nodes.write_text(
        json.dumps([{"collector": 2, "node": "worker-1", "steps": 500, "seen": seen}, {"collector": 3}])
    )
    first, second = nodes.nodes(run)
    assert first.startswith("collector 2 on worker-1: 500 steps, simulator healthy, restarted 1 times (it ended")
    assert "9000" in first.replace(",", "").replace(" ", "").replace("\u202f", "") or "GiB" in first
    assert second == "collector 3 on None: None steps, simulator unknown"


def test_a_collector_without_a_node_has_a_line_as_well(tmp_path: Path) -> None:
    run = RunPaths(tmp_path)
    at = [CollectorState.STEPPING, CollectorState.CONNECTING, CollectorState.ABSENT]
    collectors = tuple(CollectorBeat(None, state, 0, 0, 0.0, 0) for state in at)
    run.heartbeat.write_text(replace(BEAT, collectors=collectors).json(), encoding="utf-8")
    assert nodes.nodes(run) == [], "without a cluster"
    run.nodes.write_text(json.dumps([{"collector": 0, "node": "worker-1"}]), encoding="utf-8")
    assert nodes.nodes(run)[1:] == ["collector 1: no node has a simulator free"]


def test_steps_that_were_lost_with_nodes_are_summed() -> None:
    events: list[dict[str, Any]] = [
        {"event": "chunk_lost", "at_most": 64},
        {"event": "chunk_lost", "at_most": 10},
        {"event": "stopped"},
    ]
    assert nodes.lost_with_nodes(events) == "at most 74, 2 times"
    assert nodes.lost_with_nodes([]) == ""
