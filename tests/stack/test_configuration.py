"""The Compose files as ``docker compose config`` resolves them, field by field; the list of variables; the linters."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from carla_td3.memory.allocator import SHIPPED
from tests.conftest import REPOSITORY
from tests.stack.stack import GPU, LITE, compose

pytestmark = pytest.mark.stack

VISUAL = "docker-compose.visual.yml"
UNPUBLISHED = "docker-compose.unpublished.yml"
DISPLAY = {"DISPLAY": ":7", "DISPLAY_COOKIE": "/run/cookie"}
VARIABLE = re.compile(r"\$\{([A-Z_]+)")
SCRIPTS = [
    "carla/entrypoint.sh",
    "carla/healthcheck.sh",
    "carla/vulkan.sh",
    "scripts/run_visual_test_docker.sh",
    "scripts/wait_and_run.sh",
    ".ci/run",
    ".ci/engine",
]
DOCKERFILES = ["agent/Dockerfile", "carla/Dockerfile", "carla/lite/Dockerfile"]


def services(*files: str, profile: str | None = None, **variables: str) -> dict[str, Any]:
    profiles = ["--profile", profile] if profile else []
    shown = compose(files, *profiles, "config", "--format", "json", variables=variables).stdout
    return dict(json.loads(shown)["services"])


def devices(service: dict[str, Any]) -> list[dict[str, Any]]:
    return list(service["deploy"]["resources"]["reservations"]["devices"])


@pytest.mark.parametrize("quality", ["Low", "Epic"])
def test_the_gpu_stack_is_what_it_says(compose_plugin: None, quality: str) -> None:
    found = services(*GPU, CARLA_QUALITY=quality)
    assert set(found) == {"carla", "agent"}
    carla, agent = found["carla"], found["agent"]

    assert carla["image"] == "carla-td3-simulator:0.9.16"
    assert carla["build"]["dockerfile"] == "carla/Dockerfile"
    assert carla["build"]["args"] == {"CARLA_IMAGE": "carlasim/carla", "CARLA_VERSION": "0.9.16"}
    assert carla["environment"] == {
        "CARLA_QUALITY": quality,
        "CARLA_PORTS": "2000-2002",
        "NVIDIA_DRIVER_CAPABILITIES": "all",
        "NVIDIA_VISIBLE_DEVICES": "void",
    }
    assert carla["user"] == "carla"
    assert carla["healthcheck"]["test"] == ["CMD", "carla-healthcheck"]
    assert carla["healthcheck"]["start_period"] == "5m0s"
    assert [(port["host_ip"], port["published"], port["target"]) for port in carla["ports"]] == [
        ("127.0.0.1", str(port), port) for port in (2000, 2001, 2002)
    ]
    assert "volumes" not in carla
    assert carla["stop_grace_period"] == "10s"
    assert (carla["mem_limit"], carla["pids_limit"]) == (str(12 * 2**30), 2048)

    assert agent["image"] == "carla-td3-agent:latest"
    assert agent["build"]["tags"] == ["td3-av-system:latest"]
    assert agent["environment"] == {
        "CARLA_HOST": "carla",
        "CARLA_PORTS": "2000-2002",
        "AGENT_CONFIG": "",
        "AGENT_DEFAULT_CONFIG": "config/td3_config_lowmem.yaml",
        "AGENT_DEVICE": "auto",
        "AGENT_BATCH": "",
        "RL_BATCH_SIZE": "",
        "RUN_NAME": "td3",
        "PYTORCH_CUDA_ALLOC_CONF": SHIPPED,
        "PYTORCH_ALLOC_CONF": SHIPPED,
        "NVIDIA_DRIVER_CAPABILITIES": "compute,utility",
    }
    assert agent["user"] == "1000:1000"
    assert agent["depends_on"] == {"carla": {"condition": "service_healthy", "required": True}}
    assert [(bind["type"], Path(bind["source"]).name, bind["target"]) for bind in agent["volumes"]] == [
        ("bind", "runs", "/app/runs"),
        ("bind", "config", "/app/config"),
    ]
    assert "ports" not in agent
    assert agent["read_only"] is True
    assert agent["stop_grace_period"] == "1m0s"
    assert (agent["mem_limit"], agent["pids_limit"]) == (str(8 * 2**30), 512)

    for service in (carla, agent):
        assert devices(service) == [{"driver": "nvidia", "device_ids": ["0"], "capabilities": ["gpu"]}]
        assert "runtime" not in service, "the engine's default is in force"


@pytest.mark.parametrize("files", [GPU, LITE, (*GPU, VISUAL), (*LITE, VISUAL)], ids="+".join)
def test_every_service_of_every_stack_is_hardened(compose_plugin: None, files: tuple[str, ...]) -> None:
    found = services(*files, profile="tensorboard", **DISPLAY)
    assert set(found) == {"carla", "agent", "tensorboard"}
    for name, service in found.items():
        assert service["cap_drop"] == ["ALL"], name
        assert service["security_opt"] == ["no-new-privileges:true"], name
        assert service["init"] is True, name
        assert service["restart"] == "on-failure:5", name
        assert service["logging"]["options"] == {"max-size": "10m", "max-file": "3"}, name
        assert service["memswap_limit"] == service["mem_limit"], name
        assert service["pids_limit"] > 0, name
        assert service["shm_size"] == str(64 * 2**20), name
        assert service["user"] not in ("", "root", "0", "0:0"), name
        assert service.get("read_only") or (name == "carla" and files[:2] != LITE), name
        assert not service.keys() & {"privileged", "cap_add", "network_mode", "pid", "ipc", "devices"}, name
        assert all(port["host_ip"] == "127.0.0.1" for port in service.get("ports", [])), name
        assert not [bind for bind in service.get("volumes", []) if "docker.sock" in bind["source"]], name
        # A folder that isn't there is an error, not root's new folder.
        assert all(not bind["bind"].get("create_host_path") for bind in service.get("volumes", [])), name


def test_the_cpu_stack_asks_for_no_device_and_keeps_names_and_ports(compose_plugin: None) -> None:
    lite, gpu = services(*LITE, GPU_RUNTIME="nvidia"), services(*GPU)
    assert lite.keys() == gpu.keys()
    assert not [name for name, service in lite.items() if service.keys() & {"deploy", "runtime"}]
    assert lite["carla"]["build"]["dockerfile"] == "carla/lite/Dockerfile"
    assert lite["carla"]["command"] == ["--map", "Lite01", "--seed", "0"]
    nothing = dict.fromkeys(("LITE_FAULTS", "LITE_CONTROL_PORT", "LITE_MAP_DIR"), "")
    assert lite["carla"]["environment"] == {"CARLA_PORTS": "2000-2002", **nothing}
    assert lite["carla"]["user"] == lite["agent"]["user"] == "1000:1000"
    assert lite["agent"]["environment"] == {**gpu["agent"]["environment"], "AGENT_DEVICE": "cpu"}
    assert lite["agent"]["build"] == gpu["agent"]["build"]
    for field in ("ports", "healthcheck", "stop_grace_period", "networks"):
        assert lite["carla"][field] == gpu["carla"][field]


def test_variables_reach_where_they_belong(compose_plugin: None) -> None:
    found = services(
        *GPU,
        CARLA_GPU="0",
        AGENT_GPU="GPU-5ee1",
        RUN_UID="1234",
        RUN_GID="56",
        RUNS_DIR="/disk/runs",
        PYTORCH_CUDA_ALLOC_CONF="expandable_segments:True",
        CARLA_PORTS="3000-3002",
        CARLA_FLAGS="-fps=20 -benchmark",
        RESTART="no",
        GPU_RUNTIME="nvidia",
    )
    carla, agent = found["carla"], found["agent"]
    assert carla["runtime"] == agent["runtime"] == "nvidia"
    assert [devices(service)[0]["device_ids"] for service in (carla, agent)] == [["0"], ["GPU-5ee1"]]
    assert (agent["user"], agent["volumes"][0]["source"]) == ("1234:56", "/disk/runs")
    both = {agent["environment"][name] for name in ("PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_ALLOC_CONF")}
    assert both == {"expandable_segments:True"}
    assert carla["environment"]["CARLA_PORTS"] == agent["environment"]["CARLA_PORTS"] == "3000-3002"
    assert [(port["published"], port["target"]) for port in carla["ports"]] == [
        (str(port), port) for port in (3000, 3001, 3002)
    ]
    assert carla["command"] == ["-fps=20", "-benchmark"]
    assert {service["restart"] for service in found.values()} == {"no"}


def test_carla_lite_sees_a_folder_of_maps_where_one_is_named(compose_plugin: None) -> None:
    lite = services(*LITE, LITE_MAP_DIR="/home/me/maps")["carla"]
    assert lite["environment"]["LITE_MAP_DIR"] == "/maps"
    (bind,) = lite["volumes"]
    assert (bind["source"], bind["target"], bind["read_only"]) == ("/home/me/maps", "/maps", True)


def test_the_display_is_given_only_where_it_is_asked_for(compose_plugin: None) -> None:
    for service in services(*GPU, **DISPLAY).values():
        assert "DISPLAY" not in service["environment"]
    for service in services(*GPU, VISUAL, **DISPLAY).values():
        assert service["environment"]["DISPLAY"] == ":7"
        assert service["environment"]["XAUTHORITY"] == "/run/display-cookie"
        binds = {bind["target"]: bind for bind in service["volumes"]}
        assert binds["/tmp/.X11-unix"]["read_only"]
        assert binds["/run/display-cookie"]["read_only"]
        assert binds["/run/display-cookie"]["source"] == "/run/cookie"
    refused = compose((*GPU, VISUAL), "config", "--quiet", variables={"DISPLAY_COOKIE": "/run/cookie"}, check=False)
    assert "no display is set" in refused.stderr


@pytest.mark.parametrize("files", [GPU, LITE], ids="+".join)
def test_a_second_project_takes_no_port_of_the_machine(compose_plugin: None, files: tuple[str, ...]) -> None:
    published, without = services(*files), services(*files, UNPUBLISHED)
    assert not without["carla"].get("ports")
    assert {**published["carla"], "ports": None} == {**without["carla"], "ports": None}
    assert UNPUBLISHED in (REPOSITORY / "scripts" / "run_visual_test_docker.sh").read_text(encoding="utf-8")


def test_the_example_names_every_variable_with_its_default_and_no_other(compose_plugin: None) -> None:
    text = (REPOSITORY / ".env.example").read_text(encoding="utf-8")
    files = [file.read_text(encoding="utf-8") for file in sorted(REPOSITORY.glob("docker-compose*.yml"))]
    named = re.findall(r"^(?:# )?([A-Z_]+)=", text, re.MULTILINE)
    assert sorted(named) == sorted({name for file in files for name in VARIABLE.findall(file)})
    given = dict(re.findall(r"^([A-Z_]+)=(.*)$", text, re.MULTILINE))
    for files_of_a_stack in (GPU, LITE):
        assert services(*files_of_a_stack, **given) == services(*files_of_a_stack)


@pytest.mark.parametrize(("program", "paths"), [("shellcheck", SCRIPTS), ("hadolint", DOCKERFILES)])
def test_the_linters_have_nothing_to_say(program: str, paths: list[str]) -> None:
    linter = Path(sys.executable).with_name(program)
    if not linter.exists():
        pytest.skip(f"{program} isn't installed; it is one of the development dependencies")
    said = subprocess.run([linter, *paths], cwd=REPOSITORY, check=False, capture_output=True, text=True)
    assert said.returncode == 0, said.stdout + said.stderr


def test_every_script_and_dockerfile_is_linted() -> None:
    folders = [REPOSITORY / name for name in ("agent", "carla", "carla/lite", "launcher", "scripts")]
    found = [path for folder in folders for path in (*folder.glob("*.sh"), *folder.glob("Dockerfile"))]
    assert {str(path.relative_to(REPOSITORY)) for path in found} <= {*SCRIPTS, *DOCKERFILES}
