"""The choice for a machine, where flags win; a machine that fails is refused, by `plan` and `up` alike."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from carla_launcher import config
from carla_launcher.act.compose import engine
from carla_launcher.act.runtime import StartError
from carla_launcher.observe.pools import Gpu, Reading
from carla_launcher.options import RefusedError, RunOptions, RuntimeKind, SimulatorKind
from carla_launcher.resolve import choosing, machine
from carla_launcher.resolve.choosing import Docker, choose, docker_here
from carla_run.paths import RunPaths
from tests.conftest import REPOSITORY
from tests.crowd import PATIENCE_S
from tests.gpu_stub.stub import Figures, build

MISMATCH = 18
QUICK = "quick"
PROBLEM = "GPU 0 can't be read (NVML: Driver/library version mismatch); the driver was upgraded: restart the machine."


def chosen(gpu: Gpu, docker: Docker, installed: bool, **asked: Any) -> tuple[str, str]:
    reading = Reading((), gpu, PROBLEM if gpu is Gpu.UNREADABLE else "")
    found, _ = choose(RunOptions(**asked), reading, installed, lambda: docker)
    return found.runtime.value, found.simulator.value


@pytest.mark.parametrize(
    ("asked", "gpu", "docker", "installed", "expected"),
    [
        ({}, Gpu.NONE, Docker.ANSWERS, False, ("process", "carla-lite")),
        ({}, Gpu.NONE, Docker.SILENT, False, ("process", "carla-lite")),
        ({}, Gpu.OK, Docker.ANSWERS, False, ("compose", "carla")),
        ({}, Gpu.OK, Docker.ABSENT, False, ("process", "carla-lite")),
        ({}, Gpu.OK, Docker.ANSWERS, True, ("process", "carla")),
        ({}, Gpu.OK, Docker.SILENT, True, ("process", "carla")),
        ({"runtime": RuntimeKind.COMPOSE}, Gpu.NONE, Docker.ANSWERS, False, ("compose", "carla-lite")),
        ({"runtime": RuntimeKind.COMPOSE}, Gpu.OK, Docker.ANSWERS, True, ("compose", "carla")),
        ({"runtime": RuntimeKind.PROCESS}, Gpu.OK, Docker.SILENT, False, ("process", "carla-lite")),
        ({"simulator": SimulatorKind.LITE}, Gpu.OK, Docker.SILENT, False, ("process", "carla-lite")),
        ({"simulator": SimulatorKind.LITE}, Gpu.UNREADABLE, Docker.SILENT, False, ("process", "carla-lite")),
        ({"simulator": SimulatorKind.CARLA}, Gpu.OK, Docker.ANSWERS, False, ("compose", "carla")),
        ({"simulator": SimulatorKind.CARLA}, Gpu.NONE, Docker.ANSWERS, False, ("compose", "carla")),
        ({"simulator_host": "gpu-box"}, Gpu.OK, Docker.SILENT, False, ("process", "elsewhere")),
        ({"simulator_host": "box", "device": "cpu"}, Gpu.UNREADABLE, Docker.SILENT, False, ("process", "elsewhere")),
    ],
)
def test_what_runs_follows_from_the_machine_and_flags_win(
    asked: dict[str, Any], gpu: Gpu, docker: Docker, installed: bool, expected: tuple[str, str]
) -> None:
    assert chosen(gpu, docker, installed, **asked) == expected


@pytest.mark.parametrize(
    ("asked", "gpu", "docker", "said"),
    [
        ({}, Gpu.UNREADABLE, Docker.ANSWERS, "version mismatch.*restart the machine; or .*--simulator carla-lite"),
        ({"simulator": SimulatorKind.CARLA}, Gpu.UNREADABLE, Docker.ANSWERS, "version mismatch"),
        ({"simulator_host": "gpu-box"}, Gpu.UNREADABLE, Docker.ANSWERS, r"version mismatch.*\(agent: --device cpu\)"),
        ({"device": "cpu"}, Gpu.UNREADABLE, Docker.ANSWERS, "version mismatch.*--simulator carla-lite"),
        ({}, Gpu.OK, Docker.SILENT, "engine doesn't answer.*systemctl start docker.*--simulator carla-lite"),
        ({"simulator": SimulatorKind.CARLA}, Gpu.OK, Docker.SILENT, "engine doesn't answer"),
        ({"simulator": SimulatorKind.CARLA}, Gpu.OK, Docker.ABSENT, "CARLA can't be started here.*simulator.command"),
        (
            {"simulator": SimulatorKind.CARLA, "runtime": RuntimeKind.PROCESS},
            Gpu.OK,
            Docker.ANSWERS,
            "CARLA can't be started here.*--runtime process",
        ),
    ],
)
def test_a_failing_machine_is_refused_with_the_way_on(
    asked: dict[str, Any], gpu: Gpu, docker: Docker, said: str
) -> None:
    with pytest.raises(RefusedError, match=said) as refused:
        chosen(gpu, docker, False, **asked)
    assert refused.value.code == 65


@pytest.fixture
def put_docker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """Put a ``docker`` of these words on the path."""

    def put(program: str) -> None:
        command = tmp_path / "bin" / "docker"
        command.parent.mkdir(exist_ok=True)
        command.write_text(f"#!/bin/sh\n{program}\n")
        command.chmod(0o755)
        monkeypatch.setenv("PATH", f"{command.parent}:{os.environ['PATH']}")

    return put


@pytest.mark.parametrize(
    ("program", "expected"),
    [("exit 0", Docker.ANSWERS), ("exit 1", Docker.SILENT), ("exec sleep 60", Docker.SILENT)],
)
def test_an_engine_that_is_slower_than_the_limit_does_not_answer(
    put_docker: Callable[[str], None], monkeypatch: pytest.MonkeyPatch, program: str, expected: Docker
) -> None:
    monkeypatch.setattr(choosing, "DOCKER_LIMIT_S", 0.5)
    put_docker(program)
    if program == "exit 0":
        monkeypatch.setattr(choosing, "DOCKER_LIMIT_S", 60.0)
    assert docker_here() is expected


def test_without_a_docker_command_there_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    assert docker_here() is Docker.ABSENT


@pytest.fixture
def figures(tmp_path: Path) -> Figures:
    return Figures(tmp_path / "figures", build(tmp_path))


def launch(
    figures: Figures, command: str, *options: str, environment: Mapping[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    """Run ``plan`` or ``up`` on a machine with the stub's GPU."""
    runs = ("--runs-dir", str(figures.path.parent / "runs"), "--config", QUICK)
    return subprocess.run(
        [sys.executable, "-m", "carla_launcher", command, *runs, *options],
        check=False,
        capture_output=True,
        text=True,
        cwd=REPOSITORY,
        env=environment or figures.environment,
        timeout=PATIENCE_S,
    )


@pytest.mark.parametrize(("command", "broken"), [("plan", "driver"), ("up", "driver"), ("up", "engine")])
def test_a_failing_driver_or_engine_ends_the_command(
    figures: Figures, put_docker: Callable[[str], None], command: str, broken: str
) -> None:
    put_docker("exit 1" if broken == "engine" else "exit 0")
    figures.fails_to_begin = MISMATCH if broken == "driver" else 0
    figures.write()
    ended = launch(figures, command)
    assert ended.returncode == 65, ended.stdout + ended.stderr
    assert ("restart the machine" if broken == "driver" else "engine doesn't answer") in ended.stderr
    assert "--simulator carla-lite" in ended.stderr
    assert len(ended.stderr.splitlines()) == 1
    if command == "plan":
        onward = launch(figures, "plan", "--simulator", "carla-lite", "--device", "cpu")
        assert onward.returncode == 0, onward.stderr


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ((), "Docker's engine doesn't answer, but `up` needs it"),
        (("--runtime", "compose"), "Docker's engine doesn't answer, but `up` needs it"),
        (("--runtime", "process", "--simulator", "carla"), "nothing here can start CARLA yet"),
    ],
)
def test_a_plan_needs_nothing_that_starts_carla(
    figures: Figures, put_docker: Callable[[str], None], options: tuple[str, ...], said: str
) -> None:
    put_docker("exit 1")
    figures.write()
    ended = launch(figures, "plan", "--json", "--quality", "Low", "--device", "cpu", *options)
    assert ended.returncode in (0, 71), ended.stderr
    assert json.loads(ended.stdout)["simulator"] == "CARLA"
    shown = launch(figures, "plan", "--quality", "Low", "--device", "cpu", *options)
    assert said in shown.stderr


def test_a_failing_node_plans_for_nodes_whose_cards_are_said(
    figures: Figures, put_docker: Callable[[str], None]
) -> None:
    put_docker("exit 1")
    figures.fails_to_begin = MISMATCH
    figures.write()
    asked = ("--simulator", "carla", "--quality", "Low", "--nodes", "2", "--collectors", "2", "--node-ram", "32")
    ended = launch(figures, "plan", *asked, "--node-vram", "8", "--json")
    assert ended.returncode == 0, ended.stderr
    assert [set(node["pools"]) for node in json.loads(ended.stdout)] == [{"ram", "vram", "disk"}, {"ram", "vram"}]
    assert launch(figures, "plan", *asked, "--node-vram", "4").returncode == 71, "CARLA takes more"


@pytest.mark.parametrize("command", ["plan", "up"])
def test_without_pytorch_and_without_containers_it_is_a_sentence(
    tmp_path: Path, figures: Figures, command: str
) -> None:
    (tmp_path / "hidden").mkdir()
    (tmp_path / "hidden" / "sitecustomize.py").write_text("import sys; sys.modules['torch'] = None")
    figures.path.unlink()
    environment = {**figures.environment, "PYTHONPATH": str(tmp_path / "hidden")}
    ended = launch(figures, command, environment=environment)
    assert ended.returncode == 65
    assert ended.stderr.startswith("launcher: PyTorch isn't installed here")
    assert len(ended.stderr.splitlines()) == 1


def test_a_missing_image_is_said_before_it_is_asked(
    tmp_path: Path, put_docker: Callable[[str], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """``docker compose run`` would build it, for as long as that takes."""
    services = '{"services": {"agent": {"image": "a"}, "carla": {"image": "c"}}}'
    put_docker(
        f"case \"$*\" in *version*) echo 2.26.1;; *' config '*) echo '{services}';; *) touch {tmp_path}/ran;; esac"
    )
    monkeypatch.setattr(machine, "_agent_is_here", lambda: False)
    monkeypatch.setattr(engine.Engine, "has_image", lambda _self, _name: False)
    monkeypatch.setattr(engine.Engine, "kind", lambda _self: None)
    run = RunPaths(tmp_path / "runs" / "new")
    asked = RunOptions(config=Path(QUICK), runtime=RuntimeKind.COMPOSE, simulator=SimulatorKind.LITE)
    with pytest.raises(StartError, match=r"Not built here yet: c and a; build with .* build carla agent") as it:
        machine.resolve(run, asked, config.load())
    assert it.value.code == 65
    assert not (tmp_path / "ran").exists()
