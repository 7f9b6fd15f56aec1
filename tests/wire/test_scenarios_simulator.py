"""The issue's scenarios of a simulator that goes wrong, each with its number: a real launcher, server and agent."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
import pytest

from carla_launcher.observe.memory import MemoryReader
from carla_launcher.observe.pools import Cards, PoolKind
from carla_run.exits import Exit
from carla_td3.exchange.status import Status
from tests.conftest import port_pair
from tests.faults import tell
from tests.soak.witness import Witness
from tests.wire.launched import ENDLESS, Launch, Launched, first_time, own_limits

pytestmark = pytest.mark.long

TICK_S = 3.0
QUICK_TICKS = ("--", "--set", f"simulator.timeout_s={TICK_S:g}")
SHORTER = 30
LASTS_S = 27.0
ROOM_MIB = 3000.0
"""More than agent and simulator take, and than others take of this machine in the meantime."""
Row = dict[str, Any]


def first(launched: Launched, event: str, **fields: Any) -> Row:
    """Return the first such row of the journal, once it is there."""

    def found() -> list[Row]:
        return [row for row in launched.events(event) if fields.items() <= row.items()]

    launched.until(lambda: bool(found()))
    return found()[0]


def until_driving_again(launched: Launched, restarts: int) -> None:
    """Return once so many new simulators stand and the agent has taken steps in the last."""
    launched.until(lambda: len(launched.events("simulator_healthy")) > restarts)
    launched.until_stepping()


def refused(launched: Launched, code: int) -> str:
    """Return what a launcher said that ended with this code."""
    output = launched.output()
    assert launched.process.returncode == code, output
    assert "Traceback" not in output
    return output


def test_1_a_simulator_out_of_video_memory_costs_an_episode_and_no_transition(launch: Launch) -> None:
    control = port_pair()
    launched = launch(ENDLESS, environment={"LITE_CONTROL_PORT": str(control)})
    launched.until_training()
    before, witness = launched.read("launcher.json"), Witness(launched.run / "replay")
    assert witness.look() > 0
    tell(control, "fault vulkan-oom")
    until_driving_again(launched, restarts=1)
    after = launched.read("launcher.json")
    assert witness.problems() == []
    found = first(launched, "finding", owner="simulator")
    assert (found["diagnosis"], found["exit_code"]) == ("simulator_out_of_vram", 139)
    assert after["agent"]["pid"] == before["agent"]["pid"] == launched.read("agent.json")["pid"]
    assert (after["simulator_restarts"], after["agent_restarts"], after["taken"]) == (1, 0, [])
    assert len(launched.events("simulator_healthy")) == 2
    launched.stop()


def test_5_a_simulator_that_hangs_while_it_answers_version_is_started_again(launch: Launch) -> None:
    control = port_pair()
    launched = launch(ENDLESS, *QUICK_TICKS, environment={"LITE_CONTROL_PORT": str(control)})
    launched.until_training()
    before = launched.read("launcher.json")
    assert tell(control, "fault hang") == "ok"
    first(launched, "finding", diagnosis="simulator_hang")
    until_driving_again(launched, restarts=1)
    after = launched.read("launcher.json")
    assert after["simulator"]["pid"] != before["simulator"]["pid"]
    assert after["agent"]["pid"] == before["agent"]["pid"]
    assert (after["simulator_restarts"], after["agent_restarts"]) == (1, 0)
    launched.stop()


def collector_of(launched: Launched) -> psutil.Process:
    """Return the agent's collector."""
    agent = psutil.Process(launched.read("launcher.json")["agent"]["pid"])
    return next(each for each in agent.children() if "carla_td3.collector" in each.cmdline())


def until_gone(launched: Launched, process: psutil.Process) -> None:
    launched.until(lambda: not process.is_running())


def suspend(collector: psutil.Process, status: Status, in_call: bool) -> None:
    """Stop a collector in a call to the simulator, or outside of one."""
    while True:
        collector.suspend()
        time.sleep(0.01)
        if status.read().in_call is in_call:
            return
        collector.resume()
        time.sleep(0.01)


def test_5_a_collector_that_hangs_alone_costs_a_collector_and_not_the_simulator(launch: Launch) -> None:
    """In a call to the simulator first, then outside of all calls."""
    launched = launch(ENDLESS, *QUICK_TICKS)
    launched.until_training()
    before, status = launched.read("launcher.json"), Status(launched.run / "exchange" / "status.bin")
    for in_call in (True, False):
        collector = collector_of(launched)
        suspend(collector, status, in_call)
        until_gone(launched, collector)
        launched.until_stepping()
    after = launched.read("launcher.json")
    assert after["simulator"]["pid"] == before["simulator"]["pid"]
    assert after["agent"]["pid"] == before["agent"]["pid"]
    assert launched.read("agent.json")["collector_restarts"] == 2
    assert launched.events("simulator_restart") == []
    hangs = [row for row in launched.events("finding") if row["diagnosis"] == "collector_hang"]
    assert {row["owner"] for row in hangs} == {"agent"}
    launched.stop()


def test_6_an_open_port_with_a_dead_rpc_is_never_healthy(launch: Launch, tmp_path: Path) -> None:
    limits = own_limits(tmp_path, {"simulator.lite_start_limit_s": 3, "simulator.restarts.budget": 1})
    launched = launch(100, *limits, environment={"LITE_FAULTS": "dead-rpc"})
    output = refused(launched, 69)
    assert "isn't ready after" in output
    assert "(simulator.lite_start_limit_s is 3 s)" in output
    assert len(launched.events("simulator_starts")) == 2
    assert "the port is open, but `version` isn't answered" in output
    assert launched.events("simulator_healthy") == []
    assert launched.events("agent_starts") == []


def test_a_simulator_that_takes_200_s_to_come_back_is_started_once_and_the_run_goes_on(
    launch: Launch, tmp_path: Path
) -> None:
    limits = own_limits(tmp_path, {"simulator.lite_start_limit_s": 290})
    launched = launch(ENDLESS, *limits, environment={"LITE_FAULTS": "slow-start:by_s=200"})
    launched.until_training()
    before, witness = launched.state, Witness(launched.run / "replay")
    assert witness.look() > 0
    psutil.Process(before["simulator"]["pid"]).kill()
    until_driving_again(launched, restarts=1)
    assert witness.problems() == []
    assert len(launched.events("simulator_starts")) == 2, "the first, and one more"
    began, healthy = (launched.events(name)[-1]["time"] for name in ("simulator_starts", "simulator_healthy"))
    assert healthy - began >= 200
    # The agent's own patience, 120 s, is over before: it saves, and the launcher starts it again beside the simulator.
    (ended,) = launched.events("agent_ended")
    assert (ended["exit_code"], ended["incident"]) == (
        Exit.NO_SIMULATOR,
        launched.events("simulator_restart")[0]["incident"],
    )
    assert launched.state["agent_failures"] == 0, "it isn't the agent that failed"
    launched.stop()
    assert witness.problems() == []


def test_7_a_simulator_that_ends_during_its_start_is_reported_as_a_crash(launch: Launch) -> None:
    launched = launch(100, environment={"LITE_FAULTS": "slow-start:by_s=2 exit:code=3"})
    output = refused(launched, 69)
    (failed,) = launched.events("simulator_failed")
    assert (failed["diagnosis"], failed["exit_code"]) == ("simulator_crash", 3)
    assert "the simulator ended by itself during its start (exit code 3)" in output
    assert "isn't ready" not in output, "its end was seen, no limit waited for"


def test_10_a_crash_loop_ends_after_exactly_its_budget(launch: Launch, tmp_path: Path) -> None:
    budget, first_s = 3, 1.0
    restarts = {"budget": budget, "stable_after_s": 600, "first_delay_s": first_s, "longest_delay_s": 60, "jitter": 0.1}
    limits = own_limits(tmp_path, {"simulator.restarts": restarts, "poll_s": 0.05})
    launched = launch(100, *limits, environment={"LITE_FAULTS": "crash"})
    output = refused(launched, 70)
    starts = [row["event"] for row in launched.events("simulator_starts", "simulator_restart")]
    assert starts == ["simulator_starts", *["simulator_restart", "simulator_starts"] * budget]
    delays_s = [row["delay_s"] for row in launched.events("simulator_restart")]
    assert delays_s == [pytest.approx(first_s * 2**count, rel=0.11) for count in range(budget)]
    state = launched.read("launcher.json")
    assert (state["state"], state["exit_code"], state["simulator_restarts"]) == ("stopped", 70, budget)
    assert len(launched.events("crash_loop")) == 1
    assert "signal 11" in state["reason"]
    assert "crash" in (launched.run / "report.html").read_text(encoding="utf-8")
    assert str(launched.run / "report.html") in output


@dataclass(frozen=True)
class Leaked:
    """A run whose simulator leaked."""

    events: list[Row]
    agent_events: list[Row]
    state: Row
    agent_pid: int
    episodes: tuple[int, int]

    def row(self, event: str, **fields: Any) -> Row:
        return next(row for row in self.events if row["event"] == event and fields.items() <= row.items())


def free_mib(folder: Path) -> float:
    (ram, *_) = MemoryReader(folder, Cards()).read().of(PoolKind.RAM)
    assert ram.free.mib is not None
    return ram.free.mib


@pytest.fixture(scope="module")
def leaked(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Leaked]:
    """Have a simulator that takes no notice of SIGTERM grow, until it is replaced before its memory ends.

    All times of the limits are shortened by ``SHORTER``; what is above the reserve lasts for ``LASTS_S``.
    """
    folder, control = tmp_path_factory.mktemp("leak"), port_pair()
    reserve_mib = free_mib(folder) - ROOM_MIB
    memory = {"slope_window_s": 300 / SHORTER, "horizon_s": 600 / SHORTER, "urgent_s": 120 / SHORTER}
    changes = {f"memory.{name}": value for name, value in memory.items()}
    changes |= {"memory.reserve_mib.ram": reserve_mib, "restore.settle_s": 1, "watch.interval_s": 0.25}
    limits = own_limits(folder, {**changes, "simulator.stop_grace_s": 1})
    launched = Launched(folder, environment={"LITE_CONTROL_PORT": str(control)})
    launched.up(*first_time(folder, ENDLESS), *limits)
    try:
        launched.until_training()
        agent_pid = launched.read("launcher.json")["agent"]["pid"]
        assert tell(control, "fault ignore-sigterm") == "ok"
        room_mib = free_mib(folder) - reserve_mib
        assert tell(control, f"fault grow:mib_per_min={60 * room_mib / LASTS_S:.0f}") == "ok"
        driven = [0]

        def found() -> bool:
            driven.append(launched.read("agent.json")["episode"])
            return any(row["diagnosis"] == "leak" for row in launched.events("finding"))

        launched.until(found)
        launched.until(lambda: bool(launched.events("draining")))
        episodes = driven[-2], launched.read("agent.json")["episode"]
        until_driving_again(launched, restarts=1)
        launched.stop()
        lines = (launched.run / "agent-events.jsonl").read_text(encoding="utf-8").splitlines()
        reported = [json.loads(line) for line in lines]
        yield Leaked(launched.events(), reported, launched.read("launcher.json"), agent_pid, episodes)
    finally:
        launched.end()


def test_17_a_leaking_simulator_is_replaced_well_before_its_memory_ends(leaked: Leaked) -> None:
    found = leaked.row("finding", diagnosis="leak")
    assert (found["owner"], found["pool"]) == ("simulator", "ram")
    found_so_far = leaked.events[: leaked.events.index(leaked.row("simulator_stopped"))]
    assert "pressure" not in [row.get("diagnosis") for row in found_so_far], "the reserve was never touched"
    assert leaked.episodes[1] > leaked.episodes[0]  # one has ended since the leak was found
    answers = [(row["kind"], row["ok"]) for row in leaked.events if row["event"] == "request_answered"]
    # A heartbeat from before the resume may have it asked for once more, which changes nothing.
    assert list(dict.fromkeys(answers)) == [("drain", True), ("resume", True)]
    assert [row["event"] for row in leaked.agent_events if "drain" in row["event"]] == ["drained", "drain_ended"]
    assert {row["pid"] for row in leaked.events if row["event"] == "agent_started"} == {leaked.agent_pid}
    assert (leaked.state["simulator_restarts"], leaked.state["agent_restarts"], leaked.state["taken"]) == (1, 0, [])


def test_9_a_planned_stop_that_takes_a_sigkill_counts_as_no_failure(leaked: Leaked) -> None:
    assert leaked.row("simulator_killed")["cause"] == "its grace period is over"
    assert leaked.row("simulator_stopped")["exit_code"] == 137
    assert leaked.state["simulator_failures"] == 0
    assert not [row for row in leaked.events if str(row.get("diagnosis", "")).startswith("simulator_")]


def test_19_a_simulator_that_renders_on_the_cpu_is_a_misconfiguration(launch: Launch) -> None:
    launched = launch(100, environment={"LITE_FAULTS": "log:lines=lavapipe"})
    output = refused(launched, 65)
    assert "lavapipe" in output
    assert first(launched, "finding", diagnosis="misconfiguration")["owner"] == "simulator"
    assert launched.events("rung_taken") == launched.events("agent_starts") == []
    assert launched.read("launcher.json")["simulator_restarts"] == 0
