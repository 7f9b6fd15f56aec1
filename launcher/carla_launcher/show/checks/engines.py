"""Checks of the GPU's driver, Docker, Compose, and the NVIDIA Container Toolkit."""

from __future__ import annotations

import sys
from pathlib import Path

from carla_launcher.act.compose.project import COMPOSE_SINCE
from carla_launcher.observe import container_engine
from carla_launcher.observe.container_engine import NVIDIA, ContainerEngine, Product, engine_of
from carla_launcher.show.checks.machine import CommandOutput, Finding, Machine, ok, problem, unknown
from carla_run.readers import object_of

_NVML = """
import ctypes, sys
library = ctypes.CDLL("libnvidia-ml.so.1")
code = library.nvmlInit_v2()
if code:
    print(f"nvmlInit says {code}", file=sys.stderr)
    sys.exit(1 if code == 9 else 3)
count, version = ctypes.c_uint(), ctypes.create_string_buffer(96)
code = library.nvmlDeviceGetCount_v2(ctypes.byref(count)) or library.nvmlSystemGetDriverVersion(version, 96)
if code:
    print(f"the driver says {code}", file=sys.stderr)
    sys.exit(3)
print(count.value, version.value.decode())
"""

DRIVER_FAILS = 3
"""Exit code of that program if there is a driver, and it fails; 9 of NVML is DRIVER_NOT_LOADED."""


def driver(machine: Machine) -> Finding:
    """Check the driver by NVML, and the GPUs that Compose's variables name."""
    asked = _nvml(machine)
    if asked.code != 0:
        if asked.code == DRIVER_FAILS or _has_nvidia_card(machine.pci):
            return problem(f"an NVIDIA card, but {asked.said}", "install or reload its driver; restart the machine")
        return unknown("no NVIDIA GPU", "none is needed for carla-lite and an agent on the CPU")
    count, _, version = asked.out.partition(" ")
    there = range(max(1, int(count)))
    found = f"{count} GPU, driver {version}"
    named = {name: machine.setting(name) or "0" for name in ("CARLA_GPU", "AGENT_GPU")}
    reported = f"{found}; {' and '.join(f'{name} is {card}' for name, card in named.items())}"
    if any(card.isdecimal() and int(card) not in there for card in named.values()):
        return problem(reported, f"set both to {' or '.join(map(str, there))}, or to a GPU's UUID")
    return ok(found if len(set(named.values())) == 1 else reported)


def has_card(machine: Machine) -> bool:
    """Return whether the driver shows a GPU."""
    asked = _nvml(machine)
    return asked.code == 0 and not asked.out.startswith("0 ")


def _nvml(machine: Machine) -> CommandOutput:
    """Query NVML in a separate process, since a broken driver can hang or kill it."""
    return machine.ask(sys.executable, "-c", _NVML)


def _has_nvidia_card(pci: Path) -> bool:
    def first_word(path: Path) -> str:
        return path.read_text(encoding="ascii").strip() if path.is_file() else ""

    return any(
        first_word(card / "vendor") == "0x10de" and first_word(card / "class").startswith("0x03")
        for card in pci.glob("*")
    )


def kind(machine: Machine) -> tuple[ContainerEngine | None, CommandOutput]:
    """Return the engine that ``docker`` reaches, None if it reaches none; and the result of ``docker version``."""
    info = machine.ask("docker", "info", "--format", "{{json .}}")
    server = machine.ask("docker", "version", "--format", "{{json .Server}}")
    return engine_of(object_of(info.out), object_of(server.out)), server


def _missed(machine: Machine, found: str, do: str) -> Finding:
    """Return that Docker can't be used: a problem only with a GPU, as carla-lite and a local agent need no Docker."""
    return problem(found, do) if has_card(machine) else unknown(found, f"not needed without a GPU; else {do}")


def engine(machine: Machine) -> Finding:
    """Check the container engine."""
    found, asked = kind(machine)
    if asked.code == 127:
        return unknown("no Docker", "install it for the Compose stack; local processes need none")
    if found is None:
        return _missed(machine, asked.said, "start the engine, or join its group: sudo usermod -aG docker $USER")
    if found.product is Product.PODMAN:
        return unknown(str(found), "the stack wasn't tested with it: use Docker Engine, or local processes")
    if todo := container_engine.not_counted(found):
        return unknown(str(found), todo)
    if found.remapped:
        todo = "containers have other user ids (userns-remap): if one can't write, its message names the user for chown"
        return unknown(str(found), todo)
    return ok(str(found), "root in containers is your user: the launcher sets RUN_UID=0" if found.rootless else "")


def compose(machine: Machine) -> Finding:
    """Check that Compose is new enough for our files."""
    asked = machine.ask("docker", "compose", "version", "--short")
    since = ".".join(map(str, COMPOSE_SINCE))
    if asked.code == 127:
        return unknown("no Docker", "see the line above")
    if asked.code != 0:
        old = machine.ask("docker-compose", "version", "--short")
        reported = "no Compose plugin" + (f", only docker-compose {old.out}" if old.code == 0 else "")
        return _missed(machine, reported, f"install docker-compose-plugin, {since} or newer")
    numbers = asked.out.lstrip("v").split("-")[0].split("+")[0].split(".")
    if not all(part.isdigit() for part in numbers):
        return unknown(f"Compose {asked.out}", f"{since} or newer is needed")
    if tuple(map(int, numbers)) < COMPOSE_SINCE:
        return _missed(machine, f"Compose {asked.out}", f"install {since} or newer: the Compose files use !override")
    return ok(f"Compose {asked.out}")


def toolkit(machine: Machine) -> Finding:
    """Check that containers can have the GPU."""
    found, _ = kind(machine)
    hook = container_engine.has_hook(machine.environment.get("PATH"))
    asked = machine.setting("GPU_RUNTIME")
    if found is not None and not found.runtime and asked == NVIDIA:
        return problem("GPU_RUNTIME is nvidia, which Docker doesn't have", f"leave it empty, or {found.register}")
    if found is not None and found.runtime:
        todo = "" if asked else "for plain `docker compose up` set GPU_RUNTIME=nvidia; the launcher sets it by itself"
        return ok("Docker has the runtime nvidia", todo)
    if hook if found is None else found.gives_gpu(hook):
        todo = "" if found is None else f"register its runtime, too: {found.register}"
        return ok("installed; Docker uses it when a container reserves a GPU", todo)
    if not has_card(machine):
        return unknown("not installed", "not needed without a GPU")
    if found is None or found.gives_gpu(hook) is None:
        return unknown("can't be checked from here", "check whether a container gets the GPU")
    return problem("containers get no GPU", container_engine.no_gpu(found, hook))
