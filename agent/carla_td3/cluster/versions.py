"""Checks that a node can work with this machine: the same Python, Ray and project."""

from __future__ import annotations

import hashlib
import platform
from dataclasses import asdict, dataclass
from functools import cache
from importlib.metadata import version
from pathlib import Path

import carla_run
import carla_td3


@dataclass(frozen=True)
class Versions:
    """Versions that must be the same on both sides."""

    python: str
    ray: str
    project: str
    """Digest of the project files that both run."""

    @classmethod
    def here(cls) -> Versions:
        """Return this process's versions."""
        return cls(platform.python_version(), version("ray"), _digest())

    def refusal(self, there: Versions, node: str) -> str:
        """Return a sentence that names the node's differing versions; empty if there are none."""
        ours, theirs = asdict(self), asdict(there)
        differ = [f"{name} {theirs[name]} (here {ours[name]})" for name in ours if ours[name] != theirs[name]]
        if not differ:
            return ""
        return f"Node {node} of the cluster has {' and '.join(differ)}: install the same there as here."


@cache
def _digest() -> str:
    roots = [Path(str(each.__file__)).parent for each in (carla_td3, carla_run)]
    found = hashlib.sha256()
    for path in (path for root in roots for path in sorted(root.rglob("*.py"))):
        found.update(path.name.encode() + b"\0" + path.read_bytes() + b"\0")
    return found.hexdigest()[:12]
