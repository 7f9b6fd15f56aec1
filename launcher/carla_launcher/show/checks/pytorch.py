"""Checks of whether PyTorch can compute on the card that the driver shows: the interpreter's, and the agent's image's.

Both are asked in a process of their own, by the same few lines: the launcher never imports torch.
"""

from __future__ import annotations

import json
import sys

from carla_launcher.act.compose.daemon_words import explained
from carla_launcher.show.checks import engines
from carla_launcher.show.checks.machine import Finding, Machine, Ran, Verdict

IMAGE = "carla-td3-agent:latest"
"""As docker-compose.yml names it."""
LIMIT_S = 50.0
"""To import torch and begin CUDA, cold and perhaps in a container."""
_NO_CARD = Finding(Verdict.UNKNOWN, "not asked: no NVIDIA GPU", "none is needed for an agent on the CPU")
_MEND = "mend it as the line says, or take --device cpu"
_OTHER_BUILD = "pick a build for this driver at pytorch.org"

# torch's own reason: it is raised where CUDA is begun, and nowhere else.
_ASK = """
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


def here(machine: Machine) -> Finding:
    """Return whether this interpreter's torch, which runs the agent as a local process, sees the card."""
    if not engines.has_card(machine):
        return _NO_CARD
    finding = _judged(machine.ask(sys.executable, "-c", _ASK, limit_s=LIMIT_S))
    if finding is None:
        return Finding(
            Verdict.UNKNOWN, "not installed", "pip install '.[agent]' for local processes; Compose needs none"
        )
    return finding


def in_the_image(machine: Machine) -> Finding:
    """Return whether the torch in the agent's image, which Compose runs, sees the card that a container is given."""
    if not engines.has_card(machine):
        return _NO_CARD
    if missing := engines.missing_image(machine, IMAGE, "agent"):
        return missing
    asked = engines.with_card(machine, "AGENT_GPU", IMAGE, "python", "-c", _ASK, limit_s=LIMIT_S)
    if asked.code == engines.DOCKER_FAILED:
        return Finding(Verdict.PROBLEM, "Docker starts no container with the GPU", explained(asked.said))
    finding = _judged(asked)
    return finding or Finding(Verdict.PROBLEM, "the image has no torch", "docker compose build agent")


def _judged(asked: Ran) -> Finding | None:
    """Return what torch's answer comes to; None if there is no torch."""
    if asked.code != 0:
        return Finding(Verdict.UNKNOWN, f"can't be asked: {asked.said}", "try again, or look by hand")
    reported = json.loads(asked.out.splitlines()[-1])
    if reported["torch"] is None:
        return None
    build = f"torch {reported['torch']}, " + (
        f"for CUDA {reported['built_for']}" if reported["built_for"] else "built without CUDA"
    )
    if reported["card"] is not None:
        return Finding(Verdict.OK, f"{build}, sees {reported['card']}")
    if reported["built_for"] is None:
        return Finding(Verdict.PROBLEM, f"{build}, sees no GPU", _OTHER_BUILD)
    return Finding(Verdict.PROBLEM, f"{build}, sees no GPU: {reported['why']}", _MEND)
