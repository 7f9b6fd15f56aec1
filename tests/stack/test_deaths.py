"""Simulator, agent and collectors die in a real engine's containers; the run goes on and loses nothing."""

from __future__ import annotations

import time
from typing import Any

import pytest
import yaml

from carla_run.exits import Exit
from tests.soak.witness import Witness
from tests.stack.conftest import StartStack
from tests.stack.stack import Stack, docker
from tests.wire.trainee import SMALL, program

pytestmark = [pytest.mark.stack, pytest.mark.timeout(1500)]

COLLECTORS = 20
BATCH = 1024
MARGIN_MIB = 60
"""Above what learner and collector hold: init, the kernel's own pages, the next start."""


def struck(vehicles: int) -> dict[str, Any]:
    """Return the settings of a run that ends by itself only after hours."""
    return {
        **SMALL,
        "simulator": {"timeout_s": 3.0},
        "environment": {**SMALL["environment"], "traffic": {"vehicles": vehicles}},
        "replay": {"capacity": 100_000},
        "training": {**SMALL["training"], "total_steps": 100_000},
        "collector": {"hang_margin_s": 0.5},
    }


def steps(stack: Stack) -> int:
    return int(stack.run.beat.get("step", 0))


def freeze_in_mid_episode(stack: Stack, witness: Witness) -> int:
    """Pause the simulator while an episode goes on; return the finished transitions."""
    for _ in range(50):
        if "unable to freeze" in docker("pause", stack.container("carla"), check=False).stderr:
            continue  # runc gives a busy container's processes a few tries to reach the freezer, then gives up
        assert stack.state("carla")["Paused"]
        seen = -1
        while seen < len(witness.rows):  # the tick that was answered already becomes a row, late on a busy machine
            seen = len(witness.rows)
            time.sleep(0.8)
            witness.look()
        last = witness.rows[-1]
        if last["episode_step"] > 0 and not last["terminated"] and not last["truncated"]:
            return int(last["step"])
        docker("unpause", stack.container("carla"))
        time.sleep(0.1)
    raise AssertionError("no episode was caught between its first step and its last")


@pytest.mark.parametrize("vehicles", [pytest.param(0, marks=pytest.mark.long), 4])
def test_a_simulator_killed_in_mid_episode_costs_that_episode_only(start_stack: StartStack, vehicles: int) -> None:
    stack = start_stack(struck(vehicles))
    stack.up()
    stack.wait_for_updates()
    before, witness = stack.state("agent"), Witness(stack.run.path / "replay")
    learner = stack.run.beat["pid"]

    finished = freeze_in_mid_episode(stack, witness)
    cut = len(witness.rows)
    docker("kill", stack.container("carla"))
    docker("start", stack.container("carla"))
    stack.wait(lambda: steps(stack) > finished + 100)

    after = stack.state("agent")
    assert (after["StartedAt"], after["Pid"], after["RestartCount"]) == (before["StartedAt"], before["Pid"], 0)
    assert stack.run.beat["pid"] == learner
    # A Traffic Manager takes its process along (docs/facts.md, section 5); without one the collector connects again.
    assert stack.run.events("collector_restarted") or vehicles == 0
    witness.look()
    assert witness.problems() == []
    assert witness.rows["episode_step"][cut] == 0, "an episode went on with another simulator"
    assert not witness.rows["terminated"][cut - 1]
    stack.wait_for_updates()


@pytest.mark.long
def test_twenty_collectors_killed_leave_as_many_actors_as_one(start_stack: StartStack) -> None:
    stack = start_stack(struck(vehicles=3))
    stack.up()
    stack.wait_for_updates()
    one = most_actors(stack)
    assert one >= 4, "the driver's car and three others at least"
    for number in range(COLLECTORS):
        reached, dead = steps(stack), stack.run.beat["collector"]["pid"]
        docker("exec", stack.container("agent"), "sh", "-c", f"kill -KILL {dead}")
        stack.wait(lambda: steps(stack) > reached and stack.run.beat["collector_restarts"] == number + 1)  # noqa: B023
    assert most_actors(stack) == one
    assert stack.state("agent")["RestartCount"] == 0


def most_actors(stack: Stack) -> int:
    """Return the most that a few looks see: between two episodes some sensors are gone for a moment."""
    return max(stack.count_actors() for _ in range(3))


@pytest.mark.long
def test_a_learner_killed_for_memory_comes_back_with_less_and_loses_nothing(start_stack: StartStack) -> None:
    # What can't fit is refused at the start. So that there is a peak to come, the run begins with small parts of its
    # batch, the limit comes down to just above what it holds, and then the parts become large.
    settings = struck(vehicles=0)
    settings["td3"] = {"batch_size": BATCH, "micro_batch": 16}
    settings["training"] = {**settings["training"], "updates_per_step": 0.05, "checkpoint_every_steps": 100}
    settings["memory"] = {"reserve_mib": 0}
    stack = start_stack(settings)
    stack.up()
    stack.wait_for_updates(10)
    settings["td3"] = {"batch_size": BATCH}
    stack.run.config.write_text(yaml.safe_dump(settings))
    agent, begun_s = stack.container("agent"), int(time.time())
    held = stack.run.beat["memory"]
    limit = f"{round(held['learner_mib'] + held['collector_mib'] + MARGIN_MIB)}m"
    docker("update", "--memory", limit, "--memory-swap", limit, agent)
    stack.wait_for_updates(5)
    assert stack.state("agent")["RestartCount"] == 0, "the limit is above what it holds"

    request(stack, "drain")
    request(stack, "apply", "--set", f"td3.micro_batch={BATCH}")
    stack.wait(lambda: bool(stack.run.beat["micro_batch"] == BATCH))
    witness = Witness(stack.run.path / "replay")
    seen = witness.look()
    request(stack, "resume")
    stack.wait(lambda: bool(stack.run.events("resumed")))
    resumed = stack.run.events("resumed")[0]
    assert resumed["steps"] >= seen
    stack.wait(lambda: stack.run.beat["updates"] > resumed["updates"] + 5)

    lowered, restarts = stack.run.events("micro_batch_lowered"), stack.state("agent")["RestartCount"]
    assert lowered[0]["last_micro_batch"] == BATCH
    assert stack.run.beat["micro_batch"] == lowered[-1]["micro_batch"] < BATCH
    assert restarts == len(lowered) <= 3
    assert sorted(set(deaths(agent, begun_s))) == ["die 137", "oom"]
    witness.look()
    assert witness.problems() == []


def request(stack: Stack, kind: str, *values: str) -> None:
    """Ask the learner in the container from outside, as a person would, and wait until it is done."""
    asked = program(0, "-m", "carla_td3", "request", kind, "--run-dir", str(stack.run.path), "--wait", *values)
    assert asked.returncode == Exit.FINISHED, asked.stderr


def deaths(container: str, since_s: int) -> list[str]:
    """Return the engine's words on the container's ends: Docker forgets OOMKilled when it starts it again."""
    until_s = int(time.time()) + 1
    reported = docker(
        *("events", "--since", str(since_s), "--until", str(until_s), "--filter", f"container={container}"),
        *("--filter", "event=oom", "--filter", "event=die"),
        *("--format", "{{.Action}} {{.Actor.Attributes.exitCode}}"),
    )
    return [line.replace("<no value>", "").strip() for line in reported.stdout.splitlines()]
