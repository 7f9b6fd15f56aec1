"""Collectors on the nodes of a real Ray cluster, each beside a carla-lite that its node starts; all on this machine."""

from __future__ import annotations

import json
import os
import re
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import psutil
import pytest
from ray_nodes import actors_of, add_node, ray_cluster

from carla_run.exits import Exit
from carla_run.paths import RunPaths
from tests.crowd import until
from tests.wire.conftest import NewRun
from tests.wire.launched import Launch
from tests.wire.test_fleet import assert_whole, rings, total
from tests.wire.test_requests import ask
from tests.wire.trainee import Run, running

pytest.importorskip("ray", reason="Ray isn't installed: pip install '.[ray]'")

pytestmark = pytest.mark.long
LONG_S = 300.0
LITE = "cluster.simulator=[--simulator, carla-lite, --map, Lite01]"


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Any]:
    """A cluster behind a token, whose first node, the learner's, has no simulator."""
    with ray_cluster(tmp_path) as cluster:
        yield cluster


# With rings that don't come round, however fast the one drives on while the other is waited for.
ENDLESS = "--max-timesteps", "50000", "--set", "replay.capacity=100000"


def on(cluster: Any, count: int = 1) -> tuple[str, ...]:
    """Return the options of a training with so many collectors on a cluster."""
    return (
        *("--set", f"cluster.address={cluster.address}", "--set", LITE),
        *("--set", f"training.collectors={count}", "--set", "simulator.patience_s=250"),
    )


@pytest.fixture
def cluster_run(new_run: NewRun) -> Callable[[], Run]:
    return lambda: new_run("run", SimpleNamespace(port=1))


def test_a_collector_on_another_node_trains_a_run_to_its_end(cluster: Any, cluster_run: Callable[[], Run]) -> None:
    add_node(cluster)
    run = cluster_run()
    said = run.train(*on(cluster), "--max-timesteps", "160")
    assert "160 steps, 140 updates" in said
    (ring,) = rings(run)
    assert ring.steps == 160
    assert_whole(ring)


def family(process: psutil.Process) -> list[int]:
    return [process.pid, *(each.pid for each in process.children(recursive=True))]


def test_an_actor_that_is_killed_takes_its_simulator_along_and_its_collector_goes_on_in_another(
    cluster: Any, cluster_run: Callable[[], Run]
) -> None:
    add_node(cluster)
    run = cluster_run()
    process = run.start(*on(cluster), "--max-timesteps", "50000")
    run.wait(lambda: run.steps >= 40)
    actor = actors_of(RunPaths(run.path))[0]
    pids = family(actor)
    assert len(pids) >= 5, "an actor, a command, its shim, a simulator, a collector"
    kept = run.steps
    os.kill(actor.pid, signal.SIGKILL)
    until(lambda: not any(map(running, pids)))
    run.wait(lambda: run.steps >= kept + 100)
    (restarted,) = run.events("collector_restarted")
    assert restarted["end"] == "lost"
    lost = run.events("chunk_lost")
    assert all(0 < each["at_most"] <= 64 for each in lost)
    assert len({each["incarnation"] for each in run.events("collector_placed")}) == 2
    pids = family(actors_of(RunPaths(run.path))[0])
    process.send_signal(signal.SIGTERM)
    assert process.wait(LONG_S) == Exit.STOPPED
    until(lambda: not any(map(running, pids)))
    assert_whole(rings(run)[0])
    assert run.events("stopped")[0]["steps"] == total(run)


def test_a_node_that_dies_holds_up_nobody_and_one_that_joins_is_driven_on(
    cluster: Any, cluster_run: Callable[[], Run]
) -> None:
    first, _ = add_node(cluster), add_node(cluster)
    run = cluster_run()
    process = run.start(*on(cluster, 2), *ENDLESS)
    run.wait(lambda: len(rings(run)) == 2 and min(ring.steps for ring in rings(run)) >= 20)
    cluster.remove_node(first, allow_graceful=False)
    run.wait(lambda: len(run.events("collector_restarted")) >= 1)
    (number,) = {event["collector"] for event in run.events("collector_restarted")}
    kept = [ring.steps for ring in rings(run)]
    run.wait(lambda: rings(run)[1 - number].steps >= kept[1 - number] + 50)
    add_node(cluster)
    run.wait(lambda: rings(run)[number].steps >= kept[number] + 20)
    process.send_signal(signal.SIGTERM)
    assert process.wait(LONG_S) == Exit.STOPPED
    for ring in rings(run):
        assert_whole(ring)
    assert run.events("stopped")[0]["steps"] == total(run)
    assert [each["collector"] for each in nodes_of(run.path)] == [0, 1]


def test_a_killed_learner_leaves_nothing_on_the_nodes_and_goes_on_from_its_rings(
    cluster: Any, cluster_run: Callable[[], Run]
) -> None:
    add_node(cluster)
    run = cluster_run()
    run.start(*on(cluster), "--max-timesteps", "400")
    run.wait(lambda: run.steps >= 60)
    pids = [each for actor in actors_of(RunPaths(run.path)).values() for each in family(actor)]
    run.kill()
    kept = run.steps
    until(lambda: not any(map(running, pids)))
    assert "400 steps" in run.train(*on(cluster), "--max-timesteps", "400", "--resume")
    assert run.events("resumed")[0]["steps"] >= kept
    assert_whole(rings(run)[0])


def test_collector_0_evaluates_on_its_node_and_the_results_lie_here(
    cluster: Any, cluster_run: Callable[[], Run]
) -> None:
    add_node(cluster)
    run = cluster_run()
    run.train(*on(cluster), "--max-timesteps", "80", "--eval-freq", "40", "--num-eval-episodes", "1")
    assert [event["step"] for event in run.events("evaluated")] == [40, 80]
    assert RunPaths(run.path).evaluation_json.exists()


def test_a_collector_that_rests_gives_its_simulator_back_and_finds_another_when_it_is_wanted_again(
    cluster: Any, cluster_run: Callable[[], Run]
) -> None:
    add_node(cluster, simulators=2)
    run = cluster_run()
    process = run.start(*on(cluster, 2), *ENDLESS)
    run.wait(lambda: len(rings(run)) == 2 and min(ring.steps for ring in rings(run)) >= 20)
    run.wait(lambda: len(actors_of(RunPaths(run.path))) == 2)
    pids = family(actors_of(RunPaths(run.path))[1])
    assert ask(run, "apply", collector__at_work=1).result == "ok"
    until(lambda: not any(map(running, pids)))
    kept = rings(run)[1].steps
    assert ask(run, "apply", collector__at_work=2).result == "ok"
    run.wait(lambda: rings(run)[1].steps >= kept + 20)
    process.send_signal(signal.SIGTERM)
    assert process.wait(LONG_S) == Exit.STOPPED
    for ring in rings(run):
        assert_whole(ring)


def test_a_cluster_without_this_token_or_without_nodes_is_refused_in_a_sentence(
    cluster: Any, cluster_run: Callable[[], Run], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = cluster_run()
    process = run.start(*on(cluster), "--set", "simulator.patience_s=1")
    out, _ = process.communicate(timeout=LONG_S)
    assert process.returncode == Exit.NO_SIMULATOR, out
    assert "had a simulator free for collector 0" in out
    other = tmp_path / "other"
    other.write_text("another")
    other.chmod(0o600)
    monkeypatch.setenv("RAY_AUTH_TOKEN_PATH", str(other))
    process = run.start(*on(cluster), "--resume")
    out, _ = process.communicate(timeout=LONG_S)
    assert process.returncode in (Exit.BAD_CONFIG, Exit.NO_SIMULATOR), out
    monkeypatch.setenv("RAY_AUTH_MODE", "disabled")
    process = run.start(*on(cluster), "--resume")
    out, _ = process.communicate(timeout=LONG_S)
    assert process.returncode == Exit.BAD_CONFIG, out
    assert "is open to its network" in out


def test_the_launcher_runs_the_agent_here_and_shows_where_its_collectors_are(
    cluster: Any, launch: Launch, tmp_path: Path
) -> None:
    add_node(cluster, simulators=2)
    launched = launch(
        400, "--cluster", cluster.address, "--collectors", "3", "--simulator", "carla-lite", "--device", "cpu"
    )
    launched.until(lambda: len(nodes_of(launched.run)) == 2 and int(launched.beat.get("step", 0)) >= 60)
    shown = launched.command("status", "--once").stdout
    assert len(re.findall(r"collector \d on", shown)) == 2
    assert len(re.findall(r"collector \d: no node has a simulator free", shown)) == 1
    out, _ = launched.process.communicate(timeout=LONG_S)
    assert launched.process.returncode == Exit.FINISHED, out
    assert not [row for row in launched.events() if str(row["event"]).startswith("simulator_")]
    assert len(set(re.findall(r"collector \d on", (launched.run / "report.html").read_text()))) == 2


def test_a_run_whose_collectors_have_no_node_waits_for_the_agents_patience_and_ends_for_want_of_a_simulator(
    cluster: Any, launch: Launch
) -> None:
    launched = launch(
        *(400, "--cluster", cluster.address, "--simulator", "carla-lite", "--device", "cpu", "--"),
        *("--set", "simulator.timeout_s=1", "--set", "simulator.patience_s=20"),
    )
    out, _ = launched.process.communicate(timeout=LONG_S)
    assert launched.process.returncode == Exit.NO_SIMULATOR, out
    assert "had a simulator free for collector 0" in out
    assert not launched.events("finding", diagnosis="simulator_hang")


def nodes_of(run: Path) -> list[dict[str, Any]]:
    path = RunPaths(run).nodes
    return list(json.loads(path.read_text())) if path.exists() else []
