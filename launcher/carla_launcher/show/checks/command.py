"""Checks of ``doctor -- COMMAND``: the command, its program file, and the packages of its Python."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

from carla_launcher.act.command import Command
from carla_launcher.act.container_words import container_of
from carla_launcher.resolve.commands import CommandSizes, command_of
from carla_launcher.show.checks.machine import Finding, Machine, ok, problem, unknown
from carla_run.exits import ExitError

_CLIENT = "from importlib.metadata import version; import carla; carla.Client; print(version('carla'))"
_TORCH = "import torch; print(torch.__version__, 'sees a card' if torch.cuda.is_available() else 'sees no card')"
_NO_IMAGE = re.compile("no such (?:image|object)|image not known", re.IGNORECASE)
LIMIT_S = 45.0
"""Time limit of a check. An import of torch takes long on a busy machine."""


def command(machine: Machine) -> Finding:
    """Return whether the command and its program file can be used."""
    found = _command(machine)
    if isinstance(found, Finding):
        return found
    try:
        CommandSizes(found).config()
    except ExitError as error:
        return problem(str(error), "")
    return ok(_program(found))


def client(machine: Machine) -> Finding:
    """Return which ``carla`` client the command's Python has."""
    return _asked(machine, _CLIENT, "carla", "pip install carla there, if the command connects to CARLA")


def torch(machine: Machine) -> Finding:
    """Return whether the command's Python has a PyTorch that sees the card."""
    return _asked(machine, _TORCH, "torch", "")


def image(machine: Machine) -> Finding:
    """Return whether the image of a container's command is on this machine."""
    words = container_of(machine.asked.command)
    if words is None or not words.rest:
        return unknown("not checked: the command names no image", "")
    name, engine = words.rest[0], words.engine
    asked = machine.ask(*words.asks_for_image, limit_s=LIMIT_S)
    if asked.code == 0:
        return ok(f"{name} is on this machine")
    if not _NO_IMAGE.search(asked.said):
        return problem(f"{engine}'s engine doesn't answer: {asked.said}", f"check `{engine} version`")
    if words.pulls:
        return unknown(f"{name} isn't on this machine: the first start pulls it", f"{engine} pull {name}")
    return problem(f"{name} isn't on this machine, and --pull=never forbids to pull it", f"{engine} pull {name}")


def _command(machine: Machine) -> Command | Finding:
    try:
        found = command_of(machine.asked)
    except ExitError as error:
        return problem(str(error), "")
    return unknown("no command is given", "doctor -- python train.py") if found is None else found


def _asked(machine: Machine, question: str, module: str, install: str) -> Finding:
    found = _command(machine)
    if isinstance(found, Finding):
        return unknown("not checked: the command can't be started", "")
    if not Path(found.words[0]).name.startswith("python"):
        return unknown(f"not checked: {found.words[0]} isn't Python", "")
    asked = machine.ask(_program(found), "-c", question, limit_s=LIMIT_S)
    if asked.code == 0:
        return ok(asked.out)
    if "ModuleNotFoundError" in asked.said:
        return unknown(f"{_program(found)} has no {module}", install)
    return problem(asked.said, install)


def _program(found: Command) -> str:
    name = found.words[0]
    return shutil.which(str(found.folder / name) if "/" in name else name) or name
