"""The doctor's checks against real sockets, files, programs and a driver's library; and what becomes of bad ones."""

from __future__ import annotations

import importlib.util
import json
import os
import platform
import shutil
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from launcher.show import doctor
from launcher.show.checks import engines, places, pytorch, settings, vulkan
from launcher.show.checks.machine import Finding, Machine, Ran, Verdict, run
from tests.crowd import PATIENCE_S, until

REPOSITORY = Path(__file__).resolve().parents[3]
DRIVER = """
#include <string.h>
int nvmlInit_v2(void) { return CODE; }
int nvmlDeviceGetCount_v2(unsigned *count) { *count = 2; return 0; }
int nvmlSystemGetDriverVersion(char *text, unsigned size) { strncpy(text, "570.1", size); return 0; }
"""


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path, tmp_path / "runs", REPOSITORY / "config" / "td3_config.yaml", pci=tmp_path / "pci")


def program(folder: Path, name: str, text: str) -> None:
    folder.mkdir(exist_ok=True)
    (folder / name).write_text(f"#!/bin/sh\n{text}\n")
    (folder / name).chmod(0o755)


def with_programs(machine: Machine, **programs: str) -> Machine:
    """Return the machine with these programs alone on its PATH."""
    folder = machine.stack / "bin"
    folder.mkdir(exist_ok=True)
    for name, text in programs.items():
        program(folder, name.replace("_", "-"), text)
    return changed(machine, PATH=str(folder))


def changed(machine: Machine, **environment: str) -> Machine:
    found: dict[str, Any] = {**vars(machine), "environment": {**machine.environment, **environment}}
    return Machine(**found)


def driver_library(folder: Path, code: int) -> str:
    compiler = shutil.which("cc")
    if compiler is None:
        pytest.skip("no C compiler here")
    source = folder / "driver.c"
    source.write_text(DRIVER.replace("CODE", str(code)))
    subprocess.run([compiler, "-shared", "-fPIC", "-o", folder / "libnvidia-ml.so.1", source], check=True)
    return str(folder)


def add_card(machine: Machine) -> None:
    card = machine.pci / "0000:01:00.0"
    card.mkdir(parents=True)
    (card / "vendor").write_text("0x10de\n")
    (card / "class").write_text("0x030000\n")


def test_a_driver_that_answers_is_named_with_its_version(machine: Machine, tmp_path: Path) -> None:
    found = engines.driver(changed(machine, LD_LIBRARY_PATH=driver_library(tmp_path, 0)))
    assert found == Finding(Verdict.OK, "2 GPU, driver 570.1")


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({"CARLA_GPU": "1", "AGENT_GPU": "1"}, (Verdict.OK, "", "")),
        ({"AGENT_GPU": "1"}, (Verdict.OK, "; CARLA_GPU is 0 and AGENT_GPU is 1", "")),
        ({"CARLA_GPU": "GPU-a"}, (Verdict.OK, "; CARLA_GPU is GPU-a and AGENT_GPU is 0", "")),
        (
            {"AGENT_GPU": "2"},
            (Verdict.PROBLEM, "; CARLA_GPU is 0 and AGENT_GPU is 2", "set both to 0 or 1, or to a GPU's UUID"),
        ),
    ],
)
def test_the_cards_of_both_programs_are_shown_where_they_are_two_or_not_there(
    machine: Machine, tmp_path: Path, settings: dict[str, str], expected: tuple[Verdict, str, str]
) -> None:
    verdict, reported, do = expected
    found = engines.driver(changed(machine, LD_LIBRARY_PATH=driver_library(tmp_path, 0), **settings))
    assert found == Finding(verdict, f"2 GPU, driver 570.1{reported}", do)


def test_a_card_whose_driver_fails_is_a_problem_with_the_driver_s_code(machine: Machine, tmp_path: Path) -> None:
    add_card(machine)
    found = engines.driver(changed(machine, LD_LIBRARY_PATH=driver_library(tmp_path, 15)))
    assert found.verdict is Verdict.PROBLEM
    assert "nvmlInit says 15" in found.found


def test_no_card_and_no_driver_is_no_problem(machine: Machine, tmp_path: Path) -> None:
    found = engines.driver(changed(machine, LD_LIBRARY_PATH=driver_library(tmp_path, 9)))
    assert found.verdict is Verdict.UNKNOWN
    assert found.found == "no NVIDIA GPU"


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


HERE = platform.release()
RUNC = {"runc": {"path": "runc"}}
NVIDIA = {**RUNC, "nvidia": {"path": "nvidia-container-runtime"}}


def answering(machine: Machine, more: str = "exit 0", server: dict[str, Any] | None = None, **info: Any) -> Machine:
    """Return the machine with a docker whose engine says this of itself; ``more`` is what other commands do."""
    known = {"ServerVersion": "28.1.1", "KernelVersion": HERE, "Runtimes": RUNC, **info}
    cases = f"info) echo '{json.dumps(known)}';; version) echo '{json.dumps(server or {})}';; *) {more};;"
    return with_programs(machine, docker=f'case "$1" in {cases} esac')


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


@pytest.fixture
def taken_port() -> Iterator[int]:
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        held.listen()
        yield held.getsockname()[1]


def test_a_taken_port_is_a_problem_and_names_who_has_it(machine: Machine, taken_port: int) -> None:
    found = places.ports(Machine(machine.stack, machine.runs, machine.config, ports=(taken_port,)))
    assert found.verdict is Verdict.PROBLEM
    assert f"{taken_port} is taken by " in found.found
    assert f"(process {os.getpid()})" in found.found


def test_the_ports_are_those_that_compose_publishes(machine: Machine, tmp_path: Path, taken_port: int) -> None:
    first = min(taken_port, 65_533)
    (tmp_path / ".env").write_text(f"CARLA_PORTS={first}-{first + 2}\n")
    of_env = Machine(tmp_path, machine.runs, machine.config, environment={})
    assert f"{taken_port} is taken by " in places.ports(of_env).found
    wrong = Machine(tmp_path, machine.runs, machine.config, environment={"CARLA_PORTS": "2100"})
    assert (places.ports(wrong).verdict, places.ports(wrong).found) == (Verdict.PROBLEM, "CARLA_PORTS is 2100")


def test_a_free_port_is_free(machine: Machine, taken_port: int) -> None:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        free = probe.getsockname()[1]
    assert places.ports(Machine(machine.stack, machine.runs, machine.config, ports=(free,))).verdict is Verdict.OK


def test_the_disk_is_held_against_what_the_configuration_takes(machine: Machine, monkeypatch: Any) -> None:
    found = places.disk(machine)
    assert "a run of td3_config.yaml takes 873" in found.found
    monkeypatch.setattr(os, "statvfs", lambda _: os.statvfs_result((4096, 4096, 1000, 1000, 1000, 1, 1, 1, 0, 255)))
    assert places.disk(machine).verdict is Verdict.PROBLEM


def test_without_the_agent_s_word_the_free_disk_is_still_told(machine: Machine) -> None:
    found = places.disk(Machine(machine.stack, machine.runs, Path("missing.yaml")))
    assert found.verdict is Verdict.UNKNOWN
    assert "MiB free" in found.found


def test_a_tiny_shared_memory_is_a_problem(machine: Machine, monkeypatch: Any, tmp_path: Path) -> None:
    assert places.shared_memory(Machine(tmp_path, tmp_path, tmp_path, shm=tmp_path / "no")).verdict is Verdict.UNKNOWN
    monkeypatch.setattr(os, "statvfs", lambda _: os.statvfs_result((4096, 4096, 1000, 1000, 1000, 1, 1, 1, 0, 255)))
    assert places.shared_memory(Machine(tmp_path, tmp_path, tmp_path, shm=tmp_path)).verdict is Verdict.PROBLEM


def test_a_runs_folder_that_is_not_there_yet_is_judged_by_its_parent(machine: Machine, monkeypatch: Any) -> None:
    assert places.runs_folder(machine).found == f"{machine.runs} isn't there yet"
    machine.runs.mkdir()
    assert places.runs_folder(machine) == Finding(Verdict.OK, f"{machine.runs} can be written")
    monkeypatch.setattr(os, "access", lambda *_: False)
    assert places.runs_folder(machine).verdict is Verdict.PROBLEM


def test_this_python_and_this_client_are_the_right_ones(machine: Machine) -> None:
    assert settings.python(machine).verdict is Verdict.OK
    assert settings.carla_client(machine) == Finding(Verdict.OK, settings.CARLA_CLIENT)


@pytest.mark.parametrize(
    "ended",
    [
        Ran(0, "0.9.15", ""),
        Ran(1, "", "ImportError: libjpeg.so.8: cannot open shared object file"),
        Ran(1, "", "ModuleNotFoundError: No module named 'carla.libcarla'"),
    ],
)
def test_a_client_that_is_old_broken_or_missing_beside_the_agent_is_a_problem(machine: Machine, ended: Ran) -> None:
    found = settings.carla_client(Machine(machine.stack, machine.runs, machine.config, run=lambda *_: ended))
    assert found.verdict is Verdict.PROBLEM
    assert "pip install carla==0.9.16" in found.do


OLD, NEW = "PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_ALLOC_CONF"


@pytest.mark.parametrize(
    ("given", "verdict"),
    [
        ({}, Verdict.OK),
        ({OLD: "expandable_segments:True"}, Verdict.OK),
        ({OLD: "max_split_size_mb:128", NEW: "max_split_size_mb:128"}, Verdict.OK),
        ({OLD: "max_split_size_mb:128", NEW: "expandable_segments:True"}, Verdict.PROBLEM),
        ({NEW: "expandable_segments:True,max_split_size_mb:128"}, Verdict.PROBLEM),
        ({OLD: "max_split_size_mb:1"}, Verdict.PROBLEM),
    ],
)
def test_the_allocator_s_setting_is_what_the_agent_would_take(
    machine: Machine, given: dict[str, str], verdict: Verdict
) -> None:
    assert settings.allocator(changed(machine, **{OLD: "", NEW: "", **given})).verdict is verdict


def with_torch(machine: Machine, folder: Path, text: str) -> Machine:
    """Return the machine with a driver that shows a card, and a torch of a few lines in the real one's place."""
    (folder / "torch.py").write_text(text)
    return changed(machine, LD_LIBRARY_PATH=driver_library(folder, 0), PYTHONPATH=str(folder))


TORCH = """
class version:
    cuda = {built_for!r}
class cuda:
    def init(): {init}
    def get_device_name(_): return "NVIDIA GeForce RTX 2060"
__version__ = "2.13.0"
"""


@pytest.mark.parametrize(
    ("built_for", "init", "verdict", "found"),
    [
        ("12.8", "pass", Verdict.OK, "torch 2.13.0, for CUDA 12.8, sees NVIDIA GeForce RTX 2060"),
        (
            None,
            "raise AssertionError('not compiled')",
            Verdict.PROBLEM,
            "torch 2.13.0, built without CUDA, sees no GPU",
        ),
        (
            "13.0",
            "raise RuntimeError('The driver is\\ntoo old')",
            Verdict.PROBLEM,
            "sees no GPU: The driver is too old",
        ),
        ("13.0", "raise SystemExit('a library is missing')", Verdict.UNKNOWN, "can't be asked: a library is missing"),
    ],
)
def test_torch_says_whether_it_sees_the_card_and_why_not(
    machine: Machine, tmp_path: Path, built_for: str | None, init: str, verdict: Verdict, found: str
) -> None:
    reported = pytorch.here(with_torch(machine, tmp_path, TORCH.format(built_for=built_for, init=init)))
    assert reported.verdict is verdict
    assert reported.found.endswith(found)
    assert bool(reported.do) is (verdict is not Verdict.OK)


@pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="no torch here")
@pytest.mark.gpu
def test_on_a_gpu_the_real_torch_sees_the_card(machine: Machine) -> None:
    if not any(map(os.path.exists, ("/dev/nvidiactl", "/dev/dxg"))):  # NVML may be a stand-in, torch is what is asked
        pytest.skip("no CUDA device here")
    assert pytorch.here(machine).verdict is Verdict.OK


def test_the_real_torch_of_this_environment_is_asked_too(machine: Machine, tmp_path: Path) -> None:
    hidden = {"LD_LIBRARY_PATH": driver_library(tmp_path, 0), "CUDA_VISIBLE_DEVICES": ""}
    reported = pytorch.here(changed(machine, **hidden))
    assert reported.verdict is Verdict.PROBLEM
    assert "sees no GPU" in reported.found


def test_torch_is_not_asked_where_the_driver_shows_no_card(machine: Machine, tmp_path: Path) -> None:
    without = changed(machine, LD_LIBRARY_PATH=driver_library(tmp_path, 9))
    for check in (pytorch.here, pytorch.in_the_image, vulkan.in_the_image):
        assert check(without).found == "not asked: no NVIDIA GPU"


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


def test_the_ports_that_are_asked_about_are_those_of_the_command(taken_port: int) -> None:
    command = [sys.executable, "scripts/launch.py", "doctor", "--json", "--port", str(taken_port)]
    reported = json.loads(subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, check=False).stdout)
    (ports,) = [row for row in reported if row["check"] == "simulator's ports"]
    assert ports["verdict"] == "problem"
    assert f"{taken_port} is taken by" in ports["found"]


def test_a_setting_in_dotenv_counts_where_the_environment_has_none(machine: Machine) -> None:
    (machine.stack / ".env").write_text(f"# of this machine\n{OLD}='max_split_size_mb:1'\nRUN_UID=77\n")
    assert settings.allocator(changed(machine, **{OLD: "", NEW: ""})).verdict is Verdict.PROBLEM
    assert machine.setting("RUN_UID") == "77"
    assert changed(machine, RUN_UID="78").setting("RUN_UID") == "78"


@pytest.mark.parametrize(
    ("own", "wanted", "verdict"),
    [
        (1000, "", Verdict.OK),
        (501, "", Verdict.PROBLEM),
        (501, "501", Verdict.OK),
        (501, "0", Verdict.PROBLEM),
        (501, "me", Verdict.PROBLEM),
        (0, "", Verdict.OK),
    ],
)
def test_the_containers_user_must_be_the_caller(
    machine: Machine, monkeypatch: Any, own: int, wanted: str, verdict: Verdict
) -> None:
    monkeypatch.setattr(os, "getuid", lambda: own)
    assert settings.dotenv(changed(answering(machine), RUN_UID=wanted)).verdict is verdict


@pytest.mark.parametrize(("wanted", "verdict"), [("0", Verdict.OK), ("", Verdict.PROBLEM), ("501", Verdict.PROBLEM)])
def test_a_rootless_engine_s_root_is_the_caller(machine: Machine, wanted: str, verdict: Verdict) -> None:
    rootless = answering(machine, SecurityOptions=["name=seccomp,profile=builtin", "name=rootless"])
    found = settings.dotenv(changed(rootless, RUN_UID=wanted))
    assert found.verdict is verdict
    assert (verdict is Verdict.OK) is (found.do == "")


def test_a_check_that_fails_or_hangs_is_unknown_and_the_others_are_told(machine: Machine) -> None:
    let_go = threading.Event()

    def hangs(_: Machine) -> Finding:
        let_go.wait(PATIENCE_S)
        return Finding(Verdict.OK, "")

    def fails(_: Machine) -> Finding:
        raise ValueError("odd")

    checks, found = {"hangs": hangs, "fails": fails, "python": settings.python}, dict[str, Finding]()

    def others_answer() -> bool:  # on a busy machine not at the first try
        found.update(doctor.examine(machine, checks, limit_s=0.5))
        return "no answer" not in found["fails"].found + found["python"].found

    until(others_answer)
    let_go.set()
    assert found["hangs"].verdict is Verdict.UNKNOWN
    assert "no answer within 0.5 s" in found["hangs"].found
    assert found["fails"] == Finding(Verdict.UNKNOWN, "the check failed: ValueError: odd")
    assert found["python"].verdict is Verdict.OK


def test_a_program_that_takes_too_long_is_ended() -> None:
    ended = run((sys.executable, "-c", "import time; time.sleep(3600)"), os.environ, limit_s=0.5)
    assert ended.code == 1
    assert "timed out" in ended.said


def test_the_real_machine_is_examined_and_nothing_is_changed(machine: Machine, capsys: Any) -> None:
    before = sorted(machine.stack.rglob("*"))
    code = doctor.run(machine, as_json=True)
    rows = json.loads(capsys.readouterr().out)
    assert [row["check"] for row in rows] == list(doctor.CHECKS)
    assert code == int(any(row["verdict"] == "problem" for row in rows))
    assert not [row for row in rows if row["found"].startswith("the check failed")]
    assert sorted(machine.stack.rglob("*")) == before


def test_a_problem_is_exit_1_and_stands_in_the_table_with_what_to_do(machine: Machine, capsys: Any) -> None:
    assert doctor.run(changed(machine, RUN_UID="0")) == 1
    said = capsys.readouterr().out
    assert "problem" in said
    assert "RUN_UID is 0" in said
