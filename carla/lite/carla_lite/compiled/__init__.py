"""Compiled code: the modules in which a tick spends its time, compiled from the .py files by mypyc.

Owns which modules these are, where they are stored and when they are used. The .py files stay the only source, and
compiled code gives the same results, to the byte. The folder's name has a hash of all sources of carla-lite and
Python's binary interface, so compiled code never hides an edited file. Without such a folder, or if other users could
have written to it, the .py files run.
"""

from __future__ import annotations

import hashlib
import importlib
import os
import stat
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.machinery import EXTENSION_SUFFIXES, ModuleSpec
from importlib.util import spec_from_file_location
from pathlib import Path
from types import ModuleType

PACKAGE = Path(__file__).parents[1]
FOLDER_VARIABLE = "LITE_COMPILED_DIR"

MODULES = (
    "actors.actor",
    "actors.doors",
    "actors.props",
    "actors.sensor",
    *sorted(f"actors.sensors.{file.stem}" for file in (PACKAGE / "actors" / "sensors").glob("[!_]*.py")),
    "actors.signage",
    "actors.stops",
    "actors.traffic_lights",
    "actors.triggers",
    "actors.walker_hits",
    "actors.walkers",
    "motion.ackermann",
    "motion.collisions",
    "motion.drivetrain",
    "motion.physics",
    "motion.vehicles",
    "roads.ground",
    "roads.speed_limits",
    "scenery.projection",
    "scenery.statics",
    "world",
)
"""Modules to compile: without ``cached_property``, which mypyc would compute each time, and without waits for a socket.

Drawing isn't among them: it calls numpy and OpenCV, and gains nothing.
"""


@dataclass(frozen=True)
class Code:
    """The code that runs: compiled modules, or the .py files and why."""

    compiled: bool
    why: str

    def __str__(self) -> str:
        return "compiled code" if self.compiled else f"the .py files, not compiled ({self.why})"


running = Code(False, "imported, not started")
"""The code that this process runs."""


def name_of(package: Path) -> str:
    """Return the name of the folder for these sources and this Python."""
    digest = hashlib.sha256(EXTENSION_SUFFIXES[0].encode())
    for file in sorted(package.rglob("*.py")):
        content = file.read_bytes()
        digest.update(f"\n{file.relative_to(package).as_posix()} {len(content)}\n".encode() + content)
    return digest.hexdigest()[:32]


def group_of(name: str) -> str:
    """Return the name of the library that holds all modules of a folder; each module's file only refers to it."""
    return f"carla_lite_{name}"


def kept_in() -> Path | None:
    """Return the parent of these folders: ``$LITE_COMPILED_DIR``, else one in the user's cache; None if empty."""
    given = os.environ.get(FOLDER_VARIABLE)
    if given is not None:
        return Path(given) if given else None
    cache = os.environ.get("XDG_CACHE_HOME")
    try:
        return (Path(cache) if cache else Path.home() / ".cache") / "carla-lite"
    except RuntimeError:  # a user without a home
        return None


def writable_by_others(path: Path) -> Path | None:
    """Return a part of a folder's path, or one of its files, that a user other than its own and root could change."""
    path = path.resolve()
    for one in (*path.rglob("*"), path, *path.parents):
        at = one.stat()
        # In a folder such as /tmp, users can't remove each other's files.
        shared = at.st_mode & 0o022 and not (at.st_mode & stat.S_ISVTX and one in path.parents)
        if shared or at.st_uid not in (0, os.geteuid()):
            return one
    return None


class _Finder:  # not of importlib.abc's class, whose import takes 10 ms
    """Finds the compiled modules before the .py files are looked for."""

    def __init__(self, files: Mapping[str, Path]) -> None:
        self._files = files

    def find_spec(
        self, fullname: str, _path: Sequence[str] | None, _target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Return a module's spec if it is a compiled one."""
        file = self._files.get(fullname)
        return None if file is None else spec_from_file_location(fullname, file)


def use() -> None:
    """Use compiled modules for imports from now on, if there are any; ``running`` then says which code runs."""
    global running  # noqa: PLW0603 (a process runs one or the other)
    running = _use()


def _use() -> Code:
    names = [f"carla_lite.{module}" for module in MODULES]
    if any(name in sys.modules for name in names):
        return Code(False, "some were imported before")
    root = kept_in()
    if root is None:
        return Code(False, f"no folder for them: {FOLDER_VARIABLE} is empty or there is no home")
    try:
        if not root.is_dir():  # the hash of all sources takes 5 ms
            raise FileNotFoundError
        name = name_of(PACKAGE)
        folder = (root / name).resolve(strict=True)
        unsafe = writable_by_others(folder)
    except OSError:
        return Code(False, f"none in {root} for these sources; make them: python -m carla_lite.compiled")
    if unsafe is not None:
        return Code(False, f"others can write to {unsafe}")
    group = f"{group_of(name)}__mypyc"
    finder = _Finder({module: file_of(folder, module) for module in (group, *names)})
    sys.meta_path.insert(0, finder)
    try:
        importlib.import_module(group)
    except ImportError as error:  # for another C library, or cut short by a full disk
        sys.meta_path.remove(finder)
        return Code(False, f"{error}")
    return Code(True, "")


def file_of(folder: Path, module: str) -> Path:
    """Return a compiled module's file."""
    return folder.joinpath(*module.split(".")).with_suffix(EXTENSION_SUFFIXES[0])
