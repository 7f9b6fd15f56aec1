"""The launcher with several simulators and a collector in each: a dying simulator affects only its collector."""

from __future__ import annotations

import psutil
import pytest

from tests.wire.launched import ENDLESS, Launch, Launched, gone

TWO = ("--", "--set", "training.collectors=2", "--set", "simulator.timeout_s=5")


def simulators(launched: Launched) -> dict[int, psutil.Process]:
    """Return the processes of carla-lite by their ports."""
    found = {}
    for process in launched.programs:
        words = process.cmdline()
        if "carla_lite" in words and "--grace-s" not in " ".join(words):
            found[int(words[words.index("--port") + 1])] = process
    return found


def test_a_run_with_two_simulators_goes_on_while_one_is_started_again(launch: Launch) -> None:
    launched = launch(ENDLESS, *TWO)
    launched.until(lambda: [each["steps"] > 20 for each in launched.beat.get("collectors", ())] == [True, True])
    first, second = launched.state["port"], launched.state["port"] + 3
    assert simulators(launched).keys() == {first, second}
    (healthy,) = launched.events("further_simulator_healthy")
    assert healthy["simulator"] == 1
    before = launched.beat["collectors"]
    simulators(launched)[second].kill()
    launched.until(lambda: len(launched.events("further_simulator_healthy")) == 2)
    (found,) = launched.events("finding", owner="simulator 1")
    assert (found["diagnosis"], found["exit_code"]) == ("simulator_crash", 137)
    assert launched.events("further_simulator_restart", incident=found["incident"])
    launched.until(lambda: launched.events("finding_over", incident=found["incident"]))
    launched.until(lambda: launched.beat["collectors"][1]["steps"] > before[1]["steps"] + 20)
    assert launched.beat["collectors"][0]["pid"] == before[0]["pid"], "the first one drove on"
    assert launched.state["simulator_restarts"] == 0
    (pool,) = [pool for pool in launched.timeline()[-1]["pools"].values() if "simulator" in pool["owners"]][:1]
    one = psutil.Process(simulators(launched)[first].pid).memory_info().rss / 2**20
    assert pool["owners"]["simulator"] > 1.3 * one - 100, "the memory of both"
    processes = launched.programs
    launched.stop()
    gone(processes)
    assert "simulator 1 restarted, the others continued" in (launched.run / "report.md").read_text(encoding="utf-8")


@pytest.mark.long
def test_a_killed_launcher_leaves_no_simulator(launch: Launch) -> None:
    launched = launch(ENDLESS, *TWO)
    launched.until(lambda: [each["steps"] > 5 for each in launched.beat.get("collectors", ())] == [True, True])
    processes = launched.programs
    launched.process.kill()
    gone(processes)
