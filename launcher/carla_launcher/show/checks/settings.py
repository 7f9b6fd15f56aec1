"""Checks of what is installed and set: Python, the CARLA client, PyTorch's allocator, ``.env``."""

from __future__ import annotations

import importlib.metadata
import os
import sys

from carla_launcher.show.checks import engines
from carla_launcher.show.checks.machine import COMMAND_LIMIT_S, Finding, Machine, Verdict
from carla_run.paths import from_anywhere

CARLA_CLIENT = "0.9.16"
PYTHONS = ((3, 10), (3, 12))

_ALLOCATOR = ("PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_ALLOC_CONF")
_CLIENT = "import importlib.metadata, carla.libcarla; print(importlib.metadata.version('carla'))"


def python(_: Machine) -> Finding:
    """Return whether the client has a wheel for this Python."""
    version = ".".join(map(str, sys.version_info[:3]))
    first, last = PYTHONS
    if first <= sys.version_info[:2] <= last:
        return Finding(Verdict.OK, version)
    return Finding(Verdict.PROBLEM, version, "use 3.10, 3.11 or 3.12: the carla client has no other wheels")


def carla_client(machine: Machine) -> Finding:
    """Return whether the client's library loads; its name alone says nothing, the folder ``carla/`` here has it too."""
    asked = machine.ask(sys.executable, "-c", _CLIENT)
    if asked.code == 0 and asked.out == CARLA_CLIENT:
        return Finding(Verdict.OK, asked.out)
    install = f"pip install carla=={CARLA_CLIENT}"
    if asked.code == 0:
        return Finding(Verdict.PROBLEM, f"{asked.out}, the simulator's is {CARLA_CLIENT}", install)
    if "ModuleNotFoundError" not in asked.said:
        return Finding(Verdict.PROBLEM, asked.said, f"{install}, and what its library misses")
    if _installed("torch"):
        return Finding(Verdict.PROBLEM, "not installed beside the agent", install)
    return Finding(Verdict.UNKNOWN, "not installed", "pip install '.[agent]' for local processes; Compose needs none")


def _installed(package: str) -> bool:
    try:
        importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return False
    return True


def allocator(machine: Machine) -> Finding:
    """Return whether the agent would take the allocator's setting: both names alike, the rest as the agent says."""
    given = {name: text for name in _ALLOCATOR if (text := machine.setting(name).strip())}
    if not given:
        return Finding(Verdict.OK, "not set: the agent chooses")
    reported = ", ".join(f"{name}={text}" for name, text in given.items())
    if len(set(given.values())) > 1:
        return Finding(Verdict.PROBLEM, reported, "give both the same value, or unset one")
    command = ("footprint", "--config", str(from_anywhere(machine.config)), "--device", "cpu", "--variants", "[]")
    program = (sys.executable, "-m", "carla_td3", *command)
    asked = machine.run(program, {**machine.environment, **given}, COMMAND_LIMIT_S)
    named = any(name in asked.said for name in _ALLOCATOR)
    if asked.out.startswith("{"):
        return Finding(Verdict.OK, reported, asked.said if named else "")  # what it leaves out
    if named:
        return Finding(Verdict.PROBLEM, reported, asked.said)
    return Finding(Verdict.UNKNOWN, reported, f"the agent, which checks it, can't be asked here: {asked.said}")


def dotenv(machine: Machine) -> Finding:
    """Return whether containers would write files that belong to the caller."""
    there = (machine.stack / ".env").is_file()
    reported = ".env" if there else "no .env"
    wanted = machine.setting("RUN_UID") or "1000"
    copy = "" if there else "cp .env.example .env, and "
    found, _ = engines.kind(machine)
    if found is not None and found.rootless:
        reported = f"{reported}, RUN_UID is {wanted}, and a rootless engine's root is you"
        todo = "" if wanted == "0" else f"{copy}set RUN_UID=0 and RUN_GID=0 for Compose; the launcher does"
        return Finding(Verdict.PROBLEM if todo else Verdict.OK, reported, todo)
    if not wanted.isdigit() or int(wanted) == 0:
        return Finding(
            Verdict.PROBLEM, f"{reported}, RUN_UID is {wanted}", f"{copy}set RUN_UID to a user's id, not root's"
        )
    own = os.getuid()
    if own in (0, int(wanted)):
        return Finding(Verdict.OK, f"{reported}, RUN_UID is {wanted}", f"chown {wanted} runs" if own == 0 else "")
    return Finding(
        Verdict.PROBLEM, f"{reported}, RUN_UID is {wanted}, yours {own}", f"{copy}set RUN_UID={own} for Compose"
    )
