"""Check of whether Vulkan, which CARLA draws with, finds the card in the simulator's image; CUDA's checks don't tell.

The image's own ``carla-vulkan`` is asked, as its entry point asks it.
"""

from __future__ import annotations

from carla_launcher.act.compose.daemon_words import explained
from carla_launcher.show.checks import engines
from carla_launcher.show.checks.machine import Finding, Machine, Ran, Verdict

IMAGE = "carla-td3-simulator"
"""As docker-compose.yml names it."""
VERSION = "0.9.16"
PROGRAM = "carla-vulkan"
NO_PROGRAM = (126, 127)
NO_DRIVER = 65
REFUSAL = "carla: "


def in_the_image(machine: Machine) -> Finding:
    """Return whether the image has a file that names NVIDIA's driver, and the engine brings that driver."""
    if not engines.has_card(machine):
        return Finding(Verdict.UNKNOWN, "not asked: no NVIDIA GPU", "none is needed for carla-lite")
    image = f"{IMAGE}:{machine.setting('CARLA_VERSION') or VERSION}"
    if missing := engines.missing_image(machine, image, "carla"):
        return missing
    asked = engines.with_card(machine, "CARLA_GPU", image, PROGRAM, limit_s=engines.START_LIMIT_S)
    if asked.code == engines.DOCKER_FAILED:
        return Finding(Verdict.PROBLEM, "Docker starts no container with the GPU", explained(asked.said))
    return _judged(asked, image)


def _judged(asked: Ran, image: str) -> Finding:
    if asked.code in NO_PROGRAM:
        return Finding(
            Verdict.PROBLEM, f"{image} has no {PROGRAM}: it is of an earlier build", "docker compose build carla"
        )
    if asked.code == NO_DRIVER:
        found, _, todo = asked.said.removeprefix(REFUSAL).rstrip(".").partition("; ")
        return Finding(Verdict.PROBLEM, found, todo)
    if asked.code != 0:
        return Finding(Verdict.UNKNOWN, f"can't be asked: {asked.said}", "try again, or look by hand")
    if not asked.out:
        return Finding(Verdict.OK, "drivers are left to Vulkan's own search")
    return Finding(Verdict.OK, f"NVIDIA's driver, by {asked.out}")
