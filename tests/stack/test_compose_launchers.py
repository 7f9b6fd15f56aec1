"""Launchers, engines and simulators that come and go under the Compose runtime: nothing is lost or there twice."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from carla_launcher.act.compose.container import LOST
from carla_launcher.act.leftovers import await_leftovers
from carla_launcher.act.runtime import Role, Start, StartError
from carla_launcher.observe.observation import Ended
from carla_run.exits import Exit
from tests.crowd import until
from tests.stack.compose_run import AGENT, SIMULATOR, end_of, running
from tests.stack.conftest import Launch
from tests.stack.relay import Relay
from tests.stack.stack import docker
from tests.stack.test_lite_stack import LONG

pytestmark = [pytest.mark.stack, pytest.mark.timeout(1500)]

SLEEP = "import time; time.sleep(600)"
COUNT = """
import itertools, os, signal, time
def stop(*_): os.write(1, b"last words\\n"); os._exit(75)
signal.signal(signal.SIGTERM, stop)
for number in itertools.count():
    os.write(1 + number % 2, b"%d\\n" % number)
    time.sleep(0.01)
"""


@pytest.mark.long
def test_the_simulator_alone_is_made_anew_and_another_launcher_goes_on_with_both(launch: Launch) -> None:
    launched = launch(settings={**LONG, "simulator": {"timeout_s": 3.0}})
    runtime = launched.runtime
    first, agent = running(runtime.start(SIMULATOR)), running(runtime.start(AGENT))
    until(lambda: launched.beat.get("updates", 0) > 20)
    agent_id, learner = launched.container("agent"), launched.beat["pid"]
    running(runtime.start(Start(Role.SIMULATOR, "Epic")))
    assert end_of(first) == Ended(LOST), "its container was removed"
    reached = launched.beat["step"]
    until(lambda: launched.beat["step"] > reached + 100)
    assert (launched.container("agent"), launched.beat["pid"]) == (agent_id, learner)
    reported = docker("inspect", "--format", "{{.Config.Env}}", launched.container("carla")).stdout
    assert "CARLA_QUALITY=Epic" in reported
    runtime.close()

    launched.runtime = launched.another()
    assert launched.runtime.project == runtime.project
    left = launched.runtime.left(Role.AGENT)
    assert left is not None
    assert (left.pid, left.pids()) == (agent.pid, agent.pids())
    left.terminate()
    assert end_of(left) == Ended(Exit.STOPPED)
    assert launched.runtime.left(Role.AGENT) is None
    assert launched.beat["phase"] == "stopped"
    for _ in range(2):
        launched.runtime.clear()
        assert launched.containers("--all") == []


def test_two_runs_of_one_name_do_not_touch_each_other(launch: Launch, tmp_path: Path) -> None:
    one, two = (launch(f"{folder}/run", agent=SLEEP) for folder in ("one", "two"))
    first, second = (running(launched.runtime.start(AGENT)) for launched in (one, two))
    assert one.runtime.project != two.runtime.project
    one.runtime.clear()
    assert end_of(first).code != 0
    assert one.containers("--all") == []
    assert second.poll() is None
    assert second.pids()


def numbers(lines: list[str]) -> list[int]:
    """Return the numbers in a log; standard output and errors come in by two ways, so neighbours may change places."""
    return sorted(int(line) for line in lines if line.isdigit())


@pytest.mark.long
def test_every_line_is_kept_once_though_launchers_and_the_engines_answers_come_and_go(
    launch: Launch, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    launched = launch(carla=COUNT)
    for _ in range(3):
        begun = launched.run.logs / "simulator.log"
        lines = len(begun.read_text().splitlines()) if begun.exists() else 0
        launcher = launched.launcher()
        until(lambda: begun.exists() and len(launched.log(Role.SIMULATOR)) > lines + 50)  # noqa: B023
        launcher.kill()
        launcher.communicate()
        assert await_leftovers(launched.run, 10.0)

    relay = Relay(tmp_path / "docker.sock")
    relay.open()
    monkeypatch.setenv("DOCKER_HOST", f"unix://{relay.path}")
    launched.runtime = launched.another()
    simulator = launched.runtime.left(Role.SIMULATOR)
    assert simulator is not None
    until(lambda: len(launched.log(Role.SIMULATOR)) > lines + 100)
    relay.shut()
    simulator.look()
    assert simulator.poll() is None
    with pytest.raises(StartError, match="can't be asked"):
        launched.runtime.clear()
    time.sleep(0.5)
    relay.open()
    monkeypatch.delenv("DOCKER_HOST")
    lines = len(launched.log(Role.SIMULATOR))
    until(lambda: len(launched.log(Role.SIMULATOR)) > lines + 50)

    simulator.terminate()
    assert end_of(simulator) == Ended(75)
    reported = launched.log(Role.SIMULATOR)
    assert reported[-1] == "last words"
    assert numbers(reported) == list(range(len(reported) - 1))


@pytest.mark.parametrize(
    ("runs_already", "after_s"), [(False, 0.1), (False, 0.4), (True, 0.25), (True, 0.5), (True, 0.8)]
)
@pytest.mark.long
def test_a_launcher_killed_while_it_starts_the_simulator_leaves_one_at_most(
    launch: Launch, runs_already: bool, after_s: float
) -> None:
    launched = launch(carla=SLEEP)
    if runs_already:
        running(launched.runtime.start(SIMULATOR))
        launched.runtime.close()
        launched.runtime = launched.another()
    launcher = launched.launcher("anew")
    time.sleep(after_s)
    launcher.kill()
    launcher.communicate()
    assert await_leftovers(launched.run, 10.0)
    assert len(launched.containers()) <= 1
    running(launched.runtime.start(SIMULATOR))
    assert len(launched.containers("--all")) == 1
