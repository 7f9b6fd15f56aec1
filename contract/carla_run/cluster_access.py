"""Checks that a Ray cluster is secured: by a loopback address, or by a token in a file that only its owner can read.

Anyone who can reach a Ray cluster without a token can run any code on its nodes.
"""

from __future__ import annotations

import ipaddress
import os
import stat
from collections.abc import Mapping
from pathlib import Path

MODE, PATH, TOKEN = "RAY_AUTH_MODE", "RAY_AUTH_TOKEN_PATH", "RAY_AUTH_TOKEN"
AUTO = "auto"


def refusal(address: str, environment: Mapping[str, str]) -> str:
    """Return why a cluster must not be used, as a sentence; empty if it may be used.

    Args:
        address: HOST:PORT.
        environment: environment of the connecting process; Ray reads the same variables.
    """
    if _is_loopback(address.rpartition(":")[0]):
        return ""
    if environment.get(MODE) != "token":
        return (
            f"The cluster at {address} is open to its network: start its nodes and this command with {MODE}=token and "
            f"the same token file (`ray get-auth-token --generate`), or bind it to 127.0.0.1."
        )
    if environment.get(TOKEN):
        return (
            f"The token is in {TOKEN}, which every child process inherits: put it into a file, and name that in {PATH}."
        )
    path = Path(environment.get(PATH) or Path(environment.get("HOME", "~")).expanduser() / ".ray" / "auth_token")
    try:
        found = path.stat()
    except OSError as error:
        return f"The token of the cluster at {address} can't be read from {path} ({error.strerror})."
    if found.st_mode & (stat.S_IRWXG | stat.S_IRWXO) or found.st_uid != os.getuid():
        return f"{path} holds the cluster's token and is open to other users: `chmod 600 {path}`, and own it."
    return ""


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return host == "localhost"
