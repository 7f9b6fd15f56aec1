"""Atomic directories: each exists completely or not at all, and ``latest`` names the newest one.

A directory is written under a hidden name, synced, renamed, and only then named in ``latest``. What a kill between two
of these steps leaves is cleaned up later. Knows nothing of the files' content.
"""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Callable
from pathlib import Path

from carla_run.files import sync, write_synced

_LATEST = "latest"
_NEW, _REPLACED = ".new-", ".old-"


def publish(final: Path, write: Callable[[Path], None]) -> None:
    """Write a directory, replace one of the same name, and name it in ``latest``.

    Args:
        final: path of the directory; its parent exists.
        write: fills an empty directory and syncs its files. If it raises, everything is undone.

    Raises:
        OSError: the disk is full, or the parent is read-only; earlier directories are unchanged.
    """
    root = final.parent
    _clear_leftovers(root)
    temporary, replaced = root / f"{_NEW}{final.name}", root / f"{_REPLACED}{final.name}"
    try:
        temporary.mkdir()
        write(temporary)
        sync(temporary)
        if final.exists():
            final.rename(replaced)
        temporary.rename(final)
        sync(root)
        write_synced(root / f".{_LATEST}", final.name.encode() + b"\n")
        (root / f".{_LATEST}").replace(root / _LATEST)
        sync(root)
    except Exception:
        _undo(temporary, replaced, final)
        raise
    shutil.rmtree(replaced, ignore_errors=True)


def _clear_leftovers(root: Path) -> None:
    """Remove what a kill during :func:`publish` left, and put a replaced directory back."""
    for replaced in root.glob(f"{_REPLACED}*"):
        before = root / _name(replaced)
        if before.exists():
            shutil.rmtree(replaced)
        else:
            replaced.rename(before)
    for unfinished in root.glob(f"{_NEW}*"):
        shutil.rmtree(unfinished)


def _undo(temporary: Path, replaced: Path, final: Path) -> None:
    with contextlib.suppress(OSError):
        shutil.rmtree(temporary, ignore_errors=True)
        if replaced.exists() and not final.exists():
            replaced.rename(final)


def newest_first(root: Path, pattern: str) -> list[Path]:
    """Return the directories that match a pattern: the one in ``latest`` first, then by falling name.

    A directory that was being replaced when the run was killed is included under its hidden name.
    """
    replaced = [path for path in root.glob(f"{_REPLACED}{pattern}") if not (root / _name(path)).exists()]
    found = sorted([*root.glob(pattern), *replaced], key=_name, reverse=True)
    with contextlib.suppress(OSError):
        latest = (root / _LATEST).read_text(encoding="utf-8", errors="replace").strip()
        found.sort(key=lambda path: _name(path) != latest)
    return found


def _name(path: Path) -> str:
    return path.name[len(_REPLACED) :] if path.name.startswith(_REPLACED) else path.name
