"""carla/Dockerfile, its entry point and its health check, built and run on a stand-in for CARLA's own image.

The stand-in has that image's name, its user ``carla`` and a ``/workspace/CarlaUE4.sh`` that doesn't exec its child, as
CARLA's own does not; the child tells its arguments and signals and serves carla-lite. So only the simulator is missing.
"""

from __future__ import annotations

import os
import re
import socket
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.conftest import REPOSITORY, StartServer
from tests.stack.conftest import StartStack
from tests.stack.stack import GPU, Stack, docker

pytestmark = [pytest.mark.stack, pytest.mark.timeout(1500)]

TAG = "stand-in"
DOCKERFILE = """
FROM carla-td3-lite:latest
USER root
RUN useradd --create-home carla
COPY --chown=carla . /workspace
WORKDIR /workspace
USER carla
ENTRYPOINT []
"""
WRAPPER = """#!/bin/sh
UE4_TRUE_SCRIPT_NAME=$(echo \\"$0\\" | xargs readlink -f)
UE4_PROJECT_ROOT=$(dirname "$UE4_TRUE_SCRIPT_NAME")
chmod +x "$UE4_PROJECT_ROOT/CarlaUE4/Binaries/Linux/CarlaUE4-Linux-Shipping"
"$UE4_PROJECT_ROOT/CarlaUE4/Binaries/Linux/CarlaUE4-Linux-Shipping" CarlaUE4 "$@"
"""
SIMULATOR = """#!/opt/venv/bin/python
import os, re, signal, sys
from carla_lite import command as lite

def leave(number, _):
    print("signal", signal.Signals(number).name, flush=True)
    sys.exit(0)

print("arguments", *sys.argv[2:], flush=True)
print("process", os.getpid(), flush=True)
print("user", os.popen("id -un").read().strip(), flush=True)
lite._leave = leave
port = re.search("-carla-rpc-port=([0-9]+)", " ".join(sys.argv))[1]
sys.argv = ["carla_lite", "--host", "0.0.0.0", "--port", port]
lite.app()
"""
# What a machine without a GPU can't have; all the rest is as it is shipped.
WITHOUT_A_DEVICE = """
services:
  carla: {deploy: !reset null}
  agent: {deploy: !reset null}
"""


@pytest.fixture(scope="module")
def stand_in(images: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Give CARLA's image name another tag and build the simulator's image on it."""
    folder = tmp_path_factory.mktemp("stand-in")
    shipping = folder / "CarlaUE4" / "Binaries" / "Linux" / "CarlaUE4-Linux-Shipping"
    shipping.parent.mkdir(parents=True)
    for path, text in ((shipping, SIMULATOR), (folder / "CarlaUE4.sh", WRAPPER), (folder / "Dockerfile", DOCKERFILE)):
        path.write_text(text)
    docker("build", "--quiet", "--tag", f"carlasim/carla:{TAG}", str(folder))
    yield
    docker("image", "rm", f"carlasim/carla:{TAG}", f"carla-td3-simulator:{TAG}", check=False)


def simulator(start_stack: StartStack, folder: Path, **variables: str) -> Stack:
    override = folder / "without-a-device.yml"
    override.write_text(WITHOUT_A_DEVICE)
    stack = start_stack({}, (*GPU, str(override)), CARLA_VERSION=TAG, **variables)
    stack.compose("build", "--quiet", "carla")
    return stack


@pytest.mark.parametrize("quality", ["Low", pytest.param("Epic", marks=pytest.mark.long)])
def test_carla_starts_healthily_off_screen_at_the_quality_and_ends_on_a_signal(
    stand_in: None, start_stack: StartStack, tmp_path: Path, quality: str
) -> None:
    stack = simulator(start_stack, tmp_path, CARLA_QUALITY=quality, CARLA_FLAGS="-fps=20 -benchmark")
    stack.up("carla")
    arguments = f"-RenderOffScreen -nosound -quality-level={quality} -carla-rpc-port={stack.port} -fps=20 -benchmark"
    assert f"arguments {arguments}\n" in stack.logs("carla")
    assert "user carla\n" in stack.logs("carla")
    assert stack.count_actors() >= 1, "a client on this machine sees the world through the published ports"

    stack.compose("stop")
    assert "signal SIGTERM\n" in stack.logs("carla")
    assert stack.state("carla")["ExitCode"] == 0, "SIGKILL, at the end of the grace, makes it 137"


@pytest.mark.long
def test_a_display_is_used_where_there_is_one(stand_in: None, start_stack: StartStack, tmp_path: Path) -> None:
    stack = simulator(start_stack, tmp_path)
    stack.compose("run", "--detach", "--name", f"{stack.project}-shown", "-e", "DISPLAY=:7", "carla")
    stack.wait(lambda: "arguments" in docker("logs", f"{stack.project}-shown").stdout)
    shown = docker("logs", f"{stack.project}-shown").stdout
    assert f"arguments -nosound -quality-level=Low -carla-rpc-port={stack.port}\n" in shown


@pytest.mark.long
def test_a_simulator_that_crashes_is_started_again(stand_in: None, start_stack: StartStack, tmp_path: Path) -> None:
    stack = simulator(start_stack, tmp_path)
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
    """Return what the health check says of a port that says the same to everybody."""
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
