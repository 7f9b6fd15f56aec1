"""Directories that are there whole or not at all, and the one among them that counts.

Owns the order of writing, syncing and renaming, and what a kill between any two of those steps leaves behind: the
directory is written under a hidden name, synced, renamed, and only then named in ``latest``. Knows nothing of what the
files hold.
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
    """Let a directory appear, in the place of one of the same name if there is one, and name it in ``latest``.

    Args:
        final: where; its parent exists.
        write: fills the empty directory that it is given, and syncs its files; whatever it raises undoes everything.

    Raises:
        OSError: disk full, read-only directory; what was published before is as it was.
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
    """Remove what a run that was killed while publishing left; what stood before it is put back."""
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
    """Return the published directories of such names, the one that ``latest`` names first, then by falling name.

    One that was being replaced when the run was killed, between two renames, is among them under its hidden name.
    """
    replaced = [path for path in root.glob(f"{_REPLACED}{pattern}") if not (root / _name(path)).exists()]
    found = sorted([*root.glob(pattern), *replaced], key=_name, reverse=True)
    with contextlib.suppress(OSError):
        latest = (root / _LATEST).read_text(encoding="utf-8").strip()
        found.sort(key=lambda path: _name(path) != latest)
    return found


def _name(path: Path) -> str:
    return path.name[len(_REPLACED) :] if path.name.startswith(_REPLACED) else path.name
