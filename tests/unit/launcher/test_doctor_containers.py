"""The doctor's checks of Docker, Compose, the toolkit between them and a GPU, and what the images make of it."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from carla_launcher.options import RunOptions
from carla_launcher.show.checks import cards, command, engines
from carla_launcher.show.checks.machine import Finding, Machine, Verdict
from tests.unit.launcher.examined import RUNC, answering, changed, driver_library, expect, with_programs

OK, PROBLEM, UNKNOWN = Verdict.OK, Verdict.PROBLEM, Verdict.UNKNOWN
NVIDIA = {**RUNC, "nvidia": {"path": "nvidia-container-runtime"}}


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path, tmp_path / "runs", Path("full"), pci=tmp_path / "pci")


@pytest.mark.parametrize(
    ("programs", "verdict", "said"),
    [
        ({"docker": "echo 2.24.4"}, OK, ""),
        ({"docker": "echo v2.26.1-4"}, OK, ""),
        ({"docker": "echo 5.0.0+ds1"}, OK, ""),
        ({"docker": "echo 2.24.3"}, PROBLEM, ""),
        ({"docker": "echo 1.29.2"}, PROBLEM, ""),
        ({"docker": "echo dev"}, UNKNOWN, ""),
        ({"docker": "exit 1"}, PROBLEM, "no Compose plugin"),
        (
            {"docker": "exit 1", "docker_compose": "echo 1.29.2"},
            PROBLEM,
            "no Compose plugin, only docker-compose 1.29.2",
        ),
        ({}, UNKNOWN, "no Docker"),
    ],
)
def test_compose_must_know_the_tags_that_our_files_use(
    machine: Machine, tmp_path: Path, programs: dict[str, str], verdict: Verdict, said: str
) -> None:
    machine = changed(machine, LD_LIBRARY_PATH=driver_library(tmp_path, 0))
    found = engines.compose(with_programs(machine, **programs))
    assert (found.verdict, found.found) == (verdict, said or found.found)


ABSENT = {
    "docker": "echo Error response from daemon: No such image: mine:latest >&2; exit 1",
    "podman": "echo 'Error: inspecting object: mine: image not known' >&2; exit 125",
}


@pytest.mark.parametrize(
    ("words", "programs", "verdict", "said"),
    [
        (
            "docker run mine python",
            {"docker": '[ "$*" = "image inspect --format {{.Id}} mine" ]'},
            OK,
            "is on this",
        ),
        ("podman -r run mine", {"podman": '[ "$*" = "-r image inspect --format {{.Id}} mine" ]'}, OK, "mine is on"),
        ("docker run mine", ABSENT, UNKNOWN, "mine isn't on this machine: the first start pulls it"),
        ("podman run mine", ABSENT, UNKNOWN, "mine isn't on this machine: the first start pulls it"),
        ("docker run --pull=never mine", ABSENT, PROBLEM, "--pull=never forbids to pull it"),
        (
            "docker run mine",
            {"docker": "echo Cannot connect. >&2; exit 1"},
            PROBLEM,
            "doesn't answer: Cannot con",
        ),
        ("docker run --rm", {}, UNKNOWN, "the command names no image"),
    ],
)
def test_the_image_of_a_command_is_here_or_would_be_pulled(
    machine: Machine, words: str, programs: dict[str, str], verdict: Verdict, said: str
) -> None:
    asked = replace(machine, asked=RunOptions(command=tuple(words.split())))
    found = command.image(with_programs(asked, **programs))
    assert (found.verdict, said in found.found) == (verdict, True), found


def test_docker_is_missed_only_where_there_is_a_gpu(machine: Machine, tmp_path: Path) -> None:
    silent = with_programs(machine, docker="echo Cannot connect. >&2; exit 1")
    without = changed(silent, LD_LIBRARY_PATH=driver_library(tmp_path, 9))
    expect(engines.engine(without), UNKNOWN, "Cannot connect.", "not needed without a GPU; else start the engine")
    expect(engines.compose(without), UNKNOWN, "no Compose plugin", "not needed without a GPU; else install")


def test_an_engine_that_does_not_answer_is_a_problem(machine: Machine, tmp_path: Path) -> None:
    machine = changed(machine, LD_LIBRARY_PATH=driver_library(tmp_path, 0))
    dead = engines.engine(with_programs(machine, docker="echo Cannot connect to the daemon. >&2; exit 1"))
    expect(dead, PROBLEM, "Cannot connect to the daemon.")
    old = 'case "$1" in info) echo \'{"ServerErrors": ["refused"]}\';; *) echo Cannot connect. >&2; exit 1;; esac'
    assert engines.engine(with_programs(machine, docker=old)) == Finding(PROBLEM, "Cannot connect.", dead.do)
    shutil.rmtree(machine.stack / "bin")
    expect(engines.engine(with_programs(machine)), UNKNOWN)


@pytest.mark.parametrize(
    ("info", "server", "verdict", "said", "do"),
    [
        ({}, {}, OK, "Docker 28.1.1", ""),
        ({"SecurityOptions": ["name=rootless"]}, {}, OK, "rootless Docker 28.1.1", "RUN_UID=0"),
        ({"SecurityOptions": ["name=userns"]}, {}, UNKNOWN, "Docker 28.1.1", "userns-remap"),
        ({"OperatingSystem": "Docker Desktop"}, {}, UNKNOWN, "Docker Desktop 28.1.1", "isn't measured"),
        ({"KernelVersion": "5.4.0-1"}, {}, UNKNOWN, "Docker 28.1.1", "isn't measured"),
        ({}, {"Components": [{"Name": "Podman Engine"}]}, UNKNOWN, "Podman 28.1.1", "wasn't tested"),
    ],
)
def test_the_engine_is_named_with_what_is_different_with_it(
    machine: Machine, info: dict[str, Any], server: dict[str, Any], verdict: Verdict, said: str, do: str
) -> None:
    found = engines.engine(answering(machine, server=server, **info))
    expect(found, verdict, do=do)
    assert (found.found, bool(found.do)) == (said, bool(do))


@pytest.mark.parametrize(
    ("code", "info", "variables", "hook", "verdict", "do"),
    [
        (9, {}, {}, False, UNKNOWN, "not needed without a GPU"),
        (0, {}, {}, False, PROBLEM, "install the NVIDIA Container Toolkit"),
        (0, {}, {}, True, OK, "register its runtime"),
        (0, {"Runtimes": NVIDIA}, {}, False, OK, "for plain `docker compose up` set GPU_RUNTIME=nvidia"),
        (0, {"Runtimes": NVIDIA}, {"GPU_RUNTIME": "nvidia"}, False, OK, ""),
        (0, {}, {"GPU_RUNTIME": "nvidia"}, True, PROBLEM, "leave it empty"),
        (0, {"DiscoveredDevices": [{"ID": "nvidia.com/gpu=0"}]}, {}, False, OK, "register its runtime"),
        (0, {"KernelVersion": "5.4.0-1"}, {}, False, UNKNOWN, "check whether a container gets the GPU"),
    ],
)
def test_the_toolkit_is_missed_only_where_there_is_a_gpu(
    machine: Machine,
    tmp_path: Path,
    code: int,
    info: dict[str, Any],
    variables: dict[str, str],
    hook: bool,
    verdict: Verdict,
    do: str,
) -> None:
    with_programs(machine, **{"nvidia_container_runtime_hook": "true"} if hook else {})
    asked = changed(answering(machine, **info), LD_LIBRARY_PATH=driver_library(tmp_path, code), **variables)
    expect(engines.toolkit(asked), verdict, do=do)


REFUSED = "echo 'carla: Vulkan finds no driver: the GPU is here; install the graphics part.' >&2; exit 65"
NO_DEVICE, NO_CONTAINER = "echo 'could not select device driver' >&2; exit 125", "Docker starts no container with the"
TORCH = {"torch": "2.13.0", "built_for": "13.0", "card": None, "why": "No CUDA GPUs are available"}
SEES_NONE = "torch 2.13.0, for CUDA 13.0, sees no GPU: No CUDA GPUs are available"
VULKAN, PYTORCH = cards.vulkan_in_the_image, cards.torch_in_the_image
ASKED = {
    VULKAN: "--gpus device=1 --runtime nvidia --entrypoint carla-vulkan carla-td3-simulator:0.9.16",
    PYTORCH: "--gpus device=1 --runtime nvidia --entrypoint python carla-td3-agent:latest -c",
}


@pytest.mark.parametrize(
    ("check", "run", "verdict", "found", "do"),
    [
        (VULKAN, "echo /etc/vulkan/icd.d/nvidia_icd.json", OK, "NVIDIA's driver, by /etc/vulkan", ""),
        (VULKAN, "exit 0", OK, "Vulkan searches for drivers itself", ""),
        (VULKAN, REFUSED, PROBLEM, "Vulkan finds no driver: the GPU is here", "install the graphics part"),
        (VULKAN, "exit 127", PROBLEM, "carla-td3-simulator:0.9.16 has no carla-vulkan", "build carla"),
        (VULKAN, NO_DEVICE, PROBLEM, NO_CONTAINER, "install the NVIDIA Container Toolkit"),
        (VULKAN, "exit 137", UNKNOWN, "can't be checked", "check by hand"),
        (VULKAN, "", UNKNOWN, "no image carla-td3-simulator:0.9.16", "build carla"),
        (PYTORCH, f"echo '{json.dumps(TORCH)}'", PROBLEM, SEES_NONE, ""),
        (PYTORCH, f"echo '{json.dumps({**TORCH, 'torch': None})}'", PROBLEM, "the image has no torch", "build agent"),
        (PYTORCH, "exit 125", PROBLEM, NO_CONTAINER, ""),
        (PYTORCH, "echo killed >&2; exit 137", UNKNOWN, "can't be checked: killed", ""),
        (PYTORCH, "", UNKNOWN, "no image carla-td3-agent:latest", "build agent"),
    ],
)
def test_an_image_is_asked_with_the_card_that_its_container_gets(
    machine: Machine, tmp_path: Path, check: Any, run: str, verdict: Verdict, found: str, do: str
) -> None:
    answers = f'case "$1" in image) {"exit 0" if run else "exit 1"};; run) echo "$@" > {tmp_path}/asked; {run or ":"};;'
    asked = answering(machine, f"{answers} esac", Runtimes=NVIDIA)
    library = driver_library(tmp_path, 0)
    expect(check(changed(asked, LD_LIBRARY_PATH=library, CARLA_GPU="1", AGENT_GPU="1")), verdict, found, do)
    if run:
        assert ASKED[check] in (tmp_path / "asked").read_text()
