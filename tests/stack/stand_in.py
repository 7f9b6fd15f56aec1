"""A stand-in for CARLA's own image, on which carla/Dockerfile is built.

It has that image's name, its user ``carla`` and a ``/workspace/CarlaUE4.sh`` that doesn't exec its child, as CARLA's
own does not; the child tells its arguments and signals and serves carla-lite. Vulkan's loader is the real one, the
driver that the engine would bring is a stand-in. So only the simulator and the card are missing.
"""

from __future__ import annotations

from pathlib import Path

from tests.gpu_stub.stub import VULKAN
from tests.stack.stack import GPU, compose, docker

TAG = "stand-in"
DOCKERFILE = """
FROM carla-td3-lite:latest
USER root
RUN apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends \\
    libvulkan1 vulkan-tools && rm -rf /var/lib/apt/lists/* && useradd --create-home carla
ENV NVIDIA_VISIBLE_DEVICES=all
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
from carla_lite import command, serving

def leave(number, _):
    print("signal", signal.Signals(number).name, flush=True)
    sys.exit(0)

print("arguments", *sys.argv[2:], flush=True)
print("process", os.getpid(), flush=True)
print("user", os.popen("id -un").read().strip(), flush=True)
serving._leave = leave
port = re.search("-carla-rpc-port=([0-9]+)", " ".join(sys.argv))[1]
sys.argv = ["carla_lite", "--host", "0.0.0.0", "--port", port]
command.main()
"""
# What a machine without a GPU can't have; all the rest is as it is shipped. The driver is mounted, as the engine would.
WITHOUT_A_DEVICE = """
services:
  carla:
    deploy: !reset null
    volumes: [{{type: bind, source: {driver}, target: {target}, read_only: true}}]
  agent: {{deploy: !reset null}}
"""
DRIVER = f"/usr/lib/{VULKAN}"


def build_simulator(folder: Path) -> None:
    """Give CARLA's image name another tag, and build the simulator's image on it."""
    shipping = folder / "CarlaUE4" / "Binaries" / "Linux" / "CarlaUE4-Linux-Shipping"
    shipping.parent.mkdir(parents=True)
    for path, text in ((shipping, SIMULATOR), (folder / "CarlaUE4.sh", WRAPPER), (folder / "Dockerfile", DOCKERFILE)):
        path.write_text(text)
    docker("build", "--quiet", "--tag", f"carlasim/carla:{TAG}", str(folder), timeout_s=600)
    compose(GPU, "build", "--quiet", "carla", variables={"CARLA_VERSION": TAG})


def remove() -> None:
    """Remove both images."""
    docker("image", "rm", f"carlasim/carla:{TAG}", f"carla-td3-simulator:{TAG}", check=False)
