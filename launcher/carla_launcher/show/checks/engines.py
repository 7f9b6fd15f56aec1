"""Checks of what runs a simulator: the GPU's driver, Docker, Compose, and the toolkit between them."""

from __future__ import annotations

import sys
from pathlib import Path

from carla_launcher.act.compose.project import COMPOSE_SINCE
from carla_launcher.observe import container_engine
from carla_launcher.observe.container_engine import NVIDIA, ContainerEngine, Product, engine_of
from carla_launcher.show.checks.machine import Finding, Machine, Ran, Verdict
from carla_run.readers import object_of

START_LIMIT_S = 50.0
"""To start a container on a busy machine."""
DOCKER_FAILED = 125
"""`docker run`'s own: there was no container, whose code it would have been."""

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


def kind(machine: Machine) -> tuple[ContainerEngine | None, Ran]:
    """Return the engine that ``docker`` reaches, None if none does; and how ``docker version`` ended: that says why."""
    info = machine.ask("docker", "info", "--format", "{{json .}}")
    server = machine.ask("docker", "version", "--format", "{{json .Server}}")
    return engine_of(object_of(info.out), object_of(server.out)), server


def engine(machine: Machine) -> Finding:
    """Return which engine answers, and what is different with it."""
    found, asked = kind(machine)
    if asked.code == 127:
        return Finding(Verdict.UNKNOWN, "no Docker", "install it for the Compose stack; local processes need none")
    if found is None:
        return Finding(
            Verdict.PROBLEM, asked.said, "start the engine, or join its group: sudo usermod -aG docker $USER"
        )
    if found.product is Product.PODMAN:
        return Finding(
            Verdict.UNKNOWN, str(found), "the stack hasn't been run with it: Docker Engine, or local processes"
        )
    if todo := container_engine.not_counted(found):
        return Finding(Verdict.UNKNOWN, str(found), todo)
    if found.remapped:
        todo = "its users are others outside (userns-remap): a container that can't write says which user to chown to"
        return Finding(Verdict.UNKNOWN, str(found), todo)
    return Finding(Verdict.OK, str(found), "its root is you: the launcher sets RUN_UID=0" if found.rootless else "")


def compose(machine: Machine) -> Finding:
    """Return whether Compose knows the tags that our files use."""
    asked = machine.ask("docker", "compose", "version", "--short")
    since = ".".join(map(str, COMPOSE_SINCE))
    if asked.code == 127:
        return Finding(Verdict.UNKNOWN, "no Docker", "see the line above")
    if asked.code != 0:
        old = machine.ask("docker-compose", "version", "--short")
        reported = "no Compose plugin" + (f", only docker-compose {old.out}" if old.code == 0 else "")
        return Finding(Verdict.PROBLEM, reported, f"install docker-compose-plugin, {since} or newer")
    numbers = asked.out.lstrip("v").split("-")[0].split("+")[0].split(".")
    if not all(part.isdigit() for part in numbers):
        return Finding(Verdict.UNKNOWN, f"Compose {asked.out}", f"{since} or newer is needed")
    if tuple(map(int, numbers)) < COMPOSE_SINCE:
        return Finding(Verdict.PROBLEM, f"Compose {asked.out}", f"install {since} or newer: the files use !override")
    return Finding(Verdict.OK, f"Compose {asked.out}")


def toolkit(machine: Machine) -> Finding:
    """Return whether containers can have the GPU."""
    found, _ = kind(machine)
    hook = container_engine.has_hook(machine.environment.get("PATH"))
    asked = machine.setting("GPU_RUNTIME")
    if found is not None and not found.runtime and asked == NVIDIA:
        return Finding(
            Verdict.PROBLEM, "GPU_RUNTIME is nvidia, which Docker hasn't", f"leave it empty, or {found.register}"
        )
    if found is not None and found.runtime:
        todo = "" if asked else "for plain `docker compose up` set GPU_RUNTIME=nvidia; the launcher does"
        return Finding(Verdict.OK, "Docker has the runtime nvidia", todo)
    if hook if found is None else found.gives_gpu(hook):
        todo = "" if found is None else f"register its runtime, too: {found.register}"
        return Finding(Verdict.OK, "installed; Docker uses it for reservations", todo)
    if driver(machine).verdict is not Verdict.OK:
        return Finding(Verdict.UNKNOWN, "not installed", "not needed without a GPU")
    if found is None or found.gives_gpu(hook) is None:
        return Finding(Verdict.UNKNOWN, "can't be told from here", "see whether a container gets the GPU, by hand")
    return Finding(Verdict.PROBLEM, "containers get no GPU", container_engine.no_gpu(found, hook))


def missing_image(machine: Machine, image: str, service: str) -> Finding | None:
    """Return what is lacking for an image to be asked; None if it is here."""
    looked = machine.ask("docker", "image", "inspect", "--format", "{{.Id}}", image)
    if looked.code == 127:
        return Finding(Verdict.UNKNOWN, "no Docker", "local processes need none")
    if looked.code != 0:
        return Finding(Verdict.UNKNOWN, f"no image {image}", f"docker compose build {service}, for the Compose stack")
    return None


def with_card(machine: Machine, setting: str, image: str, *program: str, limit_s: float) -> Ran:
    """Run a program in an image that is here, with the card and the runtime that Compose gives its container.

    Args:
        setting: the variable that names the card.
        program: the entry point and its arguments.
    """
    found, _ = kind(machine)
    runtime = machine.setting("GPU_RUNTIME") or ("" if found is None else found.runtime)
    # As Compose: the reservation alone names the card, whatever the image has in its environment.
    container = ("docker", "run", "--rm", "--pull", "never", "--network", "none")
    visible = ("--env", "NVIDIA_VISIBLE_DEVICES=void")
    card = ("--gpus", f"device={machine.setting(setting) or 0}", *(("--runtime", runtime) if runtime else ()))
    entry, *arguments = program
    return machine.ask(*container, *visible, *card, "--entrypoint", entry, image, *arguments, limit_s=limit_s)
