"""The runtime of local processes, with short programs in the places of carla-lite and the agent."""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from carla_launcher import config, simulators
from carla_launcher.act.leftovers import await_leftovers
from carla_launcher.act.local.runtime import LocalRuntime
from carla_launcher.act.runtime import Child, Role, Start, StartError
from carla_launcher.observe.observation import Ended
from carla_launcher.observe.pools import Cards
from carla_launcher.options import RunOptions, SimulatorKind
from carla_launcher.places import SHIPPED
from carla_launcher.resolve.machine import spec_of
from carla_run.locks import Lock
from carla_run.memory.processes import tree
from carla_run.paths import RunPaths
from tests.conftest import REPOSITORY
from tests.control_group import Group
from tests.crowd import PATIENCE_S, until
from tests.unit.launcher.test_processes import FAMILY, family

LIMITS = config.load()
SIMULATOR, AGENT = Start(Role.SIMULATOR), Start(Role.AGENT)
# Takes memory until the kernel ends it; touched, for untouched pages count nowhere.
GREEDY = "held = []\nwhile True: held.append(bytearray(b'x' * 2**23))"
# A launcher in small: it starts an agent, here the program that it is given.
LAUNCHER = """
import os, pathlib, sys, time
from carla_launcher import config, simulators
from carla_run.locks import Lock
from carla_run.paths import RunPaths
from carla_launcher.act.local.runtime import LocalRuntime
from carla_launcher.act.runtime import Role, Start
from carla_launcher.act.run_spec import RunSpec
from carla_launcher.simulators import CarlaLite
simulators.INTERPRETER = (sys.executable, sys.argv[2])
def started(**fields):
    spec = RunSpec(run, CarlaLite(), 2000, config=pathlib.Path("a.yaml"), **fields)
    return LocalRuntime(spec, config.load()).start(Start(Role.AGENT))
run = RunPaths(pathlib.Path(sys.argv[1]))
"""
IN_A_GROUP = f"""{LAUNCHER}
pathlib.Path(sys.argv[3], "cgroup.procs").write_text(str(os.getpid()))
agent = started()
while (ended := agent.poll()) is None: time.sleep(0.05)
print(ended)
"""
LOCKED = f"""{LAUNCHER}
agent = started(inherited=(Lock(run.launcher_lock).descriptor,))
time.sleep(600)
"""

Make = Callable[..., LocalRuntime]


@pytest.fixture
def run(tmp_path: Path) -> RunPaths:
    run = RunPaths(tmp_path / "run")
    run.logs.mkdir(parents=True)
    return run


@pytest.fixture
def make(run: RunPaths, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Make]:
    """Return a runtime whose simulator and agent are the given program."""
    made: list[LocalRuntime] = []

    def runtime(program: str, limits: config.LauncherConfig = LIMITS, **fields: object) -> LocalRuntime:
        script = written(tmp_path, program)
        asked = {name: value for name, value in fields.items() if name in RunOptions.model_fields}
        others = {name: value for name, value in fields.items() if name not in asked}
        options = RunOptions(**{"config": tmp_path / "a.yaml", "simulator": "carla-lite", **asked})
        spec = replace(spec_of(run, options, 21_000), **others)  # type: ignore[arg-type]
        monkeypatch.setattr(simulators, "INTERPRETER", (sys.executable, str(script)))
        made.append(LocalRuntime(spec, limits))
        return made[-1]

    yield runtime
    for each in made:
        each.close()


def written(folder: Path, program: str) -> Path:
    script = folder / "program.py"
    script.write_text(program, encoding="utf-8")
    return script


def end_of(child: Child) -> Ended:
    until(lambda: child.poll() is not None)
    ended = child.poll()
    assert ended is not None
    return ended


TELL = "import os, sys; print(*sys.argv[1:], os.environ.get('CARLA_HOST'), os.environ.get('CARLA_PORT'))"


def test_the_agent_is_told_its_run_and_where_the_simulator_is(make: Make, run: RunPaths, tmp_path: Path) -> None:
    runtime = make(TELL, map="Lite02", seed=7, max_timesteps=5, agent_args=("--set", "a=1"), host="127.0.0.2")
    agent = runtime.start(Start(Role.AGENT, resume=True))
    assert end_of(agent) == Ended(0)
    assert agent.log.read_text().split() == [
        *("-m", "carla_td3", "train", "--config", str(tmp_path / "a.yaml"), "--run-dir", str(run.path), "--resume"),
        *("--map", "Lite02", "--seed", "7", "--max-timesteps", "5", "--set", "a=1", "127.0.0.2", "21000"),
    ]


@pytest.mark.parametrize(
    ("fields", "seen"), [({"gpu_uuids": ("GPU-ca7", "GPU-5ee1")}, "GPU-5ee1"), ({}, "whatever the shell has")]
)
def test_agent_gets_its_card_by_uuid(
    make: Make, monkeypatch: pytest.MonkeyPatch, fields: dict[str, Any], seen: str
) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "whatever the shell has")
    agent = make("import os; print(os.environ['CUDA_VISIBLE_DEVICES'])", **fields).start(AGENT)
    assert end_of(agent) == Ended(0)
    assert agent.log.read_text().strip() == seen


@pytest.mark.parametrize(
    ("fields", "map_and_seed"),
    [({}, ("Lite01", "0")), ({"map": "a b.xodr", "seed": 3}, (str(Path("a b.xodr").absolute()), "3"))],
)
def test_carla_lite_is_told_where_to_listen_and_what_to_load(make: Make, fields, map_and_seed) -> None:
    simulator = make("import sys; print(*sys.argv[1:], sep='|')", simulator_args=("--hang", "9"), **fields).start(
        SIMULATOR
    )
    assert end_of(simulator) == Ended(0)
    map_name, seed = map_and_seed
    reported = [
        "-m",
        "carla_lite",
        "--host",
        "127.0.0.1",
        "--port",
        "21000",
        "--map",
        map_name,
        "--seed",
        seed,
        "--hang",
        "9",
    ]
    assert simulator.log.read_text().strip().split("|") == reported


def test_carla_lite_is_told_of_the_folder_of_maps(make: Make, tmp_path: Path) -> None:
    limits = LIMITS.model_copy(update={"simulator": LIMITS.simulator.model_copy(update={"map_dir": tmp_path})})
    simulator = make("import sys; print(*sys.argv[1:], sep='|')", limits, map="Town02").start(SIMULATOR)
    assert end_of(simulator) == Ended(0)
    assert f"|--map|Town02|--map-dir|{tmp_path}|" in simulator.log.read_text()


@pytest.mark.parametrize(("start", "quality"), [(SIMULATOR, "Low"), (Start(Role.SIMULATOR, "Epic"), "Epic")])
def test_installed_carla_is_started_as_configured(make: Make, start: Start, quality: str) -> None:
    command = "echo '-quality-level={quality}' -carla-rpc-port={port} -graphicsadapter={gpu} 'two words'"
    installed = LIMITS.simulator.model_copy(update={"command": command})
    limits = LIMITS.model_copy(update={"simulator": installed})
    simulator = make("", limits, gpu=Cards(1, 0), simulator=SimulatorKind.CARLA).start(start)
    assert end_of(simulator) == Ended(0)
    reported = f"-quality-level={quality} -carla-rpc-port=21000 -graphicsadapter=1 two words\n"
    assert simulator.log.read_text() == reported


def test_chosen_carla_lite_wins_over_installed_carla(make: Make) -> None:
    installed = LIMITS.simulator.model_copy(update={"command": "echo CARLA"})
    limits = LIMITS.model_copy(update={"simulator": installed})
    runtime = make("import sys; print(*sys.argv[1:3])", limits, simulator=SimulatorKind.LITE)
    simulator = runtime.start(SIMULATOR)
    assert end_of(simulator) == Ended(0)
    assert simulator.log.read_text() == "-m carla_lite\n"


def test_an_empty_command_is_none(tmp_path: Path) -> None:
    own = tmp_path / "own.yaml"
    own.write_text(SHIPPED.read_text().replace("command: null", "command: ' '"))
    assert config.load(own).simulator.command is None


@pytest.mark.parametrize("command", ["carla --card {card}", "carla {}", "carla 'unclosed", "carla {port"])
def test_unfillable_command_is_refused(command: str, tmp_path: Path) -> None:
    own = tmp_path / "own.yaml"
    own.write_text(SHIPPED.read_text().replace("command: null", f"command: {json.dumps(command)}"))
    with pytest.raises(
        config.LauncherConfigError, match=re.escape(f"simulator.command is `{command}`, expected a command line")
    ):
        config.load(own)


def test_link_in_a_logs_place_is_refused(make: Make, run: RunPaths) -> None:
    precious = run.path / "precious"
    precious.write_text("keep me")
    (run.logs / "agent.log").symlink_to(precious)
    os.mkfifo(run.logs / "simulator.log")
    runtime = make("print('started')")
    with pytest.raises(
        StartError, match=r"can't be started \(it is a link, expected a file\); its log is .*agent\.log"
    ):
        runtime.start(AGENT)
    with pytest.raises(StartError, match=r"its log is .*simulator\.log"):
        runtime.start(SIMULATOR)
    assert precious.read_text() == "keep me"


@pytest.mark.parametrize(
    ("program", "ended"),
    [("raise SystemExit(65)", Ended(65)), ("import os; os.kill(os.getpid(), 11)", Ended(139))],
)
def test_how_a_program_ended_comes_back(make: Make, program: str, ended: Ended) -> None:
    assert end_of(make(program).start(AGENT)) == ended


def test_all_processes_are_named_while_it_runs_and_none_after(make: Make, tmp_path: Path) -> None:
    agent = make(f"import sys; sys.argv[1:] = [{str(tmp_path)!r}, '0']\n{FAMILY}").start(AGENT)
    own = family(tmp_path)
    assert own[0] == agent.pid
    assert agent.pids() >= set(own)
    assert os.getpid() not in agent.pids()
    agent.terminate()
    assert end_of(agent) == Ended(75)
    assert agent.pids() == frozenset()
    agent.terminate()
    agent.kill()


def test_a_child_that_another_thread_started_is_in_the_tree() -> None:
    program = """
import subprocess, sys, threading, time
def start():
    print(subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"]).pid, flush=True)
    time.sleep(60)
threading.Thread(target=start).start()
"""
    parent = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True)
    assert parent.stdout is not None
    child = int(parent.stdout.readline())
    try:
        assert tree(parent.pid) == {parent.pid, child}
    finally:
        parent.kill()
        os.kill(child, signal.SIGKILL)
        parent.communicate()
    assert tree(parent.pid) == frozenset()


def test_a_kill_of_ours_or_of_a_persons_is_no_oom(make: Make) -> None:
    runtime = make("import time; time.sleep(600)")
    ours, a_persons = runtime.start(AGENT), runtime.start(SIMULATOR)
    ours.kill()
    os.kill(a_persons.pid, signal.SIGKILL)
    assert [end_of(each) for each in (ours, a_persons)] == [Ended(137), Ended(137)]
    assert runtime.left(Role.AGENT) is None


@pytest.fixture
def small_group() -> Iterator[Path]:
    """Make a control group of 192 MiB: room for a launcher and no more."""
    with contextlib.closing(Group.or_skip(limit_mib=192)) as group:
        yield group.folder
        until(lambda: not group.left())


def test_a_program_that_the_kernel_kills_for_memory_is_said_so(
    small_group: Path, run: RunPaths, tmp_path: Path
) -> None:
    command = [sys.executable, "-c", IN_A_GROUP, str(run.path), str(written(tmp_path, GREEDY)), str(small_group)]
    reported = subprocess.run(command, capture_output=True, text=True, cwd=REPOSITORY, timeout=PATIENCE_S, check=False)
    assert reported.stdout.strip() == str(Ended(137, oom_killed=True)), reported.stderr


SLOW_TO_STOP = """
import pathlib, signal, sys, time
def stop(*_):
    while not (here / "may-end").exists(): time.sleep(0.02)
    (here / "saved").touch(); sys.exit(75)
here = pathlib.Path(sys.argv[0]).parent
signal.signal(signal.SIGTERM, stop)
(here / "ready").touch()
time.sleep(600)
"""


def test_a_new_launcher_waits_for_what_a_killed_one_left(run: RunPaths, tmp_path: Path) -> None:
    script = written(tmp_path, SLOW_TO_STOP)
    launcher = subprocess.Popen([sys.executable, "-c", LOCKED, str(run.path), str(script)], cwd=REPOSITORY)
    until((tmp_path / "ready").exists)
    assert not await_leftovers(run, 3600.0), "a launcher that lives isn't waited for"
    launcher.kill()
    launcher.wait()
    threading.Timer(0.2, (tmp_path / "may-end").touch).start()
    assert await_leftovers(run, PATIENCE_S)
    assert (tmp_path / "saved").exists()
    Lock(run.launcher_lock).release()


def test_leftovers_are_not_waited_for_without_end(run: RunPaths, tmp_path: Path) -> None:
    script = written(tmp_path, SLOW_TO_STOP)
    launcher = subprocess.Popen([sys.executable, "-c", LOCKED, str(run.path), str(script)], cwd=REPOSITORY)
    until((tmp_path / "ready").exists)
    launcher.kill()
    launcher.wait()
    assert not await_leftovers(run, 0.3)
    (tmp_path / "may-end").touch()
    assert await_leftovers(run, PATIENCE_S)


def test_a_run_that_nobody_holds_is_free(run: RunPaths) -> None:
    assert await_leftovers(run, 0.0)
    Lock(run.launcher_lock).release()
    assert await_leftovers(run, 0.0)


def test_a_command_finds_the_copy_of_its_yaml_from_its_own_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "project").mkdir()
    (tmp_path / "project" / "conf.yaml").write_text("batch: 64\n")
    (tmp_path / "train.yaml").write_text("settings: {batch: {yaml: conf.yaml}}\n")
    run = RunPaths(Path("runs/night"))  # as by default: under the folder in which the launcher was started
    run.logs.mkdir(parents=True)
    run.overrides.write_text("batch: 32\n")
    asked = RunOptions(
        command=(sys.executable, "-c", "import sys; print(open(sys.argv[1]).read())", "conf.yaml"),
        program=tmp_path / "train.yaml",
        cwd=tmp_path / "project",
        simulator=SimulatorKind.NONE,
    )
    with contextlib.closing(LocalRuntime(spec_of(run, asked), LIMITS, show=False)) as runtime:
        child = runtime.start(AGENT)
        assert end_of(child) == Ended(0)
    assert child.log.read_text().strip() == "batch: 32"
