"""Checks of what runs a simulator: the GPU's driver, Docker, Compose, and the toolkit between them."""

from __future__ import annotations

import json
import sys
from pathlib import Path

from launcher.act.compose.project import COMPOSE_SINCE
from launcher.show.checks.machine import Finding, Machine, Verdict

_NVML = """
import ctypes, sys
library = ctypes.CDLL("libnvidia-ml.so.1")
code = library.nvmlInit_v2()
if code:
    sys.exit(f"nvmlInit says {code}")
count, version = ctypes.c_uint(), ctypes.create_string_buffer(96)
code = library.nvmlDeviceGetCount_v2(ctypes.byref(count)) or library.nvmlSystemGetDriverVersion(version, 96)
if code:
    sys.exit(f"the driver says {code}")
print(count.value, version.value.decode())
"""


def driver(machine: Machine) -> Finding:
    """Return what NVML says; in a process of its own, for a broken driver can hang or kill who asks."""
    asked = machine.ask(sys.executable, "-c", _NVML)
    if asked.code == 0:
        count, _, version = asked.out.partition(" ")
        return _with_compose_cards(f"{count} GPU, driver {version}", int(count), machine)
    if _has_nvidia_card(machine.pci):
        return Finding(
            Verdict.PROBLEM, f"an NVIDIA card, but {asked.said}", "install or reload its driver; restart the machine"
        )
    return Finding(Verdict.UNKNOWN, "no NVIDIA GPU", "none is needed for carla-lite and an agent on the CPU")


def _with_compose_cards(found: str, count: int, machine: Machine) -> Finding:
    """Return the driver's finding with the cards that Compose's variables name, where those are two or not there."""
    named = {name: machine.setting(name) or "0" for name in ("CARLA_GPU", "AGENT_GPU")}
    reported = " and ".join(f"{name} is {card}" for name, card in named.items())
    if any(card.isdecimal() and int(card) >= max(1, count) for card in named.values()):
        expected = " or ".join(map(str, range(max(1, count))))
        return Finding(Verdict.PROBLEM, f"{found}; {reported}", f"set both to {expected}, or to a GPU's UUID")
    return Finding(Verdict.OK, found if len(set(named.values())) == 1 else f"{found}; {reported}")


def has_card(machine: Machine) -> bool:
    """Return whether the driver shows a GPU."""
    asked = machine.ask(sys.executable, "-c", _NVML)
    return asked.code == 0 and not asked.out.startswith("0 ")


def _has_nvidia_card(pci: Path) -> bool:
    def first_word(path: Path) -> str:
        return path.read_text(encoding="ascii").strip() if path.is_file() else ""

    return any(
        first_word(card / "vendor") == "0x10de" and first_word(card / "class").startswith("0x03")
        for card in pci.glob("*")
    )


def engine(machine: Machine) -> Finding:
    """Return whether a Docker engine answers."""
    asked = machine.ask("docker", "version", "--format", "{{.Server.Version}}")
    if asked.code == 0:
        return Finding(Verdict.OK, f"Docker {asked.out}")
    if asked.code == 127:
        return Finding(Verdict.UNKNOWN, "no Docker", "install it for the Compose stack; local processes need none")
    return Finding(Verdict.PROBLEM, asked.said, "start the engine, or join its group: sudo usermod -aG docker $USER")


def compose(machine: Machine) -> Finding:
    """Return whether Compose knows the tags that our files use."""
    asked = machine.ask("docker", "compose", "version", "--short")
    since = ".".join(map(str, COMPOSE_SINCE))
    if asked.code == 127:
        return Finding(Verdict.UNKNOWN, "no Docker", "see the line above")
    if asked.code != 0:
        return Finding(Verdict.PROBLEM, "no Compose plugin", f"install docker-compose-plugin, {since} or newer")
    numbers = asked.out.lstrip("v").split("-")[0].split("+")[0].split(".")
    if not all(part.isdigit() for part in numbers):
        return Finding(Verdict.UNKNOWN, f"Compose {asked.out}", f"{since} or newer is needed")
    if tuple(map(int, numbers)) < COMPOSE_SINCE:
        return Finding(Verdict.PROBLEM, f"Compose {asked.out}", f"install {since} or newer: the files use !override")
    return Finding(Verdict.OK, f"Compose {asked.out}")


def toolkit(machine: Machine) -> Finding:
    """Return whether containers can have the GPU."""
    asked = machine.ask("docker", "info", "--format", "{{json .Runtimes}}")
    if asked.code == 0 and "nvidia" in _keys(asked.out):
        return Finding(Verdict.OK, "Docker has the runtime nvidia")
    if machine.ask("nvidia-container-cli", "--version").code == 0:
        return Finding(Verdict.OK, "installed; Docker uses it for `gpus`")
    if driver(machine).verdict is Verdict.OK:
        todo = "install nvidia-container-toolkit and restart Docker, or no container gets the GPU"
        return Finding(Verdict.PROBLEM, "not installed", todo)
    return Finding(Verdict.UNKNOWN, "not installed", "not needed without a GPU")


def _keys(text: str) -> set[str]:
    found = json.loads(text or "{}")
    return set(found) if isinstance(found, dict) else set()
