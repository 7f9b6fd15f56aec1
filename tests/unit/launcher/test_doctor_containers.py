"""The doctor's checks of Docker, Compose, the toolkit between them and a GPU, and what the images make of it."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from carla_launcher.show.checks import engines, pytorch, vulkan
from carla_launcher.show.checks.machine import Finding, Machine, Verdict
from tests.unit.launcher.examined import RUNC, answering, changed, driver_library, with_programs

NVIDIA = {**RUNC, "nvidia": {"path": "nvidia-container-runtime"}}


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path, tmp_path / "runs", Path("full"), pci=tmp_path / "pci")


@pytest.mark.parametrize(
    ("said", "verdict"),
    [
        ("echo 2.24.4", Verdict.OK),
        ("echo v2.26.1-4", Verdict.OK),
        ("echo 5.0.0+ds1", Verdict.OK),
        ("echo 2.24.3", Verdict.PROBLEM),
        ("echo 1.29.2", Verdict.PROBLEM),
        ("echo dev", Verdict.UNKNOWN),
        ("echo \"docker: 'compose' is not a docker command.\" >&2; exit 1", Verdict.PROBLEM),
    ],
)
def test_compose_must_know_the_tags_that_our_files_use(machine: Machine, said: str, verdict: Verdict) -> None:
    assert engines.compose(with_programs(machine, docker=said)).verdict is verdict


def test_an_engine_that_does_not_answer_is_a_problem_and_none_at_all_is_not(machine: Machine) -> None:
    dead = engines.engine(with_programs(machine, docker="echo Cannot connect to the daemon. >&2; exit 1"))
    assert dead.verdict is Verdict.PROBLEM
    assert dead.found == "Cannot connect to the daemon."
    old = 'case "$1" in info) echo \'{"ServerErrors": ["refused"]}\';; *) echo Cannot connect. >&2; exit 1;; esac'
    assert engines.engine(with_programs(machine, docker=old)) == Finding(Verdict.PROBLEM, "Cannot connect.", dead.do)
    shutil.rmtree(machine.stack / "bin")
    assert engines.engine(with_programs(machine)).verdict is Verdict.UNKNOWN


@pytest.mark.parametrize(
    ("info", "server", "expected"),
    [
        ({}, {}, (Verdict.OK, "Docker 28.1.1", "")),
        ({"SecurityOptions": ["name=rootless"]}, {}, (Verdict.OK, "rootless Docker 28.1.1", "RUN_UID=0")),
        ({"SecurityOptions": ["name=userns"]}, {}, (Verdict.UNKNOWN, "Docker 28.1.1", "userns-remap")),
        ({"OperatingSystem": "Docker Desktop"}, {}, (Verdict.UNKNOWN, "Docker Desktop 28.1.1", "isn't counted")),
        ({"KernelVersion": "5.4.0-1"}, {}, (Verdict.UNKNOWN, "Docker 28.1.1", "isn't counted")),
        ({}, {"Components": [{"Name": "Podman Engine"}]}, (Verdict.UNKNOWN, "Podman 28.1.1", "hasn't been run")),
    ],
)
def test_the_engine_is_named_with_what_is_different_with_it(
    machine: Machine, info: dict[str, Any], server: dict[str, Any], expected: tuple[Verdict, str, str]
) -> None:
    found = engines.engine(answering(machine, server=server, **info))
    verdict, words, todo = expected
    assert (found.verdict, found.found) == (verdict, words)
    assert todo in found.do
    assert bool(todo) is bool(found.do)


def test_a_docker_compose_of_old_is_named_where_the_plugin_is_missing(machine: Machine) -> None:
    old = with_programs(machine, docker="exit 1", docker_compose="echo 1.29.2")
    assert engines.compose(old).found == "no Compose plugin, only docker-compose 1.29.2"
    assert engines.compose(with_programs(machine, docker_compose="exit 1")).found == "no Compose plugin"


@pytest.mark.parametrize(
    ("code", "info", "settings", "hook", "expected"),
    [
        (9, {}, {}, False, (Verdict.UNKNOWN, "not needed without a GPU")),
        (0, {}, {}, False, (Verdict.PROBLEM, "install the NVIDIA Container Toolkit")),
        (0, {}, {}, True, (Verdict.OK, "register its runtime")),
        (0, {"Runtimes": NVIDIA}, {}, False, (Verdict.OK, "for plain `docker compose up` set GPU_RUNTIME=nvidia")),
        (0, {"Runtimes": NVIDIA}, {"GPU_RUNTIME": "nvidia"}, False, (Verdict.OK, "")),
        (0, {}, {"GPU_RUNTIME": "nvidia"}, True, (Verdict.PROBLEM, "leave it empty")),
        (0, {"DiscoveredDevices": [{"ID": "nvidia.com/gpu=0"}]}, {}, False, (Verdict.OK, "register its runtime")),
        (0, {"KernelVersion": "5.4.0-1"}, {}, False, (Verdict.UNKNOWN, "by hand")),
    ],
)
def test_the_toolkit_is_missed_only_where_there_is_a_gpu(
    machine: Machine,
    tmp_path: Path,
    code: int,
    info: dict[str, Any],
    settings: dict[str, str],
    hook: bool,
    expected: tuple[Verdict, str],
) -> None:
    programs = {"nvidia_container_runtime_hook": "true"} if hook else {}
    with_programs(machine, **programs)
    asked = changed(answering(machine, **info), LD_LIBRARY_PATH=driver_library(tmp_path, code), **settings)
    found = engines.toolkit(asked)
    assert found.verdict is expected[0]
    assert expected[1] in found.do


@pytest.mark.parametrize(
    ("run", "images", "verdict", "found", "todo"),
    [
        ("echo /etc/vulkan/icd.d/nvidia_icd.json", "exit 0", Verdict.OK, "NVIDIA's driver, by /etc/vulkan", ""),
        ("exit 0", "exit 0", Verdict.OK, "drivers are left to Vulkan's own search", ""),
        (
            "echo 'carla: Vulkan finds no driver: the GPU is here; install the graphics part.' >&2; exit 65",
            "exit 0",
            Verdict.PROBLEM,
            "Vulkan finds no driver: the GPU is here",
            "install the graphics part",
        ),
        ("exit 127", "exit 0", Verdict.PROBLEM, "carla-td3-simulator:0.9.16 has no carla-vulkan", "build carla"),
        (
            "echo 'could not select device driver' >&2; exit 125",
            "exit 0",
            Verdict.PROBLEM,
            "Docker starts no container with the GPU",
            "install the NVIDIA Container Toolkit",
        ),
        ("exit 137", "exit 0", Verdict.UNKNOWN, "can't be asked", "look by hand"),
        ("exit 0", "exit 1", Verdict.UNKNOWN, "no image carla-td3-simulator:0.9.16", "build carla"),
    ],
)
def test_the_simulator_s_image_is_asked_for_vulkan_s_driver(
    machine: Machine, tmp_path: Path, run: str, images: str, verdict: Verdict, found: str, todo: str
) -> None:
    programs = f'case "$1" in image) {images};; run) echo "$@" > {tmp_path}/asked; {run};; esac'
    asked = answering(machine, programs, Runtimes=NVIDIA)
    reported = vulkan.in_the_image(changed(asked, LD_LIBRARY_PATH=driver_library(tmp_path, 0), CARLA_GPU="1"))
    assert reported.verdict is verdict
    assert reported.found.startswith(found)
    assert todo in reported.do
    if images == "exit 0":
        words = "--gpus device=1 --runtime nvidia --entrypoint carla-vulkan carla-td3-simulator:0.9.16"
        assert words in (tmp_path / "asked").read_text()


def in_docker(machine: Machine, folder: Path, run: str, images: str = "exit 0") -> Finding:
    docker = f'case "$1" in image) {images};; run) echo "$@" > {folder}/asked; {run};; esac'
    given = changed(with_programs(machine, docker=docker), LD_LIBRARY_PATH=driver_library(folder, 0), AGENT_GPU="1")
    return pytorch.in_the_image(given)


def test_under_compose_the_image_s_torch_is_asked_with_the_card_that_its_container_gets(
    machine: Machine, tmp_path: Path
) -> None:
    answer = json.dumps({"torch": "2.13.0", "built_for": "13.0", "card": None, "why": "No CUDA GPUs are available"})
    found = in_docker(machine, tmp_path, f"echo '{answer}'")
    assert found.verdict is Verdict.PROBLEM
    assert found.found == "torch 2.13.0, for CUDA 13.0, sees no GPU: No CUDA GPUs are available"
    assert "--gpus device=1 --entrypoint python carla-td3-agent:latest -c" in (tmp_path / "asked").read_text()


@pytest.mark.parametrize(
    ("run", "images", "verdict", "found"),
    [
        ("exit 125", "exit 0", Verdict.PROBLEM, "Docker starts no container with the GPU"),
        ("echo killed >&2; exit 137", "exit 0", Verdict.UNKNOWN, "can't be asked: killed"),
        ("exit 0", "exit 1", Verdict.UNKNOWN, "no image carla-td3-agent:latest"),
    ],
)
def test_an_image_that_can_t_be_asked_is_told(
    machine: Machine, tmp_path: Path, run: str, images: str, verdict: Verdict, found: str
) -> None:
    reported = in_docker(machine, tmp_path, run, images)
    assert (reported.verdict, reported.found) == (verdict, found)
