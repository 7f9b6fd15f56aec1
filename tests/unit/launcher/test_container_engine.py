"""Which engine answers, by what it says of itself: answers as they were seen or as the engines' sources make them."""

from __future__ import annotations

from typing import Any

import pytest

from carla_launcher.act.compose.daemon_errors import explanation
from carla_launcher.observe import container_engine
from carla_launcher.observe.container_engine import ContainerEngine, Product, engine_of

HERE = "6.8.0-41-generic"
WSL = "5.15.167.4-microsoft-standard-WSL2"
RUNC = {"io.containerd.runc.v2": {"path": "runc"}, "runc": {"path": "runc"}}
NVIDIA = {**RUNC, "nvidia": {"path": "nvidia-container-runtime"}}
COMMUNITY = {"Platform": {"Name": "Docker Engine - Community"}, "Components": [{"Name": "Engine"}]}


def docker(**fields: Any) -> dict[str, Any]:
    known = {
        "ServerVersion": "28.1.1",
        "OperatingSystem": "Ubuntu 22.04.5 LTS",
        "KernelVersion": HERE,
        "Runtimes": RUNC,
    }
    return {**known, "SecurityOptions": ["name=apparmor", "name=seccomp,profile=builtin", "name=cgroupns"], **fields}


def engine(info: dict[str, Any], server: dict[str, Any] | None = None) -> ContainerEngine:
    found = engine_of(info, COMMUNITY if server is None else server)
    assert found is not None
    return found


ROOTLESS = engine(docker(SecurityOptions=["name=seccomp,profile=builtin", "name=rootless", "name=cgroupns"]))
DESKTOP = engine(docker(OperatingSystem="Docker Desktop", KernelVersion="6.10.14-linuxkit"))
DESKTOP_BY_VERSION = engine(docker(), {"Platform": {"Name": "Docker Desktop 4.33.0 (160616)"}})
DESKTOP_ON_WINDOWS = engine(docker(OperatingSystem="Docker Desktop", KernelVersion=WSL))
ON_WSL = engine(docker(KernelVersion=WSL, Runtimes=NVIDIA))
PODMAN_API = engine(
    {
        "ServerVersion": "4.3.1",
        "OperatingSystem": "debian",
        "KernelVersion": HERE,
        "Runtimes": {"crun": {"path": "crun"}},
    },
    {"Platform": {"Name": "linux/amd64/debian-12"}, "Components": [{"Name": "Podman Engine"}, {"Name": "Conmon"}]},
)
PODMAN_CLI = engine(
    {
        "host": {"buildahVersion": "1.28.2", "kernel": HERE, "security": {"rootless": True}},
        "version": {"Version": "4.3.1"},
    },
    {},
)
REMOTE = engine(docker(KernelVersion="5.4.0-200-generic"))


@pytest.mark.parametrize(
    ("found", "product", "words"),
    [
        (engine(docker()), Product.DOCKER, "Docker 28.1.1"),
        (ROOTLESS, Product.DOCKER, "rootless Docker 28.1.1"),
        (DESKTOP, Product.DESKTOP, "Docker Desktop 28.1.1"),
        (DESKTOP_BY_VERSION, Product.DESKTOP, "Docker Desktop 28.1.1"),
        (DESKTOP_ON_WINDOWS, Product.DESKTOP, "Docker Desktop 28.1.1, under WSL2"),
        (ON_WSL, Product.DOCKER, "Docker 28.1.1, under WSL2"),
        (PODMAN_API, Product.PODMAN, "Podman 4.3.1"),
        (PODMAN_CLI, Product.PODMAN, "rootless Podman 4.3.1"),
    ],
)
def test_the_engine_is_known_by_its_own_answers(found: ContainerEngine, product: Product, words: str) -> None:
    assert (found.product, str(found)) == (product, words)


@pytest.mark.parametrize(
    "answers",
    [
        ({}, {}),
        ({"ServerVersion": "", "Runtimes": None, "SecurityOptions": None}, {}),
        ({"ServerErrors": ["Cannot connect to the Docker daemon"]}, {"Components": None}),
    ],
)
def test_no_engine_is_none(answers: tuple[dict[str, Any], dict[str, Any]]) -> None:
    assert engine_of(*answers) is None


def test_odd_answers_are_no_traceback() -> None:
    odd = docker(Runtimes=["runc"], SecurityOptions=None, DiscoveredDevices=["gpu"])
    assert engine(odd, {"Components": ["Engine"], "Platform": "?"}).runtimes == frozenset()


def test_limits_that_a_rootless_engine_drops_are_no_figures_and_its_toolkit_is_set_up_otherwise() -> None:
    """As Docker 20.10 says it without control groups."""
    without = engine(docker(SecurityOptions=["name=rootless"], MemoryLimit=False))
    assert "it ignores CARLA_MEMORY and AGENT_MEMORY" in container_engine.not_counted(without, HERE)
    assert container_engine.not_counted(engine(docker(MemoryLimit=True)), HERE) == ""
    assert "systemctl --user restart docker" in container_engine.no_gpu(without, hook=False, kernel=HERE)


def test_user_namespaces_are_told_from_rootless() -> None:
    remapped = engine(docker(SecurityOptions=["name=userns"]))
    assert (remapped.remapped, remapped.rootless) == (True, False)
    assert (ROOTLESS.remapped, ROOTLESS.rootless) == (False, True)


@pytest.mark.parametrize(
    ("found", "hook", "expected"),
    [
        (engine(docker()), False, False),
        (engine(docker()), True, True),
        (engine(docker(Runtimes=NVIDIA)), False, True),
        (engine(docker(Runtimes={"runc": {"path": "/usr/bin/nvidia-container-runtime"}})), False, True),
        (engine(docker(DiscoveredDevices=[{"Source": "cdi", "ID": "nvidia.com/gpu=0"}])), False, True),
        (engine(docker(DiscoveredDevices=[{"Source": "cdi", "ID": "vendor.com/nic=0"}])), False, False),
        (ROOTLESS, False, False),
        (DESKTOP, True, False),
        (DESKTOP_ON_WINDOWS, False, None),
        (PODMAN_API, False, None),
        (REMOTE, False, None),
    ],
)
def test_whether_a_container_can_have_the_gpu(found: ContainerEngine, hook: bool, expected: bool | None) -> None:
    assert found.gives_gpu(hook, HERE) is expected


@pytest.mark.parametrize(
    ("found", "hook", "said"),
    [
        (engine(docker()), False, "Docker 28.1.1 can't give a container the GPU: install the NVIDIA Container Toolkit"),
        (DESKTOP, False, "Docker Desktop runs containers in a virtual machine, which has no GPU here"),
        (ON_WSL, True, "NVIDIA's driver has no Vulkan under WSL2"),
        (engine(docker()), True, ""),
        (PODMAN_API, False, ""),
    ],
)
def test_why_carla_has_no_gpu_is_a_sentence_with_the_way_on(found: ContainerEngine, hook: bool, said: str) -> None:
    sentence = container_engine.no_gpu(found, hook, HERE)
    assert sentence.startswith(said)
    assert bool(sentence) is bool(said)
    assert not said or sentence.endswith("--simulator carla-lite.")


@pytest.mark.parametrize(
    ("found", "counted"),
    [
        (engine(docker()), True),
        (ROOTLESS, True),
        (PODMAN_API, True),
        (DESKTOP, False),
        (DESKTOP_ON_WINDOWS, False),
        (REMOTE, False),
    ],
)
def test_what_runs_on_another_kernel_is_not_counted(found: ContainerEngine, counted: bool) -> None:
    kernel = WSL if found is DESKTOP_ON_WINDOWS else HERE
    assert bool(container_engine.not_counted(found, kernel)) is not counted


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ('could not select device driver "nvidia" with capabilities: [[gpu]]', "install the NVIDIA Container Toolkit"),
        ("Unknown runtime specified nvidia", "leave GPU_RUNTIME empty"),
        ("unknown or invalid runtime name: nvidia", "leave GPU_RUNTIME empty"),
        ("invoking the NVIDIA Container Runtime Hook directly is not supported", "set GPU_RUNTIME=nvidia"),
        ("CDI device injection failed: unresolvable CDI devices nvidia.com/gpu=7", "nvidia-ctk cdi generate"),
        ("nvidia-container-cli: device error: 7: unknown device: unknown", "names a GPU that doesn't exist"),
        ("nvidia-container-cli: initialization error: nvml error: driver not loaded", "check that `nvidia-smi` works"),
    ],
)
def test_what_the_engine_says_of_a_gpu_is_explained_and_kept(line: str, said: str) -> None:
    sentence = explanation(f"Error response from daemon: {line}")
    assert said in sentence
    assert "doctor" in sentence
    assert line in sentence


def test_what_has_nothing_to_do_with_a_gpu_is_left_as_it_is() -> None:
    assert explanation("Error response from daemon: no space left") == "Error response from daemon: no space left"
