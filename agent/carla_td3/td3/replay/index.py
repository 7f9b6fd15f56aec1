"""``replay.json``, which says what a replay's files hold, and its copy with a checksum.

A ring is created or replaced at the one instant when ``replay.json`` is replaced; then the copy follows. So one of both
is whole at each instant. If a disk changed or lost one of them, the other is used, and both are written again.
"""

from __future__ import annotations

import contextlib
import json
from pathlib import Path
from typing import Any

from carla_run.files import read_whole, write_synced
from carla_run.formats import FormatError
from carla_run.sealed import is_damaged, sealed, unsealed
from carla_td3.td3.replay.layout import Layout, ReplayError

META, COPY = "replay.json", "replay.copy.json"
_MOVE_IT = (
    "move it away to continue from the checkpoint with an empty replay (demonstrations: record them again), or choose "
    "another directory"
)


def exists(directory: Path) -> bool:
    """Return whether a ring was created here."""
    return (directory / META).exists() or (directory / COPY).exists()


def read(directory: Path) -> Layout:
    """Return the layout, after checking that it and the files are complete and of this version.

    Raises:
        ReplayError: there is none, it can't be read, or its files don't fit it.
        FormatError: another version of this program wrote it.
    """
    return examined(directory)[0]


def examined(directory: Path) -> tuple[Layout, str]:
    """Return the layout, and a sentence if one of its two files can't be used; earlier versions wrote no copy.

    Raises:
        ReplayError, FormatError: as :func:`read`.
    """
    copy = _layout(directory, COPY)
    layout = _layout(directory, META)
    if not isinstance(layout, Layout):
        if not isinstance(copy, Layout):
            raise _refusal(directory, layout, copy)
        return copy, f"{layout} {COPY} is used instead."
    if not isinstance(copy, Layout):
        return layout, f"{copy} {META} is used." if (directory / COPY).exists() else ""
    # A kill between the two leaves the copy of an earlier generation.
    if copy != layout and copy.generation == layout.generation:
        return copy, f"{directory / META}: is damaged (its copy says something else); {COPY} is used instead."
    return layout, ""


def write(directory: Path, layout: Layout) -> None:
    """Make this the ring in use, durably and at one instant; without a copy if the disk refuses only that.

    Raises:
        OSError: it can't be written, and the earlier ring stays in use.
    """
    contents = _contents(layout)
    _store(directory / META, contents[META])
    with contextlib.suppress(OSError):
        _store(directory / COPY, contents[COPY])


def mend(directory: Path, layout: Layout) -> None:
    """Write both files again unless they are as :func:`write` writes them; the caller holds the ring's lock."""
    for name, content in _contents(layout).items():
        with contextlib.suppress(OSError):  # a disk that refuses this leaves the ring as usable as it is
            if not (directory / name).exists() or read_whole(directory / name) != content:
                _store(directory / name, content)


def _contents(layout: Layout) -> dict[str, bytes]:
    plain = layout.plain()
    return {META: json.dumps(plain).encode(), COPY: json.dumps(sealed(plain)).encode()}


def _store(path: Path, content: bytes) -> None:
    temporary = path.with_name(f"{path.name}.tmp")
    write_synced(temporary, content)
    temporary.replace(path)


def _layout(directory: Path, name: str) -> Layout | ReplayError | FormatError:
    """Return the layout that one of the two files describes, or why it can't be used."""
    try:
        return Layout.of(directory, _object(directory / name))
    except FileNotFoundError as error:
        return ReplayError(f"{directory}: holds no replay ({error.filename} is missing).")
    except OSError as error:
        return ReplayError(f"{directory / name}: can't be read ({error.strerror}).")
    except (ValueError, KeyError, TypeError, AttributeError, OverflowError, RecursionError) as error:
        return ReplayError(f"{directory / name}: can't be read ({error}).")
    except (ReplayError, FormatError) as error:
        return error


def _object(path: Path) -> dict[str, Any]:
    found = json.loads(read_whole(path))
    if path.name == COPY and ("checksum" not in found or is_damaged(found)):
        raise ValueError("its checksum is another")
    return unsealed(found) if path.name == COPY else dict(found)


def _refusal(directory: Path, meta: ReplayError | FormatError, copy: ReplayError | FormatError) -> Exception:
    """Return the one error about both files."""
    if isinstance(meta, FormatError) or not exists(directory):
        return meta
    reasons = dict.fromkeys(str(error).rstrip(".") for error in (meta, copy) if (directory / COPY).exists())
    return ReplayError(f"{'; '.join(reasons) or str(meta).rstrip('.')}: {_MOVE_IT}.")
