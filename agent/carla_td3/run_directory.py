"""The agent's side of a run directory: locked for one learner, its overrides read, its configuration saved.

``carla_run.paths`` has the paths.
"""

from __future__ import annotations

import contextlib
import importlib.metadata
import platform
import shlex
import subprocess
import sys
import zlib
from pathlib import Path
from typing import Any

import yaml

from carla_run import formats
from carla_run.atomic_directory import newest_first
from carla_run.exits import Exit
from carla_run.files import write_whole
from carla_run.keys import leaves
from carla_run.locks import HeldError, Lock
from carla_run.paths import RunPaths
from carla_td3 import layered_yaml
from carla_td3.config import PRECISIONS, AgentConfig, dump
from carla_td3.exits import AgentError, sentence

CHECKSUM = "checksum of the values"
PACKAGES = ("torch", "carla", "gymnasium", "numpy", "safetensors")


def prepare(run: RunPaths, resume: bool) -> Lock:
    """Create the folder and return its lock, held by this process until released.

    Raises:
        AgentError: the folder can't be written, another learner uses it, or it holds a run and ``resume`` is false.
    """
    if run.holds_a_run() and not resume:
        raise AgentError(
            f"{run.path} already holds a run: add --resume to continue it, or choose another folder.",
            Exit.BAD_CONFIG,
        )
    try:
        run.exchange.mkdir(parents=True, exist_ok=True)
        return Lock(run.learner_lock)
    except OSError as error:
        raise AgentError(sentence(error), Exit.BAD_CONFIG) from None
    except HeldError as error:
        raise AgentError(
            f"{run.path} is being trained by process {error.holder}: stop that one, or choose another folder.",
            Exit.BAD_CONFIG,
        ) from None


def read_overrides(run: RunPaths) -> dict[str, Any]:
    """Return the launcher's overrides as dotted keys; empty if there are none.

    Raises:
        ConfigError: the file isn't a YAML mapping.
    """
    return dict(leaves(layered_yaml.mapping(run.overrides))) if run.overrides.exists() else {}


def settled_precision(run: RunPaths) -> str | None:
    """Return the resolved ``td3.precision`` of this run; None before its first start.

    It is in ``config.yaml``, or if that file is gone in the newest checkpoint.
    """
    places: list[tuple[Path, tuple[str, ...]]] = [(run.config, ("td3", "precision"))]
    places += [(path / "values.json", ("td3.precision",)) for path in newest_first(run.checkpoints, "step-*")]
    for path, keys in places:
        with contextlib.suppress(OSError, ValueError, KeyError, TypeError, RecursionError, yaml.YAMLError):
            value = yaml.safe_load(path.read_text(encoding="utf-8"))  # JSON is YAML, too
            for key in keys:
                value = value[key]
            if value in PRECISIONS:
                return str(value)
    return None


def save_config(run: RunPaths, config: AgentConfig) -> None:
    """Write the resolved configuration, with versions, revision and command as comments above it.

    The file can be passed to ``--config``. It has no simulator address, because that doesn't belong to the run. A
    checksum of its values is above them. ``version.json`` is written with it.
    """
    formats.stamp(run)
    body = yaml.safe_dump(dump(config, address=False), sort_keys=False, allow_unicode=True)
    above = {**provenance(), CHECKSUM: zlib.crc32(body.encode())}
    write_whole(run.config, "".join(f"# {key}: {value}\n" for key, value in above.items()) + body)


def is_changed(run: RunPaths) -> bool:
    """Return whether ``config.yaml`` has other values than the last start wrote; False if that is unknown."""
    try:
        _, line, rest = run.config.read_bytes().partition(f"# {CHECKSUM}: ".encode())
    except OSError:
        return False
    said, _, body = rest.partition(b"\n")
    return bool(line) and said != b"%d" % zlib.crc32(body)


def provenance() -> dict[str, str]:
    """Return the facts needed to repeat the run: command, versions, machine, git revision if there is one."""
    versions = {name: _version(name) for name in PACKAGES}
    return {
        "command": shlex.join(sys.argv),
        formats.DISTRIBUTION: formats.version(),
        "revision": _revision(),
        "python": platform.python_version(),
        "platform": platform.platform(),
        **versions,
    }


def _version(package: str) -> str:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return "not installed"


def _revision() -> str:
    source = Path(__file__).resolve().parent
    try:
        described = subprocess.run(
            ["git", "describe", "--always", "--dirty"],
            cwd=source,
            capture_output=True,
            text=True,
            timeout=10,
            check=True,
        )
    except (OSError, subprocess.SubprocessError):
        return "none"
    return described.stdout.strip() or "none"
