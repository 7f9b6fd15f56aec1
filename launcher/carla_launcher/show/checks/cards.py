"""Checks of whether programs can use the GPU: PyTorch, here and in the agent's image, and Vulkan in CARLA's image.

Each runs in a process or container, since the launcher never imports torch. CARLA renders with Vulkan, which CUDA's
checks don't test; the program ``carla-vulkan`` in its image does.
"""

from __future__ import annotations

import json
import sys

from carla_launcher.act.compose.daemon_errors import explanation
from carla_launcher.show.checks import engines
from carla_launcher.show.checks.machine import CommandOutput, Finding, Machine, ok, problem, unknown

AGENT_IMAGE, SIMULATOR_IMAGE = "carla-td3-agent:latest", "carla-td3-simulator"
"""Names as in docker-compose.yml."""
CARLA_VERSION = "0.9.16"
VULKAN = "carla-vulkan"
LIMIT_S = 50.0
"""Time limit to start a container on a busy machine, or to import torch and start CUDA for the first time."""
DOCKER_FAILED = 125
"""Exit code of `docker run` itself, if it started no container."""
NO_PROGRAM, NO_DRIVER = (126, 127), 65

# Only starting CUDA raises torch's reason.
_TORCH = """
import importlib.util, json
told = dict.fromkeys(("torch", "built_for", "card", "why"))
if importlib.util.find_spec("torch"):
    import torch
    told.update(torch=torch.__version__, built_for=torch.version.cuda)
    try:
        torch.cuda.init()
        told["card"] = torch.cuda.get_device_name(0)
    except Exception as error:
        told["why"] = " ".join(str(error).split())
print(json.dumps(told))
"""


def torch_here(machine: Machine) -> Finding:
    """Check that this interpreter's torch, which a local agent uses, sees the GPU."""
    if not engines.has_card(machine):
        return _not_asked("an agent on the CPU")
    missing = unknown("not installed", "pip install '.[agent]' for local processes; Compose needs none")
    return _torch(machine.ask(sys.executable, "-c", _TORCH, limit_s=LIMIT_S), missing)


def torch_in_the_image(machine: Machine) -> Finding:
    """Check that torch in the agent's image sees the container's GPU."""
    if not engines.has_card(machine):
        return _not_asked("an agent on the CPU")
    asked = _in_image(machine, "agent", AGENT_IMAGE, "AGENT_GPU", "python", "-c", _TORCH)
    missing = problem("the image has no torch", "docker compose build agent")
    return asked if isinstance(asked, Finding) else _torch(asked, missing)


def vulkan_in_the_image(machine: Machine) -> Finding:
    """Check that CARLA's image finds NVIDIA's Vulkan driver, and that the engine provides it."""
    if not engines.has_card(machine):
        return _not_asked("carla-lite")
    image = f"{SIMULATOR_IMAGE}:{machine.setting('CARLA_VERSION') or CARLA_VERSION}"
    asked = _in_image(machine, "carla", image, "CARLA_GPU", VULKAN)
    if isinstance(asked, Finding):
        return asked
    if asked.code in NO_PROGRAM:
        return problem(f"{image} has no {VULKAN}: it is from an earlier version", "docker compose build carla")
    if asked.code == NO_DRIVER:
        found, _, todo = asked.said.removeprefix("carla: ").rstrip(".").partition("; ")
        return problem(found, todo)
    if asked.code != 0:
        return _no_answer(asked)
    return ok(f"NVIDIA's driver, by {asked.out}" if asked.out else "Vulkan searches for drivers itself")


def _in_image(machine: Machine, service: str, image: str, card: str, *program: str) -> CommandOutput | Finding:
    """Run a program in an image with the GPU and runtime that Compose would use; return its result, or a finding.

    Args:
        card: the variable that names the GPU.
        program: the entry point and its arguments.
    """
    looked = machine.ask("docker", "image", "inspect", "--format", "{{.Id}}", image)
    if looked.code == 127:
        return unknown("no Docker", "local processes need none")
    if looked.code != 0:
        return unknown(f"no image {image}", f"docker compose build {service}, for the Compose stack")
    found, _ = engines.kind(machine)
    runtime = machine.setting("GPU_RUNTIME") or ("" if found is None else found.runtime)
    entry, *arguments = program
    # As in Compose, only the reservation chooses the GPU, whatever the image's environment says.
    options = ("--rm", "--pull", "never", "--network", "none", "--env", "NVIDIA_VISIBLE_DEVICES=void")
    gpu = ("--gpus", f"device={machine.setting(card) or 0}", *(("--runtime", runtime) if runtime else ()))
    command = ("docker", "run", *options, *gpu, "--entrypoint", entry, image, *arguments)
    asked = machine.ask(*command, limit_s=LIMIT_S)
    if asked.code == DOCKER_FAILED:
        return problem("Docker starts no container with the GPU", explanation(asked.said))
    return asked


def _torch(asked: CommandOutput, missing: Finding) -> Finding:
    """Return the finding for torch's answer."""
    if asked.code != 0:
        return _no_answer(asked)
    reported = json.loads(asked.out.splitlines()[-1])
    if reported["torch"] is None:
        return missing
    built_for = reported["built_for"]
    build = f"torch {reported['torch']}, " + (f"for CUDA {built_for}" if built_for else "built without CUDA")
    if reported["card"] is not None:
        return ok(f"{build}, sees {reported['card']}")
    if built_for is None:
        return problem(f"{build}, sees no GPU", "pick a build for this driver at pytorch.org")
    return problem(f"{build}, sees no GPU: {reported['why']}", "repair it as the line says, or use --device cpu")


def _not_asked(for_what: str) -> Finding:
    return unknown("not checked: no NVIDIA GPU", f"none is needed for {for_what}")


def _no_answer(asked: CommandOutput) -> Finding:
    return unknown(f"can't be checked: {asked.said}", "try again, or check by hand")
