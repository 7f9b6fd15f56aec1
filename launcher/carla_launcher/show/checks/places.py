"""Checks of what a run takes up: ports, disk, shared memory, the folder of the runs."""

from __future__ import annotations

import os
from pathlib import Path

from carla_launcher.observe.pools import PoolKind
from carla_launcher.ports import holder
from carla_launcher.resolve.footprint import Footprint, FootprintError
from carla_launcher.show.checks.machine import COMMAND_LIMIT_S, Finding, Machine, Verdict

SHM_MIB = 64
"""As docker-compose.yml gives the containers: nothing of ours lies there, libraries may want a little."""
MIB = 2**20


def ports(machine: Machine) -> Finding:
    """Return whether the simulator's ports are free, and who has those that aren't."""
    wanted = machine.ports or _of_the_stack(machine)
    if wanted is None:
        given = machine.setting("CARLA_PORTS")
        return Finding(Verdict.PROBLEM, f"CARLA_PORTS is {given}", "give three in a row, as 2100-2102")
    taken = {port: who for port in wanted if (who := holder(port))}
    if taken:
        reported = ", ".join(f"{port} is taken by {who}" for port, who in taken.items())
        return Finding(Verdict.PROBLEM, reported, "end it, or choose others with --port or CARLA_PORTS")
    return Finding(Verdict.OK, f"{wanted[0]}-{wanted[-1]} are free")


def _of_the_stack(machine: Machine) -> tuple[int, int, int] | None:
    """Return the ports that Compose publishes; None if they aren't three in a row."""
    first, _, last = (machine.setting("CARLA_PORTS") or "2000-2002").partition("-")
    if not (first.isdecimal() and last.isdecimal() and int(last) == int(first) + 2 <= 65535):
        return None
    return int(first), int(first) + 1, int(first) + 2


def disk(machine: Machine) -> Finding:
    """Return whether the runs' disk holds a whole replay and the checkpoints of one more run."""
    place = _existing(machine.runs)
    room = os.statvfs(place)
    free = room.f_bavail * room.f_frsize / MIB
    try:
        (size,) = Footprint(str(machine.config), limit_s=COMMAND_LIMIT_S).sizes([{}])
    except FootprintError as error:
        return Finding(Verdict.UNKNOWN, f"{free:.0f} MiB free in {place}", f"what a run takes isn't known: {error}")
    needed = size.mib.get(PoolKind.DISK, 0.0)
    reported = f"{free:.0f} MiB free in {place}, a run of {machine.config.name} takes {needed:.0f}"
    if free < needed:
        return Finding(Verdict.PROBLEM, reported, "free some, lower replay.capacity, or choose another --runs-dir")
    return Finding(Verdict.OK, reported)


def shared_memory(machine: Machine) -> Finding:
    """Return whether /dev/shm is there and not tiny."""
    if not machine.shm.is_dir():
        return Finding(Verdict.UNKNOWN, f"no {machine.shm}", "none is needed: what processes share is in files")
    room = os.statvfs(machine.shm)
    size = room.f_blocks * room.f_frsize / MIB
    if size < SHM_MIB:
        return Finding(Verdict.PROBLEM, f"{size:.0f} MiB", f"give {SHM_MIB} MiB or more: --shm-size, shm_size")
    return Finding(Verdict.OK, f"{size:.0f} MiB")


def runs_folder(machine: Machine) -> Finding:
    """Return whether runs can be written; nothing is tried, permissions are read."""
    place = _existing(machine.runs)
    if not os.access(place, os.W_OK | os.X_OK):
        todo = "give it to yourself (chown), or choose another --runs-dir"
        return Finding(Verdict.PROBLEM, f"{place} can't be written", todo)
    if place != machine.runs.resolve():
        return Finding(Verdict.OK, f"{machine.runs} isn't there yet", "for Compose: mkdir it before `up`")
    return Finding(Verdict.OK, f"{machine.runs} can be written")


def _existing(folder: Path) -> Path:
    folder = folder.resolve()
    while not folder.exists() and folder != folder.parent:
        folder = folder.parent
    return folder
