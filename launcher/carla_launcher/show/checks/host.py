"""Checks of the machine: ports, disk, shared memory, the runs folder, Python, the carla client, and settings."""

from __future__ import annotations

import importlib.util
import os
import shutil
import sys
from pathlib import Path

from carla_launcher.observe.pools import PoolKind
from carla_launcher.ports import holder
from carla_launcher.resolve.footprint import Footprint, FootprintError, program
from carla_launcher.show.checks import engines
from carla_launcher.show.checks.machine import COMMAND_LIMIT_S, Finding, Machine, ok, problem, unknown
from carla_run.memory.processes import MIB
from carla_run.paths import from_anywhere

SHM_MIB = 64
"""Size in docker-compose.yml: only libraries may use some of it."""
CARLA_CLIENT = "0.9.16"
PYTHONS = ((3, 10), (3, 12))

_ALLOCATOR = ("PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_ALLOC_CONF")
_CLIENT = "import importlib.metadata, carla.libcarla; print(importlib.metadata.version('carla'))"


def ports(machine: Machine) -> Finding:
    """Check that the simulator's ports are free."""
    wanted = machine.ports or _of_the_stack(machine)
    if wanted is None:
        given = machine.setting("CARLA_PORTS")
        return problem(f"CARLA_PORTS is {given}", "give three consecutive ports, such as 2100-2102")
    taken = {port: user for port in wanted if (user := holder(port))}
    if taken:
        reported = ", ".join(f"{port} is taken by {user}" for port, user in taken.items())
        return problem(reported, "end that program, or choose other ports with --port or CARLA_PORTS")
    return ok(f"{wanted[0]}-{wanted[-1]} are free")


def _of_the_stack(machine: Machine) -> tuple[int, int, int] | None:
    """Return the ports that Compose publishes; None if they aren't three consecutive ones."""
    first, _, last = (machine.setting("CARLA_PORTS") or "2000-2002").partition("-")
    if not (first.isdecimal() and last.isdecimal() and int(last) == int(first) + 2 <= 65535):
        return None
    return int(first), int(first) + 1, int(first) + 2


def disk(machine: Machine) -> Finding:
    """Check that the disk has room for one more run."""
    place = _existing(machine.runs)
    free = shutil.disk_usage(place).free / MIB
    try:
        (size,) = Footprint(str(machine.config), limit_s=COMMAND_LIMIT_S).sizes([{}])
    except FootprintError as error:
        return unknown(f"{free:.0f} MiB free in {place}", f"the size of a run is unknown: {error}")
    needed = size.mib.get(PoolKind.DISK, 0.0)
    reported = f"{free:.0f} MiB free in {place}, a run with {machine.config.name} takes {needed:.0f} MiB"
    if free < needed:
        return problem(reported, f"free disk space, lower {program().smaller['disk']}, or choose another --runs-dir")
    return ok(reported)


def shared_memory(machine: Machine) -> Finding:
    """Check that /dev/shm exists and is large enough."""
    if not machine.shm.is_dir():
        return unknown(f"no {machine.shm}", "none is needed: processes share files")
    size = shutil.disk_usage(machine.shm).total / MIB
    if size < SHM_MIB:
        return problem(f"{size:.0f} MiB", f"give {SHM_MIB} MiB or more: --shm-size, shm_size")
    return ok(f"{size:.0f} MiB")


def runs_folder(machine: Machine) -> Finding:
    """Check by its permissions that the runs folder can be written."""
    place = _existing(machine.runs)
    if not os.access(place, os.W_OK | os.X_OK):
        todo = "make it yours (chown), or choose another --runs-dir"
        return problem(f"{place} can't be written", todo)
    if place != machine.runs.resolve():
        return ok(f"{machine.runs} doesn't exist yet", "for Compose: create it before `up`")
    return ok(f"{machine.runs} can be written")


def _closed_to_containers(machine: Machine) -> Path | None:
    """Return the folder of runs that Compose mounts, if the container's user can't write there.

    For root only: another user's containers run as that user. The launcher gives its own runs to the user by itself.
    """
    folder = machine.stack / (machine.setting("RUNS_DIR") or "runs")
    if not folder.is_dir():
        return None
    status, needed = folder.stat(), os.W_OK | os.X_OK
    if status.st_uid == int(machine.setting("RUN_UID") or 1000):
        needed <<= 6
    elif str(status.st_gid) == (machine.setting("RUN_GID") or "1000"):
        needed <<= 3
    return None if status.st_mode & needed == needed else folder


def _existing(folder: Path) -> Path:
    folder = folder.resolve()
    return next(each for each in (folder, *folder.parents) if each.exists())


def python(_: Machine) -> Finding:
    """Check that the carla client has a wheel for this Python."""
    version = ".".join(map(str, sys.version_info[:3]))
    first, last = PYTHONS
    if first <= sys.version_info[:2] <= last:
        return ok(version)
    return problem(version, "use 3.10, 3.11 or 3.12: the carla client has no other wheels")


def carla_client(machine: Machine) -> Finding:
    """Check that the client's library loads; a package ``carla`` isn't enough, since a folder here has that name."""
    asked = machine.ask(sys.executable, "-c", _CLIENT)
    if asked.code == 0 and asked.out == CARLA_CLIENT:
        return ok(asked.out)
    install = f"pip install carla=={CARLA_CLIENT}"
    if asked.code == 0:
        return problem(f"{asked.out}, but the simulator has {CARLA_CLIENT}", install)
    if "ModuleNotFoundError" not in asked.said:
        return problem(asked.said, f"{install}, and install the libraries that it needs")
    if importlib.util.find_spec("torch"):
        return problem("not installed beside the agent", install)
    return unknown("not installed", "pip install '.[agent]' for local processes; Compose needs none")


def allocator(machine: Machine) -> Finding:
    """Check that the agent accepts the allocator's setting in the environment."""
    given = {name: text for name in _ALLOCATOR if (text := machine.setting(name).strip())}
    if not given:
        return ok("not set: the agent chooses")
    reported = ", ".join(f"{name}={text}" for name, text in given.items())
    if len(set(given.values())) > 1:
        return problem(reported, "give both the same value, or unset one")
    command = ("footprint", "--config", str(from_anywhere(machine.config)), "--device", "cpu", "--variants", "[]")
    program = (sys.executable, "-m", "carla_td3", *command)
    asked = machine.run(program, {**machine.environment, **given}, COMMAND_LIMIT_S)
    named = any(name in asked.said for name in _ALLOCATOR)
    if asked.out.startswith("{"):
        return ok(reported, asked.said if named else "")  # what it ignores
    if named:
        return problem(reported, asked.said)
    return unknown(reported, f"the agent, which checks it, doesn't run here: {asked.said}")


def dotenv(machine: Machine) -> Finding:
    """Check that files of containers would belong to the caller."""
    there = (machine.stack / ".env").is_file()
    reported = ".env" if there else "no .env"
    wanted = machine.setting("RUN_UID") or "1000"
    copy = "" if there else "cp .env.example .env, and "
    found, _ = engines.kind(machine)
    if found is not None and found.rootless:
        reported = f"{reported}, RUN_UID is {wanted}, and root in a rootless engine's containers is your user"
        todo = "" if wanted == "0" else f"{copy}set RUN_UID=0 and RUN_GID=0 for Compose; the launcher does"
        return problem(reported, todo) if todo else ok(reported)
    if not wanted.isdigit() or int(wanted) == 0:
        return problem(f"{reported}, RUN_UID is {wanted}", f"{copy}set RUN_UID to a user's id, not root's")
    own = os.getuid()
    if own == 0 and found is not None and not found.remapped and (closed := _closed_to_containers(machine)):
        who = f"{wanted}:{machine.setting('RUN_GID') or '1000'}"
        return problem(f"{closed} can't be written by RUN_UID {wanted}", f"for plain Compose: chown {who} {closed}")
    if own in (0, int(wanted)):
        return ok(f"{reported}, RUN_UID is {wanted}", f"as root: chown {wanted} runs" if own == 0 else "")
    return problem(f"{reported}, RUN_UID is {wanted}, your user id is {own}", f"{copy}set RUN_UID={own} for Compose")
