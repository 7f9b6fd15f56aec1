"""How containers end under the Compose runtime, starts that fail, and that a run belongs to one launcher."""

from __future__ import annotations

import contextlib
import json
import os
import socket
import subprocess
from pathlib import Path

import pytest

from carla_launcher.act.compose.container import LOST
from carla_launcher.act.compose.runtime import ComposeRuntime
from carla_launcher.act.runtime import Role, StartError
from carla_launcher.observe.observation import Ended
from carla_launcher.options import RunOptions
from carla_launcher.resolve.machine import spec_of
from carla_run.paths import RunPaths
from tests.conftest import REPOSITORY
from tests.crowd import PATIENCE_S, until
from tests.stack.compose_run import AGENT, LIMITS, SIMULATOR, end_of, running
from tests.stack.conftest import Launch
from tests.stack.stack import LITE

pytestmark = [pytest.mark.stack, pytest.mark.timeout(1500)]

SLEEP = "import time; time.sleep(600)"
# Its child takes memory until the kernel ends it; it goes on, and ends well.
CARELESS = """
import subprocess, sys
greedy = "held = []\\nwhile True: held.append(bytearray(b'x' * 2**23))"
print("child:", subprocess.run([sys.executable, "-c", greedy]).returncode, flush=True)
"""


def test_a_child_killed_for_memory_is_seen_though_its_container_exits_0(launch: Launch) -> None:
    launched = launch(agent=CARELESS)
    launched.runtime = launched.another(AGENT_MEMORY="64m")
    agent = launched.runtime.start(AGENT)
    assert end_of(agent) == Ended(0, oom_killed=True)
    assert launched.log(Role.AGENT) == ["child: -9"]


@pytest.mark.long
def test_a_planned_kill_is_no_oom_and_ends_all_processes(launch: Launch) -> None:
    launched = launch(agent=f"import subprocess, sys; subprocess.Popen([sys.executable, '-c', {SLEEP!r}]); {SLEEP}")
    agent = running(launched.runtime.start(AGENT))
    until(lambda: len(agent.pids()) == 3)  # init, the program and its child
    seen = agent.pids()
    assert agent.pid in seen
    assert launched.runtime.container_name(launched.container("agent")) == f"{launched.runtime.project}-agent-1"
    assert launched.runtime.container_name("0" * 64) is None
    agent.kill()
    assert agent.poll() == Ended(137, oom_killed=False)
    assert agent.pids() == frozenset()
    assert not [pid for pid in seen if Path(f"/proc/{pid}").exists()]
    agent.terminate()
    agent.kill()


@pytest.mark.long
def test_a_simulator_that_ends_in_its_start_is_seen_while_compose_still_waits_for_it(launch: Launch) -> None:
    launched = launch(carla="import sys; print('no town', flush=True); sys.exit(3)")
    simulator = launched.runtime.start(SIMULATOR)
    assert end_of(simulator) == Ended(3)
    assert launched.log(Role.SIMULATOR) == ["no town"]


def test_what_compose_can_not_do_is_a_failure_with_its_reason_in_the_log(launch: Launch) -> None:
    launched = launch(carla=SLEEP)
    with socket.create_server(("127.0.0.1", launched.port)):
        ended = end_of(launched.runtime.start(SIMULATOR))
    assert ended.code not in (0, LOST)
    assert "address already in use" in launched.log(Role.SIMULATOR)[-1]


def test_an_image_that_is_not_built_is_named_with_the_command_that_builds_it(launch: Launch) -> None:
    launched = launch(name="unbuilt")
    launched.over.write_text("services: {agent: {image: 'no-such-image:1'}}")
    with pytest.raises(
        StartError, match=r"Not built here yet: no-such-image:1; build with `docker compose -f .* build agent`"
    ):
        launched.runtime.start(AGENT)
    assert launched.containers("--all") == []


def test_every_variable_arrives_as_it_was_given(compose_plugin: None, tmp_path: Path) -> None:
    folder = tmp_path / 'a b$HOME\'s "runs"'
    run = RunPaths(folder / "run")
    run.path.mkdir(parents=True)
    (folder / "own.yaml").touch()
    words = ("--set", "x='$HOME'", "two words", 'a "b" \\ c')
    options = RunOptions(
        config=folder / "own.yaml",
        simulator="carla-lite",
        runtime="compose",
        seed=7,
        agent_args=words,
        simulator_args=("--flag", "$a b"),
    )
    runtime = ComposeRuntime(spec_of(run, options, 21_000), LIMITS, variables={"AGENT_MEMORY": "1g"})
    with contextlib.suppress(StartError):  # no engine, no image: the file is written before that matters
        runtime.check()
    command = ["docker", "compose", "--env-file", str(run.path / "launcher.env")]
    shown = subprocess.run(
        [*command, "-f", LITE[0], "-f", LITE[1], "config", "--format", "json"],
        capture_output=True,
        text=True,
        check=True,
        cwd=REPOSITORY,
    )
    services = json.loads(shown.stdout.replace("$$", "$"))["services"]
    assert services["agent"]["command"][:3] == ["python", "scripts/train_td3.py", "--resume"]
    assert services["agent"]["command"][3:] == ["--seed", "7", *words]
    assert services["agent"]["volumes"][0]["source"] == str(folder)
    assert services["agent"]["environment"]["AGENT_CONFIG"] == "runs/own.yaml"
    assert services["agent"]["mem_limit"] == str(2**30)
    assert services["agent"]["restart"] == "no"
    assert services["carla"]["command"][-2:] == ["--flag", "$a b"]
    assert services["carla"]["ports"][-1]["published"] == "21002"


@pytest.mark.long
def test_the_agents_program_runs_in_a_container_for_a_moment(launch: Launch) -> None:
    launched = launch()
    command = (*launched.runtime.agent_command(), "footprint", "--config", launched.runtime.config_inside(), "--json")
    environment = {**os.environ, **launched.runtime.environment}
    reported = subprocess.run(command, capture_output=True, text=True, check=True, timeout=PATIENCE_S, env=environment)
    assert json.loads(reported.stdout)
    assert launched.runtime.left(Role.AGENT) is None
    assert launched.containers("--all") == []
