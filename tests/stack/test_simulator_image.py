"""carla/Dockerfile, its entry point and its health check, built and run on a stand-in for CARLA's own image."""

from __future__ import annotations

import json
import os
import re
import socket
import subprocess
import threading
from pathlib import Path

import pytest

from tests.conftest import REPOSITORY, StartServer
from tests.gpu_stub.stub import VULKAN, build_vulkan
from tests.stack.conftest import StartStack
from tests.stack.stack import GPU, Stack, docker
from tests.stack.stand_in import DRIVER, TAG, WITHOUT_A_DEVICE

pytestmark = [pytest.mark.stack, pytest.mark.timeout(1500)]

OURS, HOSTS = "/etc/vulkan/icd.d/nvidia_icd.json", "/usr/share/vulkan/icd.d/nvidia_icd.json"
SEEN = re.compile(r"deviceName += (.+)")
SEES = "XDG_RUNTIME_DIR=/tmp vulkaninfo --summary"


def simulator(start_stack: StartStack, folder: Path, driver: Path, **variables: str) -> Stack:
    override = folder / "without-a-device.yml"
    override.write_text(WITHOUT_A_DEVICE.format(driver=driver, target=DRIVER))
    return start_stack({}, (*GPU, str(override)), CARLA_VERSION=TAG, **variables)


def probed(folder: Path, *arguments: str, image: str = "carla-td3-simulator") -> subprocess.CompletedProcess[str]:
    """Run an image whose simulator is the loader's own program, with more arguments of ``docker run``."""
    probe = folder / "CarlaUE4.sh"
    probe.write_text(f"{SEES}\n")
    given = ("-e", "CARLA_ROOT=/probe", "-v", f"{probe}:/probe/CarlaUE4.sh:ro", "-e", "NVIDIA_DRIVER_CAPABILITIES=all")
    return docker("run", "--rm", *given, *arguments, f"{image}:{TAG}", check=False)


@pytest.mark.parametrize("quality", ["Low", pytest.param("Epic", marks=pytest.mark.long)])
def test_carla_starts_healthily_off_screen_at_the_quality_and_ends_on_a_signal(
    stand_in: Path, start_stack: StartStack, tmp_path: Path, quality: str
) -> None:
    stack = simulator(start_stack, tmp_path, stand_in, CARLA_QUALITY=quality, CARLA_FLAGS="-fps=20 -benchmark")
    stack.up("carla")
    arguments = f"-RenderOffScreen -nosound -quality-level={quality} -carla-rpc-port={stack.port} -fps=20 -benchmark"
    assert f"arguments {arguments}\n" in stack.logs("carla")
    assert "user carla\n" in stack.logs("carla")
    assert stack.count_actors() >= 1, "a client on this machine sees the world through the published ports"

    stack.compose("stop")
    assert "signal SIGTERM\n" in stack.logs("carla")
    assert stack.state("carla")["ExitCode"] == 0, "SIGKILL, at the end of the grace, makes it 137"


@pytest.mark.long
def test_a_display_is_used_where_there_is_one(stand_in: Path, start_stack: StartStack, tmp_path: Path) -> None:
    stack = simulator(start_stack, tmp_path, stand_in)
    stack.compose("run", "--detach", "--name", f"{stack.project}-shown", "-e", "DISPLAY=:7", "carla")
    stack.wait(lambda: "arguments" in docker("logs", f"{stack.project}-shown").stdout)
    shown = docker("logs", f"{stack.project}-shown").stdout
    assert f"arguments -nosound -quality-level=Low -carla-rpc-port={stack.port}\n" in shown


@pytest.mark.long
def test_a_simulator_that_crashes_is_started_again(stand_in: Path, start_stack: StartStack, tmp_path: Path) -> None:
    stack = simulator(start_stack, tmp_path, stand_in)
    stack.up("carla")
    process = re.search(r"^process (\d+)$", stack.logs("carla"), re.MULTILINE)
    assert process is not None
    docker("exec", stack.container("carla"), "sh", "-c", f"kill -SEGV {process[1]}")
    stack.wait(lambda: stack.state("carla")["RestartCount"] == 1 and stack.state("carla")["Running"])
    stack.wait(lambda: stack.state("carla")["Health"]["Status"] == "healthy")


@pytest.mark.parametrize(
    ("variables", "sentence"),
    [
        ({"CARLA_QUALITY": "High"}, "carla: CARLA_QUALITY is 'High', expected Low or Epic"),
        ({"CARLA_QUALITY": "low"}, "carla: CARLA_QUALITY is 'low', expected Low or Epic"),
        ({"CARLA_PORT": "65534"}, "carla: CARLA_PORT is '65534', expected a number from 1 to 65533"),
        ({"CARLA_PORTS": "65534-65536"}, "carla: CARLA_PORTS is '65534-65536', expected a number from 1 to 65533"),
        ({"CARLA_PORTS": "2100"}, "carla: CARLA_PORTS is '2100', expected three in a row, as 2100-2102"),
        ({"CARLA_ROOT": "/nowhere"}, "carla: /nowhere/CarlaUE4.sh isn't there"),
    ],
)
def test_what_the_environment_says_wrongly_is_refused_in_one_sentence(variables: dict[str, str], sentence: str) -> None:
    ended = subprocess.run(
        ["bash", REPOSITORY / "carla" / "entrypoint.sh"],
        check=False,
        capture_output=True,
        text=True,
        env={**os.environ, **variables},
    )
    assert ended.returncode == 65
    assert ended.stderr.startswith(sentence)
    assert len(ended.stderr.splitlines()) == 1


def test_vulkan_finds_the_driver_by_the_image_s_own_file_and_not_without(stand_in: Path, tmp_path: Path) -> None:
    given = ("-v", f"{stand_in}:{DRIVER}:ro", "--read-only", "--cap-drop", "ALL")
    assert SEEN.findall(probed(tmp_path, *given).stdout) == ["NVIDIA stand-in"]
    without = docker("run", "--rm", *given, f"carlasim/carla:{TAG}", "sh", "-c", SEES, check=False)
    assert "ERROR_INCOMPATIBLE_DRIVER" in without.stdout + without.stderr


@pytest.mark.parametrize(
    "beside", [(OURS,), (HOSTS,), ("/etc/vulkan/icd.d/nvidia_icd.x86_64.json",), (OURS, HOSTS)], ids=" ".join
)
def test_a_card_counts_once_where_the_engine_brings_the_driver_s_own_file(
    stand_in: Path, tmp_path: Path, beside: tuple[str, ...]
) -> None:
    theirs = tmp_path / "theirs.json"
    icd = {"library_path": VULKAN, "api_version": "1.3.277"}
    theirs.write_text(json.dumps({"file_format_version": "1.0.1", "ICD": icd}))
    brought = [part for path in beside for part in ("-v", f"{theirs}:{path}:ro")]
    given = ("-v", f"{stand_in}:{DRIVER}:ro", *brought)
    assert SEEN.findall(probed(tmp_path, *given).stdout) == ["NVIDIA stand-in"]
    by_itself = docker("run", "--rm", *given, "--entrypoint", "sh", f"carla-td3-simulator:{TAG}", "-c", SEES).stdout
    assert len(SEEN.findall(by_itself)) == len({OURS, *beside}), "or this shows nothing"


def test_the_verification_on_a_card_counts_what_vulkan_finds_by_that_file(stand_in: Path) -> None:
    """scripts/vulkan_devices.py, on the real loader."""
    script = ("-v", f"{REPOSITORY}/scripts:/checkout/scripts:ro", "-v", f"{REPOSITORY}/launcher:/checkout/launcher:ro")
    program = ("--entrypoint", "python3", f"carla-td3-simulator:{TAG}", "/checkout/scripts/vulkan_devices.py")
    found = docker("run", "--rm", "-v", f"{stand_in}:{DRIVER}:ro", *script, *program)
    assert [device["name"] for device in json.loads(found.stdout)["devices"]] == ["NVIDIA stand-in"]
    assert docker("run", "--rm", *script, *program, check=False).returncode == 1


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ((), "the engine gave it no GPU; install the NVIDIA Container Toolkit"),
        (("-v", "/dev/null:/dev/dxg"), "under WSL2 NVIDIA's driver has no Vulkan"),
        (("-v", "/dev/null:/dev/nvidiactl"), "it has a GPU and no libGLX_nvidia.so.0; install the graphics part"),
        (
            ("-v", "/dev/null:/dev/nvidiactl", "-e", "NVIDIA_DRIVER_CAPABILITIES=compute,utility"),
            "NVIDIA_DRIVER_CAPABILITIES is 'compute,utility', expected all",
        ),
    ],
)
def test_without_a_driver_for_vulkan_it_says_what_is_missing_and_starts_nothing(
    stand_in: Path, tmp_path: Path, given: tuple[str, ...], said: str
) -> None:
    ended = probed(tmp_path, *given)
    assert (ended.returncode, ended.stdout) == (65, "")
    (sentence,) = ended.stderr.splitlines()
    assert sentence.startswith(f"carla: Vulkan finds no driver for a GPU in this container: {said}")


@pytest.mark.parametrize(
    ("needs", "said"),
    [
        ("libXext.so.6", "libGLX_nvidia.so.0 needs libXext.so.6, which the image hasn't"),
        ("libnvidia-gpucomp.so.550", "without its libnvidia-gpucomp.so.550; upgrade the NVIDIA Container Toolkit"),
    ],
)
def test_a_driver_that_lacks_a_library_of_its_own_names_it(
    stand_in: Path, tmp_path: Path, needs: str, said: str
) -> None:
    ended = probed(tmp_path, "-v", f"{build_vulkan(tmp_path, needs)}:{DRIVER}:ro")
    assert ended.returncode == 65
    assert said in ended.stderr


@pytest.mark.parametrize(
    "given",
    [
        ("-e", "VK_DRIVER_FILES=/mine.json"),
        ("-e", "VK_ICD_FILENAMES=/mine.json"),
        ("-v", "/dev/null:/dev/dri/renderD128"),
    ],
)
def test_another_driver_is_left_to_vulkan(stand_in: Path, tmp_path: Path, given: tuple[str, ...]) -> None:
    ended = probed(tmp_path, *given)
    assert "Vulkan finds no driver" not in ended.stderr
    assert "ERROR_INCOMPATIBLE_DRIVER" in ended.stdout + ended.stderr, "it has looked"


def test_a_simulator_that_draws_nothing_needs_no_driver(stand_in: Path, tmp_path: Path) -> None:
    probe = tmp_path / "CarlaUE4.sh"
    probe.write_text('echo "arguments $*"\n')
    given = ("--rm", "-e", "CARLA_ROOT=/probe", "-v", f"{probe}:/probe/CarlaUE4.sh:ro")
    assert "-nullRHI\n" in docker("run", *given, f"carla-td3-simulator:{TAG}", "-nullRHI").stdout


@pytest.mark.parametrize(
    ("asked", "given"), [({}, None), ({"GPU_RUNTIME": "io.containerd.runc.v2"}, "io.containerd.runc.v2")]
)
def test_the_engine_s_default_runtime_is_in_force_unless_another_is_named(
    stand_in: Path, start_stack: StartStack, tmp_path: Path, asked: dict[str, str], given: str | None
) -> None:
    stack = simulator(start_stack, tmp_path, stand_in, **asked)
    stack.compose("create", "--no-build", "carla")
    found = docker("inspect", "--format", "{{.HostConfig.Runtime}}", stack.container("carla")).stdout.strip()
    assert found == (given or docker("info", "--format", "{{.DefaultRuntime}}").stdout.strip())


def healthy(port: int) -> bool:
    command = ["bash", str(REPOSITORY / "carla" / "healthcheck.sh")]
    return (
        subprocess.run(
            command, check=False, capture_output=True, env={**os.environ, "CARLA_PORT": str(port)}
        ).returncode
        == 0
    )


def test_the_health_check_takes_a_simulator_and_no_open_port(start_server: StartServer) -> None:
    server = start_server()
    assert healthy(server.port)
    server.kill()
    assert not healthy(server.port)
    assert not [answer for answer in (b"", b"HTTP/1.1 400 Bad Request\r\n\r\n", b"\x94\x01\x01\xc3") if dumb(answer)]


def dumb(answer: bytes) -> bool:
    """Return the health check's verdict on a port that always gives the same answer."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        held: list[socket.socket] = []

        def accept() -> None:
            held.append(listener.accept()[0])
            held[0].sendall(answer)

        thread = threading.Thread(target=accept)
        thread.start()
        said = healthy(listener.getsockname()[1])
        thread.join()
        held[0].close()
    return said
