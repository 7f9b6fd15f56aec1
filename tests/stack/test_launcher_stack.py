"""The whole launcher over real containers: `up` to exit 0, real kills by the kernel, dead simulators and launchers."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from carla_launcher.observe.memory import MemoryReader
from carla_launcher.observe.pools import Cards, Pool
from tests import memory_hog
from tests.crowd import until
from tests.memory_hog import Hog
from tests.soak.witness import Witness
from tests.stack.contained import Contained
from tests.stack.stack import CALLER, docker
from tests.wire.launched import UNDISTURBED
from tests.wire.trainee import SMALL, program

pytestmark = [pytest.mark.stack, pytest.mark.timeout(1500)]

Command = Callable[..., Contained]
ENDLESS = 100_000
CONTROL_PORT = 2099  # of the container's own loopback
STEPS = 120
RESERVE_MIB = 256  # launcher/carla_launcher/launcher.yaml
# As the agent says of it: 593 MiB whole, 537 in halves, 509 in quarters.
BATCH = 1024
WIDE = {
    **SMALL,
    "td3": {"batch_size": BATCH, "network": {"channels": [32, 32, 32], "features": 32, "hidden": [32]}},
    "replay": {"capacity": 8000},
    "memory": {"reserve_mib": 0},
    "training": {**SMALL["training"], "total_steps": STEPS, "warmup_steps": 100, "updates_per_step": 0.05},
}
# A shell is between: its child is the agent, and however that ends, the container ends well.
FORGETFUL = """
services:
  agent:
    entrypoint: [sh, -c, '"$$0" "$$@"; exit 0']
"""
MARGIN_MIB = 60
"""Above what learner and collector hold: the shell, the kernel's own pages, the next start."""


def endless(settings: dict[str, Any]) -> dict[str, Any]:
    return {**settings, "training": {**settings["training"], "total_steps": ENDLESS}}


@pytest.fixture
def command(images: None, tmp_path: Path) -> Iterator[Command]:
    """Make one run; what it has started is gone after the test, however that ends."""
    made: list[Contained] = []

    def make(settings: dict[str, Any], **more: Any) -> Contained:
        made.append(Contained(tmp_path, settings, **more))
        return made[-1]

    yield make
    for each in made:
        each.end()


def test_a_container_too_small_for_the_batch_is_planned_for_and_leaves_only_files(command: Command) -> None:
    """AGENT_MEMORY is below what the configured batch takes: the plan begins a rung lower; the image gave the sizes."""
    run = command(WIDE, over="services: {}", AGENT_MEMORY="733m")
    run.begin("--seed", "3")
    output = run.output()
    assert run.process.returncode == 0, output
    assert [row["event"] for row in run.events() if not row["event"].startswith("finding")] == UNDISTURBED
    assert "agent_host_oom" not in [row["diagnosis"] for row in run.findings()]
    assert [taken["values"] for taken in run.state["taken"]] == [{"td3.micro_batch": BATCH // 2}]
    assert (run.beat["step"], run.beat["batch"], run.beat["micro_batch"]) == (STEPS, BATCH, BATCH // 2)
    (verified,) = run.events("verified")
    # About 410 of learner and collector; on a busy machine this look may come before the collector has its part.
    assert 200 < verified["held_mib"]["ram:agent"]["agent"] < 800
    assert run.left() == []
    for name in ("replay", "checkpoints", "agent.json", "metrics.jsonl"):
        assert (run.run / name).stat().st_uid == CALLER
    assert (run.run / "report.html").stat().st_uid == os.getuid()
    assert str(STEPS) in (run.run / "report.html").read_text(encoding="utf-8")


def test_pressure_in_the_container_is_given_way_to_and_a_kill_by_the_kernel_survived(command: Command) -> None:
    """A foreign process in the container: first it presses, then the kernel kills the learner."""
    run = command(endless(WIDE), limits={"memory.pressure_s": 1}, AGENT_MEMORY="1g")
    run.begin()
    run.until_updates()
    container, witness = run.container("agent"), Witness(run.run / "replay")
    with Hog("docker", "exec", "-i", container, "python", "-c", Path(memory_hog.__file__).read_text()) as hog:
        assert hog.touch(round(free_mib(run, container)) - RESERVE_MIB + 30)
        run.until(lambda: run.events("request_answered"))
        (pressure,) = run.findings()
        assert (pressure["diagnosis"], pressure["pool"]) == ("pressure", "ram:agent")
        (asked,) = run.events("request")
        taken = asked["values"]["td3.micro_batch"]
        assert (asked["kind"], taken < BATCH) == ("apply", True)
        run.until(lambda: run.beat.get("micro_batch") == taken)
        assert run.container("agent") == container

        final = run.beat["step"] + 60
        settings = {**WIDE, "training": {**WIDE["training"], "total_steps": final}}
        run.configure(settings)
        witness.look()
        # The kernel kills whom it thinks best; it is to be the learner.
        docker("exec", container, "sh", "-c", f"echo 1000 > /proc/{run.beat['pid']}/oom_score_adj")
        hog.touch(1024)
    output = run.output()
    assert run.process.returncode == 0, output
    killed = [row for row in run.findings() if row["diagnosis"] == "agent_host_oom"]
    assert [row["exit_code"] for row in killed] == [137]
    assert "the kernel killed the agent" in output
    assert [row["kind"] for row in run.events("rung_taken")] == ["ram", "ram"]
    assert run.beat["micro_batch"] < taken
    assert run.beat["step"] == steps_kept(witness) >= final  # more, if the kernel's kill came late
    assert run.left() == []


@pytest.mark.long
def test_a_child_killed_for_memory_is_no_success_though_the_container_exits_0(command: Command) -> None:
    """Scenario 8: an agent that computes in small parts is told to take the whole batch, and has no room for it."""
    settings = {
        **SMALL,
        "td3": {**SMALL["td3"], "batch_size": BATCH, "micro_batch": 16},
        "memory": {"reserve_mib": 0},
        "training": {**SMALL["training"], "updates_per_step": 0.05},
    }
    run = command(endless(settings), over=FORGETFUL, limits={"memory.pressure_s": 3600}, AGENT_MEMORY="2g")
    run.begin()
    run.until_updates()
    agent, held, witness = run.container("agent"), run.beat["memory"], Witness(run.run / "replay")
    limit = f"{round(held['learner_mib'] + held['collector_mib'] + MARGIN_MIB)}m"
    docker("update", "--memory", limit, "--memory-swap", limit, agent)
    run.until_updates()
    assert not run.events("agent_ended"), "the limit is above what it holds"
    # The kernel kills whom it thinks best; it is to be the learner.
    docker("exec", agent, "sh", "-c", f"echo 1000 > /proc/{run.beat['pid']}/oom_score_adj")

    settings["training"] = {**settings["training"], "total_steps": witness.look() + 200}  # for the next agent
    run.configure(settings)
    ask = ("-m", "carla_td3", "request", "apply", "--run-dir", str(run.run), "--set", f"td3.micro_batch={BATCH}")
    assert program(0, *ask, "--wait").returncode == 0
    run.until(lambda: run.events("agent_ended"))
    ended = run.events("agent_ended")[0]
    assert (ended["exit_code"], ended["oom_killed"]) == (0, True)
    output = run.output()
    assert run.process.returncode == 0, output
    assert "the kernel killed the agent, or a child of it, for memory" in output
    assert [(row["diagnosis"], row["exit_code"]) for row in run.findings()] == [("agent_host_oom", 0)]
    assert run.state["agent_restarts"] == 1
    assert (run.beat["phase"], run.beat["exit_code"]) == ("finished", 0)
    assert run.beat["step"] == steps_kept(witness) >= settings["training"]["total_steps"]
    assert run.left() == []


@pytest.mark.long
def test_a_simulator_out_of_vram_is_made_anew_beside_the_same_agent(command: Command) -> None:
    """Scenario 1."""
    run = command(endless(SMALL), LITE_CONTROL_PORT=str(CONTROL_PORT))
    run.begin()
    run.until_updates()
    agent, simulator, learner = run.container("agent"), run.container("carla"), run.beat["pid"]
    witness = Witness(run.run / "replay")
    witness.look()
    ask = f"exec 3<>/dev/tcp/127.0.0.1/{CONTROL_PORT}; echo 'fault vulkan-oom' >&3; head -n 1 <&3"
    assert docker("exec", simulator, "bash", "-c", ask).stdout.strip() == "ok"
    run.until(lambda: len(run.events("simulator_healthy")) == 2)
    run.until_updates()
    assert run.container("agent") == agent
    assert run.container("carla") not in ("", simulator)
    assert run.beat["pid"] == learner
    (found,) = run.findings()
    assert (found["diagnosis"], found["exit_code"]) == ("simulator_out_of_vram", 139)
    names = ("finding", "simulator_restart", "simulator_starts", "simulator_healthy")
    after = [row["event"] for row in run.events(*names, "agent_restart") if row["time"] >= found["time"]]
    assert [name for name in after if name != "finding"] == list(names[1:]), "it, and nothing else, is started again"
    assert steps_kept(witness) > 0
    assert run.state["simulator_restarts"] == 1


def test_containers_outlive_their_launcher_and_the_next_one_goes_on_with_them(command: Command) -> None:
    """Scenarios 13 and 15."""
    run = command(endless(SMALL))
    run.begin()
    run.until_updates()
    before = {service: run.container(service) for service in ("carla", "agent")}
    run.process.kill()
    run.output()
    step = run.beat["step"]
    until(lambda: run.beat["step"] >= step + 40)
    launcher = run.up()
    run.until(lambda: (run.state["pid"], run.state["state"]) == (launcher.pid, "running"))
    assert {service: run.container(service) for service in before} == before
    assert [row["event"] for row in run.events("simulator_adopted", "agent_adopted")] == [
        "simulator_adopted",
        "agent_adopted",
    ]
    assert run.state["agent_restarts"] == 0
    os.killpg(launcher.pid, signal.SIGINT)
    output = run.output()
    assert launcher.returncode == 75, output
    assert run.left() == []
    assert (run.run / "checkpoints" / "latest").exists()
    assert [run.command("down").returncode for _ in range(2)] == [0, 0]


def free_mib(run: Contained, container: str) -> float:
    """Return what the container can still take between two updates."""
    pid, reader = int(docker("inspect", "-f", "{{.State.Pid}}", container).stdout), MemoryReader(run.run, Cards())
    found = []
    for _ in range(9):
        pool = reader.read(agent_pids={pid}).pool("ram:agent")
        assert isinstance(pool, Pool)
        assert pool.free.mib is not None
        found.append(pool.free.mib)
        time.sleep(0.1)
    return sorted(found)[4]


def steps_kept(witness: Witness) -> int:
    """Return the finished transitions that are there now; none that the witness had seen is lost or changed."""
    assert witness.problems() == []
    return witness.look()
