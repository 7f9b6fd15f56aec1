"""Checks of what a run takes up: ports, disk, shared memory, the folder of the runs."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from pathlib import Path

import psutil

from launcher.checking.machine import COMMAND_LIMIT_S, Finding, Machine, Verdict
from launcher.memory.pools import Kind
from launcher.planning.footprint import Footprint, FootprintError

SHM_MIB = 64
"""As docker-compose.yml gives the containers: nothing of ours lies there, libraries may want a little."""
TRAFFIC_MANAGER = 8000
MIB = 2**20


def ports(machine: Machine) -> Finding:
    """Return whether the simulator's ports are free, and who has those that aren't."""
    taken = {port: who for port in machine.ports if (who := _listener(port))}
    if taken:
        told = ", ".join(f"{port} is taken by {who}" for port, who in taken.items())
        return Finding(Verdict.PROBLEM, told, "end it, or choose others with --port or CARLA_PORT and CARLA_PORTS")
    return Finding(Verdict.OK, f"{machine.ports[0]}-{machine.ports[-1]} are free")


def traffic_port(_: Machine) -> Finding:
    """Return who has CARLA's usual Traffic Manager port; ours takes a free one, another client's may not."""
    who = _listener(TRAFFIC_MANAGER)
    return Finding(Verdict.OK, f"8000 is taken by {who}; ours takes another" if who else "8000 is free")


def _listener(port: int) -> str:
    """Return who listens on a TCP port of this machine, empty if nobody does."""
    names = {_name(pid) for taken, pid in _listening() if taken == port}
    if names:
        return ", ".join(sorted(names))
    with socket.socket() as probe:  # who may not see others' sockets still can't bind there
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return "somebody"
    return ""


def _listening() -> Iterator[tuple[int, int | None]]:
    try:
        sockets = psutil.net_connections("tcp")
    except (psutil.Error, OSError):
        return
    for each in sockets:
        if each.status == psutil.CONN_LISTEN and each.laddr:
            yield each.laddr.port, each.pid


def _name(pid: int | None) -> str:
    try:
        return "another user's process" if pid is None else f"{psutil.Process(pid).name()} (process {pid})"
    except psutil.Error:
        return f"process {pid}"


def disk(machine: Machine) -> Finding:
    """Return whether the runs' disk holds a whole replay and the checkpoints of one more run."""
    place = _existing(machine.runs)
    room = os.statvfs(place)
    free = room.f_bavail * room.f_frsize / MIB
    try:
        (size,) = Footprint(str(machine.config), limit_s=COMMAND_LIMIT_S).sizes([{}])
    except FootprintError as error:
        return Finding(Verdict.UNKNOWN, f"{free:.0f} MiB free in {place}", f"what a run takes isn't known: {error}")
    needed = size.mib.get(Kind.DISK, 0.0)
    told = f"{free:.0f} MiB free in {place}, a run of {machine.config.name} takes {needed:.0f}"
    if free < needed:
        return Finding(Verdict.PROBLEM, told, "free some, lower replay.capacity, or choose another --runs-dir")
    return Finding(Verdict.OK, told)


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
