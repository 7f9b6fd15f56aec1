"""The folder of a server's recordings: the only files that a client can reach by a recording's name.

Owns the conversion of a name on the wire to a path, and the size limit of all recordings together. CARLA accepts any
path of its machine (GetRecorderFilename in CarlaRecorderHelpers.cpp); here a path that leads out of the folder can't be
opened.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path, PureWindowsPath

from carla_lite.protocol.wire import RpcError

DEFAULT_FOLDER, DEFAULT_MIB = Path("recordings"), 2048


class OutsideError(RpcError):
    """A name that is no file in the folder of recordings."""


@dataclass(frozen=True)
class Folder:
    """The folder of recordings, and its size limit in bytes. The first recording creates it."""

    path: Path = DEFAULT_FOLDER
    most_bytes: int = DEFAULT_MIB << 20

    def path_of(self, name: str) -> Path:
        """Return the file of a recording, which need not exist; ``name`` is a path in the folder, or from its root.

        Raises:
            OutsideError: the name is empty, or leads out of the folder.
            RpcError: it is no file.
        """
        parts = PureWindowsPath(name).parts
        if not parts or ".." in parts or not {":", "\0"}.isdisjoint(name):
            raise OutsideError(
                f"{name!r} is no name of a recording: expected one such as recording01.log, without '..'"
            )
        try:
            path = (self.path / name.replace("\\", "/")).resolve()
            if self.path.resolve() not in path.parents:
                raise OutsideError(
                    f"{name!r} is outside the folder of recordings: expected a name such as recording01.log, or "
                    f"another --recordings than {self.path}"
                )
            if path.exists() and not path.is_file():
                raise RpcError(f"{name!r} is no file")
        except (OSError, RuntimeError) as error:  # a name too long, a circle of links
            raise OutsideError(f"{name!r} is no name of a recording: {error}") from None
        return path

    def begin(self, name: str) -> tuple[Path, int]:
        """Return the file of a new recording, and how many bytes it may have.

        Raises:
            RpcError: it would replace a file that is no recording, or the folder is full or can't be created.
        """
        from carla_lite.recording import reading

        path = self.path_of(name)
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            if path.exists() and path.stat().st_size and not reading.is_recording(path):
                raise RpcError(f"{name!r} would replace a file that is no recording: choose another name")
            others = sum(
                each.stat().st_size for each in self.path.rglob("*") if each.is_file() and each.resolve() != path
            )
        except OSError as error:
            raise RpcError(f"can't record to {path}: {error.strerror}") from None
        if others >= self.most_bytes:
            raise RpcError(
                f"the folder {self.path} has {others >> 20} MiB of recordings, and may have {self.most_bytes >> 20}: "
                "delete some, or raise --recordings-mib"
            )
        return path, self.most_bytes - others
