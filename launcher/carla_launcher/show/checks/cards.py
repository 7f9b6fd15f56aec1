"""Checks of whether programs can use the card that the driver shows: PyTorch, here and in the agent's image; Vulkan.

All are asked in a process or container of their own: the launcher never imports torch. CARLA draws with Vulkan, and the
checks of CUDA don't tell whether that works; its image's own ``carla-vulkan`` does.
"""

from __future__ import annotations

import json
import sys

from carla_launcher.act.compose.daemon_words import explained
from carla_launcher.show.checks import engines
from carla_launcher.show.checks.machine import Finding, Machine, Ran, ok, problem, unknown

AGENT_IMAGE, SIMULATOR_IMAGE = "carla-td3-agent:latest", "carla-td3-simulator"
"""As docker-compose.yml names them."""
CARLA_VERSION = "0.9.16"
VULKAN = "carla-vulkan"
LIMIT_S = 50.0
"""To start a container on a busy machine, or to import torch and begin CUDA, cold."""
DOCKER_FAILED = 125
"""`docker run`'s own: there was no container, whose code it would have been."""
NO_PROGRAM, NO_DRIVER = (126, 127), 65

# torch's own reason: it is raised where CUDA is begun, and nowhere else.
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
    """Return whether this interpreter's torch, which runs the agent as a local process, sees the card."""
    if not engines.has_card(machine):
        return _not_asked("an agent on the CPU")
    missing = unknown("not installed", "pip install '.[agent]' for local processes; Compose needs none")
    return _torch(machine.ask(sys.executable, "-c", _TORCH, limit_s=LIMIT_S), missing)


def torch_in_the_image(machine: Machine) -> Finding:
    """Return whether the torch in the agent's image, which Compose runs, sees the card that a container is given."""
    if not engines.has_card(machine):
        return _not_asked("an agent on the CPU")
    asked = _in_image(machine, "agent", AGENT_IMAGE, "AGENT_GPU", "python", "-c", _TORCH)
    missing = problem("the image has no torch", "docker compose build agent")
    return asked if isinstance(asked, Finding) else _torch(asked, missing)


def vulkan_in_the_image(machine: Machine) -> Finding:
    """Return whether the image has a file that names NVIDIA's driver, and the engine brings that driver."""
    if not engines.has_card(machine):
        return _not_asked("carla-lite")
    image = f"{SIMULATOR_IMAGE}:{machine.setting('CARLA_VERSION') or CARLA_VERSION}"
    asked = _in_image(machine, "carla", image, "CARLA_GPU", VULKAN)
    if isinstance(asked, Finding):
        return asked
    if asked.code in NO_PROGRAM:
        return problem(f"{image} has no {VULKAN}: it is of an earlier build", "docker compose build carla")
    if asked.code == NO_DRIVER:
        found, _, todo = asked.said.removeprefix("carla: ").rstrip(".").partition("; ")
        return problem(found, todo)
    if asked.code != 0:
        return _no_answer(asked)
    return ok(f"NVIDIA's driver, by {asked.out}" if asked.out else "drivers are left to Vulkan's own search")


def _in_image(machine: Machine, service: str, image: str, card: str, *program: str) -> Ran | Finding:
    """Return how a program ended in an image, with the card and runtime that Compose gives it; or why it can't be run.

    Args:
        card: the variable that names it.
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
    # As Compose: the reservation alone names the card, whatever the image has in its environment.
    options = ("--rm", "--pull", "never", "--network", "none", "--env", "NVIDIA_VISIBLE_DEVICES=void")
    gpu = ("--gpus", f"device={machine.setting(card) or 0}", *(("--runtime", runtime) if runtime else ()))
    command = ("docker", "run", *options, *gpu, "--entrypoint", entry, image, *arguments)
    asked = machine.ask(*command, limit_s=LIMIT_S)
    if asked.code == DOCKER_FAILED:
        return problem("Docker starts no container with the GPU", explained(asked.said))
    return asked


def _torch(asked: Ran, missing: Finding) -> Finding:
    """Return what torch's answer comes to."""
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
    return problem(f"{build}, sees no GPU: {reported['why']}", "mend it as the line says, or take --device cpu")


def _not_asked(for_what: str) -> Finding:
    return unknown("not asked: no NVIDIA GPU", f"none is needed for {for_what}")


def _no_answer(asked: Ran) -> Finding:
    return unknown(f"can't be asked: {asked.said}", "try again, or look by hand")
