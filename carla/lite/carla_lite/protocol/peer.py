"""The version of the ``carla`` client at the other end of a connection, if it can be found out.

It looks for a process of this machine and user that has the socket, and which client that process has loaded. Clients
don't send their version, and a client of another version dies by a signal at its first world message.
"""

from __future__ import annotations

import re
import socket
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

_PROC = Path("/proc")
# In the name of an egg, of a wheel's metadata, and of the rebuilds' (carla_0_9_15, carla_client_unofficial-0.9.11).
_VERSION = re.compile(r"carla(?:_client_unofficial)?[-_](\d+)[._](\d+)[._](\d+)")


def client_version(peer: str) -> str | None:
    """Return the version, such as "0.9.15", of the client whose end of the connection is HOST:PORT.

    None if that can't be found out: another machine, container or user, a process without the client, or no /proc.
    """
    try:
        inode = next(_inodes(peer), None)
        return None if inode is None else next(filter(None, map(_version, _owners(inode))), None)
    except (OSError, ValueError):
        return None


def _inodes(peer: str) -> Iterator[str]:
    """Yield the inode of this machine's socket with this address."""
    host, _, port = peer.rpartition(":")
    address = int.from_bytes(socket.inet_aton(host), sys.byteorder)
    wanted = f"{address:08X}:{int(port):04X}"
    for line in (_PROC / "net" / "tcp").read_text(encoding="ascii").splitlines()[1:]:
        _, local, _, _, _, _, _, _, _, inode, *_ = line.split()
        if local == wanted and inode != "0":
            yield inode


def _owners(inode: str) -> Iterator[Path]:
    """Yield the /proc folders of the processes that have a socket, as far as they can be read."""
    for process in _PROC.glob("[0-9]*"):
        try:
            if any(str(one.readlink()) == f"socket:[{inode}]" for one in (process / "fd").iterdir()):
                yield process
        except OSError:  # another user's, or ended
            continue


def _version(process: Path) -> str | None:
    """Return the version of the client that a process has loaded; None if there are several."""
    for line in (process / "maps").read_text(encoding="utf-8", errors="replace").splitlines():
        if "libcarla" in line:
            library = Path(line.split(maxsplit=5)[5])
            names = [str(library), *(one.name for one in library.parent.parent.glob("carla*.dist-info"))]
            return version_in(names)
    return None


def version_in(names: Iterable[str]) -> str | None:
    """Return the one version that these names of eggs and packages tell; None where they tell none, or several."""
    versions = {".".join(found.groups()) for found in map(_VERSION.search, names) if found}
    return versions.pop() if len(versions) == 1 else None
